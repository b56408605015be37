/* lanes.h - loads and stores of some lanes of a vector: bit l of a mask is lane l. What
 * the other lanes would touch is not touched. */
#ifndef ATTN_LANES_H
#define ATTN_LANES_H

#include "isa.h"

/* Lanes from … to - 1; 0 <= from <= to <= VF. */
static ALWAYS_INLINE uint32_t v_bits(int64_t from, int64_t to)
{
    return (1u << to) - (1u << from);
}

#if VEC_BYTES == 64 && defined(__AVX512F__)
typedef __mmask16 v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits) { return (v_mask)bits; }
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return (v_f32)_mm512_maskz_loadu_ps(mask, x);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    _mm512_mask_storeu_ps(y, mask, (__m512)v);
}
#elif VEC_BYTES == 32 && defined(__AVX2__)
typedef v_i32 v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits)
{
    const v_i32 bit = { 1, 2, 4, 8, 16, 32, 64, 128 };
    return ((v_i32)_mm256_set1_epi32((int)bits) & bit) == bit;
}
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return (v_f32)_mm256_maskload_ps(x, (__m256i)mask);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    _mm256_maskstore_ps(y, (__m256i)mask, (__m256)v);
}
#else
typedef uint32_t v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits) { return bits; }
/* Mostly all of them; the rest are no part of each loop. */
static __attribute__((noinline, unused)) v_f32 load_some(const float *x, v_mask mask)
{
    float lanes[VF];
    for (int i = 0; i < VF; i++)
        lanes[i] = mask >> i & 1 ? x[i] : 0.0f;
    return v_load(lanes);
}
static __attribute__((noinline, unused)) void store_some(float *y, v_mask mask, v_f32 v)
{
    for (int i = 0; i < VF; i++)
        if (mask >> i & 1)
            y[i] = v[i];
}
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return mask == v_bits(0, VF) ? v_load(x) : load_some(x, mask);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    if (mask == v_bits(0, VF))
        v_store(y, v);
    else
        store_some(y, mask, v);
}
#endif

#endif
