/* convert_f32.c - converts n floats to and from 16-bit floats and quantized bytes. 16-bit results
 * are rounded to nearest even; NaN stays NaN. y must not overlap x.
 *
 *   quantize    y = clamp(round(x / scale), low - zero, high - zero) + zero, halves to
 *               even, NaN as low; low and high within a byte, signed or not
 *   dequantize  y = (x - zero) * scale; u4: two numbers a byte, the first in its low half
 *
 * Cost: one read and one write. */
#include "isa.h"

/* The bits of a float of at most 16 bits' range; no branch, so that it vectorises. */
static inline float promote_f16(uint32_t half)
{
    uint32_t bits = (half & 0x7fff) << 13;
    float scaled;
    memcpy(&scaled, &bits, sizeof scaled);
    scaled *= 0x1p112f; /* the exponent's bias; denormals come out right too */
    memcpy(&bits, &scaled, sizeof bits);
    bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    bits |= (half & 0x8000) << 16;
    memcpy(&scaled, &bits, sizeof scaled);
    return scaled;
}

static inline uint16_t narrow_f16(float x)
{
    uint32_t bits, small_bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13;
    float small;
    memcpy(&small, &magnitude, sizeof small);
    small += 0.5f; /* its last bit is now 2^-24, a denormal's */
    memcpy(&small_bits, &small, sizeof small_bits);
    uint32_t half = magnitude < 0x38800000u ? small_bits - 0x3f000000u : normal;
    half = magnitude >= 0x47800000u ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

void K(f16_to_f32)(float *y, const uint16_t *x, size_t n)
{
    size_t i = 0;
    for (; V_HAS_F16 && i + VF <= n; i += VF)
        v_store(y + i, v_load_f16(x + i));
    for (; i < n; i++)
        y[i] = promote_f16(x[i]);
}

void K(f32_to_f16)(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; V_HAS_F16 && i + VF <= n; i += VF)
        v_store_f16(y + i, v_load(x + i));
    for (; i < n; i++)
        y[i] = narrow_f16(x[i]);
}

void K(bf16_to_f32)(float *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(y + i, &bits, sizeof bits);
    }
}

void K(f32_to_bf16)(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        y[i] = (uint16_t)(nan ? bits >> 16 | 0x40 : rounded);
    }
}

static inline float quantized(float x, float scale, float zero, float low, float high)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float v = x / scale;
    v = v > low - zero ? v : low - zero;
    v = v < high - zero ? v : high - zero;
    return v + magic - magic + zero;
}

void K(quantize_u8_f32)(uint8_t *y, const float *x, float scale, float zero, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i < end; i++)
            y[i] = (uint8_t)(int32_t)quantized(x[i], scale, zero, 0.0f, 255.0f);
}

void K(quantize_i8_f32)(int8_t *y, const float *x, float scale, float zero, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i < end; i++)
            y[i] = (int8_t)(int32_t)quantized(x[i], scale, zero, -128.0f, 127.0f);
}

void K(dequantize_u8_f32)(float *y, const uint8_t *x, float scale, float zero, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i < end; i++)
            y[i] = ((float)x[i] - zero) * scale;
}

void K(dequantize_i8_f32)(float *y, const int8_t *x, float scale, float zero, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i < end; i++)
            y[i] = ((float)x[i] - zero) * scale;
}

void K(dequantize_u4_f32)(float *y, const uint8_t *x, float scale, float zero, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        y[2 * i] = ((float)(x[i] & 15) - zero) * scale;
        y[2 * i + 1] = ((float)(x[i] >> 4) - zero) * scale;
    }
    if (n % 2 != 0)
        y[n - 1] = ((float)(x[n / 2] & 15) - zero) * scale;
}
