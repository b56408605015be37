/* sinkhorn_attention.c - SinkhornAttention: each bucket of queries sees its own bucket of
 * keys, and buckets that a sorting matrix between buckets assigns to it.
 *
 * Q, K, V, Y     see heads.h; as many key heads as query heads
 * sort_logits    f32 (batch, heads, n, m), optional, for n buckets of queries and m of
 *                keys; by default mean(queries) . mean(keys) / sqrt(dim). sortcut:
 *                (batch, heads, 1, m), of the mean of all queries. Causal: (batch, heads,
 *                n, n + top_buckets)
 * gumbel         f32 (batch or 1, heads, n, m), optional, 0 by default: for mode sinkhorn
 * null_k, null_v f32 (heads, dim), (heads, v_dim): needed where causal
 * key_mask       bool (batch, kv_len), optional: masks a query's own keys; sorted keys
 *                are masked by the part of the mask of the bucket that has the largest
 *                weight
 * mode           topk: picks the largest logit top_buckets times. A pick is weighted by
 *                its softmax (with temperature) among the buckets that were left; both
 *                keys and values are multiplied by that weight. sinkhorn: P = exp of
 *                log(relu(logits) + 1e-6) + gumbel over temperature, normalized iters
 *                times over rows, then columns; sorted keys and values are P K and P V
 *                over buckets
 * sortcut        n > 0: there is one row of logits, and its first n picks serve all
 *                queries
 * sorted_values  "keys": the sorted values are the sorted keys (as upstream without
 *                sortcut computes)
 *
 * A query sees its own bucket only where n = m.
 *
 * Causal: the heads from heads / 2 on are rotated to the left by bucket_size - 1. Logits
 * are computed from running means. The columns before top_buckets are null buckets, and
 * bucket u may pick columns below u + top_buckets. Of its own keys a query sees j <= i.
 * In the last bucket of a rotated head the rows from 1 on see neither sorted keys nor own
 * key 0.
 *
 * Refused: lengths that buckets do not divide, temperature <= 0, sortcut in mode
 * sinkhorn, fewer key heads than query heads; causal: mode sinkhorn, sortcut, other
 * lengths or buckets of keys, no null_k and null_v.
 * Cost: O(N bucket_size (picks + 1) d); mode sinkhorn adds n m bucket_size d for P K and
 * P V. Shared memory: an index and a weight for each pick, or n m floats a head.
 * Bound: products and reads. Buckets of 64 at 4,096 tokens, 8 heads of 64, on a Zen 4 core: 9.1 ms
 * at the peak and 11.3 measured with their reads (a key is read for 128 queries alone), means of
 * buckets 1.3, exponentials 1.2, all 14.5.
 * Source: Tay 2020, arXiv:2002.11296; compared with sinkhorn-transformer 0.11.4. Its mask
 * of queries (q_mask) has no counterpart here, and its causal mask is right for two picks
 * only. */
#include "../core/prefetch.h"
#include "sinkhorn.h"
#include "../core/stream.h"
#include "../../tile.h"

#include <math.h>

static const attnrun_attr_def sinkhorn_attrs[] = {
    ATTN_HEADS_ATTRS(struct sinkhorn_args),
    ATTR_INT_REQUIRED(struct sinkhorn_args, bucket_size),
    ATTR_INT(struct sinkhorn_args, kv_bucket_size, OP_INT_ABSENT),
    ATTR_ENUM(struct sinkhorn_args, mode, "topk|sinkhorn", SINKHORN_TOPK),
    ATTR_INT(struct sinkhorn_args, top_buckets, 1),
    ATTR_FLOAT(struct sinkhorn_args, temperature, 1.0f),
    ATTR_INT(struct sinkhorn_args, iters, 7),
    ATTR_INT(struct sinkhorn_args, sortcut, 0),
    ATTR_ENUM(struct sinkhorn_args, sorted_values, "values|keys", SINKHORN_VALUES),
    ATTR_END,
};

enum { Q, K, V, LOGITS, GUMBEL, NULL_K, NULL_V, KEY_MASK };
enum {
    GROUP = 16, /* buckets of a task at most */
    FEW = 1,    /* where they are only copied */
    SORTED_BYTES = 512 << 10,
    TOGETHER = 8,
    TOGETHER_FLOATS = 1 << 17,
    KEYS = ATTN_STREAM_KEYS
};

/* ---- infer ---- */

static attn_status count_buckets(const attnrun_step *step, struct sinkhorn_state *s)
{
    const struct sinkhorn_args *args = step->args;
    const struct attn_sizes *z = &s->sizes;
    s->block = args->bucket_size;
    s->kv_block = args->kv_bucket_size == OP_INT_ABSENT ? s->block : args->kv_bucket_size;
    if (z->q_len % s->block != 0)
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "its length, %lld, is not a multiple of bucket_size, %lld",
                             (long long)z->q_len, (long long)s->block);
    if (z->kv_len % s->kv_block != 0)
        return op_fail_input(
            step, K, ATTNRUN_E_SHAPE,
            "its length, %lld, is not a multiple of the bucket size, %lld",
            (long long)z->kv_len, (long long)s->kv_block);
    if (z->causal && z->q_len != z->kv_len)
        return op_fail_input(step, K, ATTNRUN_E_SHAPE,
                             "its length is %lld, expected %lld where causal",
                             (long long)z->kv_len, (long long)z->q_len);
    s->buckets = z->q_len / s->block;
    s->kv_buckets = z->kv_len / s->kv_block;
    s->balanced = args->mode == SINKHORN_BALANCED;
    s->shared = args->sortcut > 0;
    s->picks = min64(s->shared ? args->sortcut : args->top_buckets, s->kv_buckets);
    s->nulls = z->causal ? s->picks : 0;
    s->rows = s->shared ? min64(1, s->buckets) : s->buckets;
    s->columns = s->kv_buckets + s->nulls;
    s->own = s->buckets == s->kv_buckets;
    s->sorted_rows = (s->balanced ? min64(1, s->kv_buckets) : s->picks) * s->kv_block;
    s->joined = s->own && s->kv_block <= KEYS && s->sorted_rows <= KEYS - s->kv_block;
    return ATTNRUN_OK;
}

static attn_status check_matrices(const attnrun_step *step,
                                  const struct sinkhorn_state *s)
{
    for (int in = LOGITS; in <= GUMBEL; in++) {
        if (!op_has_in(step, in))
            continue;
        if (in == LOGITS || !dim_is(step->in[in].dims[0], 1))
            TRY(op_need_dim(step, in, 0, dim_of(s->sizes.batch), "the batch"));
        TRY(op_need_dim(step, in, 1, dim_of(s->sizes.q_heads), "the heads"));
        TRY(op_need_dim(step, in, 2, dim_of(s->rows), "the buckets of queries"));
        TRY(op_need_dim(step, in, 3, dim_of(s->columns), "the buckets of keys"));
    }
    return ATTNRUN_OK;
}

/* The number of heads whose means are kept at the same time. */
static int64_t sharing(const struct sinkhorn_state *s)
{
    int64_t one;
    if (!ck_add(s->rows, s->columns, &one) || !ck_mul(one, s->sizes.dim, &one))
        return 1;
    return max64(1, min64(TOGETHER, TOGETHER_FLOATS / max64(one, 1)));
}

static attn_status plan_sinkhorn(attnrun_step *step, struct sinkhorn_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    int64_t end = 0, heads = z->batch * z->q_heads, tasks = 0, rows, row = 0, ignored;
    op_tasks(step, 0, 0, 0);
    op_tasks(step, 1, 0, 0);
    if (heads == 0 || z->q_len == 0 || z->v_dim == 0)
        return ATTNRUN_OK;
    bool fits = ck_mul(heads, s->rows, &rows) &&
                op_slot_rows(&s->index_at, &end, rows, s->balanced ? 1 : s->picks,
                             sizeof(float)) &&
                op_slot_rows(&s->weight_at, &end, rows,
                             s->balanced ? s->columns : s->picks, sizeof(float));
    step->shared_bytes = end;
    fits = fits && ck_mul(s->sorted_rows, (z->dim + z->v_dim) * 4, &row);
    const int64_t group = s->balanced ? GROUP : FEW;
    s->group = s->shared || row == 0 ? group : max64(1, min64(group, SORTED_BYTES / row));
    s->group = min64(s->group, s->buckets);
    s->groups = (s->buckets - 1) / s->group + 1;
    const int64_t copies = s->shared ? 1 : s->group;
    const size_t gemm = attn_gemm_scratch(
        (size_t)s->group, (size_t)max64(z->dim, z->v_dim), (size_t)max64(s->columns, 1));
    s->together = sharing(s);
    const int64_t sort = attn_sinkhorn_sort_bytes(s);
    end = attn_stream_bytes(ATTN_STREAM_ROWS, z->dim, z->v_dim);
    fits = fits && sort >= 0 && end >= 0 && ck_align(end, 64, &end) &&
           ck_mul(copies, s->sorted_rows, &rows) &&
           op_slot_rows(&s->keys_at, &end, rows, z->dim, sizeof(float)) &&
           op_slot_rows(&s->values_at, &end, rows, z->v_dim, sizeof(float)) &&
           op_slot(&s->gemm_at, &end, s->balanced ? (int64_t)gemm : 0, sizeof(float)) &&
           ck_mul(heads, s->groups, &tasks) && ck_mul(z->q_len, 64, &ignored);
    if (!fits)
        return op_fail_scratch(step);
    step->scratch_bytes = max64(end, sort);
    const double keys = (double)(s->sorted_rows + s->kv_block);
    const double cost = (double)s->group * (double)s->block * keys *
                        (double)(z->dim + z->v_dim + 32) / 50.0;
    op_tasks(step, 0, heads, z->q_len * z->dim);
    op_tasks(step, 1, tasks, op_ns(cost + 2000));
    return ATTNRUN_OK;
}

static attn_status sinkhorn_infer(attnrun_step *step)
{
    const struct sinkhorn_args *args = step->args;
    struct sinkhorn_state *s = step->state;
    struct attn_qkv shape;
    TRY(attn_sinkhorn_check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_HEADS, &shape));
    TRY(attn_sinkhorn_check_operands(step, &shape));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    TRY(count_buckets(step, s));
    TRY(check_matrices(step, s));
    return plan_sinkhorn(step, s);
}

/* ---- attention ---- */

struct sinkhorn_walk {
    const attnrun_step *step;
    const struct sinkhorn_state *s;
    struct attn_stream stream;
    int64_t b, h, head; /* head: over all samples */
    const float *q, *k, *v;
    const uint8_t *mask; /* of the sample, or NULL */
    const int32_t *index;
    const float *weight;
    float *keys, *values, *gemm;
    /* The tile in work. */
    int64_t bucket, row; /* the stream's rows are rows row … of this bucket */
    int64_t first;       /* first key of a sorted, or own, tile */
    bool sorted;
};

/* The row of the sorting matrix that bucket u of the queries uses. */
static int64_t matrix_row(const struct sinkhorn_walk *w, int64_t u)
{
    return w->head * w->s->rows + (w->s->shared ? 0 : u);
}

/* The number of tokens from n on, up to `max`, that are contiguous. */
static int64_t in_one_segment(const struct sinkhorn_walk *w, int64_t n, int64_t max)
{
    const struct sinkhorn_state *s = w->s;
    return min64(max, s->sizes.q_len - sinkhorn_token(s, w->h, n));
}

/* Copies a sorted bucket: `weight` times bucket `column` of keys or values. */
static void copy_bucket(const struct sinkhorn_walk *w, float *to, bool keys,
                        int64_t column, float weight)
{
    const struct sinkhorn_state *s = w->s;
    const int64_t dim = keys ? s->sizes.dim : s->sizes.v_dim;
    const int64_t row = keys ? s->sizes.k.row : s->sizes.v.row;
    const int64_t first = (column - s->nulls) * s->kv_block;
    for (int64_t i = 0, n = s->kv_block; i < s->kv_block; i += n) {
        const float *x;
        if (column < s->nulls) {
            x = (const float *)w->step->x[keys ? NULL_K : NULL_V].data + w->h * dim;
        } else {
            x = (keys ? w->k : w->v) + sinkhorn_token(s, w->h, first + i) * row;
            n = s->sizes.causal ? in_one_segment(w, first + i, s->kv_block - i) : n;
        }
        w->step->kernels->scale_rows_f32(to + i * dim, dim, x,
                                         column < s->nulls ? 0 : row, (size_t)n,
                                         (size_t)dim, &weight, 0);
    }
}

/* Computes the sorted keys or values of n buckets of queries from u on. */
static void sort_group(const struct sinkhorn_walk *w, float *to, int64_t u, int64_t n,
                       bool keys)
{
    const struct sinkhorn_state *s = w->s;
    const int64_t dim = keys ? s->sizes.dim : s->sizes.v_dim;
    const int64_t row = keys ? s->sizes.k.row : s->sizes.v.row;
    for (int64_t i = 0; i < n && !s->balanced; i++)
        for (int64_t p = 0; p < s->picks; p++) {
            const int64_t at = matrix_row(w, u + i) * s->picks + p;
            copy_bucket(w, to + (i * s->sorted_rows + p * s->kv_block) * dim, keys,
                        w->index[at], w->weight[at]);
        }
    for (int64_t t = 0; t < s->sorted_rows && s->balanced; t++)
        w->step->kernels->gemm_f32(
            &(struct attn_gemm_f32){ .a = w->weight + matrix_row(w, u) * s->columns,
                                     .a_row = s->columns,
                                     .b = (keys ? w->k : w->v) + t * row,
                                     .b_row = s->kv_block * row,
                                     .b_col = 1,
                                     .c = to + t * dim,
                                     .c_row = s->sorted_rows * dim,
                                     .m = (size_t)n,
                                     .n = (size_t)dim,
                                     .k = (size_t)s->columns,
                                     .scratch = w->gemm });
}

static bool key_seen(const struct sinkhorn_walk *w, bool sorted, int64_t j)
{
    const struct sinkhorn_state *s = w->s;
    int64_t bucket = w->bucket;
    if (w->mask == NULL)
        return true;
    if (sorted) {
        const int64_t row = matrix_row(w, w->bucket);
        bucket = w->index[s->balanced ? row : row * s->picks + j / s->kv_block];
        if (bucket < s->nulls)
            return true;
        bucket -= s->nulls;
        j %= s->kv_block;
    }
    return w->mask[sinkhorn_token(s, w->h, bucket * s->kv_block + j)];
}

static void mask_rows(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                      int64_t to)
{
    const struct sinkhorn_walk *w = arg;
    const struct sinkhorn_state *s = w->s;
    const bool last =
        s->sizes.causal && w->h >= s->sizes.q_heads / 2 && w->bucket == s->buckets - 1;
    for (int64_t j = 0; j < to - from; j++) {
        int64_t key = w->first + from + j;
        const bool sorted = w->sorted && key < s->sorted_rows;
        key -= w->sorted && !sorted ? s->sorted_rows : 0; /* joined */
        const bool seen = key_seen(w, sorted, key);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t i = w->row + row + r;
            const bool masked = !seen || (s->sizes.causal && !sorted && key > i) ||
                                (last && i > 0 && (sorted || key == 0));
            if (masked)
                scores[r * ATTN_STREAM_SCORES + j] = -INFINITY;
        }
    }
}

/* The own keys `first` … of the bucket, as many as are in one segment and fit into a
 * tile. */
static struct attn_keys own_tile(const struct sinkhorn_walk *w, int64_t first)
{
    const struct sinkhorn_state *s = w->s;
    const int64_t token = sinkhorn_token(s, w->h, w->bucket * s->kv_block + first);
    return (struct attn_keys){
        .k = w->k + token * s->sizes.k.row,
        .v = w->v + token * s->sizes.v.row,
        .k_row = s->sizes.k.row,
        .v_row = s->sizes.v.row,
        .n = min64(min64(KEYS, s->kv_block - first), s->sizes.kv_len - token),
    };
}

/* Whether the sorted and own keys of a bucket are few and whole segments, so that they
 * are read in place. */
static bool in_place(const struct sinkhorn_walk *w)
{
    const struct sinkhorn_state *s = w->s;
    return s->joined && !s->balanced && w->mask == NULL && !s->sizes.causal &&
           s->picks < ATTN_STREAM_SEGMENTS;
}

/* Computes `rows` queries of the bucket from w->row on. */
static void run_in_place(struct sinkhorn_walk *w, float *y, int64_t rows)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const struct sinkhorn_args *args = w->step->args;
    const bool same = args->sorted_values == SINKHORN_KEYS;
    const int64_t row = matrix_row(w, w->bucket) * s->picks;
    const int64_t first = w->bucket * s->block + w->row;
    struct attn_keys segments[ATTN_STREAM_SEGMENTS];
    for (int64_t p = 0; p < s->picks; p++) {
        const int64_t token = w->index[row + p] * s->kv_block;
        const float weight = w->weight[row + p];
        segments[p] = (struct attn_keys){
            .k = w->k + token * z->k.row,
            .v = same ? w->k + token * z->k.row : w->v + token * z->v.row,
            .k_row = z->k.row,
            .v_row = same ? z->k.row : z->v.row,
            .n = s->kv_block,
            .scaled = true,
            .k_factor = weight,
            .v_factor = weight,
        };
    }
    segments[s->picks] = own_tile(w, 0);
    attn_stream_once(&w->stream, w->q + first * z->q.row, z->q.row, rows, z->scale,
                     segments, (int)s->picks + 1, y + first * z->y.row, z->y.row);
}

/* Gives the rows of the stream the tiles from row `at` of the copies on, and own keys. */
static void sinkhorn_run_rows(struct sinkhorn_walk *w, int64_t at)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const bool plain = w->mask == NULL && !z->causal;
    const struct sinkhorn_args *args = w->step->args;
    const float *values = args->sorted_values == SINKHORN_KEYS ? w->keys : w->values;
    w->sorted = true;
    for (w->first = 0; w->first == 0 || w->first < s->sorted_rows; w->first += KEYS) {
        struct attn_keys segments[3] = { {
            .k = w->keys + (at + w->first) * z->dim,
            .v = values + (at + w->first) * z->v_dim,
            .k_row = z->dim,
            .v_row = z->v_dim,
            .n = min64(KEYS, s->sorted_rows - w->first),
        } };
        int n = 1;
        for (int64_t own = 0; s->joined && own < s->kv_block; own += segments[n++].n)
            segments[n] = own_tile(w, own);
        attn_stream_segments(&w->stream, segments, n, plain ? NULL : mask_rows, w);
    }
    w->sorted = false;
    for (w->first = 0; s->own && !s->joined && w->first < s->kv_block;) {
        const struct attn_keys keys = own_tile(w, w->first);
        attn_stream_tile(&w->stream, &keys, plain ? NULL : mask_rows, w);
        w->first += keys.n;
    }
}

/* Adds the sorted buckets of bucket u of the queries of `heads` heads from this one on to
 * the list. */
static void add_sorted(struct attn_prefetch *all, const struct sinkhorn_walk *w,
                       int64_t u, int64_t heads)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const struct sinkhorn_args *args = w->step->args;
    for (int64_t i = 0; i < heads && !s->balanced; i++)
        for (int64_t p = 0; p < s->picks; p++) {
            const int64_t row = (w->head + i) * s->rows + (s->shared ? 0 : u);
            const int64_t bucket = w->index[row * s->picks + p] - s->nulls;
            if (bucket < 0)
                continue;
            attn_prefetch_add(all, w->k + i * z->k.head + bucket * s->kv_block * z->k.row,
                              z->k.row, s->kv_block, z->dim);
            if (args->sorted_values == SINKHORN_VALUES)
                attn_prefetch_add(all,
                                  w->v + i * z->v.head + bucket * s->kv_block * z->v.row,
                                  z->v.row, s->kv_block, z->v_dim);
        }
}

/* Buckets u … of `heads` heads from this one on: their rows that are read, and
 * written. */
static struct attn_prefetch tokens_of(const struct sinkhorn_walk *w, int64_t u,
                                      int64_t heads)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    struct attn_prefetch all = { .n = 0 };
    const int64_t first = u * s->block, n = min64(s->group * s->block, z->q_len - first);
    const float *y = (const float *)w->step->y[0].data + w->b * z->y.batch;
    add_sorted(&all, w, u, heads);
    attn_prefetch_heads(&all, w->q + first * z->q.row, &z->q, z->dim, heads, n);
    attn_prefetch_heads(&all, y + w->h * z->y.head + first * z->y.row, &z->y, z->v_dim,
                        heads, n);
    if (!s->own)
        return all;
    const int64_t key = u * s->kv_block,
                  keys = min64(s->group * s->kv_block, z->kv_len - key);
    attn_prefetch_heads(&all, w->k + key * z->k.row, &z->k, z->dim, heads, keys);
    attn_prefetch_heads(&all, w->v + key * z->v.row, &z->v, z->v_dim, heads, keys);
    return all;
}

/* Computes `rows` queries of the bucket from w->row on, with copies that begin with those
 * of bucket u. */
static void run_copies(struct sinkhorn_walk *w, float *y, int64_t u, int64_t rows)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const int64_t first = w->bucket * s->block + w->row;
    attn_stream_reset(&w->stream, rows);
    for (int64_t r = 0, m; r < rows; r += m) {
        m = in_one_segment(w, first + r, rows - r);
        attn_stream_load(&w->stream, r,
                         w->q + sinkhorn_token(s, w->h, first + r) * z->q.row, z->q.row,
                         m, z->scale);
    }
    sinkhorn_run_rows(w, s->shared ? 0 : (w->bucket - u) * s->sorted_rows);
    for (int64_t r = 0, m; r < rows; r += m) {
        m = in_one_segment(w, first + r, rows - r);
        attn_stream_store_rows(&w->stream, r, m,
                               y + sinkhorn_token(s, w->h, first + r) * z->y.row,
                               z->y.row, 0.0f);
    }
}

static attn_status sinkhorn_run_group(struct sinkhorn_walk *w, int64_t u, int64_t n,
                                      const attnrun_work *work)
{
    const struct sinkhorn_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const struct sinkhorn_args *args = w->step->args;
    float *y = (float *)w->step->y[0].data + w->b * z->y.batch + w->h * z->y.head;
    const bool copies = !in_place(w);
    if (copies)
        sort_group(w, w->keys, u, s->shared ? 1 : n, true);
    if (copies && args->sorted_values == SINKHORN_VALUES)
        sort_group(w, w->values, u, s->shared ? 1 : n, false);
    const int64_t max_rows = copies ? ATTN_STREAM_ROWS : ATTN_TILE_QUERIES;
    for (w->bucket = u; w->bucket < u + n; w->bucket++)
        for (w->row = 0; w->row < s->block; w->row += max_rows) {
            const int64_t rows = min64(max_rows, s->block - w->row);
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            if (copies)
                run_copies(w, y, u, rows);
            else
                run_in_place(w, y, rows);
        }
    return ATTNRUN_OK;
}

/* Runs task `task` of the attention. Heads are computed in turns, since their rows lie
 * side by side. */
static struct sinkhorn_walk open_task(const attnrun_step *step, const attnrun_work *work,
                                      int64_t task, int64_t *u)
{
    const struct sinkhorn_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    char *scratch = work->scratch, *shared = work->shared;
    const int64_t h = op_take(&task, z->q_heads);
    *u = op_take(&task, s->groups) * s->group;
    const int64_t b = task;
    struct sinkhorn_walk w = {
        .step = step,
        .s = s,
        .b = b,
        .h = h,
        .head = b * z->q_heads + h,
        .q = (const float *)step->x[Q].data + b * z->q.batch + h * z->q.head,
        .k = (const float *)step->x[K].data + b * z->k.batch + h * z->k.head,
        .v = (const float *)step->x[V].data + b * z->v.batch + h * z->v.head,
        .index = op_slot_at(shared, s->index_at),
        .weight = op_slot_at(shared, s->weight_at),
        .keys = op_slot_at(scratch, s->keys_at),
        .values = op_slot_at(scratch, s->values_at),
        .gemm = op_slot_at(scratch, s->gemm_at),
    };
    if (op_has_in(step, KEY_MASK))
        w.mask = (const uint8_t *)step->x[KEY_MASK].data + b * z->kv_len;
    return w;
}

/* The tokens of the heads that are computed in turns from `task` on. */
static struct attn_prefetch prefetch_of(const attnrun_step *step,
                                        const attnrun_work *work, int64_t task)
{
    const struct sinkhorn_state *s = step->state;
    const int64_t heads = s->sizes.q_heads;
    int64_t u;
    if (task >= work->end)
        return (struct attn_prefetch){ .n = 0 };
    const struct sinkhorn_walk w = open_task(step, work, task, &u);
    return tokens_of(&w, u, attn_heads_interleaved(task, work->end, heads, heads));
}

static attn_status run_attention(const attnrun_step *step, const attnrun_work *work)
{
    const struct sinkhorn_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    struct attn_prefetch prefetch = prefetch_of(step, work, work->begin);
    attn_prefetch_now(&prefetch);
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t u;
        struct sinkhorn_walk w = open_task(step, work, task, &u);
        if (task % z->q_heads == 0 || task == work->begin)
            prefetch = prefetch_of(
                step, work,
                task + attn_heads_interleaved(task, work->end, z->q_heads, z->q_heads));
        attn_stream_begin(&w.stream, step->kernels, ATTN_STREAM_ROWS, z->dim, z->v_dim,
                          work->scratch);
        w.stream.prefetch = &prefetch;
        TRY(sinkhorn_run_group(&w, u, min64(s->group, s->buckets - u), work));
    }
    return ATTNRUN_OK;
}

static attn_status sinkhorn_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct sinkhorn_state *s = step->state;
    if (work->phase == 1)
        return run_attention(step, work);
    for (int64_t task = work->begin, n; task < work->end; task += n) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        n = attn_heads_interleaved(task, work->end, s->sizes.q_heads, s->together);
        attn_sinkhorn_sort(step, work, task, n);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_sinkhorn_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SinkhornAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T sort_logits:T? gumbel:T? null_k:T? null_v:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct sinkhorn_args),
    .state_bytes = sizeof(struct sinkhorn_state),
    .attrs = sinkhorn_attrs,
    .infer = sinkhorn_infer,
    .run = sinkhorn_run,
    .cost = "O(n bucket_size d)",
    .source = "Tay 2020, arXiv:2002.11296",
};
