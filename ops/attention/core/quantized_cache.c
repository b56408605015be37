/* quantized_cache.c - converts floats of a cache to small integers and back.
 * quantized_cache.h describes the layout and the rounding. */
#include "quantized_cache.h"

#include <math.h>

static int nearest(float x, float scale, float low, float high)
{
    /* As upstream: 1 / scale decides ties, a scale of 0 is 1. */
    float v = x * (scale != 0 ? 1.0f / scale : 1.0f);
    v = v < high ? v : high;
    return (int)rintf(v > low ? v : low);
}

void attn_quantize(const struct attn_quantized *q, void *to, const float *from,
                   const float *scale)
{
    const int64_t step = q->by_channel;
    if (q->bits == 8) {
        for (int64_t i = 0; i < q->dim; i++)
            ((int8_t *)to)[i] = (int8_t)nearest(from[i], scale[i * step], -128, 127);
        return;
    }
    for (int64_t i = 0; i + 1 < q->dim; i += 2) {
        const int low = nearest(from[i], scale[i * step], -8, 7) + 8;
        const int high = nearest(from[i + 1], scale[(i + 1) * step], -8, 7) + 8;
        ((uint8_t *)to)[i / 2] = (uint8_t)(low | high << 4);
    }
}

void attn_dequantize(const struct attn_kernels *kernels, const struct attn_quantized *q,
                     float *to, const void *from, const float *scale, int64_t n)
{
    const float unit = q->by_channel ? 1.0f : *scale;
    const size_t features = (size_t)(n * q->dim);
    if (q->bits == 8)
        kernels->dequantize_i8_f32(to, from, unit, 0.0f, features);
    else
        kernels->dequantize_u4_f32(to, from, unit, 8.0f, features);
    for (int64_t i = 0; q->by_channel && i < n; i++)
        kernels->mul_f32(to + i * q->dim, to + i * q->dim, 1, scale, 1, (size_t)q->dim);
}
