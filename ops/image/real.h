/* real.h - elements of f32 and f64 tensors as double, for operators whose arithmetic is not
 * in the inner loop of a model. */
#ifndef ATTN_OPS_IMAGE_REAL_H
#define ATTN_OPS_IMAGE_REAL_H

#include "../../runtime/op.h"

static inline double real_get(const attnrun_tensor *t, int64_t i)
{
    return t->dtype == ATTNRUN_F32 ? (double)((const float *)t->data)[i]
                                   : ((const double *)t->data)[i];
}
static inline void real_put(const attnrun_tensor *t, int64_t i, double v)
{
    if (t->dtype == ATTNRUN_F32)
        ((float *)t->data)[i] = (float)v;
    else
        ((double *)t->data)[i] = v;
}
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
