/* avx2_vnni.h - AVX2 with products of bytes. */
#ifndef ATTN_ISA_AVX2_VNNI_H
#define ATTN_ISA_AVX2_VNNI_H

#include "avx2.h"

#define V_DOT V_DOT_U8
static ALWAYS_INLINE v_u32 v_dot_words(v_u32 acc, v_u32 b, v_u32 a)
{
    return (v_u32)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
}

#endif
