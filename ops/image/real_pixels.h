/* real_pixels.h - floors positions of pixels that are doubles. In: a double, which may be
 * infinite or NaN. Out: an integer far from overflow. ops/real.h, which this file
 * includes, reads and writes f32 and f64 elements as double. */
#ifndef ATTN_OPS_IMAGE_REAL_PIXELS_H
#define ATTN_OPS_IMAGE_REAL_PIXELS_H

#include "../real.h"

/* floor(x) as an integer far from overflow; NaN becomes a place far outside. */
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
