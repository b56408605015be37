/* fastformer_attention.c - FastformerAttention: the queries are pooled into one global
 * query a head, the keys times that query into one global key, and the values are
 * multiplied by the global key.
 *
 *   a = softmax_n(scale (q_n Wq + bq))_h    G_h = sum_n a_n q_(n,h)
 *   p_n = k_n * G                           all heads
 *   e = softmax_n(scale (p_n Wk + bk))_h    P_h = sum_n e_n p_(n,h)
 *   Y_(n,h) = P_h * v_(n,h)
 *
 * Q, K, V   f32 (batch, n, heads * dim) or (batch, heads, n, dim); may be one value
 * Wq, Wk    f32 (heads * dim, heads): from all heads to the logits of each
 * bq, bk    f32 (heads), optional
 * key_mask  b8 (batch, n): tokens that are false are left out of both sums; Y is zeros
 *           where no token is left
 * Y         as V
 * scale     1 / sqrt(dim) by default, applied after the bias
 *
 * The rows p are never formed, since p Wk = k (G * Wk) and sum e p = G * sum e k. There
 * are four phases: queries, the merge of their parts, keys, and values. The tasks of the
 * last phase merge the parts of the keys.
 * Refused: lengths or sizes that disagree, fewer key heads than query heads.
 * Cost: 4 n heads^2 dim FLOPs for the logits, and three passes over the operands.
 * Scratch: a tile of tokens.
 * Source: Wu 2021, arXiv:2108.09084. Compared with wuch15/Fastformer 84cc859
 * FastSelfAttention, whose transform and residual stay in the graph. That class adds
 * -10000 to masked logits; this operator leaves the tokens out. */
#include "../core/heads.h"
#include "../core/softmax_pooling.h"
#include "../../tile.h"

enum { Q, K, V, WQ, WK, BQ, BK, KEY_MASK };
enum { QUERIES, MERGE, KEYS, VALUES, TASK_ELEMENTS = 1 << 18 };

struct fastformer_args {
    struct attn_heads_args heads;
};

static const attnrun_attr_def fastformer_attrs[] = {
    ATTN_HEADS_ATTRS_NOT_CAUSAL(struct fastformer_args),
    ATTR_END,
};

struct fastformer_state {
    struct attn_sizes sizes;
    struct attn_pooling pooling;
    bool by_head;           /* rank 4 */
    int64_t width;          /* heads * dim */
    int64_t tokens, blocks; /* of a task of VALUES */
    int64_t logits_floats;
};

/* ---- infer ---- */

static attn_status fastformer_check_weights(const attnrun_step *step, int w, int bias,
                                            attnrun_dim width, attnrun_dim heads)
{
    TRY(op_need_rank(step, w, 2));
    TRY(op_need_dim(step, w, 0, width, "heads times the head size"));
    TRY(op_need_dim(step, w, 1, heads, "the heads"));
    return op_need_vector(step, bias, heads, "the heads");
}

static attn_status plan_fastformer(attnrun_step *step, int rank,
                                   struct fastformer_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    struct attn_pooling *w = &s->pooling;
    int64_t shared;
    s->by_head = rank == 4;
    s->width = z->q_heads * z->dim;
    *w = (struct attn_pooling){ .batch = z->batch,
                                .rows = z->q_heads,
                                .block = z->q_heads,
                                .tokens = z->kv_len,
                                .v_dim = z->dim,
                                .tile = attn_pooling_tile(s->width),
                                .v_head = z->dim };
    s->logits_floats = attn_logits_floats(w->tile, s->width, w->rows);
    if (s->logits_floats < 0 || !ck_mul(s->width, w->tile + w->rows, &shared) ||
        !ck_add(shared, s->logits_floats + 64, &w->extra_floats))
        return op_fail_scratch(step);
    w->token_ns = (double)s->width * (0.3 + 0.02 * (double)w->rows) + 5;
    TRY(attn_pooling_plan(step, w));
    if (!ck_mul(s->width, 8 * w->batch + 8, &shared) ||
        !ck_add(shared, w->shared_bytes, &shared))
        return op_fail_scratch(step);
    s->tokens = TASK_ELEMENTS / (s->width > 0 ? s->width : 1) + 1;
    s->blocks = ceil_div(z->kv_len, s->tokens);
    op_tasks(step, QUERIES, w->n_tasks, w->task_cost);
    op_tasks(step, MERGE, w->n_merges, w->merge_cost);
    op_tasks(step, KEYS, w->n_tasks, w->task_cost);
    op_tasks(step, VALUES, s->width > 0 ? z->batch * s->blocks : 0,
             s->tokens * s->width / 4 + w->merge_cost);
    step->scratch_bytes = w->scratch_bytes;
    step->shared_bytes = shared;
    return ATTNRUN_OK;
}

static attn_status fastformer_infer(attnrun_step *step)
{
    const struct fastformer_args *args = step->args;
    struct fastformer_state *s = step->state;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_LENGTH | ATTN_SAME_HEADS,
                       &shape));
    TRY(attn_need_equal(step, V, shape.v_dim, shape.dim, "head size"));
    const attnrun_dim width = attnrun_dim_mul(step, shape.q_heads, shape.dim);
    TRY(fastformer_check_weights(step, WQ, BQ, width, shape.q_heads));
    TRY(fastformer_check_weights(step, WK, BK, width, shape.q_heads));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    return plan_fastformer(step, shape.rank, s);
}

/* ---- run ---- */

/* The parts of a task's scratch, and the operands of its logits. */
struct fastformer_pass {
    const attnrun_step *step;
    const struct fastformer_state *s;
    const float *x, *w, *bias;
    float *logits, *rows, *folded;
};

/* Gathers tokens first … first + n - 1 of sample b, all heads of a token together. */
static const float *fastformer_gather(const struct fastformer_pass *p, int64_t b,
                                      int64_t first, int64_t n)
{
    const struct fastformer_state *s = p->s;
    const struct attn_heads *q = &s->sizes.q;
    const float *x = p->x + b * q->batch + first * q->row;
    if (!s->by_head)
        return x;
    for (int64_t h = 0; h < s->sizes.q_heads; h++)
        for (int64_t i = 0; i < n; i++)
            memcpy(p->rows + i * s->width + h * s->sizes.dim,
                   x + h * q->head + i * q->row, (size_t)s->sizes.dim * sizeof(float));
    return p->rows;
}

static void fastformer_scores(void *arg, const struct attn_pooling_task *task,
                              float *scores, int64_t first, int64_t n)
{
    const struct fastformer_pass *p = arg;
    const struct attn_logits logits = { .x = fastformer_gather(p, task->b, first, n),
                                        .x_row = p->s->width,
                                        .k = p->s->width,
                                        .heads = p->s->pooling.rows,
                                        .b = p->w,
                                        .bias = p->bias,
                                        .scale = p->s->sizes.scale,
                                        .activation = -1,
                                        .scratch = p->logits };
    attn_logits_run(&logits, p->step->kernels, n, scores, p->s->pooling.tile);
}

/* The pooled queries and, after them, keys of all samples. */
static float *pooled(const struct fastformer_state *s, const attnrun_work *work)
{
    return (float *)work->shared + s->pooling.shared_bytes / (int64_t)sizeof(float);
}

/* Computes G * Wk of sample b: row d of Wk times the pooled query d. */
static const float *fold(const struct fastformer_pass *p, const float *query,
                         const float *w)
{
    const int64_t heads = p->s->pooling.rows;
    p->step->kernels->scale_rows_f32(p->folded, heads, w, heads, (size_t)p->s->width,
                                     (size_t)heads, query, 1);
    return p->folded;
}

/* The operands that pool queries, or keys. */
static struct attn_pooling_operands
fastformer_operands(const struct fastformer_pass *p, bool keys, const attnrun_work *work)
{
    const struct fastformer_state *s = p->s;
    const attnrun_step *step = p->step;
    return (struct attn_pooling_operands){
        .v = p->x,
        .v_batch = s->sizes.q.batch,
        .v_row = s->width,
        .mask = op_in_data(step, KEY_MASK),
        .y = pooled(s, work) + (keys ? s->pooling.batch * s->width : 0),
        .y_batch = s->width,
        .y_row = s->sizes.dim,
        .scores = fastformer_scores,
        .arg = (void *)(uintptr_t)p,
    };
}

static attn_status pool(const attnrun_step *step, const attnrun_work *work, bool keys)
{
    const struct fastformer_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    const int bias = keys ? BK : BQ;
    const float *weights = step->x[keys ? WK : WQ].data;
    struct fastformer_pass p = {
        .step = step, .s = s, .x = step->x[keys ? K : Q].data, .w = weights
    };
    p.bias = op_in_data(step, bias);
    struct attn_pooling_operands o = fastformer_operands(&p, keys, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == MERGE) {
            attn_pooling_merge(w, step->kernels, &o, task, work);
            continue;
        }
        const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
        p.logits = t.extra;
        p.rows = p.logits + s->logits_floats;
        o.gathered = s->by_head ? p.rows : NULL;
        p.folded = p.rows + round_up(s->width * w->tile, 16);
        if (keys)
            p.w = fold(&p, pooled(s, work) + t.b * s->width, weights);
        TRY(attn_pooling_run(w, step->kernels, &o, &t, work));
    }
    return ATTNRUN_OK;
}

/* P of sample b: the pooled query times the sum of keys. */
static const float *pooled_key(const attnrun_step *step, const attnrun_work *work,
                               int64_t b)
{
    const struct fastformer_state *s = step->state;
    const float *query = pooled(s, work) + b * s->width;
    const float *key = query + s->sizes.batch * s->width;
    float *p = attn_pooling_at(&s->pooling, 0, work->scratch).extra;
    if (s->pooling.parts > 1) {
        const struct fastformer_pass keys = { .step = step, .s = s };
        struct attn_pooling_operands o = fastformer_operands(&keys, true, work);
        o.y = p;
        o.y_batch = 0;
        attn_pooling_merge(&s->pooling, step->kernels, &o, b, work);
        key = p;
    }
    step->kernels->mul_f32(p, query, 1, key, 1, (size_t)s->width);
    return p;
}

/* Y = P * V for a block of tokens. */
static void fastformer_multiply(const attnrun_step *step, const attnrun_work *work,
                                int64_t task)
{
    const struct fastformer_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t first = op_take(&task, s->blocks) * s->tokens, b = task;
    const int64_t end = first + s->tokens < z->kv_len ? first + s->tokens : z->kv_len;
    const int64_t group = s->by_head ? z->dim : s->width;
    const float *p = pooled_key(step, work, b);
    for (int64_t d = 0; d < s->width; d += group) {
        const int64_t at = b * z->v.batch + d / group * z->v.head;
        for (int64_t i = first; i < end; i++)
            step->kernels->mul_f32((float *)step->y[0].data + at + i * z->y.row,
                                   (const float *)step->x[V].data + at + i * z->v.row, 1,
                                   p + d, 1, (size_t)group);
    }
}

static attn_status fastformer_run(const attnrun_step *step, const attnrun_work *work)
{
    if (work->phase != VALUES)
        return pool(step, work, work->phase == KEYS);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        fastformer_multiply(step, work, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_fastformer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "FastformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T Wq:T Wk:T bq:T? bk:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct fastformer_args),
    .state_bytes = sizeof(struct fastformer_state),
    .attrs = fastformer_attrs,
    .infer = fastformer_infer,
    .run = fastformer_run,
    .cost = "O(n d heads), scratch O(tile d)",
    .source = "Wu 2021, arXiv:2108.09084",
};
