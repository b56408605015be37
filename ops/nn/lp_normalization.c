/* lp_normalization.c - LpNormalization: y = x / |x|_p along one axis; y is 0 where the
 * norm is 0.
 *
 * x, y   f32 or f64, any shape;  axis -1 by default;  p 1 or 2, 2 by default
 *
 * The row is a formula. Cost: O(n). Source: ONNX LpNormalization-22. */
#include "../../runtime/op.h"

struct lp_normalization_args {
    int64_t axis, p;
};
static const attnrun_attr_def lp_normalization_attrs[] = {
    ATTR_INT(struct lp_normalization_args, axis, -1),
    ATTR_CHOICE(struct lp_normalization_args, p, "1..2", 2),
    ATTR_END,
};

static attn_status lp_normalization_infer(attnrun_step *step)
{
    const struct lp_normalization_args *args = step->args;
    int axis;
    TRY(op_out_like(step, 0, 0));
    return op_rank_known(step, 0)
               ? op_axis(step, args->axis, step->in[0].rank, false, &axis)
               : ATTNRUN_OK;
}

static attn_status lp_normalization_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct lp_normalization_args *args = step->args;
    attnrun_body_ints(body, "axis", 1, &args->axis);
    TRY(attnrun_body_add(body, args->p == 1 ? "norm = ReduceL1(input, axis)"
                                            : "norm = ReduceL2(input, axis)"));
    return attnrun_body_add(body,
                            "zero = Equal(norm, 0);"
                            "output = Where(zero, 0, input / Where(zero, 1, norm))");
}

const attnrun_op_def op_lp_normalization_1 = {
    OP_ROW,
    .name = "LpNormalization",
    .since = 1,
    .inputs = "input:T",
    .outputs = "output:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct lp_normalization_args),
    .attrs = lp_normalization_attrs,
    .infer = lp_normalization_infer,
    .expand = lp_normalization_expand,
    .cost = "O(n)",
};
