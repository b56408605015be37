/* attention_pooling.c - AttentionPooling: a small network scores the tokens, and their
 * weighted sum is the result. Each column of c is a head.
 *
 *   u_n = tanh(x_n W + b)    s_n = f(u_n c + c_bias)    Y = sum over n of a_n x_n
 *
 * where a is the softmax of s over the tokens.
 *
 * X         f32 (batch, n, dim)
 * W         f32 (dim, units)
 * c         f32 (units), or (units, heads)
 * b         f32 (units), optional
 * c_bias    f32 (1), or (heads); optional
 * key_mask  b8 (batch, n), optional: tokens that are false are left out; Y is zeros where
 *           no token is left
 * Y         f32 (batch, heads * dim)
 * weights   f32 (batch, n), or (batch, heads, n) with more than one head; optional
 * score_activation  f: none or tanh
 * normalizer        softmax, or exp_sum: a = exp(s) / (sum of exp(s) + epsilon), without
 *                   subtracting the maximum first
 * epsilon           1e-8 by default
 *
 * Refused: other ranks, sizes that disagree, a W with a dim of 0, 0 heads, epsilon < 0.
 * Cost: 2 n dim units FLOPs. The rows u exist only for a tile of up to 128 tokens.
 * Source: Yang 2016, Hierarchical Attention Networks. Compared with uvipen's WordAttNet
 * b1ea9e0 (score_activation tanh; without a mask) and wuch15/Fastformer 84cc859
 * AttentionPooling (exp_sum). */
#include "../../matmul/gemm.h"
#include "../core/heads.h"
#include "../core/softmax_pooling.h"

enum { X, W, C, B, C_BIAS, KEY_MASK, MAX_TILE = 128 };

struct pooling_args {
    int32_t score_activation, normalizer;
    float epsilon;
};

static const attnrun_attr_def pooling_attrs[] = {
    ATTR_ENUM(struct pooling_args, score_activation, "none|tanh", 0),
    ATTR_ENUM(struct pooling_args, normalizer, "softmax|exp_sum", 0),
    ATTR_FLOAT(struct pooling_args, epsilon, 1e-8f),
    ATTR_END,
};

struct pooling_state {
    struct attn_pooling pooling;
    int64_t units, hidden_floats;
};

struct pooling_shape {
    attnrun_dim batch, n, dim, units, heads;
};

static attn_status attention_pooling_check_operands(const attnrun_step *step,
                                                    struct pooling_shape *s)
{
    TRY(op_need_rank(step, X, 3));
    TRY(op_need_rank(step, W, 2));
    TRY(op_need_rank_between(step, C, 1, 2));
    s->batch = attn_dim_of_input(step, X, 0);
    s->n = attn_dim_of_input(step, X, 1);
    s->dim = attn_known_of(attn_dim_of_input(step, X, 2), attn_dim_of_input(step, W, 0));
    s->units =
        attn_known_of(attn_dim_of_input(step, W, 1), attn_dim_of_input(step, C, 0));
    s->heads = step->in[C].rank == 1 ? dim_of(1) : attn_dim_of_input(step, C, 1);
    TRY(op_need_dim(step, W, 0, s->dim, "the size of X"));
    TRY(op_need_dim(step, C, 0, s->units, "the columns of W"));
    TRY(op_need_vector(step, B, s->units, "the columns of W"));
    TRY(op_need_vector(step, C_BIAS, s->heads, "the heads of c"));
    if (dim_is(s->dim, 0) || dim_is(s->units, 0))
        return op_fail_input(step, W, ATTNRUN_E_SHAPE, "expected no dim of 0");
    if (dim_is(s->heads, 0))
        return op_fail_input(step, C, ATTNRUN_E_SHAPE, "expected at least 1 head");
    return attn_key_mask_check(step, KEY_MASK, s->batch, s->n);
}

static attn_status attention_pooling_set_outputs(attnrun_step *step,
                                                 const struct pooling_shape *s)
{
    const attnrun_dim y[2] = { s->batch, attnrun_dim_mul(step, s->heads, s->dim) };
    const attnrun_dim one[2] = { s->batch, s->n }, all[3] = { s->batch, s->heads, s->n };
    TRY(op_out(step, 0, ATTNRUN_F32, 2, y));
    if (!dim_is_const(s->heads))
        return op_out(step, 1, ATTNRUN_F32, -1, NULL);
    return dim_is(s->heads, 1) ? op_out(step, 1, ATTNRUN_F32, 2, one)
                               : op_out(step, 1, ATTNRUN_F32, 3, all);
}

static attn_status pooling_infer(attnrun_step *step)
{
    const struct pooling_args *args = step->args;
    struct pooling_state *s = step->state;
    struct attn_pooling *w = &s->pooling;
    struct pooling_shape shape;
    TRY(attn_need_not_negative(step, "epsilon", args->epsilon));
    TRY(attention_pooling_check_operands(step, &shape));
    TRY(attention_pooling_set_outputs(step, &shape));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->units = shape.units.value;
    w->batch = shape.batch.value;
    w->rows = w->block = shape.heads.value;
    w->tokens = shape.n.value;
    w->v_dim = shape.dim.value;
    w->form = args->normalizer == 0 ? ATTN_POOLING_SOFTMAX : ATTN_POOLING_EXP;
    w->epsilon = args->normalizer == 0 ? 0.0f : args->epsilon;
    w->tile = attn_pooling_tile(s->units + w->rows);
    w->tile = w->tile < MAX_TILE ? w->tile : MAX_TILE;
    s->hidden_floats = attn_logits_floats(w->tile, w->v_dim, s->units); /* u, too */
    const int64_t logits = attn_logits_floats(w->tile, s->units, w->rows);
    if (s->hidden_floats < 0 || logits < 0)
        return op_fail_scratch(step);
    w->extra_floats = s->hidden_floats + logits;
    w->token_ns = (double)s->units * (0.015 * (double)(w->v_dim + w->rows) + 0.3) +
                  0.02 * (double)w->rows * (double)w->v_dim + 5;
    TRY(attn_pooling_plan(step, w));
    attn_pooling_tasks(step, w);
    return ATTNRUN_OK;
}

ATTN_GEMM_PACKS(pooling, W, false)

static void pooling_scores(void *arg, const struct attn_pooling_task *task, float *scores,
                           int64_t first, int64_t n)
{
    const attnrun_step *step = arg;
    const struct pooling_args *args = step->args;
    const struct pooling_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    struct attn_epilogue steps[2] = { { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .col = 1 },
                                      { .kind = ATTN_EPI_TANH } };
    const bool bias = op_has_in(step, B);
    steps[0].data = bias ? step->x[B].data : NULL;
    float *hidden = task->extra;
    struct attn_gemm_f32 g = { .a = (const float *)step->x[X].data +
                                    (task->b * w->tokens + first) * w->v_dim,
                               .a_row = w->v_dim,
                               .c = hidden,
                               .c_row = s->units,
                               .m = (size_t)n,
                               .n = (size_t)s->units,
                               .k = (size_t)w->v_dim,
                               .epilogue = bias ? steps : steps + 1,
                               .n_epilogue = bias ? 2 : 1 };
    attn_gemm_use_weight(&g, step, W);
    g.scratch = hidden + round_up(w->tile * s->units, 16);
    step->kernels->gemm_f32(&g);
    const struct attn_logits logits = {
        .x = hidden,
        .x_row = s->units,
        .k = s->units,
        .heads = w->rows,
        .b = step->x[C].data,
        .bias = op_in_data(step, C_BIAS),
        .scale = 1.0f,
        .activation = args->score_activation == 0 ? -1 : ATTN_EPI_TANH,
        .scratch = hidden + s->hidden_floats,
    };
    attn_logits_run(&logits, step->kernels, n, scores, w->tile);
}

static attn_status pooling_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct pooling_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    struct attn_pooling_operands o =
        attn_pooling_dense(w, step->x[X].data, op_in_data(step, KEY_MASK),
                           step->y[0].data, op_has_out(step, 1) ? step->y[1].data : NULL);
    o.scores = pooling_scores;
    o.arg = (void *)(uintptr_t)step;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 1) {
            attn_pooling_merge(w, step->kernels, &o, task, work);
            continue;
        }
        const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
        TRY(attn_pooling_run(w, step->kernels, &o, &t, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_attention_pooling_1 = {
    OP_ROW_OF("attnrun"),
    .name = "AttentionPooling",
    .since = 1,
    .inputs = "X:T W:T c:T b:T? c_bias:T? key_mask:b8?",
    .outputs = "Y:T weights:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct pooling_args),
    .state_bytes = sizeof(struct pooling_state),
    .attrs = pooling_attrs,
    .infer = pooling_infer,
    .pack = pooling_pack,
    .check_packed = pooling_check_packed,
    .run = pooling_run,
    .cost = "O(n d units), scratch O(tile units)",
    .source = "Yang 2016, Hierarchical Attention Networks, aclanthology.org/N16-1174",
};
