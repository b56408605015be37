/* real_pixels.h - elements of f32 and f64 tensors as double, and their places in a
 * tensor. */
#ifndef ATTN_OPS_IMAGE_REAL_PIXELS_H
#define ATTN_OPS_IMAGE_REAL_PIXELS_H

#include "../real.h"

/* floor(x) as an integer far from overflow; NaN becomes far outside. */
static inline int64_t real_floor(double x)
{
    const int64_t far = INT64_C(1) << 50;
    if (!(x > (double)-far))
        return -far;
    if (x > (double)far)
        return far;
    int64_t i = (int64_t)x;
    return (double)i > x ? i - 1 : i;
}

#endif
