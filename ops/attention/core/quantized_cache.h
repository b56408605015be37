/* quantized_cache.h - tokens of a cache of keys or values that are stored as small
 * integers.
 *
 * In: dim floats of a head of a token and scales, one or `dim` of them. Out: bytes. With
 * 8 bits an element is an i8: x times 1 / scale, rounded to even and limited to -128 …
 * 127. With 4 bits it is rounded the same way and limited to -8 … 7, and 8 is added; a
 * byte holds two features, with the even one in its low half. NaN becomes the largest
 * number. Cost: one pass over the features. Source: ONNX Runtime contrib operators;
 * compared with onnxruntime 1.31.1. */
#ifndef ATTN_QUANTIZED_CACHE_H
#define ATTN_QUANTIZED_CACHE_H

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"

struct attn_quantized {
    int32_t bits;    /* 8 or 4, then dim is even */
    bool by_channel; /* features have scales of their own */
    int64_t dim;
};

/* The bytes of a token. */
static inline int64_t attn_quantized_bytes(const struct attn_quantized *q)
{
    return q->bits == 4 ? q->dim / 2 : q->dim;
}

void attn_quantize(const struct attn_quantized *q, void *to, const float *from,
                   const float *scale);
/* Converts n contiguous tokens to floats. scale: that of the first feature. */
void attn_dequantize(const struct attn_kernels *kernels, const struct attn_quantized *q,
                     float *to, const void *from, const float *scale, int64_t n);

#endif
