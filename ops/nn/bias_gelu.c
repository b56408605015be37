/* bias_gelu.c - com.microsoft BiasGelu (A + B, then Gelu by erf) and FastGelu (X + bias,
 * then Gelu by tanh).
 *
 * X, A   f32, any shape;  bias, B  f32 (last dim of X)
 *
 * The rows are formulas. Cost: O(n), one pass where the formula is fused. Source: ONNX
 * Runtime contrib operators. */
#include "../../runtime/op.h"

static attn_status bias_gelu_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_out_like(step, 0, 0));
    if (!op_has_in(step, 1))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, 1, 1));
    if (x->rank == 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected rank 1 or more");
    return x->rank < 0 ? ATTNRUN_OK
                       : op_need_dim(step, 1, 0, x->dims[x->rank - 1],
                                     "the last dim of the input");
}

static attn_status bias_gelu_expand(const attnrun_step *step, attnrun_body *body)
{
    (void)step;
    return attnrun_body_add(body, "Y = Gelu(A + attnrun.fused.CheckDims(B, A))");
}

static attn_status fast_gelu_expand(const attnrun_step *step, attnrun_body *body)
{
    if (op_has_in(step, 1))
        TRY(attnrun_body_add(body, "X = X + attnrun.fused.CheckDims(bias, X)"));
    return attnrun_body_add(body, "Y = Gelu<approximate=\"tanh\">(X)");
}

#define GELU_ROW(row, onnx_name, takes, formula)                                         \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF("com.microsoft"),                                                      \
        .name = onnx_name,                                                               \
        .since = 1,                                                                      \
        .inputs = takes,                                                                 \
        .outputs = "Y:T",                                                                \
        .types = "T=f32",                                                                \
        .infer = bias_gelu_infer,                                                        \
        .expand = formula,                                                               \
        .cost = "O(n)",                                                                  \
    }
GELU_ROW(op_ms_bias_gelu_1, "BiasGelu", "A:T B:T", bias_gelu_expand);
GELU_ROW(op_ms_fast_gelu_1, "FastGelu", "X:T bias:T?", fast_gelu_expand);
