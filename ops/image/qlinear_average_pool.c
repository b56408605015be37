/* qlinear_average_pool.c - com.microsoft QLinearAveragePool: AveragePool of the real
 * numbers (q - zero) * scale, which are quantized again, with halves to even.
 *
 * X  u8 or i8 [N, C, spatial 1 to 3], or with channels_last [N, spatial, C]
 * Y  of the type and layout of X; sliding_window.c has its sizes
 *
 * Scales and zero points are one number each; a zero point is 0 by default. Padding is
 * the real number 0. With count_include_pad every window has all elements of the kernel,
 * also those past the padding. Cost: one addition for each tap of a window.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "../quant/qlinear.h"
#include "pool.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

static const attnrun_attr_def qlinear_pool_attrs[] = {
    POOL_ATTR_ROWS, ATTR_INT(struct pool_args, count_include_pad, 0),
    ATTR_FLAG(struct pool_args, channels_last, 0), ATTR_END
};

static attn_status qlinear_pool_infer(attnrun_step *step)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    TRY(attn_pool_infer(step, args));
    if (step->concrete && !ck_mul(state->channels, 8, &step->scratch_bytes))
        return op_fail_size(step, "the memory of the sums of a pixel", "2^63 - 1 bytes");
    return ATTNRUN_OK;
}

/* Computes sums[c] of q in the window, for each of `channels` numbers of a pixel. */
static void window_sums(struct pool_rows *rows, const uint8_t *x, int64_t channels,
                        bool is_signed, int64_t *sums)
{
    if (attn_poll_fill(sums, 0, channels * (int64_t)sizeof *sums) != ATTNRUN_OK)
        return;
    while (attn_pool_next(rows))
        for (int64_t i = 0; i < rows->n; i++) {
            const uint8_t *q = x + (rows->from + i * rows->step) * channels;
            if (attn_poll_work(4 * channels) != ATTNRUN_OK)
                return;
            for (size_t c = 0, end = 0; attn_segment_of(&end, (size_t)channels, 8);)
                for (; c < end; c++)
                    sums[c] += is_signed ? (int8_t)q[c] : q[c];
        }
}

/* Computes a pixel of Y. */
static void average(const attnrun_step *step, const int64_t at[3], const uint8_t *x,
                    uint8_t *y, void *scratch)
{
    int64_t *const sums = scratch;
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const bool is_signed = step->in[X].dtype == ATTNRUN_I8;
    const struct op_qlinear from = op_qlinear_of(step, X_SCALE, X_ZERO),
                            to = op_qlinear_of(step, Y_SCALE, Y_ZERO);
    struct pool_rows rows = attn_pool_rows(w, at);
    const int64_t seen = attn_pool_seen(&rows);
    const int64_t all =
        args->count_include_pad ? w->kernel[0] * w->kernel[1] * w->kernel[2] : seen;
    window_sums(&rows, x, state->channels, is_signed, sums);
    for (int64_t c = 0; c < state->channels && attn_poll_work(4) == ATTNRUN_OK; c++) {
        const double sum = (double)sums[c] - (double)seen * (double)from.zero;
        const double mean = all > 0 ? sum / (double)all : 0.0;
        y[c] = op_qlinear_byte(
            is_signed, (float)(mean * (double)from.scale / (double)to.scale), to.zero);
    }
}

static attn_status qlinear_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_pool_pixels(step, work, average);
}

const attnrun_op_def op_qlinear_average_pool_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QLinearAveragePool",
    .since = 1,
    .inputs = "X:T x_scale:f32 x_zero_point:T? y_scale:f32 y_zero_point:T?",
    .outputs = "Y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct pool_args),
    .state_bytes = sizeof(struct pool_state),
    .attrs = qlinear_pool_attrs,
    .infer = qlinear_pool_infer,
    .run = qlinear_pool_run,
    .cost = "O(out * kernel)",
    .source = "ONNX Runtime contrib operators",
};
