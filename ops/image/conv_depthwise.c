/* conv_depthwise.c - convolution with one input channel per group, by rows.
 *
 * A block of output pixels of one channel: the input rows it sees are copied into scratch
 * with their padding, de-interleaved by the stride along the row, so that every tap reads
 * consecutive floats at an offset of its own (conv_taps_f32). With stride 1 and narrow
 * images the rows of a block are run as one long row, the gaps between them computed and
 * dropped.
 *
 * Tasks: batch x output channel x block of rows x block of columns. */
#include "conv.h"

enum { BLOCK_W = 2048, BLOCK_FLOATS = 16384, NARROW = 48, STRIP_LIMIT = 1 << 21 };

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

/* Strips are 2-D: rows of all (out 0, out 1) would need 3-D tap offsets. */
void attn_conv_depthwise_plan(attnrun_step *step, const struct conv_shape *s,
                              struct conv_strip *strip, bool *fits)
{
    const struct window *w = &s->w;
    int64_t reach_h = (w->kernel[1] - 1) * w->dilation[1] + 1;
    int64_t reach_w = (w->kernel[2] - 1) * w->dilation[2] + 1;
    *fits = w->kernel[0] == 1 && w->in[0] == 1 && w->out[0] == 1 && s->channels == 1 &&
            s->taps <= 4096 && reach_h < 65536 && reach_w < 65536 &&
            w->stride[2] < 4096 && w->stride[1] < 65536;
    if (!*fits)
        return;
    strip->block_w = at_most(w->out[2], BLOCK_W);
    strip->block_h = at_most(w->out[1], BLOCK_FLOATS / (strip->block_w + reach_w) + 1);
    strip->rows = (strip->block_h - 1) * w->stride[1] + reach_h;
    int64_t columns = (strip->block_w - 1) * w->stride[2] + reach_w;
    strip->phase = (columns + w->stride[2] - 1) / w->stride[2];
    strip->first_float = 2 * s->taps + (-2 * s->taps & 15);
    int64_t floats = strip->rows * w->stride[2] * strip->phase + 64;
    floats += strip->block_h * (strip->phase + 64); /* the long row of results */
    *fits = floats <= STRIP_LIMIT;
    if (!*fits)
        return;
    if (strip->block_w > 0 && strip->block_h > 0) {
        strip->h_blocks = (w->out[1] + strip->block_h - 1) / strip->block_h;
        strip->w_blocks = (w->out[2] + strip->block_w - 1) / strip->block_w;
    }
    if ((strip->first_float + floats) * 4 > step->scratch_bytes)
        step->scratch_bytes = (strip->first_float + floats) * 4;
    int64_t n = s->batch * s->groups * s->rows * strip->h_blocks * strip->w_blocks;
    double pixels = (double)strip->block_h * (double)strip->block_w;
    op_tasks(step, 0, n, window_cost(pixels * (double)s->taps / 30.0 + pixels + 100.0));
}

/* One input row, columns from `from` on, into `stride` phases of strip->phase floats:
 * position i of phase p is column from + i stride + p. */
static void put_row(float *to, const struct conv_shape *s, const struct conv_strip *strip,
                    const float *x, int64_t from)
{
    int64_t stride = s->w.stride[2], n = strip->phase;
    for (int64_t p = 0; p < stride; p++, to += n) {
        int64_t first = from + p, left = s->w.in[2] - first; /* of column `first` on */
        int64_t lo = first < 0 ? at_most((-first + stride - 1) / stride, n) : 0;
        int64_t hi = left > 0 ? at_most((left - 1) / stride + 1, n) : 0;
        hi = hi > lo ? hi : lo;
        for (int64_t i = 0; i < lo; i++)
            to[i] = 0.0f;
        if (stride == 1)
            memcpy(to + lo, x + first + lo, (size_t)(hi - lo) * sizeof(float));
        else if (stride == 2)
            for (int64_t i = lo; i < hi; i++)
                to[i] = x[first + 2 * i];
        else
            for (int64_t i = lo; i < hi; i++)
                to[i] = x[first + stride * i];
        for (int64_t i = hi; i < n; i++)
            to[i] = 0.0f;
    }
}

static void put_strip(float *to, const struct conv_shape *s,
                      const struct conv_strip *strip, const float *x, int64_t h,
                      int64_t w)
{
    int64_t pitch = s->w.stride[2] * strip->phase;
    for (int64_t r = 0; r < strip->rows; r++, to += pitch) {
        int64_t row = h * s->w.stride[1] - s->w.before[1] + r;
        if (row < 0 || row >= s->w.in[1])
            memset(to, 0, (size_t)pitch * sizeof(float));
        else
            put_row(to, s, strip, x + row * s->w.in[2],
                    w * s->w.stride[2] - s->w.before[2]);
    }
}

static void tap_offsets(int64_t *offsets, const struct conv_shape *s,
                        const struct conv_strip *strip)
{
    int64_t stride = s->w.stride[2];
    for (int64_t h = 0; h < s->w.kernel[1]; h++)
        for (int64_t w = 0; w < s->w.kernel[2]; w++) {
            int64_t column = w * s->w.dilation[2];
            int64_t row = h * s->w.dilation[1] * stride;
            *offsets++ = (row + column % stride) * strip->phase + column / stride;
        }
}

/* Where a block of output pixels is: its channel, the element of Y where the plane
 * begins, row and column. */
struct place {
    int64_t channel, out, h, w;
};

static void run_strip(const attnrun_step *step, const struct conv_shape *s,
                      const struct conv_strip *strip, const struct conv_operands *o,
                      const int64_t *offsets, float *x, const struct place *place)
{
    int64_t channel = place->channel, out = place->out, h = place->h, w = place->w;
    const float *weights = o->w + channel * s->taps;
    float bias = o->bias != NULL ? o->bias[channel] : 0.0f;
    int64_t n_h = at_most(s->w.out[1] - h, strip->block_h);
    int64_t n_w = at_most(s->w.out[2] - w, strip->block_w);
    int64_t pitch = s->w.stride[2] * strip->phase;
    bool narrow = n_w < NARROW && s->w.stride[1] == 1 && s->w.stride[2] == 1 && n_h > 1;
    float *rows = x + strip->rows * pitch + 64;
    if (narrow)
        step->kernels->conv_taps_f32(rows, (n_h - 1) * pitch + n_w, x, offsets, weights,
                                     s->taps, bias);
    for (int64_t r = 0; r < n_h; r++) {
        int64_t at = out + (h + r) * s->w.out[2] + w;
        if (narrow)
            memcpy(o->y + at, rows + r * pitch, (size_t)n_w * sizeof(float));
        else
            step->kernels->conv_taps_f32(o->y + at, n_w, x + r * s->w.stride[1] * pitch,
                                         offsets, weights, s->taps, bias);
        if (o->z != NULL)
            step->kernels->add_f32(o->y + at, o->y + at, 1, o->z + at, 1, (size_t)n_w);
        if (n_w != s->w.out[2])
            attn_conv_apply(step->kernels, o->activation, o->n_activation, o->y + at,
                            n_w);
    }
    if (n_w == s->w.out[2])
        attn_conv_apply(step->kernels, o->activation, o->n_activation,
                        o->y + out + h * n_w, n_h * n_w);
}

attn_status attn_conv_depthwise_run(const attnrun_step *step, const attnrun_work *work,
                                    const struct conv_shape *s,
                                    const struct conv_strip *strip,
                                    const struct conv_operands *o)
{
    int64_t *offsets = work->scratch;
    float *x = (float *)work->scratch + strip->first_float;
    tap_offsets(offsets, s, strip);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t w = task % strip->w_blocks * strip->block_w;
        int64_t rest = task / strip->w_blocks;
        int64_t h = rest % strip->h_blocks * strip->block_h;
        int64_t plane = rest / strip->h_blocks; /* of the output */
        int64_t out_channels = s->groups * s->rows;
        int64_t channel = plane % out_channels, image = plane / out_channels;
        const float *from = o->x + (image * s->groups + channel / s->rows) * s->inputs;
        put_strip(x, s, strip, from, h, w);
        const struct place place = { channel, plane * s->pixels, h, w };
        run_strip(step, s, strip, o, offsets, x, &place);
    }
    return ATTNRUN_OK;
}
