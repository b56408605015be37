/* conv_strip_f32.c - copies a part of an image with its padding, in the form that
 * conv_direct_f32 reads. image_types.h describes the operands (struct attn_conv_strip).
 *
 * Rows are written in order and in whole vectors, past their ends; the next row
 * overwrites what a row wrote too far. Cost: one copy. */
#include "isa.h"

static ALWAYS_INLINE void put_zeros(float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF)
        v_store(to + i, v_set(0.0f));
}

/* n floats, `stride` apart; up to a vector more is written. */
static ALWAYS_INLINE void put_floats(const struct attn_conv_strip *s, float *to,
                                     const float *x, int64_t n)
{
    const int64_t stride = s->stride[1], left = s->x_end - x;
    if (stride == 1 && left >= n + VF)
        for (int64_t i = 0; i < n; i += VF)
            v_store(to + i, v_load(x + i));
    else if (stride == 1)
        memcpy(to, x, (size_t)n * sizeof *to);
    else if (stride == 2 && left >= 2 * (n + VF))
        for (int64_t i = 0; i < n; i += VF)
            v_store(to + i, v_every_second(v_load(x + 2 * i), v_load(x + 2 * i + VF)));
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = x[stride * i];
}

/* What rows of one remainder of columns are: zeros, columns from … end - 1 of them from
 * x, `stride` apart, from column `first` on, zeros. */
struct span {
    int64_t from, end, first;
};

static struct span find_span(const struct attn_conv_strip *s, int64_t first)
{
    const int64_t stride = s->stride[1], left = s->in[1] - first;
    int64_t from = first < 0 ? (stride - 1 - first) / stride : 0;
    int64_t end = left > 0 ? (left - 1) / stride + 1 : 0;
    from = from < s->columns ? from : s->columns;
    end = end < s->columns ? end : s->columns;
    return (struct span){ from, end > from ? end : from, first + from * stride };
}

static ALWAYS_INLINE void put_row(const struct attn_conv_strip *s, float *to,
                                  const float *x, struct span span)
{
    put_zeros(to, span.from);
    if (span.end > span.from)
        put_floats(s, to + span.from, x + span.first, span.end - span.from);
    put_zeros(to + span.end, s->columns - span.end);
}

/* Rows row, row + stride, … of a plane. */
static float *put_plane(const struct attn_conv_strip *s, float *to, const float *x,
                        int64_t row, struct span span)
{
    for (int64_t r = 0; r < s->rows; r++, to += s->columns, row += s->stride[0])
        if (row < 0 || row >= s->in[0])
            put_zeros(to, s->columns);
        else
            put_row(s, to, x + row * s->in[1], span);
    return to;
}

void K(conv_strip_f32)(const struct attn_conv_strip *s)
{
    const float *x = s->x;
    float *to = s->to;
    for (int64_t c = 0; c < s->channels; c++, x += s->in[0] * s->in[1])
        for (int64_t a = 0; a < s->stride[0]; a++)
            for (int64_t b = 0; b < s->stride[1]; b++)
                to = put_plane(s, to, x, s->h + a, find_span(s, s->w + b));
    for (int64_t i = 0; i < s->tail; i++)
        to[i] = 0.0f;
}
