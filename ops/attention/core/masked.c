/* masked.c - computes softmax attention under a mask program. masked.h describes the
 * operands.
 *
 * Phase 0 summarizes the leaves of the mask and, where masked scores may count, finds the
 * longest key of each head. In phase 1 a task is a block of queries of a head, in groups
 * of 64. Each group has a list of spans of keys, which is made while the keys are
 * visited. Keys that are not seen are skipped, in steps of up to all keys. The other keys
 * come as tiles of up to 256 keys, whole, with a band, or with the mask.
 *
 * In a ragged batch a sample's tokens end within a block of 64 keys, of which little can
 * be proved as a whole. Phase 0 computes the mask of that block once for all heads.
 * Cost: 2 (dim + v_dim) FLOPs for each pair that is seen, and the program for each pair
 * of a tile at a border. Scratch: a stream and a tile of the mask. */
#include "masked.h"

#include <math.h>

#include "stream.h"
#include "../../tile.h"

enum {
    GROUP = ATTN_MASK_BLOCK,
    MAX_GROUPS = ATTN_STREAM_MAX / GROUP,
    KEYS = ATTN_STREAM_KEYS
};
enum { SUMMARIZE, ATTEND };

/* A sample of a ragged batch: the mask of all its queries for the keys of the blocks in
 * which its tokens begin and end. */
struct masked_edge {
    double hidden; /* the most that keys get that are not there */
    bool seen;     /* the last keys that are there are seen, and nothing is added */
};

/* The tokens of a sample that exist: all of them where the batch is not ragged. */
static struct attn_ragged_sample
tokens_of(const struct attn_masked *m, const struct attn_masked_operands *o, int64_t b)
{
    return m->ragged > 0 ? o->samples[b]
                         : (struct attn_ragged_sample){ 0, 0, m->s.q_len };
}

/* ---- a batch of blocks ---- */

attn_status attn_masked_sizes(const attnrun_step *step, const struct attn_sdpa *s,
                              int64_t windows, int64_t sizes[MASK_AXES])
{
    if (windows < 1 || s->batch % windows != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "windows is %lld, expected a divisor of the batch, %lld",
                       (long long)windows, (long long)s->batch);
    sizes[MASK_BLOCK] = windows;
    sizes[MASK_BATCH] = s->batch / windows;
    sizes[MASK_HEAD] = s->q_heads;
    sizes[MASK_QUERY] = s->q_len;
    sizes[MASK_KEY] = s->kv_len;
    return ATTNRUN_OK;
}

void attn_masked_split_batch(struct attn_masked *m)
{
    struct attn_heads *const strides[] = { &m->s.q, &m->s.k, &m->s.v, &m->s.y };
    int64_t *const windows[] = { &m->q_window, &m->k_window, &m->v_window, &m->y_window };
    for (int i = 0; i < 4; i++) {
        *windows[i] = strides[i]->batch;
        strides[i]->batch *= m->windows;
    }
}

/* ---- plan ---- */

/* The number of queries of a task: whole groups. */
static int64_t block_of(const struct attn_sdpa *s)
{
    const int64_t others = s->batch * s->q_heads;
    const int64_t max_rows =
        op_block_growing(s->q_len, ATTN_STREAM_ROWS, ATTN_STREAM_MAX, others);
    const int64_t queries =
        op_block_finer(s->q_len, max_rows, ATTN_STREAM_ROWS / 2, others);
    return min64(s->q_len, round_up(op_block_even(s->q_len, queries), 64));
}

attn_status attn_masked_plan(attnrun_step *step, struct attn_masked *m)
{
    struct attn_sdpa *s = &m->s;
    int64_t tasks;
    /* The sums do not depend on values. */
    const bool wanted = s->v_dim > 0 || op_has_out(step, 1);
    if (s->batch == 0 || s->q_heads == 0 || s->q_len == 0 || !wanted) {
        op_tasks(step, SUMMARIZE, 0, 0);
        op_tasks(step, ATTEND, 0, 0);
        return ATTNRUN_OK;
    }
    m->block = block_of(s);
    m->blocks = ceil_div(s->q_len, m->block);
    m->norms = round_up(attn_mask_table_bytes(&m->program), 64);
    m->stream_bytes = attn_stream_bytes(m->block, s->head_dim, s->v_dim);
    m->row_bytes = round_up(attn_mask_row_bytes(&m->program), 64);
    if (m->stream_bytes < 0 || !ck_mul(s->batch, s->q_heads, &tasks) ||
        !ck_mul(tasks, m->blocks, &tasks))
        return op_fail_scratch(step);
    m->stream_bytes = round_up(m->stream_bytes, 64);
    step->scratch_bytes = m->stream_bytes + m->row_bytes;
    m->edges = round_up(m->norms + s->batch * s->kv_heads * (int64_t)sizeof(double), 64);
    step->shared_bytes = m->edges;
    const int64_t keys = m->program.soft ? s->batch * s->kv_heads : 0;
    int64_t edges = 0;
    if (m->ragged > 0) {
        edges = s->batch + 1; /* and the rows behind the last sample */
        step->shared_bytes += s->batch * (int64_t)sizeof(struct masked_edge);
        m->distinct_heads = 1;
        for (int32_t l = 0; l < m->program.n_leaves; l++)
            m->distinct_heads = max64(m->distinct_heads, m->program.leaf[l].heads);
    }
    op_tasks(step, SUMMARIZE, m->program.n_leaves + keys + edges,
             s->kv_len * (keys > 0 ? s->head_dim : 8) / 16 + 1);
    double cost = 2.0 * (double)m->block * (double)s->kv_len *
                  (double)(s->head_dim + s->v_dim + 32) / 100.0;
    if (m->ragged > 0) /* as if all samples were of the mean length */
        cost *= pow((double)m->ragged / ((double)s->batch * (double)s->q_len), 2);
    op_tasks(step, ATTEND, tasks, op_ns(cost + 500));
    return ATTNRUN_OK;
}

/* ---- phase 0 ---- */

/* The squared length of the longest key of a head; not finite where a key is not
 * finite. */
static attn_status longest_key(const attnrun_step *step, const struct attn_masked *m,
                               const struct attn_masked_operands *o, int64_t head,
                               double *longest)
{
    const struct attn_sdpa *s = &m->s;
    const int64_t block = head / s->kv_heads;
    const struct attn_ragged_sample tokens = tokens_of(m, o, block);
    const int64_t keys = m->ragged > 0 ? tokens.last - tokens.first : s->kv_len;
    const float *k = o->k + block / m->windows * s->k.batch +
                     block % m->windows * m->k_window + head % s->kv_heads * s->k.head +
                     tokens.start * s->k.row;
    *longest = 0;
    for (int64_t j = 0; j < keys; j++, k += s->k.row) {
        const double x = step->kernels->sum_square_f32(k, (size_t)s->head_dim);
        if (!(x <= *longest))
            *longest = x;
        if (isnan(x))
            return ATTNRUN_OK;
        TRY(attn_poll_work(s->head_dim * (int64_t)sizeof *k));
    }
    return ATTNRUN_OK;
}

/* Computes the mask of keys from … to - 1, at most 64, for one query: its maximum goes to
 * *max. Returns whether the mask changes no score. */
static bool look_at_row(const struct attn_mask_place *place, int64_t query, int64_t from,
                        int64_t to, void *memory, double *max)
{
    const struct attn_mask_tile tile = { query, query + 1, from, to };
    bool none = true;
    for (int probe = 0; probe < 2 && from < to; probe++) {
        float scores[GROUP];
        for (int64_t j = 0; j < to - from; j++)
            scores[j] = (float)probe;
        attn_mask_rows(place, &tile, true, memory, scores, GROUP);
        for (int64_t j = 0; j < to - from; j++) {
            none = none && scores[j] == (float)probe;
            if (probe == 0)
                *max = isnan(scores[j]) ? HUGE_VAL : fmax(*max, (double)scores[j]);
        }
    }
    return none;
}

/* Computes the edges of a sample, element by element. */
static attn_status look_at_edges(const attnrun_step *step, const struct attn_masked *m,
                                 const struct attn_masked_operands *o, int64_t b,
                                 const attnrun_work *work, struct masked_edge *edge)
{
    const struct attn_ragged_sample at = tokens_of(m, o, b);
    const int64_t block = at.last / GROUP * GROUP, keys = m->s.kv_len;
    const int64_t ranges[3][2] = { { at.first / GROUP * GROUP, at.first },
                                   { at.last, min64(keys, round_up(at.last, GROUP)) },
                                   { max64(block, at.first), at.last } };
    *edge = (struct masked_edge){ .hidden = -HUGE_VAL, .seen = true };
    for (int64_t h = 0; h < m->distinct_heads; h++) {
        const struct attn_mask_place place = {
            step->kernels, &m->program, o->leaves, NULL, b, h, 0
        };
        for (int range = 0; range < 3; range++)
            for (int64_t q = at.first; q < at.last; q++) {
                double ignored = -HUGE_VAL;
                const bool none =
                    look_at_row(&place, q, ranges[range][0], ranges[range][1],
                                op_slot_at(work->scratch, m->stream_bytes),
                                range < 2 ? &edge->hidden : &ignored);
                edge->seen = edge->seen && (range < 2 || none);
                TRY(attn_poll_work(GROUP * m->program.n));
            }
    }
    return ATTNRUN_OK;
}

/* Clears the rows behind the last sample, because later nodes compute with them. */
static attn_status clear_rest(const struct attn_masked *m,
                              const struct attn_masked_operands *o)
{
    const struct attn_ragged_sample *last = &o->samples[m->s.batch - 1];
    const int64_t end = last->start + last->last - last->first;
    return attn_poll_fill(o->y + end * m->s.y.row, 0,
                          (m->ragged - end) * m->s.y.row * (int64_t)sizeof *o->y);
}

static attn_status summarize(const attnrun_step *step, const struct attn_masked *m,
                             const struct attn_masked_operands *o, int64_t task,
                             const attnrun_work *work)
{
    double *norms = op_slot_at(work->shared, m->norms);
    if (task < m->program.n_leaves)
        return attn_mask_summarize(&m->program, (int32_t)task, &o->leaves[task],
                                   work->shared);
    task -= m->program.n_leaves;
    const int64_t keys = m->program.soft ? m->s.batch * m->s.kv_heads : 0;
    if (task < keys)
        return longest_key(step, m, o, task, &norms[task]);
    task -= keys;
    if (task < m->s.batch)
        return look_at_edges(step, m, o, task, work,
                             (struct masked_edge *)op_slot_at(work->shared, m->edges) +
                                 task);
    return clear_rest(m, o);
}

/* ---- phase 1 ---- */

/* Keys from … to - 1 that some query of a group sees. */
struct masked_span {
    int64_t from, to, next; /* next: where to go on */
    struct attn_mask_seen seen;
};

struct masked_walk {
    const struct attn_masked *m;
    const struct attn_masked_operands *o;
    struct attn_mask_place place;
    struct attn_stream stream;
    int64_t query; /* of row 0; a multiple of 64, or that of the block */
    struct attn_ragged_sample tokens;
    int64_t absent; /* rows in front of the first token, which belong to no sample */
    int64_t keys;   /* those from there on are not there */
    const struct masked_edge *edge; /* of a ragged batch, or NULL */
    struct masked_span span[MAX_GROUPS];
    double soft[MAX_GROUPS]; /* the most that keys get that were passed over */
    void *memory;            /* of attn_mask_rows() */
    int64_t first;           /* key of the tile in work */
};

/* The proof about the keys from `key` on, for the queries of a group, for the largest
 * level that can be proved at once. */
static struct attn_mask_seen look(const struct masked_walk *t, int64_t group, int64_t key,
                                  int64_t *end)
{
    const int64_t query = t->query + group * GROUP, keys = t->m->s.kv_len;
    const int64_t last = t->keys;
    int64_t wide = GROUP;
    while (key % (2 * wide) == 0 && key + wide < keys)
        wide *= 2;
    for (;; wide /= 2) {
        const struct attn_mask_tile tile = {
            .query = query,
            .query_end = min64(query + GROUP, t->query + t->stream.n),
            .key = key,
            .key_end = min64(keys, key + wide),
        };
        const struct attn_mask_seen seen = attn_mask_look(&t->place, &tile);
        *end = min64(tile.key_end, last);
        if (seen.form == ATTN_MASK_SOME && wide == GROUP && t->edge != NULL &&
            key + GROUP > last && key < last && t->edge->seen)
            return (struct attn_mask_seen){ ATTN_MASK_ALL_SEEN, 0, 0, -HUGE_VAL };
        if (seen.form != ATTN_MASK_SOME || wide == GROUP)
            return seen;
    }
}

/* Finds the next span of a group, from key `from` on; it is empty behind the last one. */
static void next_span(struct masked_walk *t, int64_t group, int64_t from)
{
    const int64_t keys = t->keys, query = t->query + group * GROUP;
    struct masked_span *span = &t->span[group];
    while (from < keys && attn_poll_work(16 * t->m->program.n) == ATTNRUN_OK) {
        int64_t end;
        const struct attn_mask_seen seen = look(t, group, from, &end);
        t->soft[group] = fmax(t->soft[group], seen.soft);
        *span = (struct masked_span){ from, end, end, seen };
        if (seen.form == ATTN_MASK_BAND) {
            const int64_t last = min64(query + GROUP, t->query + t->stream.n) - 1;
            span->from = max64(from, (query + seen.first) / GROUP * GROUP);
            span->to = min64(end, last + seen.last + 1);
        }
        if (seen.form != ATTN_MASK_NONE_SEEN && span->from < span->to)
            return;
        from = end;
    }
    *span = (struct masked_span){ keys, keys, keys, { .form = ATTN_MASK_NONE_SEEN } };
}

static struct attn_keys masked_tile_at(const struct masked_walk *t, int64_t first,
                                       int64_t n)
{
    const struct attn_sdpa *s = &t->m->s;
    const int64_t head = t->place.h / (s->q_heads / s->kv_heads);
    const int64_t row = t->tokens.start + first - t->tokens.first;
    return (struct attn_keys){
        .k = t->o->k + t->place.b * s->k.batch + t->place.w * t->m->k_window +
             head * s->k.head + row * s->k.row,
        .v = t->o->v + t->place.b * s->v.batch + t->place.w * t->m->v_window +
             head * s->v.head + row * s->v.row,
        .k_row = s->k.row,
        .v_row = s->v.row,
        .n = n,
    };
}

/* Applies the mask to a part of the tile, element by element. */
static void masked_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                           int64_t from, int64_t to)
{
    const struct masked_walk *t = arg;
    const int64_t begin = t->first + from, end = t->first + to;
    for (int64_t key = begin, next; key < end; key = next) {
        next = min64(end, (key / GROUP + 1) * GROUP);
        for (int64_t r = 0; r < rows; r += GROUP) {
            const int64_t query = t->query + row + r;
            const struct attn_mask_tile tile = { query,
                                                 min64(query + GROUP, query - r + rows),
                                                 key, next };
            attn_mask_rows(&t->place, &tile, false, t->memory,
                           scores + r * ATTN_STREAM_SCORES + key - begin,
                           ATTN_STREAM_SCORES);
        }
    }
}

/* Gives the rows of a group the keys from … to - 1 of the tile. */
static void give(struct masked_walk *t, int64_t group, const struct attn_keys *tile,
                 int64_t from, int64_t to, const struct attn_mask_seen *seen)
{
    const int64_t row = group * GROUP, rows = min64(GROUP, t->stream.n - row);
    const bool masked = seen->form == ATTN_MASK_SOME;
    struct attn_keys keys = *tile;
    if (seen->form == ATTN_MASK_BAND) {
        keys.band = true;
        keys.first = seen->first + t->query - t->first;
        keys.last = seen->last + t->query - t->first;
    }
    attn_stream_rows(&t->stream, &keys, row, rows, from, to,
                     masked ? masked_prepare : NULL, t);
}

/* Gives a group those of its spans that are in the tile. */
static void give_spans(struct masked_walk *t, int64_t group, const struct attn_keys *tile)
{
    const int64_t end = t->first + tile->n;
    struct masked_span *span = &t->span[group];
    while (span->from < end) {
        struct masked_span part = *span;
        part.to = min64(part.to, end);
        span->from = part.to;
        while (span->from == span->to) {
            next_span(t, group, span->next);
            if (part.seen.form != ATTN_MASK_SOME || span->seen.form != ATTN_MASK_SOME ||
                span->from != part.to || span->from >= end)
                break;
            part.to = span->from = min64(span->to, end); /* goes on with the mask */
        }
        give(t, group, tile, part.from - t->first, part.to - t->first, &part.seen);
    }
}

static attn_status walk_keys(struct masked_walk *t, int64_t groups,
                             const attnrun_work *work)
{
    const int64_t keys = t->keys;
    for (int64_t g = 0; g < groups; g++) {
        t->soft[g] = -HUGE_VAL;
        next_span(t, g, t->tokens.first);
    }
    for (;;) {
        t->first = keys;
        for (int64_t g = 0; g < groups; g++)
            t->first = min64(t->first, t->span[g].from);
        if (t->first >= keys)
            return ATTNRUN_OK;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_keys tile =
            masked_tile_at(t, t->first, min64(KEYS, keys - t->first));
        attn_stream_pack(&t->stream, &tile);
        for (int64_t g = 0; g < groups; g++)
            give_spans(t, g, &tile);
    }
}

/* Whether skipped keys add nothing to the result of any query of the group. */
static bool is_lost(const struct masked_walk *t, int64_t group, double longest)
{
    const struct attn_sdpa *s = &t->m->s;
    const int64_t row = group * GROUP, end = min64(t->stream.n, row + GROUP);
    if (t->soft[group] == -HUGE_VAL)
        return true;
    for (int64_t r = max64(row, t->absent); r < end; r++) {
        const double q = t->stream.kernels->sum_square_f32(t->stream.q + r * s->head_dim,
                                                           (size_t)s->head_dim);
        /* The bound includes the error of rounding, also where operands are rounded to
         * bf16. */
        double bound = 1.01 * sqrt(q * longest);
        if (s->softcap > 0 && !(bound < 1.01 * (double)s->softcap))
            bound = 1.01 * (double)s->softcap;
        /* Rounded as the sums are: next to 1e9 floats are 64 apart. */
        const double high = (double)(float)(t->soft[group] + bound);
        if (!(bound < 1e30) ||
            !(high - (double)t->stream.state[r].max < (double)ATTN_TERMS_THAT_COUNT))
            return false;
    }
    return true;
}

/* Computes a group again from the beginning, all keys with the mask. */
static attn_status walk_literally(struct masked_walk *t, int64_t group,
                                  const attnrun_work *work)
{
    const struct attn_sdpa *s = &t->m->s;
    const int64_t row = group * GROUP, rows = min64(GROUP, t->stream.n - row);
    const struct attn_mask_seen some = { .form = ATTN_MASK_SOME };
    memset(t->stream.sums + row * s->v_dim, 0, (size_t)(rows * s->v_dim) * sizeof(float));
    for (int64_t r = row; r < row + rows; r++)
        t->stream.state[r] = (struct attn_softmax_row){ .max = -INFINITY };
    for (t->first = t->tokens.first; t->first < t->keys; t->first += KEYS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_keys tile =
            masked_tile_at(t, t->first, min64(KEYS, t->keys - t->first));
        attn_stream_pack(&t->stream, &tile);
        give(t, group, &tile, 0, tile.n, &some);
    }
    return ATTNRUN_OK;
}

/* The largest mask that queries of a group give to keys that do not exist. */
static attn_status max_hidden(struct masked_walk *t, int64_t group, double *max)
{
    const int64_t query = t->query + group * GROUP, keys = t->m->s.kv_len;
    const int64_t end = min64(query + GROUP, t->query + t->stream.n);
    const int64_t low = t->tokens.first / GROUP * GROUP,
                  high = round_up(t->tokens.last, GROUP);
    *max = t->edge->hidden;
    for (int64_t key = 0; key < keys; key += GROUP) {
        const struct attn_mask_tile tile = { query, end, key, min64(keys, key + GROUP) };
        if (key >= low && key < high)
            continue;
        const struct attn_mask_seen seen = attn_mask_look(&t->place, &tile);
        if (seen.form == ATTN_MASK_NONE_SEEN) {
            *max = fmax(*max, seen.soft);
            TRY(attn_poll_work(t->m->program.n));
            continue;
        }
        for (int64_t q = query; q < end; q++) {
            look_at_row(&t->place, q, key, tile.key_end, t->memory, max);
            TRY(attn_poll_work(GROUP * t->m->program.n));
        }
    }
    return ATTNRUN_OK;
}

/* Checks that keys that do not exist would have no weight: FAR is more than scores differ
 * by. */
static attn_status check_hidden(const attnrun_step *step, struct masked_walk *t,
                                int64_t groups)
{
    const double far = 4096;
    if (t->tokens.last - t->tokens.first == t->m->s.kv_len)
        return ATTNRUN_OK;
    for (int64_t g = 0; g < groups; g++) {
        double max;
        TRY(max_hidden(t, g, &max));
        for (int64_t r = max64(g * GROUP, t->absent);
             r < min64(t->stream.n, (g + 1) * GROUP); r++)
            if (max != -HUGE_VAL && !(max + far <= (double)t->stream.state[r].max))
                return op_fail(step, ATTNRUN_E_RANGE,
                               "token %lld of sample %lld sees tokens that the mask of "
                               "the ragged batch leaves out",
                               (long long)(t->query + r), (long long)t->place.b);
    }
    return ATTNRUN_OK;
}

/* Visits all keys for all groups: their sums and maxima. */
static attn_status walk(struct masked_walk *t, int64_t groups, const double *norms,
                        const attnrun_work *work)
{
    const struct attn_sdpa *s = &t->m->s;
    const int64_t kv_head = t->place.h / (s->q_heads / s->kv_heads),
                  block = t->place.b * t->m->windows + t->place.w;
    const bool literally = t->tokens.first % GROUP != 0; /* no tile is a whole block */
    if (!literally)
        TRY(walk_keys(t, groups, work));
    for (int64_t g = 0; (literally || t->m->program.soft) && g < groups; g++)
        if (literally || !is_lost(t, g, norms[block * s->kv_heads + kv_head]))
            TRY(walk_literally(t, g, work));
    return ATTNRUN_OK;
}

/* Stores the log of the sum of exponentials of each query's scores. */
static void store_sums(const struct masked_walk *t, int64_t row, int64_t rows)
{
    const struct attn_masked *m = t->m;
    float *y = t->o->log_sums + t->place.b * m->sums.batch + t->place.w * m->sums_window +
               t->place.h * m->sums.head + row * m->sums.row;
    for (int64_t r = 0; r < rows; r++, y += m->sums.row) {
        const struct attn_softmax_row *state = &t->stream.state[t->absent + r];
        *y = state->sum == 0.0f ? -INFINITY : state->max + logf(state->sum);
    }
}

static attn_status masked_attend(const attnrun_step *step, const struct attn_masked *m,
                                 const struct attn_masked_operands *o, int64_t task,
                                 const attnrun_work *work)
{
    const struct attn_sdpa *s = &m->s;
    const double *norms = op_slot_at(work->shared, m->norms);
    struct masked_walk t = { .m = m, .o = o };
    const int64_t query = op_take(&task, m->blocks) * m->block, head = task;
    const int64_t block = head / s->q_heads;
    t.place = (struct attn_mask_place){ step->kernels,      &m->program,
                                        o->leaves,          work->shared,
                                        block / m->windows, head % s->q_heads,
                                        block % m->windows };
    t.tokens = tokens_of(m, o, t.place.b);
    t.keys = m->ragged > 0 ? t.tokens.last : s->kv_len;
    if (m->ragged > 0)
        t.edge =
            (const struct masked_edge *)op_slot_at(work->shared, m->edges) + t.place.b;
    t.query = max64(query, t.tokens.first / GROUP * GROUP);
    t.absent = max64(0, t.tokens.first - t.query);
    const int64_t n = min64(query + m->block, t.tokens.last) - t.query,
                  there = n - t.absent;
    if (there <= 0)
        return ATTNRUN_OK;
    t.memory = op_slot_at(work->scratch, m->stream_bytes);
    attn_stream_begin(&t.stream, step->kernels, m->block, s->head_dim, s->v_dim,
                      work->scratch);
    t.stream.softcap = s->softcap;
    attn_stream_reset(&t.stream, n);
    const int64_t row = t.tokens.start + t.query + t.absent - t.tokens.first;
    memset(t.stream.q, 0, (size_t)(t.absent * s->head_dim) * sizeof *t.stream.q);
    attn_stream_load(&t.stream, t.absent,
                     o->q + t.place.b * s->q.batch + t.place.w * m->q_window +
                         t.place.h * s->q.head + row * s->q.row,
                     s->q.row, there, s->scale);
    const int64_t groups = ceil_div(n, GROUP);
    TRY(walk(&t, groups, norms, work));
    if (m->ragged > 0)
        TRY(check_hidden(step, &t, groups));
    if (s->zero_nan)
        attn_stream_clear_nan(&t.stream, t.absent, there);
    attn_stream_store_rows(&t.stream, t.absent, there,
                           o->y + t.place.b * s->y.batch + t.place.w * m->y_window +
                               t.place.h * s->y.head + row * s->y.row,
                           s->y.row, s->nan_rows && s->kv_len > 0 ? NAN : 0.0f);
    if (o->log_sums != NULL)
        store_sums(&t, row, there);
    return ATTNRUN_OK;
}

attn_status attn_masked_run(const attnrun_step *step, const struct attn_masked *m,
                            const struct attn_masked_operands *o,
                            const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(work->phase == SUMMARIZE ? summarize(step, m, o, task, work)
                                     : masked_attend(step, m, o, task, work));
    return ATTNRUN_OK;
}
