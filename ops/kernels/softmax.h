/* softmax.h - the terms of an online softmax. In: scores and the running maximum. Out:
 * their exponentials. */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include "vmath.h"

/* The maximum of a row is raised to that of all its scores so far only where that is more
 * than SLACK above it. Terms up to exp(8) do no harm, and the sums so far then need no
 * new factor. */
enum { SLACK = 8 };

/* 2^t, or 0 below 2^min. */
static ALWAYS_INLINE v_f32 term(v_f32 t, float min)
{
    const v_f32 none = { 0 }, e = v_exp2_core(v_max(v_set(min), t));
    return v_select(t < min, none, e);
}

/* The same of min >= -126. Below 2^min `e` is any number, or NaN, which is not used. */
static ALWAYS_INLINE v_f32 normal_term(v_f32 t, float min)
{
    const v_f32 none = { 0 }, e = v_exp2_normal(t);
    return v_select(t < min, none, e);
}

#endif
