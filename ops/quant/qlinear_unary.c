/* qlinear_unary.c - com.microsoft QLinearSigmoid and QLinearLeakyRelu: a function of real
 * numbers on bytes, by a table of its 256 results.
 *
 * X, Y       u8 or i8 of one shape; scales f32, one number; zero points likewise, 0 by
 *            default
 * Sigmoid    1 / (1 + exp(-x))
 * LeakyRelu  x < 0 ? alpha x : x, alpha 0.01 by default
 *
 * Cost: one pass. Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.32.0. */
#include "../elementwise/elementwise.h"
#include "qlinear.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

struct unary_args {
    float alpha;
};
static const attnrun_attr_def leaky_attrs[] = {
    ATTR_FLOAT(struct unary_args, alpha, 0.01f), ATTR_END
};

static attn_status unary_infer(attnrun_step *step)
{
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    TRY(op_out_like(step, 0, X));
    attnrun_step_inplace(step, 0, X);
    elementwise_tasks(step, 400);
    return ATTNRUN_OK;
}

static float sigmoid(float x, float arg)
{
    (void)arg;
    return 1.0f / (1.0f + expf(-x));
}
static float leaky_relu(float x, float alpha) { return x < 0 ? alpha * x : x; }

static attn_status unary_run(const attnrun_step *step, const attnrun_work *work,
                             float (*f)(float x, float arg), float arg)
{
    const uint8_t *x = step->x[X].data;
    uint8_t *y = step->y[0].data, table[256];
    int64_t begin, end;
    if (y == NULL || work->begin >= work->end)
        return ATTNRUN_OK;
    op_qlinear_table(table, step->in[X].dtype == ATTNRUN_I8,
                     op_qlinear_of(step, X_SCALE, X_ZERO),
                     op_qlinear_of(step, Y_SCALE, Y_ZERO), f, arg);
    elementwise_range(work, tensor_count(&step->x[X]), &begin, &end);
    for (int64_t k = begin; k < end;) {
        const int64_t stop = end - k < OP_CHUNK ? end : k + OP_CHUNK;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (; k < stop; k++)
            y[k] = table[x[k]];
    }
    return ATTNRUN_OK;
}

static attn_status sigmoid_run(const attnrun_step *step, const attnrun_work *work)
{
    return unary_run(step, work, sigmoid, 0);
}

static attn_status leaky_run(const attnrun_step *step, const attnrun_work *work)
{
    return unary_run(step, work, leaky_relu,
                     ((const struct unary_args *)step->args)->alpha);
}

#define UNARY_ROW(name_)                                                                 \
    OP_ROW_OF("com.microsoft"), .name = name_, .since = 1,                               \
        .inputs = "X:T X_scale:f32 X_zero_point:T? Y_scale:f32 Y_zero_point:T?",         \
        .outputs = "Y:T", .types = "T=u8,i8", .infer = unary_infer, .cost = "O(n)",      \
        .source = "ONNX Runtime contrib operators"
const attnrun_op_def op_qlinear_sigmoid_1 = { UNARY_ROW("QLinearSigmoid"),
                                              .run = sigmoid_run };
const attnrun_op_def op_qlinear_leaky_relu_1 = { UNARY_ROW("QLinearLeakyRelu"),
                                                 .args_bytes = sizeof(struct unary_args),
                                                 .attrs = leaky_attrs, .run = leaky_run };
