/* col2im.c - Col2Im: overlapping blocks are added up to an image. It is the opposite of
 * im2col.
 *
 * input        f32 or f64 [N, C * block volume, L], where L is the number of places of
 *              the block in the image
 * image_shape  i64, block_shape i64: one number per spatial axis (1 to 3)
 * Y            [N, C, image]
 *
 * A task is one plane of Y. Cost: one addition for each element of input. Source: ONNX
 * Col2Im-18. */
#include "real_pixels.h"
#include "sliding_window.h"

struct col2im_state {
    struct window w;
    int64_t planes, taps, places, pixels;
};

static const attnrun_attr_def col2im_attrs[] = {
    ATTR_INTS(struct window_attrs, dilations), ATTR_INTS(struct window_attrs, pads),
    ATTR_INTS(struct window_attrs, strides), ATTR_END
};

static attn_status plan_col2im(attnrun_step *step, int n, const attnrun_dim *image,
                               const attnrun_dim *block)
{
    struct col2im_state *state = step->state;
    struct window *w = &state->w;
    TRY(attn_window_resolve(step, step->args, n, image, block, false, w));
    const attnrun_dim *x = step->in[0].dims;
    int64_t places;
    if (!ck_mul(w->kernel[0], w->kernel[1], &state->taps) ||
        !ck_mul(state->taps, w->kernel[2], &state->taps) ||
        !ck_mul(w->out[0], w->out[1], &places) || !ck_mul(places, w->out[2], &places) ||
        state->taps > ATTN_MAX_ELEMENTS)
        return op_fail_size(step,
                            "the number of elements of a block would be over 2^46, or of "
                            "places of the block",
                            "2^63 - 1");
    state->places = places;
    if (x[2].value != places)
        return op_fail_input(
            step, 0, ATTNRUN_E_SHAPE,
            "expected %lld in dim 2, as the block has places in the image",
            (long long)places);
    state->pixels = op_count(&step->out[0], 2, n + 2);
    state->planes = op_count(&step->out[0], 0, 2);
    if (state->pixels < 0 || state->planes < 0)
        return op_fail_size(step, "the number of planes, or of pixels of a plane,",
                            "2^63 - 1");
    op_tasks(step, 0, state->planes,
             window_cost((double)state->taps * (double)places +
                         (double)state->pixels / 8 + 50));
    return ATTNRUN_OK;
}

static attn_status col2im_infer(attnrun_step *step)
{
    attnrun_dim image[WINDOW_AXES], block[WINDOW_AXES], out[ATTNRUN_MAX_RANK];
    int n = 0, n_block = 0;
    bool known = false, block_known = false;
    TRY(op_dims(step, 1, image, WINDOW_AXES, &n, &known));
    TRY(op_dims(step, 2, block, WINDOW_AXES, &n_block, &block_known));
    if (op_rank_known(step, 0))
        TRY(op_need_rank(step, 0, 3));
    if (!known || !block_known || !op_rank_known(step, 0)) {
        if (known && op_rank_known(step, 0)) {
            out[0] = step->in[0].dims[0];
            out[1] = attnrun_dim_unknown(step);
            memcpy(out + 2, image, sizeof(attnrun_dim) * (size_t)n);
            return op_out(step, 0, step->in[0].dtype, n + 2, out);
        }
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    }
    if (n < 1 || n != n_block)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "image_shape has %s and block_shape %d, expected 1 to 3 each",
                       attn_plural(n, "number"), n_block);
    TRY(attn_window_check(step, step->args, n));
    attnrun_dim volume = dim_of(1);
    for (int i = 0; i < n; i++) {
        if (dim_is_const(block[i]) && (block[i].value < 1 || block[i].value > INT32_MAX))
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "block_shape holds %lld, expected 1 to 2147483647",
                           (long long)block[i].value);
        if (dim_is_const(image[i]) &&
            (image[i].value < 0 || image[i].value > ATTN_MAX_DIM))
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "image_shape holds %lld, expected 0 to 2^47",
                           (long long)image[i].value);
        volume = attnrun_dim_mul(step, volume, block[i]);
        out[i + 2] = image[i];
    }
    attnrun_dim channels = step->in[0].dims[1];
    if (dim_is_const(channels) && dim_is_const(volume) &&
        (volume.value < 1 || channels.value % volume.value != 0))
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected a multiple of %lld in dim 1",
                             (long long)volume.value);
    out[0] = step->in[0].dims[0];
    out[1] = dim_is_const(volume) ? attnrun_dim_div(step, channels, volume)
                                  : attnrun_dim_unknown(step);
    TRY(op_out(step, 0, step->in[0].dtype, n + 2, out));
    return step->concrete ? plan_col2im(step, n, image, block) : ATTNRUN_OK;
}

static void add_tap(const attnrun_step *step, int64_t plane, int64_t tap)
{
    const struct col2im_state *state = step->state;
    const struct window *w = &state->w;
    int64_t kw = tap % w->kernel[2], kh = tap / w->kernel[2] % w->kernel[1];
    int64_t kd = tap / w->kernel[2] / w->kernel[1], from, to;
    int64_t shift = kw * w->dilation[2] - w->before[2];
    window_valid(w, 2, kw * w->dilation[2], &from, &to);
    int64_t x = (plane * state->taps + tap) * state->places;
    for (int64_t row = 0; row < w->out[0] * w->out[1] &&
                          attn_poll_work(16 * (to - from) + 4) == ATTNRUN_OK;
         row++) {
        int64_t d = row / w->out[1] * w->stride[0] - w->before[0] + kd * w->dilation[0];
        int64_t h = row % w->out[1] * w->stride[1] - w->before[1] + kh * w->dilation[1];
        if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1])
            continue;
        int64_t y = plane * state->pixels + (d * w->in[1] + h) * w->in[2] + shift;
        for (int64_t i = from; i < to; i++) {
            int64_t at = y + i * w->stride[2];
            double v = real_get(&step->x[0], x + row * w->out[2] + i);
            real_put(&step->y[0], at, real_get(&step->y[0], at) + v);
        }
    }
}

static attn_status col2im_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct col2im_state *state = step->state;
    int64_t bytes = dtype_bytes(step->y[0].dtype);
    for (int64_t plane = work->begin; plane < work->end; plane++) {
        TRY(attn_poll_fill((uint8_t *)step->y[0].data + plane * state->pixels * bytes, 0,
                           state->pixels * bytes));
        for (int64_t tap = 0; tap < state->taps; tap++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            add_tap(step, plane, tap);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_col2im_18 = {
    OP_ROW,
    .name = "Col2Im",
    .since = 18,
    .args_bytes = sizeof(struct window_attrs),
    .state_bytes = sizeof(struct col2im_state),
    .inputs = "input:T image_shape:i64 block_shape:i64",
    .outputs = "output:T",
    .types = "T=f32,f64",
    .attrs = col2im_attrs,
    .infer = col2im_infer,
    .run = col2im_run,
};
