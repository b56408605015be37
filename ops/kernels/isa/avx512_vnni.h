/* avx512_vnni.h - AVX-512 with products of bytes. */
#ifndef ATTN_ISA_AVX512_VNNI_H
#define ATTN_ISA_AVX512_VNNI_H

#include "avx512.h"

#define V_DOT V_DOT_U8
static ALWAYS_INLINE v_u32 v_dot_words(v_u32 acc, v_u32 b, v_u32 a)
{
    return (v_u32)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}

#endif
