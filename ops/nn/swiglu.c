/* swiglu.c - SwiGLU: y = swish(a) * b = a * sigmoid(alpha * a) * b, element by element.
 *
 * a, b, y  of the same dims, f32 or f64; alpha is 1 by default
 *
 * The row is a formula. Cost: O(n). Source: ONNX SwiGLU-28; Shazeer 2020,
 * arXiv:2002.05202. */
#include "../../runtime/op.h"

struct swiglu_args {
    float alpha;
};
static const attnrun_attr_def swiglu_attrs[] = {
    ATTR_FLOAT(struct swiglu_args, alpha, 1.0f), ATTR_END
};

static attn_status swiglu_infer(attnrun_step *step)
{
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    if (a->rank >= 0 && b->rank >= 0) {
        TRY(op_need_rank(step, 1, a->rank));
        for (int i = 0; i < a->rank; i++)
            TRY(op_need_dim(step, 1, i, a->dims[i], "the dim of A"));
    }
    return op_out_like(step, 0, a->rank >= 0 ? 0 : 1);
}

static attn_status swiglu_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct swiglu_args *args = step->args;
    attnrun_body_number(body, "alpha", (double)args->alpha);
    return attnrun_body_add(body,
                            "Y = Swish<alpha=alpha>(A) * attnrun.fused.CheckDims(B, A)");
}

const attnrun_op_def op_swiglu_28 = {
    OP_ROW,
    .name = "SwiGLU",
    .since = 28,
    .inputs = "A:T B:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct swiglu_args),
    .attrs = swiglu_attrs,
    .infer = swiglu_infer,
    .expand = swiglu_expand,
    .cost = "O(n)",
    .source = "ONNX SwiGLU-28; arXiv:2002.05202",
};
