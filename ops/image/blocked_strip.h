/* blocked_strip.h - where a convolution of blocked maps finds the pixels that a part of its output
 * sees.
 *
 * The pixels are read in X, or in a strip: a copy of some lines with their padding, in which
 * elements may have another type and a pixel more channels side by side (blocked_inputs). In: the
 * window of an axis, or struct blocked_plan. Out: how many lines a strip has, which of them an
 * output and a kernel index read, and the size of a pixel. Cost: O(1) for each question. */
#ifndef ATTN_OPS_BLOCKED_STRIP_H
#define ATTN_OPS_BLOCKED_STRIP_H

#include "blocked.h"

/* What n outputs see along an axis. */
static inline int64_t strip_reach(const struct window *w, int a, int64_t n)
{
    return (n - 1) * w->stride[a] + (w->kernel[a] - 1) * w->dilation[a] + 1;
}

/* Lines of the copy along an axis: all that n outputs see, or, where dilations leave out most
 * of it, n for each index of the kernel. */
static inline bool strip_by_taps(const struct window *w, int a, int64_t n)
{
    return w->kernel[a] * n < strip_reach(w, a, n);
}
static inline int64_t strip_copied(const struct window *w, int a, int64_t n)
{
    return strip_by_taps(w, a, n) ? w->kernel[a] * n : strip_reach(w, a, n);
}
/* Which of them is that of output i and kernel index k of n outputs. Without a copy
 * the lines are those of X itself. */
static inline int64_t strip_line_of(const struct window *w, int a, int64_t n, bool copy,
                                    int64_t i, int64_t k)
{
    if (copy && strip_by_taps(w, a, n))
        return k * n + i;
    return i * w->stride[a] + k * w->dilation[a];
}

static inline int64_t strip_element(const struct blocked_plan *p)
{
    return p->shape.bytes ? 1 : (int64_t)sizeof(float);
}
/* Bytes of a pixel of a block in X; of a plain X of one channel. */
static inline int64_t strip_pixel_bytes(const struct blocked_plan *p)
{
    const bool narrow = p->shape.x_bf16 || p->shape.plain_type != 0;
    const int64_t inputs = !p->shape.plain ? ATTN_BLOCK : p->shape.bytes ? 4 : 1;
    return inputs * (narrow ? (int64_t)sizeof(uint16_t) : strip_element(p));
}
/* Elements of a pixel's inputs where the kernel finds them. */
static inline int64_t strip_unit(const struct blocked_plan *p)
{
    return p->words ? p->inputs / 2 : p->inputs;
}
static inline int64_t strip_planes_in(const struct blocked_plan *p)
{
    return ceil_div(p->shape.channels / p->shape.groups, p->inputs);
}

#endif
