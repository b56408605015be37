/* qlinear_average_pool.c - com.microsoft QLinearAveragePool: AveragePool of the real
 * numbers (q - zero) * scale, which are quantized again. The zero point is added before the
 * rounding, so halves go to the even byte, as in onnxruntime; with zero_last, which the pass
 * `quantized` writes, after it, as in QuantizeLinear.
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
    ATTR_FLAG(struct pool_args, channels_last, 0),
    ATTR_FLAG(struct pool_args, zero_last, 0), ATTR_END
};

/* Whether rows of planes are summed by vectors, as floats, which hold these sums exactly. */
static bool by_rows(const attnrun_step *step)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    return args->channels_last == 0 && attn_pool_by_vectors(w) && w->kernel[0] <= 64 &&
           w->kernel[1] <= 64 && w->kernel[0] * w->kernel[1] * w->kernel[2] < 1 << 15;
}

static attn_status qlinear_pool_infer(attnrun_step *step)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    TRY(attn_pool_infer(step, args));
    if (step->concrete && !ck_mul(state->channels, 8, &step->scratch_bytes))
        return op_fail_size(step, "the memory of the sums of a pixel", "2^63 - 1 bytes");
    if (step->concrete && step->out[0].rank > 0 && by_rows(step))
        step->scratch_bytes =
            attn_pool_vector_bytes(&state->w) + 4 * (state->w.in[2] + state->w.out[2]);
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

/* How sums become bytes. */
struct mean {
    bool is_signed, zero_last;
    struct op_qlinear from, to;
};

static struct mean mean_of(const attnrun_step *step)
{
    return (struct mean){
        .is_signed = step->in[X].dtype == ATTNRUN_I8,
        .zero_last = ((const struct pool_args *)step->args)->zero_last != 0,
        .from = op_qlinear_of(step, X_SCALE, X_ZERO),
        .to = op_qlinear_of(step, Y_SCALE, Y_ZERO),
    };
}

/* Of the sum of n elements less their zero points. */
static uint8_t mean_byte(const struct mean *m, double sum, int64_t n)
{
    const double mean = n > 0 ? sum / (double)n : 0.0;
    const float y = (float)(mean * (double)m->from.scale / (double)m->to.scale);
    return m->zero_last ? op_qlinear_byte(m->is_signed, y, m->to.zero)
                        : op_qlinear_byte(m->is_signed, y + m->to.zero, 0.0f);
}

/* Computes a pixel of Y. */
static void average(const attnrun_step *step, const int64_t at[3], const uint8_t *x,
                    uint8_t *y, void *scratch)
{
    int64_t *const sums = scratch;
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const struct mean mean = mean_of(step);
    struct pool_rows rows = attn_pool_rows(w, at);
    const int64_t seen = attn_pool_seen(&rows);
    const int64_t all =
        args->count_include_pad ? w->kernel[0] * w->kernel[1] * w->kernel[2] : seen;
    window_sums(&rows, x, state->channels, mean.is_signed, sums);
    for (int64_t c = 0; c < state->channels && attn_poll_work(4) == ATTNRUN_OK; c++) {
        const double sum = (double)sums[c] - (double)seen * (double)mean.from.zero;
        y[c] = mean_byte(&mean, sum, all);
    }
}

/* ---- rows of planes ---- */

/* The sums of q - zero of a row of windows. */
static void row_sums(const attnrun_step *step, const struct pool_place *p, float zero,
                     float *sums, float *scratch)
{
    const struct pool_state *state = step->state;
    const struct attn_kernels *k = step->kernels;
    const struct window *w = &state->w;
    const size_t n = (size_t)w->in[2];
    const int64_t at[WINDOW_AXES] = { p->at[0], p->at[1], 0 };
    const uint8_t *x = (const uint8_t *)step->x[X].data + p->from;
    struct pool_rows rows = attn_pool_rows(w, at);
    float *line = scratch + n, *middle = attn_pool_line(w, line, 0.0f);
    for (const void *row; (row = attn_pool_next_line(&rows, x, 1)) != NULL &&
                          !attn_pool_stops(8 * w->in[2]);) {
        if (step->in[X].dtype == ATTNRUN_I8)
            k->dequantize_i8_f32(scratch, row, 1.0f, zero, n);
        else
            k->dequantize_u8_f32(scratch, row, 1.0f, zero, n);
        k->add_f32(middle, middle, 1, scratch, 1, n);
    }
    attn_pool_along_f32(w, sums, line, k->add_f32);
}

static void average_row(const attnrun_step *step, const struct pool_place *p,
                        float *scratch)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const struct mean mean = mean_of(step);
    const int64_t kernel = w->kernel[0] * w->kernel[1];
    const int64_t outer = args->count_include_pad
                              ? kernel
                              : attn_pool_share(w, 0, p->at[0], false) *
                                    attn_pool_share(w, 1, p->at[1], false);
    const int64_t reach = (w->kernel[2] - 1) * w->dilation[2];
    float *const sums = scratch;
    uint8_t *y = (uint8_t *)step->y[0].data + p->to;
    row_sums(step, p, mean.from.zero, sums, scratch + w->out[2]);
    for (int64_t i = 0; i < w->out[2]; i++) {
        const int64_t first = i * w->stride[2] - w->before[2];
        const bool whole =
            args->count_include_pad || (first >= 0 && first + reach < w->in[2]);
        const int64_t along = whole ? w->kernel[2] : attn_pool_share(w, 2, i, false);
        y[i] = mean_byte(&mean, (double)sums[i], outer * along);
    }
}

static attn_status qlinear_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    if (!by_rows(step))
        return attn_pool_pixels(step, work, average);
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct pool_place p = attn_pool_at(step->state, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        average_row(step, &p, work->scratch);
    }
    return ATTNRUN_OK;
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
