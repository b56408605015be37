/* sparse_transformer_run.c - tasks of SparseTransformerAttention: the keys that a block of
 * queries sees of each part of its pattern. sparse_transformer_attention.c has the formula
 * and the cost.
 *
 * In: queries, keys, values and a mask of keys. Out: Y. What a block sees of a tile is a
 * range or a band for most parts, so that query tiles multiply it without a mask.
 * Source: Child 2019, arXiv:1904.10509. */
#include "sparse_transformer.h"
#include "../../tile.h"

#include <math.h>

enum { KEYS = ATTN_STREAM_KEYS };

static int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }
static int64_t floor_div(int64_t a, int64_t b) { return (a - floor_mod(a, b)) / b; }

/* ---- one task ---- */

struct sparse_transformer_walk {
    const struct sparse_args *args;
    const struct sparse_state *s;
    struct attn_stream stream;
    const float *q, *k, *v;
    const uint8_t *mask; /* of the sample, or NULL */
    float *y;
    int parts;        /* of this head */
    int64_t vert;     /* first key of a summary within its block */
    int64_t position; /* of the stream's row 0 */
    float *far;       /* (group, v_dim) */
    struct attn_softmax_row *far_state;
    float *keys;
    /* Rows of the remainder under way, copied for this head and side by side, or NULL. */
    const float *own_q, *own_k, *own_v;
    /* Of the tile under way: one part of the pattern, its keys from `first` on. */
    int part;
    int64_t first, remainder;
};

static void sparse_transformer_mask_scores(float *scores, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++)
        scores[j] = -INFINITY;
}

/* The number of keys of summaries below token x. */
static int64_t summary_keys(const struct sparse_transformer_walk *w, int64_t x)
{
    const int64_t l = w->args->stride, c = w->args->summary;
    return x <= 0 ? 0 : x / l * c + min64(c, max64(0, x % l - w->vert));
}

/* The token of key u of the current part. */
static int64_t token_of(const struct sparse_transformer_walk *w, int64_t u)
{
    const int64_t l = w->args->stride, c = w->args->summary;
    if (w->part == SPARSE_STRIDED)
        return w->remainder + u * l;
    return w->part == SPARSE_SUMMARY ? u / c * l + w->vert + u % c : u;
}

/* The keys of the part that a query sees: [from, to), except [hole, hole_to). None of
 * these falls as its position p grows. */
struct sparse_span {
    int64_t from, to, hole, hole_to;
};

static struct sparse_span keys_of(const struct sparse_transformer_walk *w, int64_t p)
{
    const int64_t l = w->args->stride, c = w->args->summary, n = w->s->sizes.kv_len;
    const bool causal = w->s->sizes.causal;
    const int64_t block = floor_div(p, l);
    struct sparse_span seen = { 0 };
    if (w->part == SPARSE_STRIDED) { /* `local` has the key at p itself */
        const int64_t own = (p - w->remainder) / l;
        const bool merged = w->parts & SPARSE_LOCAL;
        seen.to = n > w->remainder ? ceil_div(n - w->remainder, l) : 0;
        seen.to = causal ? min64(seen.to, own + !merged) : seen.to;
        if (merged && !causal) {
            seen.hole = max64(0, own);
            seen.hole_to = own + 1;
        }
    } else if (w->part == SPARSE_SUMMARY && (w->parts & SPARSE_OWN_BLOCK)) {
        seen.to = summary_keys(w, causal ? min64(n, block * l) : n);
        seen.hole = causal ? 0 : max64(0, block * c);
        seen.hole_to = causal ? 0 : (block + 1) * c;
    } else if (w->part == SPARSE_SUMMARY) {
        seen.to = summary_keys(w, causal ? min64(n, p + 1) : n);
    } else {
        seen.from = max64(0, w->part == SPARSE_LOCAL ? p - l + 1 : block * l);
        seen.to = causal ? p + 1 : w->part == SPARSE_LOCAL ? p + l : (block + 1) * l;
        seen.to = min64(n, seen.to);
    }
    seen.to = max64(seen.to, seen.from);
    return seen;
}

/* The tokens between two rows of the stream; rows of strided keys are `stride` tokens
 * apart. */
static int64_t row_step(const struct sparse_transformer_walk *w)
{
    return w->part == SPARSE_STRIDED ? w->args->stride : 1;
}

static void mask_rows(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                      int64_t to)
{
    const struct sparse_transformer_walk *w = arg;
    const int64_t first = w->first + from, n = to - from;
    for (int64_t r = 0; r < rows; r++, scores += ATTN_STREAM_SCORES) {
        const struct sparse_span seen = keys_of(w, w->position + (row + r) * row_step(w));
        sparse_transformer_mask_scores(scores, 0, min64(seen.from - first, n));
        sparse_transformer_mask_scores(scores, max64(seen.to - first, 0), n);
        sparse_transformer_mask_scores(scores, max64(seen.hole - first, 0),
                                       min64(seen.hole_to - first, n));
        if (w->mask == NULL)
            continue;
        if ((w->part & SPARSE_NEAR) != 0)
            w->stream.kernels->keep_mask_f32(scores, w->mask + first, (size_t)n);
        else
            for (int64_t j = 0; j < n; j++)
                if (!w->mask[token_of(w, first + j)])
                    scores[j] = -INFINITY;
    }
}

/* Whether what the rows of the stream see of a tile is a band, whose ends move on by one
 * key with each row; it becomes that of `keys`. `one_start`: the rows see the same first
 * key, which is the first one that they are given. */
static bool is_band(const struct sparse_transformer_walk *w, bool one_start,
                    struct attn_keys *keys)
{
    const int64_t l = w->args->stride, first = w->position - w->first;
    const bool causal = w->s->sizes.causal;
    keys->band = true;
    keys->first = INT64_MIN / 4;
    keys->last = first;
    if (w->part == SPARSE_STRIDED) {
        keys->last = (w->position - w->remainder) / l - ((w->parts & SPARSE_LOCAL) != 0) -
                     w->first;
        return causal;
    }
    if (w->part == SPARSE_LOCAL) {
        keys->first = first - l + 1;
        keys->last += causal ? 0 : l - 1;
        return true;
    }
    return w->part == SPARSE_OWN_BLOCK && causal && one_start;
}

/* Gives rows row … row + rows - 1 of the stream what they see of the tile. */
static void sparse_transformer_run_rows(struct sparse_transformer_walk *w,
                                        const struct attn_keys *tile, int64_t row,
                                        int64_t rows)
{
    const int64_t p = w->position + row * row_step(w);
    const struct sparse_span low = keys_of(w, p);
    const struct sparse_span high = keys_of(w, p + (rows - 1) * row_step(w));
    const int64_t from = op_panel_begin(max64(low.from - w->first, 0));
    const int64_t to = min64(high.to - w->first, tile->n);
    const bool one_start = high.from - w->first <= from;
    bool plain = one_start && low.to - w->first >= to && high.hole_to <= low.hole;
    struct attn_keys keys = *tile;
    if (!plain)
        plain = keys.band = is_band(w, one_start, &keys);
    if (from < to)
        attn_stream_rows(&w->stream, &keys, row, rows, from, to,
                         plain && w->mask == NULL ? NULL : mask_rows, w);
}

/* The tile of n keys of the part from `first` on: in place, or gathered where the tokens
 * are apart. */
static struct attn_keys sparse_tile_at(const struct sparse_transformer_walk *w,
                                       int64_t first, int64_t n)
{
    const struct attn_sizes *z = &w->s->sizes;
    const bool apart = w->part == SPARSE_STRIDED ||
                       (w->part == SPARSE_SUMMARY && w->args->summary < w->args->stride);
    if (w->own_k != NULL)
        return (struct attn_keys){ .k = w->own_k + first * z->dim,
                                   .v = w->own_v + first * z->v_dim,
                                   .k_row = z->dim,
                                   .v_row = z->v_dim,
                                   .n = n };
    if (apart && w->args->stride > 1) {
        float *k = w->keys, *v = w->keys + KEYS * z->dim;
        for (int64_t u = 0; u < n; u++) {
            const int64_t token = token_of(w, first + u);
            memcpy(k + u * z->dim, w->k + token * z->k.row, (size_t)z->dim * sizeof *k);
            memcpy(v + u * z->v_dim, w->v + token * z->v.row,
                   (size_t)z->v_dim * sizeof *v);
        }
        return (struct attn_keys){
            .k = k, .v = v, .k_row = z->dim, .v_row = z->v_dim, .n = n
        };
    }
    const int64_t token = token_of(w, first);
    return (struct attn_keys){ .k = w->k + token * z->k.row,
                               .v = w->v + token * z->v.row,
                               .k_row = z->k.row,
                               .v_row = z->v.row,
                               .n = n };
}

/* Gives the stream's rows their keys of one part of the pattern. */
static attn_status run_part(struct sparse_transformer_walk *w, int part,
                            const attnrun_work *work)
{
    const int64_t tile = part == SPARSE_STRIDED ? ATTN_STREAM_ROWS : w->s->tile;
    w->part = part;
    const int64_t from = keys_of(w, w->position).from;
    const int64_t to = keys_of(w, w->position + (w->stream.n - 1) * row_step(w)).to;
    for (w->first = op_panel_begin(from); w->first < to; w->first += KEYS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_keys keys =
            sparse_tile_at(w, w->first, min64(KEYS, to - w->first));
        attn_stream_pack(&w->stream, &keys);
        for (int64_t row = 0; row < w->stream.n; row += tile)
            sparse_transformer_run_rows(w, &keys, row, min64(tile, w->stream.n - row));
    }
    return ATTNRUN_OK;
}

/* Stores the sums of strided keys, for queries that are `stride` apart from i on: to the
 * output, or to w->far until the near part is computed. */
static void keep_far(struct sparse_transformer_walk *w, int64_t row, int64_t i)
{
    const struct attn_sizes *z = &w->s->sizes;
    const int64_t l = w->args->stride;
    if (!(w->parts & SPARSE_NEAR)) {
        attn_stream_store_rows(&w->stream, 0, w->stream.n, w->y + (row + i) * z->y.row,
                               l * z->y.row, 0.0f);
        return;
    }
    for (int64_t r = 0; r < w->stream.n; r++) {
        memcpy(w->far + (i + r * l) * z->v_dim, w->stream.sums + r * z->v_dim,
               (size_t)z->v_dim * sizeof *w->far);
        w->far_state[i + r * l] = w->stream.state[r];
    }
}

/* Computes strided keys for those of the queries row … row + n - 1 that have the remainder
 * of query row + at. */
static attn_status run_far(struct sparse_transformer_walk *w, int64_t row, int64_t n,
                           int64_t at, void *scratch, const attnrun_work *work)
{
    const struct attn_sizes *z = &w->s->sizes;
    const int64_t l = w->args->stride;
    attn_stream_begin(&w->stream, w->stream.kernels, ATTN_STREAM_ROWS, z->dim, z->v_dim,
                      scratch);
    w->remainder = floor_mod(row + at + z->offset, l);
    for (int64_t i = at, rows; i < n; i += rows * l) {
        rows = min64(ATTN_STREAM_ROWS, ceil_div(n - i, l));
        w->position = row + i + z->offset;
        attn_stream_reset(&w->stream, rows);
        if (w->own_q != NULL)
            attn_stream_load(&w->stream, 0, w->own_q + (i - at) / l * z->dim, z->dim,
                             rows, z->scale);
        else
            attn_stream_load(&w->stream, 0, w->q + (row + i) * z->q.row, l * z->q.row,
                             rows, z->scale);
        TRY(run_part(w, SPARSE_STRIDED, work));
        keep_far(w, row, i);
    }
    return ATTNRUN_OK;
}

/* Computes the factors of the sums of both parts of a row in y. */
static void find_factors(struct attn_softmax_row *near, struct attn_softmax_row *far)
{
    const float max = fmaxf(near->max, far->max);
    const float x = near->sum == 0.0f ? 0.0f : expf(near->max - max);
    const float z = far->sum == 0.0f ? 0.0f : expf(far->max - max);
    const float sum = near->sum * x + far->sum * z;
    near->factor = sum == 0.0f ? 0.0f : x / sum;
    far->factor = sum == 0.0f ? 0.0f : z / sum;
}

/* y = the sums of both parts over their total, for the rows of the stream. */
static void merge_rows(struct sparse_transformer_walk *w, float *y, int64_t y_row,
                       int64_t first)
{
    const struct attn_kernels *kernels = w->stream.kernels;
    const int64_t dim = w->s->sizes.v_dim;
    enum { STEP = sizeof(struct attn_softmax_row) / sizeof(float) };
    struct attn_softmax_row *near = w->stream.state, *far = w->far_state + first;
    float *a = w->stream.sums, *b = w->far + first * dim;
    const size_t rows = (size_t)w->stream.n;
    for (size_t r = 0; r < rows; r++)
        find_factors(&near[r], &far[r]);
    kernels->scale_rows_f32(a, dim, a, dim, rows, (size_t)dim, &near->factor, STEP);
    kernels->scale_rows_f32(b, dim, b, dim, rows, (size_t)dim, &far->factor, STEP);
    for (size_t r = 0; r < rows; r++, a += dim, b += dim, y += y_row)
        kernels->add_f32(y, a, 1, b, 1, (size_t)dim);
}

static attn_status sparse_transformer_run_group(struct sparse_transformer_walk *w,
                                                int64_t row, int64_t n, void *scratch,
                                                const attnrun_work *work)
{
    const struct attn_sizes *z = &w->s->sizes;
    const int64_t remainders = w->parts & SPARSE_STRIDED ? min64(w->args->stride, n) : 0;
    for (int64_t at = 0; at < remainders; at++)
        TRY(run_far(w, row, n, at, scratch, work));
    if (w->parts == SPARSE_STRIDED)
        return ATTNRUN_OK;
    attn_stream_begin(&w->stream, w->stream.kernels, w->s->rows, z->dim, z->v_dim,
                      scratch);
    for (int64_t at = 0; at < n; at += w->s->rows) {
        w->position = row + at + z->offset;
        attn_stream_reset(&w->stream, min64(w->s->rows, n - at));
        attn_stream_load(&w->stream, 0, w->q + (row + at) * z->q.row, z->q.row,
                         w->stream.n, z->scale);
        if (w->parts & SPARSE_NEAR)
            TRY(run_part(w, w->parts & SPARSE_NEAR, work));
        if (w->parts & SPARSE_SUMMARY)
            TRY(run_part(w, SPARSE_SUMMARY, work));
        float *y = w->y + (row + at) * z->y.row;
        if (w->parts & SPARSE_STRIDED)
            merge_rows(w, y, z->y.row, at);
        else
            attn_stream_store_rows(&w->stream, 0, w->stream.n, y, z->y.row, 0.0f);
    }
    return ATTNRUN_OK;
}

static struct sparse_transformer_walk open_walk(const attnrun_step *step, void *scratch,
                                                int64_t b, int64_t head)
{
    const struct sparse_args *args = step->args;
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t kv = head / z->group;
    return (struct sparse_transformer_walk){
        .args = args,
        .s = s,
        .stream.kernels = step->kernels,
        .q = (const float *)step->x[SPARSE_Q].data + b * z->q.batch + head * z->q.head,
        .k = (const float *)step->x[SPARSE_K].data + b * z->k.batch + kv * z->k.head,
        .v = (const float *)step->x[SPARSE_V].data + b * z->v.batch + kv * z->v.head,
        .mask = op_has_in(step, SPARSE_KEY_MASK)
                    ? (const uint8_t *)step->x[SPARSE_KEY_MASK].data + b * z->kv_len
                    : NULL,
        .y = (float *)step->y[0].data + b * z->y.batch + head * z->y.head,
        .parts = attn_sparse_parts(args, head),
        .vert = args->stride - (head % args->num_verts + 1) * args->summary,
        .far = op_slot_at(scratch, s->far_at),
        .far_state = op_slot_at(scratch, s->far_state_at),
        .keys = op_slot_at(scratch, s->keys_at),
    };
}

/* Copies rows of `heads` heads at x, n tokens from `first` on that are `step` apart: to
 * `to`, a head after the other, `floats` apart. */
static void copy_rows(float *to, int64_t floats, const float *x,
                      const struct attn_heads *at, int64_t heads, int64_t first,
                      int64_t step, int64_t n, int64_t dim)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t h = 0; h < heads; h++)
            memcpy(to + h * floats + r * dim,
                   x + (first + r * step) * at->row + h * at->head,
                   (size_t)dim * sizeof *to);
}

/* Computes a remainder of the queries row … row + n - 1 for heads from … to - 1, whose rows
 * are copied first. */
static attn_status run_copied(const attnrun_step *step, const attnrun_work *work,
                              int64_t b, int64_t row, int64_t n, int64_t at, int64_t from,
                              int64_t to)
{
    const struct sparse_args *args = step->args;
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t l = args->stride, rows = ceil_div(n - at, l);
    const int64_t kv = from / z->group, kv_heads = (to - 1) / z->group - kv + 1;
    float *q = op_slot_at(work->scratch, s->copies_at),
          *k = q + s->copied * s->row_floats;
    struct sparse_transformer_walk w = open_walk(step, work->scratch, b, from);
    w.part = SPARSE_STRIDED;
    w.remainder = floor_mod(row + at + z->offset, l);
    const int64_t keys = keys_of(&w, row + at + (rows - 1) * l + z->offset).to;
    float *v = k + keys * z->dim;
    copy_rows(q, s->row_floats, w.q, &z->q, to - from, row + at, l, rows, z->dim);
    copy_rows(k, s->key_floats, w.k, &z->k, kv_heads, w.remainder, l, keys, z->dim);
    copy_rows(v, s->key_floats, w.v, &z->v, kv_heads, w.remainder, l, keys, z->v_dim);
    for (int64_t head = from; head < to; head++) {
        const int64_t own = (head / z->group - kv) * s->key_floats;
        w = open_walk(step, work->scratch, b, head);
        w.own_q = q + (head - from) * s->row_floats;
        w.own_k = k + own;
        w.own_v = v + own;
        TRY(run_far(&w, row, n, at, work->scratch, work));
    }
    return ATTNRUN_OK;
}

/* Computes the remainders of a task, each for all heads. */
static attn_status run_strided(const attnrun_step *step, const attnrun_work *work,
                               int64_t b, int64_t row, int64_t n, int64_t part)
{
    const struct sparse_args *args = step->args;
    const struct sparse_state *s = step->state;
    const int64_t first = part * s->remainders, heads = s->sizes.q_heads;
    const int64_t end = min64(min64(first + s->remainders, args->stride), n);
    for (int64_t at = first; at < end; at++) {
        for (int64_t h = 0; s->copied > 0 && h < heads; h += s->copied)
            TRY(run_copied(step, work, b, row, n, at, h, min64(h + s->copied, heads)));
        for (int64_t h = 0; s->copied == 0 && h < heads; h++) {
            struct sparse_transformer_walk w = open_walk(step, work->scratch, b, h);
            TRY(run_far(&w, row, n, at, work->scratch, work));
        }
    }
    return ATTNRUN_OK;
}

attn_status attn_sparse_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t parts = s->parts > 0 ? s->parts : z->q_heads;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct op_task at = op_task_at(task, parts, s->groups);
        const int64_t row = at.block * s->group, n = min64(s->group, z->q_len - row);
        if (s->parts > 0) {
            TRY(run_strided(step, work, at.b, row, n, at.head));
            continue;
        }
        struct sparse_transformer_walk w = open_walk(step, work->scratch, at.b, at.head);
        TRY(sparse_transformer_run_group(&w, row, n, work->scratch, work));
    }
    return ATTNRUN_OK;
}
