/* top_k_attention.c - TopKAttention (explicit sparse attention): each query keeps the
 * keys with the k largest of its scores, and a softmax over those gives the weights of
 * their values.
 *
 * Q, K, V     see heads.h; groups of query heads may share a key head
 * key_mask    bool (batch, kv_len), optional: false masks a key
 * attn_mask   bool (batch, heads, q_len, kv_len), or what is broadcast to it; optional
 * k           at least 1; a query with fewer than k keys keeps all of them
 * tie_rule    threshold: all keys whose score equals the k-th largest are kept; exact:
 *             those with the lower index are kept, k in all
 *
 * Masks are applied before the choice. is_causal is bottom-right. A query without keys
 * gives zeros; a score that is NaN is kept.
 * Refused: k < 1, an attn_mask that cannot be broadcast, sizes that disagree.
 * Cost: 2 n kv_len dim FLOPs for the scores, O(kv_len) per row for the choice, 2 k v_dim
 * for the values. Scratch: a tile of scores and about 2 k candidates for each of up to
 * 256 rows. All scores of a row exist only where k is that large.
 * Bound: products and the choice. k = 32 at 4,096 tokens, 8 heads of 64, on a Zen 4 core: scores
 * 146 ms at the peak and 169 measured, packing keys 17, the choice 58 (134 million scores, 0.43 ns
 * each), values 15; all 262 while others ran, 244 when quiet.
 * Source: Zhao 2019, arXiv:1912.11637; compared with sparse_topk of x-transformers
 * 2.31.10 (threshold) and with torch.topk (exact). */
#include "../core/heads.h"
#include "../../tile.h"

#include <float.h>
#include <math.h>

struct top_k_args {
    struct attn_heads_args heads;
    int64_t k;
    int32_t tie_rule;
};
enum { THRESHOLD, EXACT };
static const attnrun_attr_def top_k_attrs[] = {
    ATTN_HEADS_ATTRS(struct top_k_args),
    ATTR_INT_REQUIRED(struct top_k_args, k),
    ATTR_ENUM(struct top_k_args, tie_rule, "threshold|exact", THRESHOLD),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK, ATTN_MASK };
enum { KEYS = 256, ROWS = 256, MIN_ROWS = 8, MORE = 64 };
enum { CANDIDATE_BYTES = 1 << 20 };

struct top_k_state {
    struct attn_sizes sizes;
    int64_t k, room;      /* candidates of a row */
    int64_t rows, blocks; /* queries of a task; tasks of a head */
    int64_t mask[4];      /* strides of attn_mask */
    /* Offsets in scratch, in bytes. */
    int64_t scores_at, gemm_at, value_at, index_at, state_at, ranks_at;
};

/* ---- infer ---- */

static attn_status check_mask(const attnrun_step *step, const struct attn_qkv *shape)
{
    const attnrun_type *t = &step->in[ATTN_MASK];
    const attnrun_dim full[4] = { shape->batch, shape->q_heads, shape->q_len,
                                  shape->kv_len };
    if (!op_has_in(step, ATTN_MASK))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, ATTN_MASK, 0, 4));
    for (int i = 0; t->rank >= 0 && i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            TRY(attn_need_equal(step, ATTN_MASK, t->dims[i], full[4 - t->rank + i],
                                "size (or 1) where it is broadcast"));
    return ATTNRUN_OK;
}

static attn_status plan_top_k(attnrun_step *step, struct top_k_state *s)
{
    const struct top_k_args *args = step->args;
    const struct attn_sizes *z = &s->sizes;
    const int64_t size = sizeof(float);
    int64_t q_at, tasks = 0, end = 0;
    s->k = max64(min64(args->k, z->kv_len), 1);
    s->room = max64(min64(2 * s->k + MORE + KEYS, z->kv_len), 1);
    s->rows = ROWS;
    while (s->rows > MIN_ROWS && s->rows > CANDIDATE_BYTES / (2 * size) / s->room)
        s->rows /= 2;
    s->rows = max64(min64(s->rows, z->q_len), 1);
    s->blocks = ceil_div(z->q_len, s->rows);
    const size_t gemm = attn_gemm_scratch((size_t)s->rows, KEYS, (size_t)z->dim);
    bool fits = op_slot(&q_at, &end, s->rows * z->dim, size) &&
                op_slot(&s->scores_at, &end, s->rows * KEYS, size) &&
                op_slot(&s->gemm_at, &end, (int64_t)gemm, size) &&
                op_slot(&s->value_at, &end, s->rows * s->room, size) &&
                op_slot(&s->index_at, &end, s->rows * s->room, size) &&
                op_slot(&s->state_at, &end, s->rows, 4 * size) &&
                op_slot(&s->ranks_at, &end, s->room, size) &&
                op_grid_tasks(z->batch, z->q_heads, s->blocks, &tasks);
    if (!fits)
        return op_fail_scratch(step);
    const attnrun_type *mask = &step->in[ATTN_MASK];
    memset(s->mask, 0, sizeof s->mask);
    int64_t stride = 1;
    for (int i = 3; op_has_in(step, ATTN_MASK) && i >= 4 - mask->rank; i--) {
        const int64_t n = mask->dims[i - 4 + mask->rank].value;
        s->mask[i] = n == 1 ? 0 : stride;
        stride *= n;
    }
    const double cost =
        (double)s->rows * (double)z->kv_len * ((double)z->dim + 64) / 60.0;
    op_tasks(step, 0, z->v_dim == 0 ? 0 : tasks, op_ns(cost + 2000));
    step->scratch_bytes = end;
    return ATTNRUN_OK;
}

static attn_status top_k_infer(attnrun_step *step)
{
    const struct top_k_args *args = step->args;
    struct top_k_state *s = step->state;
    struct attn_qkv shape;
    TRY(attn_need_int(step, "k", args->k, 1, INT64_MAX));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(check_mask(step, &shape));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    return plan_top_k(step, s);
}

/* ---- candidates of a row ---- */

struct top_k_row {
    int64_t n;       /* candidates so far */
    float threshold; /* scores below this do not become one */
    bool exact;      /* only k are kept of equal ones … */
    bool again;      /* … though all should be: no room for them */
};

/* Keeps the k largest candidates, and those that are equal to the last of them. */
static void shrink(const struct attn_kernels *kernels, struct top_k_row *row, int64_t k,
                   float *value, int32_t *index, int32_t *ranks)
{
    const size_t n = (size_t)row->n;
    size_t above;
    if (row->n <= k)
        return;
    kernels->rank_f32(ranks, value, n);
    const int32_t last = kernels->kth_greatest_i32(ranks, n, (size_t)k, &above);
    const size_t equal = row->exact ? (size_t)k - above : n;
    row->n = (int64_t)kernels->keep_greatest_f32(index, value, ranks, n, last, equal);
    row->threshold = attn_float_of_rank(last);
    if (row->exact) /* a later key of that score is not kept */
        row->threshold = nextafterf(row->threshold, INFINITY);
}

/* ---- one task ---- */

struct top_k_walk {
    const attnrun_step *step;
    const struct top_k_state *s;
    int64_t b, head, row, n; /* queries row … row + n - 1 */
    const float *k, *v;
    float *q, *scores, *gemm, *value;
    int32_t *index;
    struct top_k_row *state;
    int32_t *ranks;
};

/* Masks the keys first … first + n - 1 that row r must not see. */
static void top_k_mask_row(const struct top_k_walk *w, float *scores, int64_t r,
                           int64_t first, int64_t n)
{
    const struct top_k_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    const attnrun_step *step = w->step;
    int64_t end = n;
    if (op_has_in(step, KEY_MASK))
        step->kernels->keep_mask_f32(
            scores, (const uint8_t *)step->x[KEY_MASK].data + w->b * z->kv_len + first,
            (size_t)n);
    if (op_has_in(step, ATTN_MASK)) {
        const uint8_t *mask = (const uint8_t *)step->x[ATTN_MASK].data +
                              w->b * s->mask[0] + w->head * s->mask[1] +
                              (w->row + r) * s->mask[2];
        if (s->mask[3] != 0)
            step->kernels->keep_mask_f32(scores, mask + first, (size_t)n);
        else if (!mask[0])
            end = 0;
    }
    if (z->causal)
        end = min64(end, max64(0, w->row + r + z->offset + 1 - first));
    for (int64_t j = end; j < n; j++)
        scores[j] = -INFINITY;
}

/* Computes the scores of keys first … first + n - 1. */
static void score_tile(const struct top_k_walk *w, int64_t first, int64_t n)
{
    const struct attn_sizes *z = &w->s->sizes;
    /* After the product: equal products are equal scores. */
    const struct attn_epilogue scale = { .kind = ATTN_EPI_SCALE, .alpha = z->scale };
    w->step->kernels->gemm_f32(
        &(struct attn_gemm_f32){ .a = w->q,
                                 .a_row = z->dim,
                                 .b = w->k + first * z->k.row,
                                 .b_row = 1,
                                 .b_col = z->k.row,
                                 .c = w->scores,
                                 .c_row = KEYS,
                                 .m = (size_t)w->n,
                                 .n = (size_t)n,
                                 .k = (size_t)z->dim,
                                 .exact = 1, /* scores choose keys */
                                 .epilogue = &scale,
                                 .n_epilogue = 1,
                                 .scratch = w->gemm });
    for (int64_t r = 0; r < w->n; r++)
        top_k_mask_row(w, w->scores + r * KEYS, r, first, n);
}

static void select_row(const struct top_k_walk *w, int64_t r, int64_t first, int64_t n)
{
    const struct top_k_state *s = w->s;
    struct top_k_row *row = &w->state[r];
    float *value = w->value + r * s->room;
    int32_t *index = w->index + r * s->room;
    row->n += (int64_t)w->step->kernels->select_f32(index + row->n, value + row->n,
                                                    w->scores + r * KEYS, (size_t)n,
                                                    (int32_t)first, row->threshold);
    if (row->n < 2 * s->k + MORE && row->n <= s->room - KEYS)
        return;
    if (s->room == s->sizes.kv_len && row->n < s->room)
        return;
    shrink(w->step->kernels, row, s->k, value, index, w->ranks);
    if (s->room < s->sizes.kv_len && row->n > s->room - KEYS) {
        row->exact = row->again = true;
        shrink(w->step->kernels, row, s->k, value, index, w->ranks);
    }
}

/* Turns scores into weights, and returns their sum. */
static float pooling(const struct attn_kernels *kernels, float *value, int64_t n,
                     float max)
{
    for (int64_t i = 0; i < n; i++)
        value[i] = expf(value[i] - max);
    return (float)kernels->sum_f32(value, (size_t)n);
}

static float largest(const float *value, int64_t n)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        max = value[i] > max ? value[i] : max;
    return max;
}

static float *output_row(const struct top_k_walk *w, int64_t r)
{
    const struct attn_heads *y = &w->s->sizes.y;
    return (float *)w->step->y[0].data + w->b * y->batch + w->head * y->head +
           (w->row + r) * y->row;
}

static void finish_row(const struct top_k_walk *w, int64_t r)
{
    const struct top_k_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    struct top_k_row *row = &w->state[r];
    float *value = w->value + r * s->room, *y = output_row(w, r);
    memset(y, 0, (size_t)z->v_dim * sizeof *y);
    shrink(w->step->kernels, row, s->k, value, w->index + r * s->room, w->ranks);
    if (row->again || row->n == 0)
        return;
    const float sum = pooling(w->step->kernels, value, row->n, largest(value, row->n));
    const float factor = 1.0f / sum;
    w->step->kernels->mul_f32(value, value, 1, &factor, 0, (size_t)row->n);
    w->step->kernels->gather_sum_f32(y, w->v, z->v.row, w->index + r * s->room, value,
                                     (size_t)row->n, (size_t)z->v_dim);
}

/* Computes rows with more equal scores than fit once more, now that the k-th score is
 * known. */
static attn_status finish_again(struct top_k_walk *w, int64_t keys,
                                const attnrun_work *work)
{
    const struct top_k_state *s = w->s;
    const struct attn_sizes *z = &s->sizes;
    bool any = false;
    for (int64_t r = 0; r < w->n; r++) {
        struct top_k_row *row = &w->state[r];
        float *value = w->value + r * s->room;
        if (!row->again)
            continue;
        any = true;
        value[s->room - 1] = largest(value, row->n);
        row->threshold = value[0]; /* the smallest that is kept */
        for (int64_t i = 1; i < row->n; i++)
            row->threshold = value[i] < row->threshold ? value[i] : row->threshold;
        value[s->room - 2] = 0;
    }
    for (int64_t first = 0; any && first < keys; first += KEYS) {
        const int64_t n = min64(KEYS, keys - first);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        score_tile(w, first, n);
        for (int64_t r = 0; r < w->n; r++) {
            float *value = w->value + r * s->room;
            int32_t *index = w->index + r * s->room;
            if (!w->state[r].again)
                continue;
            const size_t found = w->step->kernels->select_f32(
                index, value, w->scores + r * KEYS, (size_t)n, (int32_t)first,
                w->state[r].threshold);
            value[s->room - 2] +=
                pooling(w->step->kernels, value, (int64_t)found, value[s->room - 1]);
            w->step->kernels->gather_sum_f32(output_row(w, r), w->v, z->v.row, index,
                                             value, found, (size_t)z->v_dim);
        }
    }
    for (int64_t r = 0; r < w->n; r++) {
        const float factor = 1.0f / w->value[r * s->room + s->room - 2];
        float *y = output_row(w, r);
        if (w->state[r].again)
            w->step->kernels->mul_f32(y, y, 1, &factor, 0, (size_t)z->v_dim);
    }
    return ATTNRUN_OK;
}

static attn_status top_k_run_block(struct top_k_walk *w, const attnrun_work *work)
{
    const struct top_k_args *args = w->step->args;
    const struct attn_sizes *z = &w->s->sizes;
    const float *q = (const float *)w->step->x[Q].data + w->b * z->q.batch +
                     w->head * z->q.head + w->row * z->q.row;
    const int64_t last = w->row + w->n + z->offset;
    const int64_t keys = z->causal ? max64(0, min64(z->kv_len, last)) : z->kv_len;
    for (int64_t r = 0; r < w->n; r++) {
        w->state[r] =
            (struct top_k_row){ .threshold = -FLT_MAX, .exact = args->tie_rule == EXACT };
        memcpy(w->q + r * z->dim, q + r * z->q.row, (size_t)z->dim * sizeof *q);
    }
    for (int64_t first = 0; first < keys; first += KEYS) {
        const int64_t n = min64(KEYS, keys - first);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        score_tile(w, first, n);
        for (int64_t r = 0; r < w->n; r++)
            select_row(w, r, first, n);
    }
    for (int64_t r = 0; r < w->n; r++)
        finish_row(w, r);
    return finish_again(w, keys, work);
}

static attn_status top_k_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct top_k_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct op_task at = op_task_at(task, z->q_heads, s->blocks);
        const int64_t row = at.block * s->rows, kv = at.head / z->group;
        struct top_k_walk w = {
            .step = step,
            .s = s,
            .b = at.b,
            .head = at.head,
            .row = row,
            .n = min64(s->rows, z->q_len - row),
            .k = (const float *)step->x[K].data + at.b * z->k.batch + kv * z->k.head,
            .v = (const float *)step->x[V].data + at.b * z->v.batch + kv * z->v.head,
            .q = work->scratch,
            .scores = op_slot_at(work->scratch, s->scores_at),
            .gemm = op_slot_at(work->scratch, s->gemm_at),
            .value = op_slot_at(work->scratch, s->value_at),
            .index = op_slot_at(work->scratch, s->index_at),
            .state = op_slot_at(work->scratch, s->state_at),
            .ranks = op_slot_at(work->scratch, s->ranks_at),
        };
        TRY(top_k_run_block(&w, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_top_k_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "TopKAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8? attn_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct top_k_args),
    .state_bytes = sizeof(struct top_k_state),
    .attrs = top_k_attrs,
    .infer = top_k_infer,
    .run = top_k_run,
    .cost = "O(n^2 d) for scores, O(n k d) for values; scratch O(k)",
    .source = "Zhao 2019, arXiv:1912.11637",
};
