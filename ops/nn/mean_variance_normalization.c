/* mean_variance_normalization.c - MeanVarianceNormalization:
 *
 *   Y = (X - mean) / (deviation + 1e-9)   over `axes`, (0, 2, 3) by default
 *
 * X, Y   f32 or f64, of one shape
 *
 * The row is a formula. Cost: O(n). Source: ONNX MeanVarianceNormalization-13. */
#include "../../runtime/op.h"

struct mean_variance_args {
    attnrun_ints axes;
};
static const attnrun_attr_def mean_variance_attrs[] = {
    ATTR_INTS(struct mean_variance_args, axes),
    ATTR_END,
};

static attnrun_ints axes_of(const attnrun_step *step)
{
    static const int64_t usual[] = { 0, 2, 3 };
    const struct mean_variance_args *args = step->args;
    return args->axes.v != NULL ? args->axes : (attnrun_ints){ usual, 3 };
}

static attn_status mean_variance_infer(attnrun_step *step)
{
    const attnrun_ints axes = axes_of(step);
    int axis;
    TRY(op_out_like(step, 0, 0));
    for (int64_t i = 0; i < axes.n && op_rank_known(step, 0); i++)
        TRY(op_axis(step, axes.v[i], step->in[0].rank, false, &axis));
    return ATTNRUN_OK;
}

static attn_status mean_variance_expand(const attnrun_step *step, attnrun_body *body)
{
    const attnrun_ints axes = axes_of(step);
    attnrun_body_number(body, "epsilon", 1e-9);
    attnrun_body_ints(body, "axes", axes.n, axes.v);
    return attnrun_body_add(body,
                            "d = X - ReduceMean<noop_with_empty_axes=1>(X, axes);"
                            "variance = ReduceMean<noop_with_empty_axes=1>(d * d, axes);"
                            "Y = d / (Sqrt(variance) + epsilon)");
}

const attnrun_op_def op_mean_variance_normalization_9 = {
    OP_ROW,
    .name = "MeanVarianceNormalization",
    .since = 9,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct mean_variance_args),
    .attrs = mean_variance_attrs,
    .infer = mean_variance_infer,
    .expand = mean_variance_expand,
    .cost = "O(n)",
};
