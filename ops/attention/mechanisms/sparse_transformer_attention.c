/* sparse_transformer_attention.c - SparseTransformerAttention: the factorized patterns of
 * Sparse Transformers. With p = i + kv_len - q_len, l = stride, c = summary and s = head
 * mod num_verts, query i sees those keys j <= p (any j where is_causal is 0) for which
 *
 *   local           p - j < l (|p - j| < l)
 *   strided         (p - j) mod l = 0
 *   fixed_local     floor(p / l) = floor(j / l)
 *   fixed_summary   l - (s + 1) c <= j mod l < l - s c
 *   strided_merged  local or strided, one softmax over both
 *   fixed           fixed_local or fixed_summary
 *
 * Q, K, V     see heads.h; groups of query heads may share a key head
 * key_mask    bool (batch, kv_len), optional: false masks a key
 * pattern     one for all heads, or one per query head
 * stride      at least 1; summary 1 … stride (default 1); num_verts * summary <= stride
 *             (default 1)
 * is_causal   1 by default
 *
 * A query that sees no key gives zeros.
 * Refused: unknown patterns, a list of neither one pattern nor one for each head, stride
 * < 1, summary or num_verts * summary above stride.
 * Cost: O(pairs that are seen), which is n sqrt(n) for l = sqrt(n). Strided keys are
 * copied to scratch, for all queries of one remainder together: rows that are l tokens
 * apart share a few places of each cache. Where all heads are strided, a task computes
 * its remainders head after head, because the heads of a token share pages. Where such
 * queries also have a local part, the running sums of up to 4,096 queries are kept in
 * scratch until that part is computed.
 * Source: Child 2019, arXiv:1904.10509; the patterns are those of openai/sparse_attention
 * c53f3bd attention.py. There local means l keys with the query's own, where the paper
 * writes l + 1. */
#include "../core/heads.h"
#include "../core/stream.h"
#include "../../tile.h"

#include <math.h>

struct sparse_args {
    struct attn_heads_args heads;
    attnrun_strings pattern;
    int64_t stride, summary, num_verts;
};
static const attnrun_attr_def sparse_attrs[] = {
    ATTN_HEADS_ATTRS_WITH(struct sparse_args, 1, ATTN_SCALE_ABSENT),
    { .name = "pattern",
      .kind = ATTNRUN_ATTR_STRINGS,
      .offset = offsetof(struct sparse_args, pattern),
      .flags = ATTNRUN_ATTR_REQUIRED },
    ATTR_INT_REQUIRED(struct sparse_args, stride),
    ATTR_INT(struct sparse_args, summary, 1),
    ATTR_INT(struct sparse_args, num_verts, 1),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK };
/* The parts of a pattern. */
enum { LOCAL = 1, STRIDED = 2, OWN_BLOCK = 4, SUMMARY = 8, NEAR = LOCAL | OWN_BLOCK };
static const struct {
    const char *name;
    int parts;
} patterns[] = { { "local", LOCAL },
                 { "strided", STRIDED },
                 { "fixed_local", OWN_BLOCK },
                 { "fixed_summary", SUMMARY },
                 { "strided_merged", LOCAL | STRIDED },
                 { "fixed", OWN_BLOCK | SUMMARY } };

enum {
    KEYS = ATTN_STREAM_KEYS,
    PANEL = ATTN_GEMM_NR_MAX,
    FAR_GROUP = 4096,
    FAR_BYTES = 1200 << 10, /* of sums that wait */
    ROWS = 256,             /* of queries beside such sums */
    ALIGN = 64
};

struct sparse_state {
    struct attn_sizes sizes;
    int64_t group, groups; /* queries of a task; tasks of a head */
    int64_t rows;          /* queries of a stream */
    int64_t tile;          /* queries that are given keys together */
    /* Where all heads are strided: the remainders of a task and the tasks of a group;
     * otherwise 0. */
    int64_t remainders, parts;
    /* Offsets in scratch, in bytes: sums and states of strided keys, gathered keys. */
    int64_t far_at, far_state_at, keys_at;
};

static int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }
static int64_t floor_div(int64_t a, int64_t b) { return (a - floor_mod(a, b)) / b; }

/* The parts of a head's pattern; 0 where its name is unknown. */
static int parts_of(const struct sparse_args *args, int64_t head)
{
    const attnrun_string *s = &args->pattern.v[args->pattern.n == 1 ? 0 : head];
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (s->n == (int64_t)strlen(patterns[i].name) &&
            memcmp(s->data, patterns[i].name, (size_t)s->n) == 0)
            return patterns[i].parts;
    return 0;
}

/* ---- infer ---- */

static attn_status sparse_transformer_check_args(const attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    TRY(attn_need_int(step, "stride", args->stride, 1, INT32_MAX));
    TRY(attn_need_int(step, "summary", args->summary, 1, args->stride));
    TRY(attn_need_int(step, "num_verts", args->num_verts, 1,
                      args->stride / args->summary));
    if (args->pattern.n < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "pattern is empty");
    for (int64_t i = 0; i < args->pattern.n; i++)
        if (parts_of(args, i) == 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "pattern '%.*s' is unknown, expected local, strided, "
                           "fixed_local, fixed_summary, strided_merged or fixed",
                           (int)min64(args->pattern.v[i].n, 64), args->pattern.v[i].data);
    return ATTNRUN_OK;
}

static attn_status check_pattern(const attnrun_step *step, attnrun_dim heads)
{
    const struct sparse_args *args = step->args;
    if (args->pattern.n == 1 || !dim_is_const(heads) || heads.value == args->pattern.n)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR, "pattern has %s, expected 1 or %lld",
                   attn_plural(args->pattern.n, "element"), (long long)heads.value);
}

/* Whether some head's pattern has all of these parts. */
static bool any_has(const struct sparse_args *args, int wanted)
{
    for (int64_t i = 0; i < args->pattern.n; i++)
        if ((parts_of(args, i) & wanted) == wanted)
            return true;
    return false;
}

static bool all_strided(const struct sparse_args *args)
{
    for (int64_t i = 0; i < args->pattern.n; i++)
        if (parts_of(args, i) != STRIDED)
            return false;
    return true;
}

/* Chooses the queries of a task. With strided keys they are many, because each remainder
 * is a product of its own. The batch has no influence, so a sample's bits do not depend
 * on other samples. */
static void sparse_transformer_cut(const struct sparse_args *args, struct sparse_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const bool far = any_has(args, STRIDED);
    const int64_t row = (z->v_dim + 4) * (int64_t)sizeof(float);
    s->group = far ? FAR_GROUP : ATTN_STREAM_MAX;
    while (far && s->group > ROWS && s->group > FAR_BYTES / row)
        s->group /= 2;
    while (s->group > (far ? FAR_GROUP / 4 : ATTN_STREAM_ROWS) &&
           ceil_div(z->q_len, s->group) < (OP_ENOUGH_TASKS - 1) / z->q_heads + 1)
        s->group /= 2;
    if (far && args->stride < s->group)
        s->group -= s->group % args->stride;
    s->group = min64(s->group, z->q_len);
    s->groups = ceil_div(z->q_len, s->group);
    s->rows = far ? min64(ROWS, s->group) : s->group;
    const bool even = args->stride % ATTN_TILE_QUERIES == 0 || !any_has(args, OWN_BLOCK);
    s->tile = even || args->stride >= 256 ? ATTN_TILE_QUERIES : ATTN_TILE_QUERIES / 2;
    s->remainders = s->parts = 0;
    if (all_strided(args) && args->stride >= OP_ENOUGH_TASKS) {
        const int64_t remainders = min64(args->stride, s->group);
        s->remainders = ceil_div(remainders, OP_ENOUGH_TASKS);
        s->parts = ceil_div(remainders, s->remainders);
    }
}

static attn_status plan_sparse_transformer(attnrun_step *step, struct sparse_state *s)
{
    const struct sparse_args *args = step->args;
    const struct attn_sizes *z = &s->sizes;
    int64_t floats = 0, tasks = 0, stream_at;
    op_tasks(step, 0, 0, 0);
    if (z->batch == 0 || z->q_heads == 0 || z->q_len == 0 || z->v_dim == 0)
        return ATTNRUN_OK;
    sparse_transformer_cut(args, s);
    const int64_t far = any_has(args, STRIDED | LOCAL) ? s->group : 0,
                  size = sizeof(float);
    /* Two streams, one after the other, in one place. */
    const int64_t stream =
        attn_stream_bytes(max64(s->rows, ATTN_STREAM_ROWS), z->dim, z->v_dim);
    step->scratch_bytes = 0;
    bool fits =
        stream >= 0 && op_slot(&stream_at, &step->scratch_bytes, stream, 1) &&
        ck_mul(far, z->v_dim, &floats) &&
        op_slot(&s->far_at, &step->scratch_bytes, floats, size) &&
        op_slot(&s->far_state_at, &step->scratch_bytes, far, 4 * size) &&
        op_slot(&s->keys_at, &step->scratch_bytes, z->dim + z->v_dim, KEYS * size) &&
        op_grid_tasks(z->batch, s->parts > 0 ? s->parts : z->q_heads, s->groups, &tasks);
    if (!fits)
        return op_fail_scratch(step);
    const double stride = (double)args->stride, keys = (double)z->kv_len;
    const double seen = fmin(keys, stride + keys / stride * (double)args->summary);
    const double cost = (double)s->group * seen * (double)(z->dim + z->v_dim + 32) / 50.0;
    const double heads = s->parts > 0 ? (double)z->q_heads / (double)s->parts : 1.0;
    op_tasks(step, 0, tasks, op_ns(cost * heads + 2000));
    return ATTNRUN_OK;
}

static attn_status sparse_infer(attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    struct sparse_state *s = step->state;
    struct attn_qkv shape;
    TRY(sparse_transformer_check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(check_pattern(step, shape.q_heads));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    return plan_sparse_transformer(step, s);
}

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
    if (w->part == STRIDED)
        return w->remainder + u * l;
    return w->part == SUMMARY ? u / c * l + w->vert + u % c : u;
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
    if (w->part == STRIDED) { /* `local` has the key at p itself */
        const int64_t own = (p - w->remainder) / l;
        const bool merged = w->parts & LOCAL;
        seen.to = n > w->remainder ? ceil_div(n - w->remainder, l) : 0;
        seen.to = causal ? min64(seen.to, own + !merged) : seen.to;
        if (merged && !causal) {
            seen.hole = max64(0, own);
            seen.hole_to = own + 1;
        }
    } else if (w->part == SUMMARY && (w->parts & OWN_BLOCK)) {
        seen.to = summary_keys(w, causal ? min64(n, block * l) : n);
        seen.hole = causal ? 0 : max64(0, block * c);
        seen.hole_to = causal ? 0 : (block + 1) * c;
    } else if (w->part == SUMMARY) {
        seen.to = summary_keys(w, causal ? min64(n, p + 1) : n);
    } else {
        seen.from = max64(0, w->part == LOCAL ? p - l + 1 : block * l);
        seen.to = causal ? p + 1 : w->part == LOCAL ? p + l : (block + 1) * l;
        seen.to = min64(n, seen.to);
    }
    seen.to = max64(seen.to, seen.from);
    return seen;
}

/* The tokens between two rows of the stream; rows of strided keys are `stride` tokens
 * apart. */
static int64_t row_step(const struct sparse_transformer_walk *w)
{
    return w->part == STRIDED ? w->args->stride : 1;
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
        if ((w->part & NEAR) != 0)
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
    if (w->part == STRIDED) {
        keys->last =
            (w->position - w->remainder) / l - ((w->parts & LOCAL) != 0) - w->first;
        return causal;
    }
    if (w->part == LOCAL) {
        keys->first = first - l + 1;
        keys->last += causal ? 0 : l - 1;
        return true;
    }
    return w->part == OWN_BLOCK && causal && one_start;
}

/* Gives rows row … row + rows - 1 of the stream what they see of the tile. */
static void sparse_transformer_run_rows(struct sparse_transformer_walk *w,
                                        const struct attn_keys *tile, int64_t row,
                                        int64_t rows)
{
    const int64_t p = w->position + row * row_step(w);
    const struct sparse_span low = keys_of(w, p);
    const struct sparse_span high = keys_of(w, p + (rows - 1) * row_step(w));
    const int64_t from = max64(low.from - w->first, 0) / PANEL * PANEL;
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
static struct attn_keys tile_at(const struct sparse_transformer_walk *w, int64_t first,
                                int64_t n)
{
    const struct attn_sizes *z = &w->s->sizes;
    const bool apart =
        w->part == STRIDED || (w->part == SUMMARY && w->args->summary < w->args->stride);
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
    const int64_t tile = part == STRIDED ? ATTN_STREAM_ROWS : w->s->tile;
    w->part = part;
    const int64_t from = keys_of(w, w->position).from;
    const int64_t to = keys_of(w, w->position + (w->stream.n - 1) * row_step(w)).to;
    for (w->first = from / PANEL * PANEL; w->first < to; w->first += KEYS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_keys keys = tile_at(w, w->first, min64(KEYS, to - w->first));
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
    if (!(w->parts & NEAR)) {
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
        attn_stream_load(&w->stream, 0, w->q + (row + i) * z->q.row, l * z->q.row, rows,
                         z->scale);
        TRY(run_part(w, STRIDED, work));
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
    const int64_t remainders = w->parts & STRIDED ? min64(w->args->stride, n) : 0;
    for (int64_t at = 0; at < remainders; at++)
        TRY(run_far(w, row, n, at, scratch, work));
    if (w->parts == STRIDED)
        return ATTNRUN_OK;
    attn_stream_begin(&w->stream, w->stream.kernels, w->s->rows, z->dim, z->v_dim,
                      scratch);
    for (int64_t at = 0; at < n; at += w->s->rows) {
        w->position = row + at + z->offset;
        attn_stream_reset(&w->stream, min64(w->s->rows, n - at));
        attn_stream_load(&w->stream, 0, w->q + (row + at) * z->q.row, z->q.row,
                         w->stream.n, z->scale);
        if (w->parts & NEAR)
            TRY(run_part(w, w->parts & NEAR, work));
        if (w->parts & SUMMARY)
            TRY(run_part(w, SUMMARY, work));
        float *y = w->y + (row + at) * z->y.row;
        if (w->parts & STRIDED)
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
        .q = (const float *)step->x[Q].data + b * z->q.batch + head * z->q.head,
        .k = (const float *)step->x[K].data + b * z->k.batch + kv * z->k.head,
        .v = (const float *)step->x[V].data + b * z->v.batch + kv * z->v.head,
        .mask = op_has_in(step, KEY_MASK)
                    ? (const uint8_t *)step->x[KEY_MASK].data + b * z->kv_len
                    : NULL,
        .y = (float *)step->y[0].data + b * z->y.batch + head * z->y.head,
        .parts = parts_of(args, head),
        .vert = args->stride - (head % args->num_verts + 1) * args->summary,
        .far = op_slot_at(scratch, s->far_at),
        .far_state = op_slot_at(scratch, s->far_state_at),
        .keys = op_slot_at(scratch, s->keys_at),
    };
}

/* Computes some remainders of a group of queries, each for one head after the other. */
static attn_status run_strided(const attnrun_step *step, const attnrun_work *work,
                               int64_t b, int64_t row, int64_t n, int64_t part)
{
    const struct sparse_args *args = step->args;
    const struct sparse_state *s = step->state;
    const int64_t first = part * s->remainders;
    for (int64_t at = first; at < min64(min64(first + s->remainders, args->stride), n);
         at++)
        for (int64_t head = 0; head < s->sizes.q_heads; head++) {
            struct sparse_transformer_walk w = open_walk(step, work->scratch, b, head);
            TRY(run_far(&w, row, n, at, work->scratch, work));
        }
    return ATTNRUN_OK;
}

static attn_status sparse_run(const attnrun_step *step, const attnrun_work *work)
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

const attnrun_op_def op_sparse_transformer_attention_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun",
    .name = "SparseTransformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct sparse_args),
    .state_bytes = sizeof(struct sparse_state),
    .attrs = sparse_attrs,
    .infer = sparse_infer,
    .run = sparse_run,
    .cost = "O(n sqrt(n) d) where stride is sqrt(n)",
    .source = "Child 2019, arXiv:1904.10509",
};
