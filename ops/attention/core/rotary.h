/* rotary.h - rotates one head of one token. In: `dim` floats x, and `half` cosines and
 * sines. Out: `dim` floats y; y may not be x. Cost: 3 FLOPs a rotated element.
 * onnx/rotary_embedding.c has the formula and the source. */
#ifndef ATTN_ROTARY_H
#define ATTN_ROTARY_H

#include "../../../runtime/op.h"

/* y must not be x. cosine and sine have `half` elements. Features from 2 * half on are
 * copied. */
static inline void attn_rotary_rotate(float *y, const float *x, const float *cosine,
                                      const float *sine, int64_t half, int64_t dim,
                                      bool interleaved)
{
    const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i * step], b = x[i * step + other];
        y[i * step] = a * cosine[i] - b * sine[i];
        y[i * step + other] = a * sine[i] + b * cosine[i];
    }
    for (int64_t i = 2 * half; i < dim; i++)
        y[i] = x[i];
}

#endif
