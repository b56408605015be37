/* nhwc_max_pool.c - com.microsoft NhwcMaxPool: MaxPool of bytes whose channels come last.
 *
 * x  u8 or i8 [N, spatial 1 to 3, C];  y of its type [N, out, C], see sliding_window.c
 *
 * A window that sees nothing gives the lowest number. Cost: one comparison for each tap
 * of a window. Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0.
 */
#include "pool.h"

static const attnrun_attr_def nhwc_max_pool_attrs[] = { POOL_ATTR_ROWS, WINDOW_DILATIONS,
                                                        ATTR_END };

static attn_status nhwc_max_pool_infer(attnrun_step *step)
{
    struct pool_args args = *(const struct pool_args *)step->args;
    args.channels_last = 1;
    return attn_pool_infer(step, &args);
}

/* Computes a pixel of Y. `flip` changes signed bytes so that they can be compared as
 * u8. */
static void max_pixel(const attnrun_step *step, const int64_t at[3], const uint8_t *x,
                      uint8_t *y, void *scratch)
{
    const struct pool_state *state = step->state;
    const uint8_t flip = step->in[0].dtype == ATTNRUN_I8 ? 0x80 : 0;
    (void)scratch;
    struct pool_rows rows = attn_pool_rows(&state->w, at);
    const int64_t channels = state->channels;
    if (attn_poll_fill(y, 0, channels) != ATTNRUN_OK)
        return;
    while (attn_pool_next(&rows))
        for (int64_t i = 0; i < rows.n; i++) {
            const uint8_t *pixel = x + (rows.from + i * rows.step) * channels;
            if (attn_poll_work(2 * channels) != ATTNRUN_OK)
                return;
            for (size_t c = 0, end = 0; attn_segment_of(&end, (size_t)channels, 2);)
                for (; c < end; c++) {
                    const uint8_t v = pixel[c] ^ flip;
                    y[c] = v > y[c] ? v : y[c];
                }
        }
    for (size_t c = 0, end = 0; flip != 0 && attn_segment_of(&end, (size_t)channels, 2);)
        for (; c < end; c++)
            y[c] ^= flip;
}

static attn_status nhwc_max_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_pool_pixels(step, work, max_pixel);
}

const attnrun_op_def op_nhwc_max_pool_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "NhwcMaxPool",
    .since = 1,
    .inputs = "x:T",
    .outputs = "y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct pool_args),
    .state_bytes = sizeof(struct pool_state),
    .attrs = nhwc_max_pool_attrs,
    .infer = nhwc_max_pool_infer,
    .run = nhwc_max_pool_run,
    .cost = "O(out * kernel)",
    .source = "ONNX Runtime contrib operators",
};
