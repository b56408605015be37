/* bias_gelu.c - com.microsoft BiasGelu (A + B, then Gelu by erf) and FastGelu (X +
 * bias, then Gelu by tanh).
 *
 * X, A   f32, any shape;  bias, B  f32 (last dim of X)
 * Source: ONNX Runtime contrib operators. */
#include "lines.h"

static attn_status bias_gelu_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (op_has_in(step, 1)) {
        TRY(op_need_rank(step, 1, 1));
        if (x->rank == 0)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected rank 1 or more");
        if (x->rank > 0)
            TRY(op_need_dim(step, 1, 0, x->dims[x->rank - 1],
                            "the last dim of the input"));
    }
    if (!step->concrete)
        return ATTNRUN_OK;
    return attn_lines_plan(step, step->state, x, x->rank > 0 ? x->rank - 1 : 0, x->rank,
                           0.7);
}

static attn_status run_gelu(const attnrun_step *step, const attnrun_work *work,
                            bool by_tanh)
{
    const struct lines *lines = step->state;
    const struct attn_kernels *k = step->kernels;
    const size_t n = (size_t)lines->length;
    const float none[2] = { 0, 0 }; /* these take no parameters, but they are read */
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t i = 0; i < t.n; i++) {
            const float *x = (const float *)step->x[0].data + t.first + i * t.step;
            float *y = (float *)step->y[0].data + t.first + i * t.step;
            if (op_has_in(step, 1)) {
                k->add_f32(y, x, 1, step->x[1].data, 1, n);
                x = y;
            }
            if (by_tanh)
                k->gelu_tanh_f32(y, x, n, none);
            else
                k->gelu_f32(y, x, n, none);
        }
    }
    return ATTNRUN_OK;
}
static attn_status gelu_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_gelu(step, work, false);
}
static attn_status fast_gelu_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_gelu(step, work, true);
}

#define GELU_ROW(row, onnx_name, takes, runs)                                            \
    const attnrun_op_def row = {                                                         \
        .struct_size = sizeof(attnrun_op_def),                                           \
        .domain = "com.microsoft",                                                       \
        .name = onnx_name,                                                               \
        .since = 1,                                                                      \
        .inputs = takes,                                                                 \
        .outputs = "Y:T",                                                                \
        .types = "T=f32",                                                                \
        .state_bytes = sizeof(struct lines),                                             \
        .infer = bias_gelu_infer,                                                        \
        .run = runs,                                                                     \
        .cost = "O(n)",                                                                  \
    }
GELU_ROW(op_ms_bias_gelu_1, "BiasGelu", "A:T B:T", gelu_run);
GELU_ROW(op_ms_fast_gelu_1, "FastGelu", "X:T bias:T?", fast_gelu_run);
