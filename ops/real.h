/* real.h - reads and writes elements of f32 and f64 tensors as double, for operators
 * whose arithmetic is not in the inner loop of a model. */
#ifndef ATTN_OPS_REAL_H
#define ATTN_OPS_REAL_H

#include "../runtime/op.h"

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
/* The same for an output that may have no reader. */
static inline void real_put_out(const attnrun_step *step, int out, int64_t i, double v)
{
    if (op_has_out(step, out) && step->y[out].data != NULL)
        real_put(&step->y[out], i, v);
}

#endif
