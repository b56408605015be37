/* avx512_vnni.h - AVX-512 with products of bytes. */
#ifndef ATTN_ISA_AVX512_VNNI_H
#define ATTN_ISA_AVX512_VNNI_H

#include "avx512.h"

#define V_DOT V_DOT_U8
static ALWAYS_INLINE v_u32 v_dot(v_u32 acc, v_u32 b, uint32_t a)
{
    return (v_u32)_mm512_dpbusd_epi32((__m512i)acc, _mm512_set1_epi32((int)a),
                                      (__m512i)b);
}

#endif
