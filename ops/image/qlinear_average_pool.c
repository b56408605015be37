/* qlinear_average_pool.c - com.microsoft QLinearAveragePool: AveragePool of real numbers
 * (q - zero) * scale, quantized again, halves to even.
 *
 * X  u8 or i8 [N, C, spatial 1 to 3];  Y of its type [N, C, out], see window.c
 * Scales are one f32 number each, zero points likewise, 0 by default. Padding is the real
 * number 0; with count_include_pad every window has all elements of the kernel, also past
 * the padding. channels_last is 0.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "../quant/qlinear.h"
#include "pool.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

struct qlinear_pool_args {
    struct pool_args pool;
    int64_t channels_last;
};
static const attnrun_attr_def qlinear_pool_attrs[] = {
    { .name = "auto_pad",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct window_attrs, auto_pad),
      .text = "NOTSET|SAME_UPPER|SAME_LOWER|VALID" },
    ATTR_INTS_REQUIRED(struct window_attrs, kernel_shape),
    ATTR_INTS(struct window_attrs, strides),
    ATTR_INTS(struct window_attrs, pads),
    ATTR_INT(struct pool_args, ceil_mode, 0),
    ATTR_INT(struct pool_args, count_include_pad, 0),
    ATTR_INT(struct qlinear_pool_args, channels_last, 0),
    ATTR_END
};

static attn_status qlinear_pool_infer(attnrun_step *step)
{
    const struct qlinear_pool_args *args = step->args;
    if (args->channels_last != 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "channels_last is %lld, expected 0",
                       (long long)args->channels_last);
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    return attn_pool_infer(step, &args->pool);
}

/* The mean of q - zero in the window at `at`. */
static double window_mean(const struct window *w, const uint8_t *x, const int64_t at[3],
                          bool is_signed, float zero, bool include_pad)
{
    int64_t k[3][2], sum = 0, n = 1, all = w->kernel[0] * w->kernel[1] * w->kernel[2];
    for (int a = 0; a < 3; a++) {
        attn_pool_taps(w, a, at[a], at[a], &k[a][0], &k[a][1]);
        n *= k[a][1] - k[a][0];
    }
    for (int64_t kd = k[0][0]; kd < k[0][1]; kd++)
        for (int64_t kh = k[1][0]; kh < k[1][1]; kh++) {
            const int64_t d = at[0] * w->stride[0] - w->before[0] + kd * w->dilation[0];
            const int64_t h = at[1] * w->stride[1] - w->before[1] + kh * w->dilation[1];
            const int64_t c = at[2] * w->stride[2] - w->before[2];
            const uint8_t *row = x + (d * w->in[1] + h) * w->in[2];
            for (int64_t kw = k[2][0]; kw < k[2][1]; kw++) {
                const uint8_t q = row[c + kw * w->dilation[2]];
                sum += is_signed ? (int8_t)q : q;
            }
        }
    all = include_pad ? all : n;
    return all > 0 ? ((double)sum - (double)n * (double)zero) / (double)all : 0.0;
}

static attn_status qlinear_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct qlinear_pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const bool include = args->pool.count_include_pad != 0;
    const bool is_signed = step->in[X].dtype == ATTNRUN_I8;
    const struct op_qlinear from = op_qlinear_of(step, X_SCALE, X_ZERO),
                            to = op_qlinear_of(step, Y_SCALE, Y_ZERO);
    for (int64_t task = work->begin; task < work->end && step->y[0].data != NULL;
         task++) {
        int64_t plane, at[3];
        attn_pool_at(state, task, &plane, at);
        const uint8_t *x = (const uint8_t *)step->x[X].data + plane * state->in_plane;
        uint8_t *y = (uint8_t *)step->y[0].data + plane * state->out_plane +
                     (at[0] * w->out[1] + at[1]) * w->out[2];
        for (at[2] = 0; at[2] < w->out[2]; at[2]++) {
            const double mean = window_mean(w, x, at, is_signed, from.zero, include);
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            y[at[2]] = op_qlinear_byte(
                is_signed, (float)(mean * (double)from.scale / (double)to.scale),
                to.zero);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_average_pool_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "QLinearAveragePool",
    .since = 1,
    .inputs = "X:T x_scale:f32 x_zero_point:T? y_scale:f32 y_zero_point:T?",
    .outputs = "Y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct qlinear_pool_args),
    .state_bytes = sizeof(struct pool_state),
    .attrs = qlinear_pool_attrs,
    .infer = qlinear_pool_infer,
    .run = qlinear_pool_run,
    .cost = "O(out * kernel)",
    .source = "ONNX Runtime contrib operators",
};
