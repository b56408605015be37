/* conv_integer.c - ConvInteger and QLinearConv: convolution of 8-bit integers.
 *
 * sum   over taps of (x - x_zero_point) (w - w_zero_point), in 32 bits that wrap; padding
 *       counts as x_zero_point
 * ConvInteger   y = sum, i32
 * QLinearConv   y = saturate(round((sum + B) x_scale w_scale / y_scale) + y_zero_point),
 * half to even; w_scale, w_zero_point scalar or one per output channel Source: ONNX
 * ConvInteger-10, QLinearConv-10. */
#include <math.h>

#include "conv_plain.h"

struct conv_integer_args {
    struct window_attrs window;
    int64_t group;
};

static const attnrun_attr_def conv_integer_attrs[] = {
    WINDOW_ATTR_ROWS, WINDOW_DILATIONS, ATTR_INT(struct conv_integer_args, group, 1),
    ATTR_END
};

/* Scalars, or one number per output channel where `channels` is an input's dim 0. */
static attn_status check_scalar(const attnrun_step *step, int in, int weights)
{
    if (!op_has_in(step, in) || !op_rank_known(step, in) || step->in[in].rank == 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 0, 1));
    if (dim_is(step->in[in].dims[0], 1) || weights < 0)
        return op_need_dim(step, in, 0, dim_of(1), "one number");
    if (!op_rank_known(step, weights) || step->in[weights].rank < 1)
        return ATTNRUN_OK;
    return op_need_dim(step, in, 0, step->in[weights].dims[0], "output channels");
}

/* Number `channel` of an input checked by check_scalar(). */
static int64_t pick(const attnrun_tensor *t, int64_t channel)
{
    return t->rank == 0 || t->dims[0] == 1 ? 0 : channel;
}
static int32_t zero_point(const attnrun_step *step, int in, int64_t channel)
{
    if (!op_has_in(step, in))
        return 0;
    return (int32_t)tensor_get_int(&step->x[in], pick(&step->x[in], channel));
}
static float scale(const attnrun_step *step, int in, int64_t channel)
{
    return ((const float *)step->x[in].data)[pick(&step->x[in], channel)];
}

static attn_status conv_integer_infer(attnrun_step *step)
{
    const struct conv_integer_args *args = step->args;
    struct conv_shape *s = step->state;
    TRY(attn_conv_infer(step, &args->window, args->group, 1, ATTNRUN_I32, s));
    TRY(check_scalar(step, 2, -1));
    TRY(check_scalar(step, 3, 1));
    return step->concrete && step->out[0].rank > 0 ? attn_conv_plain_plan(step, s)
                                                   : ATTNRUN_OK;
}

static attn_status conv_integer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_shape *s = step->state;
    int32_t x_zero = zero_point(step, 2, 0);
    for (int64_t task = work->begin; task < work->end; task++) {
        struct conv_plain_row row;
        attn_conv_plain_at(s, task, &row);
        for (int64_t m = 0; m < s->rows; m++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            uint32_t *sum = (uint32_t *)step->y[0].data + row.y + m * s->pixels;
            memset(sum, 0, (size_t)s->w.out[2] * sizeof(uint32_t));
            attn_conv_int_row(sum, &step->x[0], &step->x[1], s, &row, m, x_zero,
                              zero_point(step, 3, row.channel + m));
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_conv_integer_10 = {
    OP_ROW,
    .name = "ConvInteger",
    .since = 10,
    .args_bytes = sizeof(struct conv_integer_args),
    .state_bytes = sizeof(struct conv_shape),
    .inputs = "x:T w:W x_zero_point:T? w_zero_point:W?",
    .outputs = "y:i32",
    .types = "T=u8,i8 W=u8,i8",
    .attrs = conv_integer_attrs,
    .infer = conv_integer_infer,
    .run = conv_integer_run,
};

/* ---- QLinearConv ---- */

static attn_status qlinear_conv_infer(attnrun_step *step)
{
    const struct conv_integer_args *args = step->args;
    struct conv_shape *s = step->state;
    TRY(attn_conv_infer(step, &args->window, args->group, 3, step->in[7].dtype, s));
    TRY(check_scalar(step, 1, -1));
    TRY(check_scalar(step, 2, -1));
    TRY(check_scalar(step, 4, 3));
    TRY(check_scalar(step, 5, 3));
    TRY(check_scalar(step, 6, -1));
    TRY(check_scalar(step, 7, -1));
    if (op_has_in(step, 8) && op_rank_known(step, 8) && op_rank_known(step, 3)) {
        TRY(op_need_rank(step, 8, 1));
        TRY(op_need_dim(step, 8, 0, step->in[3].dims[0], "output channels"));
    }
    if (!step->concrete || step->out[0].rank < 0)
        return ATTNRUN_OK;
    step->scratch_bytes = s->w.out[2] * 4;
    return attn_conv_plain_plan(step, s);
}

static void requantize(const attnrun_step *step, const uint32_t *sum, int64_t n,
                       float factor, int64_t at)
{
    float zero = (float)zero_point(step, 7, 0);
    bool is_signed = step->y[0].dtype == ATTNRUN_I8;
    float least = is_signed ? -128.0f : 0.0f, most = is_signed ? 127.0f : 255.0f;
    uint8_t *y = (uint8_t *)step->y[0].data + at;
    for (int64_t i = 0; i < n; i++) {
        float v = nearbyintf((float)(int32_t)sum[i] * factor) + zero;
        v = v > least ? v : least; /* NaN too */
        v = v < most ? v : most;
        y[i] = (uint8_t)(int32_t)v;
    }
}

static attn_status qlinear_conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_shape *s = step->state;
    const int32_t *bias = op_in_data(step, 8);
    int32_t x_zero = zero_point(step, 2, 0);
    uint32_t *sum = work->scratch;
    for (int64_t task = work->begin; task < work->end; task++) {
        struct conv_plain_row row;
        attn_conv_plain_at(s, task, &row);
        for (int64_t m = 0; m < s->rows; m++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            int64_t channel = row.channel + m;
            for (int64_t i = 0; i < s->w.out[2]; i++)
                sum[i] = bias != NULL ? (uint32_t)bias[channel] : 0;
            attn_conv_int_row(sum, &step->x[0], &step->x[3], s, &row, m, x_zero,
                              zero_point(step, 5, channel));
            float factor =
                scale(step, 1, 0) * scale(step, 4, channel) / scale(step, 6, 0);
            requantize(step, sum, s->w.out[2], factor, row.y + m * s->pixels);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_conv_10 = {
    OP_ROW,
    .name = "QLinearConv",
    .since = 10,
    .args_bytes = sizeof(struct conv_integer_args),
    .state_bytes = sizeof(struct conv_shape),
    .inputs = "x:T x_scale:f32 x_zero_point:T w:W w_scale:f32 w_zero_point:W y_scale:f32 "
              "y_zero_point:Y B:i32?",
    .outputs = "y:Y",
    .types = "T=u8,i8 W=u8,i8 Y=u8,i8",
    .attrs = conv_integer_attrs,
    .infer = qlinear_conv_infer,
    .run = qlinear_conv_run,
};
