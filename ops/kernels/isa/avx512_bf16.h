/* avx512_bf16.h - AVX-512 with products of bytes and of pairs of bf16. */
#ifndef ATTN_ISA_AVX512_BF16_H
#define ATTN_ISA_AVX512_BF16_H

#include "avx512_vnni.h"

#define v_pair_bf16 v_pair_bf16
static ALWAYS_INLINE v_u32 v_pair_bf16(v_f32 x, v_f32 y)
{
    /* Half i of x and half i of y, of which the first is in lane 16 + i. */
    const v_u32 halves = { 0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                           0x160006, 0x170007, 0x180008, 0x190009, 0x1a000a, 0x1b000b,
                           0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f };
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
    return (v_u32)_mm512_permutexvar_epi16((__m512i)halves, (__m512i)both);
}
static ALWAYS_INLINE v_u32 v_join_bf16(v_f32 x, v_f32 y)
{
    return (v_u32)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
}
static ALWAYS_INLINE v_u32 v_words_bf16(const float *x)
{
    return v_join_bf16((v_f32)_mm512_loadu_ps(x), (v_f32)_mm512_loadu_ps(x + 16));
}
#define v_store_bf16 v_store_bf16
static ALWAYS_INLINE void v_store_bf16(uint16_t *y, v_f32 x)
{
    _mm256_storeu_si256((void *)y, (__m256i)_mm512_cvtneps_pbh((__m512)x));
}
#define V_HAS_DOT_BF16 1
#define v_dot_bf16     v_dot_bf16
static ALWAYS_INLINE v_f32 v_dot_bf16(v_f32 acc, v_u32 b, uint32_t a)
{
    return (v_f32)_mm512_dpbf16_ps((__m512)acc, (__m512bh)b,
                                   (__m512bh)_mm512_set1_epi32((int)a));
}

#endif
