/* lama_attention.c - LAMAAttention: heads of rank 1 that pool the tokens for a context c.
 *
 *   f_(h,n) = act((P' c)_h (Q' x_n)_h)     g_(h,n) = f_(h,n) / (|f_(.,n)| + norm_epsilon)
 *   Y_h = sum_n a_(h,n) x_n, a_h the softmax of g_h over the tokens
 *
 * X             f32 (batch, n, dim)
 * P, Q          f32 (dim, heads)
 * context       f32 (batch or 1, dim), optional: by default the mean of the tokens that
 *               are not masked
 * key_mask      b8 (batch, n), optional: tokens that are false are left out; Y is zeros
 *               where no token is left
 * Y             f32 (batch, heads, dim)
 * weights       f32 (batch, heads, n), optional
 * activation    tanh or none
 * normalize     1 by default; with 0 the weights are g, without a softmax
 * norm_epsilon  0 by default; a token whose f are all 0 has g = 0, where upstream divides
 *               0 by 0
 *
 * Refused: other ranks, sizes that disagree, a P with a dim of 0, norm_epsilon < 0.
 * Cost: 4 n dim heads FLOPs. Scratch: a tile of tokens. If the tokens are cut into parts
 * and no context is given, two earlier phases compute the contexts; otherwise each task
 * computes its own.
 * Source: Mehta 2019, arXiv:1912.00835. Compared with modules/lama.py of
 * JohnGiorgi/compact-multi-head-self-attention-pytorch 56358ea. */
#include <math.h>

#include "../../matmul/gemm.h"
#include "../core/heads.h"
#include "../core/softmax_pooling.h"

enum { X, P, Q, CONTEXT, KEY_MASK, MAX_TILE = 128, MAX_TOKENS = 64 };
enum { SUMS, CONTEXTS, POOL, MERGE };

struct lama_args {
    int32_t activation;
    int64_t normalize;
    float norm_epsilon;
};

static const attnrun_attr_def lama_attrs[] = {
    ATTR_ENUM(struct lama_args, activation, "none|tanh", 1),
    ATTR_INT(struct lama_args, normalize, 1),
    ATTR_FLOAT(struct lama_args, norm_epsilon, 0.0f),
    ATTR_END,
};

struct lama_state {
    struct attn_pooling pooling;
    int64_t context_step; /* 0: one for all samples */
    bool apart;           /* contexts have phases of their own */
    int64_t logits_floats;
};

/* ---- infer ---- */

struct lama_shape {
    attnrun_dim batch, n, dim, heads;
};

static attn_status lama_check_operands(const attnrun_step *step, struct lama_shape *s)
{
    TRY(op_need_rank(step, X, 3));
    TRY(op_need_rank(step, P, 2));
    TRY(op_need_rank(step, Q, 2));
    s->batch = attn_dim_of_input(step, X, 0);
    s->n = attn_dim_of_input(step, X, 1);
    s->dim = attn_known_of(
        attn_dim_of_input(step, X, 2),
        attn_known_of(attn_dim_of_input(step, P, 0), attn_dim_of_input(step, Q, 0)));
    s->heads =
        attn_known_of(attn_dim_of_input(step, P, 1), attn_dim_of_input(step, Q, 1));
    TRY(op_need_dim(step, X, 2, s->dim, "the rows of P and Q"));
    TRY(op_need_dim(step, P, 0, s->dim, "the size of X"));
    TRY(op_need_dim(step, Q, 0, s->dim, "the size of X"));
    TRY(op_need_dim(step, Q, 1, s->heads, "the columns of P"));
    if (dim_is(s->dim, 0) || dim_is(s->heads, 0))
        return op_fail_input(step, P, ATTNRUN_E_SHAPE, "expected no dim of 0");
    if (op_has_in(step, CONTEXT)) {
        TRY(op_need_rank(step, CONTEXT, 2));
        if (!dim_is(attn_dim_of_input(step, CONTEXT, 0), 1))
            TRY(op_need_dim(step, CONTEXT, 0, s->batch, "the batch, or 1"));
        TRY(op_need_dim(step, CONTEXT, 1, s->dim, "the size of X"));
    }
    return attn_key_mask_check(step, KEY_MASK, s->batch, s->n);
}

static attn_status lama_check_args(const attnrun_step *step)
{
    const struct lama_args *args = step->args;
    TRY(attn_need_int(step, "normalize", args->normalize, 0, 1));
    return attn_need_not_negative(step, "norm_epsilon", args->norm_epsilon);
}

static attn_status plan_lama(attnrun_step *step, const struct lama_shape *shape)
{
    const struct lama_args *args = step->args;
    struct lama_state *s = step->state;
    struct attn_pooling *w = &s->pooling;
    *w = (struct attn_pooling){
        .batch = shape->batch.value,
        .rows = shape->heads.value,
        .block = shape->heads.value,
        .tokens = shape->n.value,
        .v_dim = shape->dim.value,
        .form = args->normalize != 0 ? ATTN_POOLING_SOFTMAX : ATTN_POOLING_PLAIN,
    };
    w->tile = attn_pooling_tile(3 * w->rows);
    w->tile = w->tile < MAX_TILE ? w->tile : MAX_TILE;
    s->logits_floats = attn_logits_floats(w->tile, w->v_dim, w->rows);
    if (s->logits_floats < 0 || w->v_dim > INT32_MAX)
        return op_fail_size(
            step, "the number of channels would be over 2^31 - 1, or its scratch memory",
            "2^63 - 1 bytes");
    /* Logits; squares of a row and their sums; a context as sums and as floats; P' c. */
    w->extra_floats = s->logits_floats + 2 * w->tile + 3 * w->v_dim + w->rows + 64;
    w->token_ns =
        (double)w->v_dim * (0.03 * (double)w->rows + 0.2) + 3.0 * (double)w->rows + 5;
    TRY(attn_pooling_plan(step, w));
    if (op_has_in(step, CONTEXT) && dim_is(step->in[CONTEXT].dims[0], w->batch))
        s->context_step = w->v_dim;
    s->apart = w->parts > 1 && !op_has_in(step, CONTEXT);
    const int64_t sum_ns = 500 + w->part * w->v_dim / 4;
    op_tasks(step, SUMS, s->apart ? w->n_tasks : 0, sum_ns);
    op_tasks(step, CONTEXTS, s->apart ? w->batch : 0, 1000 + w->parts * w->v_dim);
    op_tasks(step, POOL, w->n_tasks, w->task_cost);
    op_tasks(step, MERGE, w->n_merges, w->merge_cost);
    step->scratch_bytes = w->scratch_bytes;
    step->shared_bytes = w->shared_bytes;
    if (s->apart) /* sums and counts of parts, then contexts */
        step->shared_bytes +=
            (w->n_tasks * (w->v_dim + 1) + w->batch * w->v_dim) * (int64_t)sizeof(double);
    return ATTNRUN_OK;
}

static attn_status lama_infer(attnrun_step *step)
{
    struct lama_shape shape;
    TRY(lama_check_args(step));
    TRY(lama_check_operands(step, &shape));
    const attnrun_dim y[3] = { shape.batch, shape.heads, shape.dim };
    const attnrun_dim weights[3] = { shape.batch, shape.heads, shape.n };
    TRY(op_out(step, 0, ATTNRUN_F32, 3, y));
    TRY(op_out(step, 1, ATTNRUN_F32, 3, weights));
    return step->concrete ? plan_lama(step, &shape) : ATTNRUN_OK;
}

ATTN_GEMM_PACKS(lama, Q, false)

/* ---- contexts ---- */

/* Adds up the tokens from … to - 1 of sample b that are not masked: sums[dim], and their
 * number. */
static void sum_tokens(const attnrun_step *step, int64_t b, int64_t from, int64_t to,
                       double *sums)
{
    const struct lama_state *s = step->state;
    const int64_t dim = s->pooling.v_dim, n = s->pooling.tokens;
    const float *x = (const float *)step->x[X].data + b * n * dim;
    const uint8_t *mask = op_has_in(step, KEY_MASK)
                              ? (const uint8_t *)step->x[KEY_MASK].data + b * n
                              : NULL;
    memset(sums, 0, (size_t)(dim + 1) * sizeof *sums);
    for (int64_t i = from; i < to;) {
        int64_t end = i;
        while (end < to && end < i + MAX_TOKENS && (mask == NULL || mask[end] != 0))
            end++;
        if (end > i)
            step->kernels->add_rows_f32(sums, x + i * dim, dim, (size_t)(end - i),
                                        (size_t)dim);
        sums[dim] += (double)(end - i);
        i = end > i ? end : i + 1;
    }
}

static void to_context(float *context, const double *sums, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++)
        context[d] = (float)(sums[d] / fmax(sums[dim], 1e-9));
}

/* The sums in shared memory, behind the records of parts: (n_tasks, dim + 1) sums, then
 * (batch, dim) contexts. */
static double *shared_sums(const struct lama_state *s, const attnrun_work *work)
{
    return op_slot_at(work->shared, s->pooling.shared_bytes);
}

static float *shared_context(const struct lama_state *s, const attnrun_work *work,
                             int64_t b)
{
    double *contexts = shared_sums(s, work) + s->pooling.n_tasks * (s->pooling.v_dim + 1);
    return (float *)(void *)contexts + b * s->pooling.v_dim;
}

static void merge_context(const struct lama_state *s, const attnrun_work *work, int64_t b)
{
    const int64_t dim = s->pooling.v_dim;
    double *sums = shared_sums(s, work) + b * s->pooling.parts * (dim + 1);
    for (int64_t part = 1; part < s->pooling.parts; part++)
        for (int64_t d = 0; d <= dim; d++)
            sums[d] += sums[part * (dim + 1) + d];
    to_context(shared_context(s, work, b), sums, dim);
}

/* ---- scores ---- */

struct pool {
    const attnrun_step *step;
    float *logits, *square, *total, *factor; /* factor: P' c, by head */
};

/* Computes P' c of the task's sample. `own`: space for 3 dim floats, where the task
 * computes c itself. */
static void find_factor(struct pool *p, const struct attn_pooling_task *t, float *own,
                        const attnrun_work *work)
{
    const attnrun_step *step = p->step;
    const struct lama_state *s = step->state;
    const int64_t dim = s->pooling.v_dim, heads = s->pooling.rows;
    const float *weights = step->x[P].data, *c = own;
    if (op_has_in(step, CONTEXT)) {
        c = (const float *)step->x[CONTEXT].data + t->b * s->context_step;
    } else if (s->apart) {
        c = shared_context(s, work, t->b);
    } else {
        double *sums = (double *)(void *)(own + round_up(dim, 16));
        sum_tokens(step, t->b, 0, s->pooling.tokens, sums);
        to_context(own, sums, dim);
    }
    for (int64_t h = 0; h < heads; h++) {
        double sum = 0;
        for (int64_t d = 0; d < dim; d++)
            sum += (double)weights[d * heads + h] * (double)c[d];
        p->factor[h] = (float)sum;
    }
}

/* Divides the scores of a token by their norm over the heads. */
static void normalize(const struct pool *p, float *scores, int64_t tile, int64_t n)
{
    const struct lama_args *args = p->step->args;
    const struct attn_kernels *kernels = p->step->kernels;
    const int64_t heads = ((const struct lama_state *)p->step->state)->pooling.rows;
    memset(p->total, 0, (size_t)n * sizeof *p->total);
    for (int64_t h = 0; h < heads; h++) {
        kernels->mul_f32(p->square, scores + h * tile, 1, scores + h * tile, 1,
                         (size_t)n);
        kernels->add_f32(p->total, p->total, 1, p->square, 1, (size_t)n);
    }
    for (int64_t i = 0; i < n; i++) {
        const float norm = sqrtf(p->total[i]) + args->norm_epsilon;
        p->total[i] = norm == 0.0f ? 0.0f : 1.0f / norm;
    }
    for (int64_t h = 0; h < heads; h++)
        kernels->mul_f32(scores + h * tile, scores + h * tile, 1, p->total, 1, (size_t)n);
}

static void lama_scores(void *arg, const struct attn_pooling_task *task, float *scores,
                        int64_t first, int64_t n)
{
    const struct pool *p = arg;
    const attnrun_step *step = p->step;
    const struct lama_args *args = step->args;
    const struct attn_pooling *w = &((const struct lama_state *)step->state)->pooling;
    const float none[2] = { 0.0f, 0.0f };
    const struct attn_logits logits = { .x = (const float *)step->x[X].data +
                                             (task->b * w->tokens + first) * w->v_dim,
                                        .x_row = w->v_dim,
                                        .k = w->v_dim,
                                        .heads = w->rows,
                                        .step = step,
                                        .in = Q,
                                        .scale = 1.0f,
                                        .activation = -1,
                                        .scratch = p->logits };
    attn_logits_run(&logits, step->kernels, n, scores, w->tile);
    for (int64_t h = 0; h < w->rows; h++) {
        float *s = scores + h * w->tile;
        step->kernels->mul_f32(s, s, 1, p->factor + h, 0, (size_t)n);
        if (args->activation == 1)
            step->kernels->tanh_f32(s, s, (size_t)n, none);
    }
    normalize(p, scores, w->tile, n);
}

static attn_status pool_task(const struct pool *shared, const attnrun_work *work,
                             const struct attn_pooling_operands *o, int64_t task)
{
    const attnrun_step *step = shared->step;
    const struct lama_state *s = step->state;
    const struct attn_pooling_task t = attn_pooling_at(&s->pooling, task, work->scratch);
    struct attn_pooling_operands mine = *o;
    struct pool p = { .step = step, .logits = t.extra };
    mine.arg = &p;
    p.square = p.logits + s->logits_floats;
    p.total = p.square + s->pooling.tile;
    p.factor = p.total + s->pooling.tile;
    find_factor(&p, &t, p.factor + round_up(s->pooling.rows, 16), work);
    return attn_pooling_run(&s->pooling, step->kernels, &mine, &t, work);
}

static attn_status lama_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct lama_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    const struct pool p = { .step = step };
    struct attn_pooling_operands o =
        attn_pooling_dense(w, step->x[X].data, op_in_data(step, KEY_MASK),
                           step->y[0].data, op_has_out(step, 1) ? step->y[1].data : NULL);
    o.scores = lama_scores;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == SUMS) {
            const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
            sum_tokens(step, t.b, t.from, t.to,
                       shared_sums(s, work) + task * (w->v_dim + 1));
        } else if (work->phase == CONTEXTS) {
            merge_context(s, work, task);
        } else if (work->phase == POOL) {
            TRY(pool_task(&p, work, &o, task));
        } else {
            attn_pooling_merge(w, step->kernels, &o, task, work);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_lama_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LAMAAttention",
    .since = 1,
    .inputs = "X:T P:T Q:T context:T? key_mask:b8?",
    .outputs = "Y:T weights:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct lama_args),
    .state_bytes = sizeof(struct lama_state),
    .attrs = lama_attrs,
    .infer = lama_infer,
    .pack = lama_pack,
    .check_packed = lama_check_packed,
    .run = lama_run,
    .cost = "O(n d heads), scratch O(tile heads)",
    .source = "Mehta 2019, arXiv:1912.00835",
};
