/* gemm_op.c - Gemm: Y = alpha A' B' + beta C, where A' is A or, with transA, its
 * transpose.
 *
 * A, B   f32, f64, i32, i64, u32 or u64, (m,k) and (k,n) after transposing;  C broadcasts
 *        to (m,n), optional
 *
 * alpha and beta are 1 by default. C is always treated as with the `broadcast` of version
 * 6. com.microsoft FusedGemm adds an activation, in the epilogue of the product or in a
 * phase of its own. Cost: 2 m n k FLOPs. Source: ONNX Gemm-13. */
#include <math.h>

#include "plain_product.h"

struct gemm_args {
    int64_t transA, transB;
    float alpha, beta;
    int32_t activation;
    float activation_alpha, activation_beta, activation_gamma; /* NaN: its default */
};

static const attnrun_attr_def gemm_attrs[] = {
    ATTR_FLAG(struct gemm_args, transA, 0),
    ATTR_FLAG(struct gemm_args, transB, 0),
    ATTR_FLOAT(struct gemm_args, alpha, 1.0f),
    ATTR_FLOAT(struct gemm_args, beta, 1.0f),
    ATTR_IGNORED("broadcast"),
    ATTR_END,
};

/* The words at the places of ACTIVATIONS. */
enum {
    ACT_NONE,
    RELU,
    TANH,
    SIGMOID,
    LEAKY_RELU,
    HARD_SIGMOID,
    ON_THE_WAY = HARD_SIGMOID
};
enum { ELU = ON_THE_WAY + 1, SELU, SOFTPLUS, SOFTSIGN, THRESHOLDED_RELU };
#define ACTIVATIONS                                                                      \
    "|Relu|Tanh|Sigmoid|LeakyRelu|HardSigmoid|Elu|Selu|Softplus|Softsign|"               \
    "ThresholdedRelu"
static const attnrun_attr_def fused_gemm_attrs[] = {
    ATTR_FLAG(struct gemm_args, transA, 0),
    ATTR_FLAG(struct gemm_args, transB, 0),
    ATTR_FLOAT(struct gemm_args, alpha, 1.0f),
    ATTR_FLOAT(struct gemm_args, beta, 1.0f),
    ATTR_ENUM(struct gemm_args, activation, ACTIVATIONS, ACT_NONE),
    ATTR_FLOAT(struct gemm_args, activation_alpha, NAN),
    ATTR_FLOAT(struct gemm_args, activation_beta, NAN),
    ATTR_FLOAT(struct gemm_args, activation_gamma, NAN),
    ATTR_END,
};

struct gemm_state {
    struct attn_gemm gemm;
    int64_t c_row, c_col;
    int64_t n; /* elements that a second phase activates */
};

/* Checks C's dims against those of the product, from the right. */
static attn_status check_c(const attnrun_step *step, const attnrun_dim *dims)
{
    const attnrun_type *c = &step->in[2];
    TRY(op_need_rank_between(step, 2, 0, 2));
    for (int i = 0; i < c->rank; i++)
        if (!dim_is(c->dims[i], 1))
            TRY(op_need_dim(step, 2, i, dims[2 - c->rank + i],
                            "as the product has, or 1"));
    return ATTNRUN_OK;
}

static void c_strides(const attnrun_type *c, struct gemm_state *state)
{
    int64_t columns = c->rank > 0 ? c->dims[c->rank - 1].value : 1;
    state->c_col = columns == 1 ? 0 : 1;
    state->c_row = c->rank < 2 || c->dims[0].value == 1 ? 0 : columns;
}

static attn_status gemm_infer(attnrun_step *step)
{
    const struct gemm_args *args = step->args;
    struct gemm_state *state = step->state;
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    attnrun_dim dims[2] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step) };
    bool ta = args->transA != 0, tb = args->transB != 0;
    TRY(op_need_rank(step, 0, 2));
    TRY(op_need_rank(step, 1, 2));
    if (a->rank == 2)
        dims[0] = a->dims[ta];
    if (b->rank == 2)
        dims[1] = b->dims[!tb];
    if (a->rank == 2 && b->rank == 2)
        TRY(op_need_dim(step, 1, tb, a->dims[!ta], "the depth of A"));
    if (op_has_in(step, 2))
        TRY(check_c(step, dims));
    TRY(op_out(step, 0, a->dtype, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    attn_gemm_describe(&state->gemm, dims[0].value, dims[1].value, a->dims[!ta].value, ta,
                       tb);
    state->gemm.b_type = b->dtype;
    if (op_has_in(step, 2))
        c_strides(&step->in[2], state);
    if (a->dtype == ATTNRUN_F32)
        TRY(attn_gemm_plan(step, &state->gemm));
    else
        TRY(attn_plain_plan(step, &state->gemm));
    op_tasks(step, 0, state->gemm.n_tasks, state->gemm.task_cost);
    step->scratch_bytes = state->gemm.scratch_bytes;
    if (args->activation > ON_THE_WAY) {
        state->n = op_count(&step->out[0], 0, 2);
        op_unit_tasks(step, 1, state->n, OP_CHUNK, 1);
    }
    return ATTNRUN_OK;
}

ATTN_GEMM_PACKS_FACTOR(gemm, ((const struct gemm_args *)pack->args)->transB != 0)

static float or_default(float given, float otherwise)
{
    return isnan(given) ? otherwise : given;
}

static int list_activation(const struct gemm_args *args, struct attn_epilogue *steps)
{
    static const float one = 1.0f;
    static const int32_t kinds[] = { -1, ATTN_EPI_RELU, ATTN_EPI_TANH, ATTN_EPI_SIGMOID,
                                     ATTN_EPI_LEAKY_RELU };
    if (args->activation == ACT_NONE || args->activation > ON_THE_WAY)
        return 0;
    if (args->activation != HARD_SIGMOID) {
        steps[0] =
            (struct attn_epilogue){ .kind = kinds[args->activation],
                                    .alpha = or_default(args->activation_alpha, 0.01f) };
        return 1;
    }
    steps[0] =
        (struct attn_epilogue){ .kind = ATTN_EPI_SCALE,
                                .alpha = or_default(args->activation_alpha, 0.2f) };
    steps[1] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                       .alpha = or_default(args->activation_beta, 0.5f),
                                       .data = &one };
    steps[2] = (struct attn_epilogue){ .kind = ATTN_EPI_CLIP, .alpha = 0, .beta = 1.0f };
    return 3;
}

/* Applies an activation that no epilogue has to a chunk of Y. */
static void gemm_op_activate(const attnrun_step *step, int64_t task)
{
    const struct gemm_args *args = step->args;
    const struct gemm_state *state = step->state;
    const struct attn_kernels *k = step->kernels;
    float *y = (float *)step->y[0].data + task * OP_CHUNK;
    int64_t left = state->n - task * OP_CHUNK;
    const size_t n = (size_t)(left < OP_CHUNK ? left : OP_CHUNK);
    const float selu[2] = { or_default(args->activation_alpha, 1.67326319f),
                            or_default(args->activation_gamma, 1.05070102f) };
    const float one[2] = { or_default(args->activation_alpha, 1.0f), 0 };
    switch (args->activation) {
    case ELU:
        k->elu_f32(y, y, n, one);
        break;
    case SELU:
        k->selu_f32(y, y, n, selu);
        break;
    case SOFTPLUS:
        k->softplus_f32(y, y, n, one);
        break;
    case SOFTSIGN:
        k->softsign_f32(y, y, n, one);
        break;
    default:
        k->thresholded_relu_f32(y, y, n, one);
    }
}

static int gemm_op_list_epilogue(const attnrun_step *step, struct attn_epilogue *steps)
{
    const struct gemm_args *args = step->args;
    const struct gemm_state *state = step->state;
    int n = 0;
    if (args->alpha != 1.0f)
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = args->alpha };
    if (op_has_in(step, 2) && args->beta != 0.0f)
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                             .alpha = args->beta,
                                             .data = step->x[2].data,
                                             .row = state->c_row,
                                             .col = state->c_col };
    return n + list_activation(args, steps + n);
}

static attn_status gemm_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gemm_args *args = step->args;
    const struct gemm_state *state = step->state;
    struct attn_epilogue steps[5];
    struct attn_gemm_operands o = attn_gemm_factors(step);
    o.epilogue = steps;
    o.n_epilogue = gemm_op_list_epilogue(step, steps);
    const struct attn_plain plain = { .dtype = step->x[0].dtype,
                                      .alpha = (double)args->alpha,
                                      .beta = (double)args->beta,
                                      .c0_row = state->c_row,
                                      .c0_col = state->c_col };
    const void *c = args->beta != 0.0f ? op_in_data(step, 2) : NULL; /* 0 * NaN is NaN */
    if (work->phase == 0 && plain.dtype == ATTNRUN_F32)
        return attn_gemm_run(&state->gemm, step->kernels, &o, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 1)
            gemm_op_activate(step, task);
        else
            TRY(attn_plain_row(&state->gemm, &plain, &o, c, task, work));
    }
    return ATTNRUN_OK;
}

#define GEMM_ROW                                                                         \
    .inputs = "A:T B:T C:T?", .outputs = "Y:T", .args_bytes = sizeof(struct gemm_args),  \
    .state_bytes = sizeof(struct gemm_state), .infer = gemm_infer, .pack = gemm_pack,    \
    .check_packed = gemm_check_packed, .storage_in = 2, .run = gemm_run,                 \
    .cost = "O(m n k)"
const attnrun_op_def op_gemm_1 = {
    OP_ROW,
    .name = "Gemm",
    .since = 1,
    .types = "T=f32,f64,i32,i64,u32,u64",
    .attrs = gemm_attrs,
    GEMM_ROW,
};

const attnrun_op_def op_ms_fused_gemm_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "FusedGemm",
    .since = 1,
    .types = "T=f32",
    .attrs = fused_gemm_attrs,
    .source = "ONNX Runtime contrib operators",
    GEMM_ROW,
};
