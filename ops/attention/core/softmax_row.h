/* softmax_row.h - merges the states of two online softmaxes of one row over different
 * keys. The result is that of one softmax over the keys of both, but for rounding. In:
 * two states and two rows of n weighted sums. Out: one of each, in place. Cost: n
 * products and sums, two exponentials. */
#ifndef ATTN_SOFTMAX_ROW_H
#define ATTN_SOFTMAX_ROW_H

#include <math.h>
#include <stdint.h>

#include "../../kernels/kernels.h"

/* Adds the state `from` and its n weighted sums `more` to those of `to`. A state whose sum is 0
 * saw no key. */
static inline void attn_softmax_row_add(struct attn_softmax_row *to, float *sums,
                                        const struct attn_softmax_row *from,
                                        const float *more, int64_t n)
{
    if (from->sum == 0.0f)
        return;
    const float max = from->max <= to->max ? to->max : from->max; /* NaN too */
    const float old_factor = to->sum == 0.0f ? 0.0f : expf(to->max - max);
    const float new_factor = expf(from->max - max);
    for (int64_t i = 0; i < n; i++)
        sums[i] = sums[i] * old_factor + more[i] * new_factor;
    to->sum = to->sum * old_factor + from->sum * new_factor;
    to->max = max;
}

#endif
