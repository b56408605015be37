/* fused_matmul.c - FusedMatMul: Y = activation(alpha * A B + bias + residual). Rewrite
 * passes write it for MatMul, Add and an activation.
 *
 * A, B       f32, as MatMul's; transA, transB exchange the last two dims
 * bias       f32 (n), or (1): added to every row
 * residual   f32 of Y's shape
 *
 * Domain attnrun.fused: exporters never write it. com.microsoft FusedMatMul, which was
 * TransposeMatMul before, is the same with transposes only. Cost: 2 m n k FLOPs; scratch:
 * see gemm.h. */
#include "shapes.h"

struct fused_matmul_args {
    int64_t transA, transB, transBatchA, transBatchB;
    float alpha;
    int32_t activation;
};

#define FUSED_MATMUL_ACTIVATIONS "none|relu|gelu|gelu_tanh|silu|tanh|sigmoid"
static const int32_t activation_steps[] = { -1,
                                            ATTN_EPI_RELU,
                                            ATTN_EPI_GELU,
                                            ATTN_EPI_GELU_TANH,
                                            ATTN_EPI_SILU,
                                            ATTN_EPI_TANH,
                                            ATTN_EPI_SIGMOID };

static const attnrun_attr_def fused_matmul_attrs[] = {
    ATTR_FLAG(struct fused_matmul_args, transA, 0),
    ATTR_FLAG(struct fused_matmul_args, transB, 0),
    ATTR_FLOAT(struct fused_matmul_args, alpha, 1.0f),
    ATTR_ENUM(struct fused_matmul_args, activation, FUSED_MATMUL_ACTIVATIONS, 0),
    ATTR_END,
};
static const attnrun_attr_def ms_fused_matmul_attrs[] = {
    ATTR_FLAG(struct fused_matmul_args, transA, 0),
    ATTR_FLAG(struct fused_matmul_args, transB, 0),
    ATTR_FLAG(struct fused_matmul_args, transBatchA, 0),
    ATTR_FLAG(struct fused_matmul_args, transBatchB, 0),
    ATTR_FLOAT(struct fused_matmul_args, alpha, 1.0f),
    ATTR_END,
};

struct fused_matmul_state {
    struct attn_gemm gemm;
    int64_t bias_col; /* 0: one value for all */
};

static unsigned transposes(const struct fused_matmul_args *args)
{
    return (args->transA != 0 ? ATTN_TRANS_A : 0u) |
           (args->transB != 0 ? ATTN_TRANS_B : 0u);
}

static attn_status check_bias(const attnrun_step *step, int rank, const attnrun_dim *dims)
{
    TRY(op_need_rank(step, 2, 1));
    if (step->in[2].rank == 1 && rank > 0 && !dim_is(step->in[2].dims[0], 1))
        TRY(op_need_dim(step, 2, 0, dims[rank - 1], "the columns of B"));
    return ATTNRUN_OK;
}

static attn_status check_residual(const attnrun_step *step, int rank,
                                  const attnrun_dim *dims)
{
    TRY(op_need_rank(step, 3, rank));
    for (int i = 0; i < rank; i++)
        TRY(op_need_dim(step, 3, i, dims[i], "the shape of the product"));
    return ATTNRUN_OK;
}

static attn_status fused_matmul_infer(attnrun_step *step)
{
    const struct fused_matmul_args *args = step->args;
    struct fused_matmul_state *state = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    if (args->transBatchA != 0 || args->transBatchB != 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "transBatchA and transBatchB are not supported");
    TRY(attn_matmul_dims(step, 0, 1, transposes(args), &rank, dims));
    TRY(op_out(step, 0, step->in[0].dtype, rank, rank < 0 ? NULL : dims));
    if (rank >= 0 && op_has_in(step, 2))
        TRY(check_bias(step, rank, dims));
    if (rank >= 0 && op_has_in(step, 3)) {
        TRY(check_residual(step, rank, dims));
        attnrun_step_inplace(step, 0, 3);
    }
    if (!step->concrete)
        return ATTNRUN_OK;
    if (op_has_in(step, 2))
        state->bias_col = step->in[2].dims[0].value == 1 ? 0 : 1;
    TRY(attn_matmul_describe(step, 0, 1, transposes(args), &state->gemm));
    TRY(attn_gemm_plan(step, &state->gemm));
    op_tasks(step, 0, state->gemm.n_tasks, state->gemm.task_cost);
    step->scratch_bytes = state->gemm.scratch_bytes;
    return ATTNRUN_OK;
}

ATTN_GEMM_PACKS_FACTOR(fused_matmul,
                       ((const struct fused_matmul_args *)pack->args)->transB != 0)

/* Writes the epilogue steps of this node; returns how many. */
static int fused_matmul_list_epilogue(const attnrun_step *step,
                                      struct attn_epilogue *steps)
{
    const struct fused_matmul_args *args = step->args;
    const struct fused_matmul_state *state = step->state;
    int n = 0;
    if (args->alpha != 1.0f)
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = args->alpha };
    if (op_has_in(step, 2))
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                             .alpha = 1.0f,
                                             .data = step->x[2].data,
                                             .col = state->bias_col };
    if (op_has_in(step, 3))
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                             .alpha = 1.0f,
                                             .data = step->x[3].data,
                                             .row = state->gemm.c_row,
                                             .col = 1 };
    if (args->activation != 0)
        steps[n++] = (struct attn_epilogue){ .kind = activation_steps[args->activation] };
    return n;
}

static attn_status fused_matmul_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct fused_matmul_state *state = step->state;
    struct attn_epilogue steps[4];
    struct attn_gemm_operands o = attn_gemm_factors(step);
    o.epilogue = steps;
    o.n_epilogue = fused_matmul_list_epilogue(step, steps);
    return attn_gemm_run(&state->gemm, step->kernels, &o, work);
}

const attnrun_op_def op_fused_matmul_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedMatMul",
    .since = 1,
    .inputs = "A:T B:T bias:T? residual:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct fused_matmul_args),
    .state_bytes = sizeof(struct fused_matmul_state),
    .attrs = fused_matmul_attrs,
    .infer = fused_matmul_infer,
    .pack = fused_matmul_pack,
    .check_packed = fused_matmul_check_packed,
    .storage_in = 2,
    .run = fused_matmul_run,
    .cost = "O(m n k)",
};

#define MS_MATMUL(row, name_)                                                            \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF("com.microsoft"),                                                      \
        .name = name_,                                                                   \
        .since = 1,                                                                      \
        .inputs = "A:T B:T",                                                             \
        .outputs = "Y:T",                                                                \
        .types = "T=f32",                                                                \
        .args_bytes = sizeof(struct fused_matmul_args),                                  \
        .state_bytes = sizeof(struct fused_matmul_state),                                \
        .attrs = ms_fused_matmul_attrs,                                                  \
        .infer = fused_matmul_infer,                                                     \
        .pack = fused_matmul_pack,                                                       \
        .check_packed = fused_matmul_check_packed,                                       \
        .storage_in = 2,                                                                 \
        .run = fused_matmul_run,                                                         \
        .cost = "O(m n k)",                                                              \
        .source = "ONNX Runtime contrib operators",                                      \
    }
MS_MATMUL(op_ms_fused_matmul_1, "FusedMatMul");
MS_MATMUL(op_ms_transpose_matmul_1, "TransposeMatMul");
