/* conv_integer.c - ConvInteger and QLinearConv: convolution of 8-bit integers.
 *
 * x, w          u8 or i8 [N, C, spatial 1 to 3], [M, C / group, kernel]
 * sum           over taps of (x - x_zero_point) (w - w_zero_point), in 32 bits that wrap;
 *               padding counts as x_zero_point
 * ConvInteger   y = sum, i32
 * QLinearConv   y = saturate(round((sum + B) x_scale w_scale / y_scale) + y_zero_point),
 *               half to even; w_scale and w_zero_point are scalar or one per output
 *               channel
 *
 * com.microsoft QLinearConv is the same. With channels_last x and y are [N, spatial, C],
 * and two more phases transpose them to planes and back in shared memory. Sums come from
 * conv_bytes.c. Cost: 2 C / group taps integer operations for each sum. Source: ONNX
 * ConvInteger-10, QLinearConv-10; ONNX Runtime contrib operators. */
#include "../move/strided_copy.h"
#include "conv_bytes.h"

struct conv_integer_args {
    struct window_attrs window;
    int64_t group, channels_last;
};

static const attnrun_attr_def conv_integer_attrs[] = {
    WINDOW_ATTR_ROWS, WINDOW_DILATIONS, ATTR_INT(struct conv_integer_args, group, 1),
    ATTR_END
};

/* Checks that an input is a scalar or, where `weights` is an input, has one number for
 * each output channel, which is dim 0 of the weights. */
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

/* The index of number `channel` of an input that check_scalar() checked. */
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
    struct conv_bytes *c = step->state;
    TRY(attn_conv_infer(step, &args->window, args->group, 1, false, ATTNRUN_I32,
                        &c->shape));
    TRY(check_scalar(step, 2, -1));
    TRY(check_scalar(step, 3, 1));
    return step->concrete && step->out[0].rank > 0
               ? attn_conv_bytes_plan(step, 0, false, c)
               : ATTNRUN_OK;
}

static attn_status conv_integer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_bytes_operands o = { .x = &step->x[0],
                                           .w = &step->x[1],
                                           .w_zero =
                                               op_has_in(step, 3) ? &step->x[3] : NULL,
                                           .x_zero = zero_point(step, 2, 0),
                                           .y = step->y[0].data };
    return attn_conv_bytes_run(step, work, step->state, &o);
}

const attnrun_op_def op_conv_integer_10 = {
    OP_ROW,
    .name = "ConvInteger",
    .since = 10,
    .args_bytes = sizeof(struct conv_integer_args),
    .state_bytes = sizeof(struct conv_bytes),
    .inputs = "x:T w:W x_zero_point:T? w_zero_point:W?",
    .outputs = "y:i32",
    .types = "T=u8,i8 W=u8,i8",
    .attrs = conv_integer_attrs,
    .infer = conv_integer_infer,
    .run = conv_integer_run,
};

/* ---- QLinearConv ---- */

struct qlinear_conv_state {
    struct conv_bytes bytes;
    struct op_copy to_planes, from_planes; /* with channels_last */
    int64_t y_at;                          /* of planes in shared memory */
};
enum { TO_PLANES, CONVOLVE, FROM_PLANES };

static attn_status plan_qlinear_conv(attnrun_step *step, bool channels_last)
{
    struct qlinear_conv_state *state = step->state;
    const struct conv_shape *s = &state->bytes.shape;
    const int64_t x = s->groups * s->channels, y = s->groups * s->rows;
    if (!channels_last || s->batch == 0)
        return attn_conv_bytes_plan(step, 0, true, &state->bytes);
    op_copy_plan_exchange(&state->to_planes, ATTNRUN_U8, s->batch, s->inputs, x);
    op_copy_plan_exchange(&state->from_planes, ATTNRUN_U8, s->batch, y, s->pixels);
    state->y_at = s->batch * s->inputs * x;
    step->shared_bytes = state->y_at + s->batch * y * s->pixels;
    op_copy_tasks(step, TO_PLANES, &state->to_planes);
    TRY(attn_conv_bytes_plan(step, CONVOLVE, true, &state->bytes));
    op_copy_tasks(step, FROM_PLANES, &state->from_planes);
    return ATTNRUN_OK;
}

static attn_status qlinear_conv_infer(attnrun_step *step)
{
    const struct conv_integer_args *args = step->args;
    struct conv_bytes *c = step->state;
    const bool channels_last = args->channels_last != 0;
    TRY(attn_conv_infer(step, &args->window, args->group, 3, channels_last,
                        step->in[7].dtype, &c->shape));
    TRY(check_scalar(step, 1, -1));
    TRY(check_scalar(step, 2, -1));
    TRY(check_scalar(step, 4, 3));
    TRY(check_scalar(step, 5, 3));
    TRY(check_scalar(step, 6, -1));
    TRY(check_scalar(step, 7, -1));
    if (op_has_in(step, 8) && op_rank_known(step, 8) && op_rank_known(step, 3)) {
        TRY(op_need_vector(step, 8, step->in[3].dims[0], "output channels"));
    }
    if (!step->concrete || step->out[0].rank < 0)
        return ATTNRUN_OK;
    return plan_qlinear_conv(step, channels_last);
}

static void requantize(const attnrun_step *step, const struct conv_bytes_block *block,
                       float *scratch)
{
    const struct attn_kernels *kernels = step->kernels;
    const float zero = (float)zero_point(step, 7, 0);
    const bool is_signed = step->out[0].dtype == ATTNRUN_I8;
    const struct conv_bytes *c = step->state;
    const int32_t *bias = op_in_data(step, 8);
    for (int64_t i = 0; i < block->m; i++) {
        const int64_t channel = block->channel + i, at = block->y + i * c->shape.pixels;
        const float factor =
            scale(step, 1, 0) * scale(step, 4, channel) / scale(step, 6, 0);
        uint32_t *sums = block->sums + i * block->row;
        const uint32_t added = bias != NULL ? (uint32_t)bias[channel] : 0;
        for (int64_t j = 0; added != 0 && j < block->n; j++)
            sums[j] += added;
        kernels->rescale_i32(scratch, (const int32_t *)sums, &factor, 0, NULL,
                             (size_t)block->n);
        if (is_signed)
            kernels->quantize_i8_f32((int8_t *)block->target + at, scratch, 1.0f, zero,
                                     (size_t)block->n);
        else
            kernels->quantize_u8_f32((uint8_t *)block->target + at, scratch, 1.0f, zero,
                                     (size_t)block->n);
    }
}

static attn_status qlinear_conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_integer_args *args = step->args;
    const struct qlinear_conv_state *state = step->state;
    const bool channels_last = args->channels_last != 0;
    uint8_t *planes = (uint8_t *)work->shared + state->y_at;
    attnrun_tensor x = step->x[0];
    struct conv_bytes_operands o = { .x = &x,
                                     .w = &step->x[3],
                                     .w_zero = &step->x[5],
                                     .x_zero = zero_point(step, 2, 0),
                                     .target = step->y[0].data,
                                     .finish = requantize };
    if (channels_last && work->phase == TO_PLANES)
        return op_copy_run(&state->to_planes, work, work->shared, x.data);
    if (channels_last && work->phase == FROM_PLANES)
        return op_copy_run(&state->from_planes, work, step->y[0].data, planes);
    if (channels_last) {
        x.data = work->shared;
        o.target = planes;
    }
    return attn_conv_bytes_run(step, work, &state->bytes, &o);
}

static const attnrun_attr_def ms_qlinear_conv_attrs[] = {
    WINDOW_ATTR_ROWS, WINDOW_DILATIONS, ATTR_INT(struct conv_integer_args, group, 1),
    ATTR_FLAG(struct conv_integer_args, channels_last, 0), ATTR_END
};

#define QLINEAR_CONV(row, domain_, since_, attrs_)                                       \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF(domain_),                                                              \
        .name = "QLinearConv",                                                           \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct conv_integer_args),                                  \
        .state_bytes = sizeof(struct qlinear_conv_state),                                \
        .inputs = "x:T x_scale:f32 x_zero_point:T w:W w_scale:f32 w_zero_point:W "       \
                  "y_scale:f32 y_zero_point:Y B:i32?",                                   \
        .outputs = "y:Y",                                                                \
        .types = "T=u8,i8 W=u8,i8 Y=u8,i8",                                              \
        .attrs = attrs_,                                                                 \
        .infer = qlinear_conv_infer,                                                     \
        .run = qlinear_conv_run,                                                         \
    }
QLINEAR_CONV(op_qlinear_conv_10, "", 10, conv_integer_attrs);
QLINEAR_CONV(op_ms_qlinear_conv_1, "com.microsoft", 1, ms_qlinear_conv_attrs);
