/* dynamic.h - u8 by an array's own range, in three phases, for DynamicQuantizeLinear and
 * operators that begin with it. Tasks of the first and last phase are chunks of OP_CHUNK
 * elements.
 *
 * shared   attn_dynamic_bytes(): {scale, zero point}, then {min, max} of each chunk
 *
 * Cost: two reads of the array and one write. */
#ifndef ATTN_QUANT_DYNAMIC_H
#define ATTN_QUANT_DYNAMIC_H

#include <math.h>

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

/* false: overflow. */
bool attn_dynamic_bytes(int64_t count, int64_t *bytes);
/* Tasks of phases first, first + 1, first + 2. */
void attn_dynamic_tasks(attnrun_step *step, int first, int64_t count);
void attn_dynamic_ranges(const attnrun_step *step, const attnrun_work *work,
                         const float *x, int64_t count, float *shared);
/* pair: the scale and the zero point of u8 for numbers of [low, high] and 0; a scale of 1
 * where all are 0, as in ONNX Runtime, and NaN where one is NaN. */
static inline void attn_dynamic_pair(float low, float high, float *pair)
{
    low = low > 0.0f ? 0.0f : low;
    high = high < 0.0f ? 0.0f : high;
    const float range = high - low;
    pair[0] = range == 0 ? 1.0f : range / 255.0f;
    const float zero = isfinite(range) ? nearbyintf(0.0f - low / pair[0]) : 0.0f;
    pair[1] = fmaxf(0.0f, fminf(255.0f, zero));
}
void attn_dynamic_whole(float *shared, int64_t count);
void attn_dynamic_quantize(const attnrun_step *step, const attnrun_work *work, uint8_t *y,
                           const float *x, int64_t count, const float *shared);

#endif
