/* im2col.c - the columns of a tile of output pixels of a convolution, packed in the
 * panels that gemm_f32 reads: see image_types.h. Rows of the input are copied in vectors;
 * what lies in the padding is zero. */
#include "isa.h"

enum { NR = 2 * VF };

#define INLINE static inline __attribute__((always_inline))

/* Writes of n floats that may go on to the end of the last vector; returns to + n. */
INLINE float *put_zeros(float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF)
        v_store(to + i, v_set(0.0f));
    return to + (n > 0 ? n : 0);
}

INLINE float *put_pixels(float *to, const float *x, int64_t n, int64_t stride,
                         const float *end)
{
    if (n <= 0)
        return to;
    if (stride == 1 && end - x >= n + VF) {
        for (int64_t i = 0; i < n; i += VF)
            v_store(to + i, v_load(x + i));
    } else if (stride == 1) {
        memcpy(to, x, (size_t)n * sizeof(float));
    } else if (stride == 2) {
        for (int64_t i = 0; i < n; i++)
            to[i] = x[2 * i];
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = x[stride * i];
    }
    return to + n;
}

struct tap {
    int64_t channel, at[3]; /* kernel index along each axis */
    int64_t from, to;       /* output columns that see the input */
};

static void tap_columns(const struct attn_im2col *t, struct tap *tap)
{
    int64_t s = t->stride[2], shift = t->before[2] - tap->at[2] * t->dilation[2];
    int64_t room = t->in[2] - 1 + shift;
    int64_t lo = shift, hi = room < 0 ? 0 : room + 1;
    if (s > 1) {
        lo = shift > 0 ? (shift + s - 1) / s : 0;
        hi = room < 0 ? 0 : room / s + 1;
    }
    tap->from = lo > 0 ? lo : 0;
    tap->to = hi < t->out[2] ? hi : t->out[2];
    if (tap->to < tap->from)
        tap->to = tap->from;
}

static void next_tap(const struct attn_im2col *t, struct tap *tap)
{
    for (int a = 2; a >= 0; a--) {
        if (++tap->at[a] < t->kernel[a])
            return;
        tap->at[a] = 0;
    }
    tap->channel++;
}

/* Where column 0 of output row (od, oh) reads for this tap; NULL outside of the input. */
INLINE const float *source_row(const struct attn_im2col *t, const struct tap *tap,
                               int64_t od, int64_t oh)
{
    int64_t d = od * t->stride[0] - t->before[0] + tap->at[0] * t->dilation[0];
    int64_t h = oh * t->stride[1] - t->before[1] + tap->at[1] * t->dilation[1];
    if (d < 0 || d >= t->in[0] || h < 0 || h >= t->in[1])
        return NULL;
    return t->x + ((tap->channel * t->in[0] + d) * t->in[1] + h) * t->in[2];
}

INLINE int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static void fill_line(const struct attn_im2col *t, const struct tap *tap)
{
    int64_t row = t->pixel / t->out[2], ow = t->pixel % t->out[2];
    int64_t od = row / t->out[1], oh = row % t->out[1];
    float *line = t->line;
    for (int64_t left = t->n; left > 0;) {
        int64_t end = ow + left < t->out[2] ? ow + left : t->out[2];
        const float *x = source_row(t, tap, od, oh);
        if (x == NULL) {
            line = put_zeros(line, end - ow);
        } else {
            int64_t from = clamp(tap->from, ow, end), to = clamp(tap->to, from, end);
            int64_t column = from * t->stride[2] - t->before[2];
            column += tap->at[2] * t->dilation[2];
            line = put_zeros(line, from - ow);
            if (to > from)
                line = put_pixels(line, x + column, to - from, t->stride[2], t->x_end);
            line = put_zeros(line, end - to);
        }
        left -= end - ow;
        ow = 0;
        if (++oh == t->out[1]) {
            oh = 0;
            od++;
        }
    }
    int64_t rest = -t->n & (NR - 1);
    for (int64_t i = 0; i < rest; i++)
        line[i] = 0.0f;
}

/* The pixels of this tap lie in the input one after the other: read from there. */
static const float *direct_line(const struct attn_im2col *t, const struct tap *tap)
{
    int64_t ow = t->pixel % t->out[2];
    if (t->stride[2] != 1 || ow < tap->from || ow + t->n > tap->to)
        return NULL;
    int64_t row = t->pixel / t->out[2];
    const float *x = source_row(t, tap, row / t->out[1], row % t->out[1]);
    if (x == NULL)
        return NULL;
    x += ow - t->before[2] + tap->at[2] * t->dilation[2];
    return t->x_end - x >= t->n + NR ? x : NULL;
}

void K(conv_im2col_f32)(const struct attn_im2col *t)
{
    struct tap tap = { 0 };
    int64_t k = t->k_from;
    for (int a = 2; a >= 0; a--) {
        tap.at[a] = k % t->kernel[a];
        k /= t->kernel[a];
    }
    tap.channel = k;
    for (int64_t i = 0; i < t->k_count; i++) {
        tap_columns(t, &tap);
        const float *line = direct_line(t, &tap);
        if (line == NULL) {
            fill_line(t, &tap);
            line = t->line;
        }
        float *to = t->panels;
        int64_t p = 0;
        for (; p + VF < t->n; p += NR) {
            v_store(to + i * NR, v_load(line + p));
            v_store(to + i * NR + VF, v_load(line + p + VF));
            to += t->k_count * NR;
        }
        if (p < t->n)
            v_store(to + i * VF, v_load(line + p));
        next_tap(t, &tap);
    }
}
