/* lrn.c - LRN, local response normalization:
 *
 *   y = x / (bias + alpha / size * sum of squares of the `size` channels around)^beta
 *
 * X   f32 or f64 (N, C, …): the sum is over channels c - (size-1)/2 rounded down … c +
 *     (size-1)/2 rounded up, as far as they exist; Y has the same dims
 *
 * The defaults are alpha 1e-4, beta 0.75 and bias 1. The row is a formula: the sum is an
 * average pool along the channels; an empty X is a batch of none. Cost: O(n size). Source:
 * ONNX LRN-13. */
#include "../../runtime/op.h"

struct lrn_args {
    float alpha, beta, bias;
    int64_t size;
};
static const attnrun_attr_def lrn_attrs[] = {
    ATTR_FLOAT(struct lrn_args, alpha, 1e-4f),
    ATTR_FLOAT(struct lrn_args, beta, 0.75f),
    ATTR_FLOAT(struct lrn_args, bias, 1.0f),
    ATTR_INT_REQUIRED(struct lrn_args, size),
    ATTR_END,
};

static attn_status lrn_infer(attnrun_step *step)
{
    const struct lrn_args *args = step->args;
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    if (args->size < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "size is %lld, expected at least 1",
                       (long long)args->size);
    return op_out_like(step, 0, 0);
}

static attn_status lrn_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct lrn_args *args = step->args;
    const int64_t before = (args->size - 1) / 2;
    const int64_t kernel[] = { args->size, 1 };
    const int64_t pads[] = { before, 0, args->size - 1 - before, 0 };
    attnrun_body_number(body, "alpha", (double)args->alpha);
    attnrun_body_number(body, "beta", (double)args->beta);
    attnrun_body_number(body, "bias", (double)args->bias);
    attnrun_body_ints(body, "kernel", 2, kernel);
    attnrun_body_ints(body, "pads", 4, pads);
    TRY(attnrun_body_add(
        body,
        "channels = Max(Shape<start=1, end=2>(X), [1]);"
        "rest = Max(ReduceProd(Shape<start=2>(X)), [1]);"
        "maps = Reshape(X * X, Concat<axis=0>([-1], [1], channels, rest));"
        "mean = AveragePool<kernel_shape=kernel, pads=pads, count_include_pad=1>(maps);"
        "base = bias + alpha * Reshape<allowzero=1>(mean, Shape(X))"));
    const bool positive =
        args->bias > 0 && args->alpha >= 0; /* and so the base is, too */
    return attnrun_body_add(body, positive ? "Y = X * Exp(-beta * Log(base))"
                                           : "Y = X / Pow(base, beta)");
}

const attnrun_op_def op_lrn_1 = {
    OP_ROW,
    .name = "LRN",
    .since = 1,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct lrn_args),
    .attrs = lrn_attrs,
    .infer = lrn_infer,
    .expand = lrn_expand,
    .cost = "O(n size)",
    .source = "Krizhevsky 2012, ImageNet classification, 3.3",
};
