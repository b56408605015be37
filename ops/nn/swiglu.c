/* swiglu.c - SwiGLU: y = swish(a) * b = a * sigmoid(alpha * a) * b, element by element.
 *
 * a, b, y  of the same dims, f32 or f64; alpha 1 by default
 * Source: ONNX SwiGLU-28; Shazeer 2020, arXiv:2002.05202. */
#include <math.h>

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

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
    TRY(op_out_like(step, 0, a->rank >= 0 ? 0 : 1));
    if (step->concrete)
        op_tasks(step, 0, op_chunks(op_count(a, 0, a->rank)), OP_CHUNK);
    return ATTNRUN_OK;
}

static attn_status swiglu_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct swiglu_args *args = step->args;
    const float p[2] = { args->alpha, 0 };
    const double alpha = (double)args->alpha;
    const int64_t n = tensor_count(&step->x[0]);
    for (int64_t t = work->begin; t < work->end && step->y[0].data != NULL; t++) {
        int64_t first = t * OP_CHUNK;
        int64_t end = n - first < OP_CHUNK ? n : first + OP_CHUNK;
        size_t count = (size_t)(end - first);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (step->x[0].dtype == ATTNRUN_F64) {
            const double *a = step->x[0].data, *b = step->x[1].data;
            for (int64_t i = first; i < end; i++)
                ((double *)step->y[0].data)[i] = a[i] / (1 + exp(-alpha * a[i])) * b[i];
            continue;
        }
        float *y = (float *)step->y[0].data + first;
        step->kernels->swish_f32(y, (const float *)step->x[0].data + first, count, p);
        step->kernels->mul_f32(y, y, 1, (const float *)step->x[1].data + first, 1, count);
    }
    return ATTNRUN_OK;
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
    .run = swiglu_run,
    .cost = "O(n)",
    .source = "ONNX SwiGLU-28; arXiv:2002.05202",
};
