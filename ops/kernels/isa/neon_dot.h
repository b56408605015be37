/* neon_dot.h - Advanced SIMD with products of bytes (FEAT_DotProd). */
#ifndef ATTN_ISA_NEON_DOT_H
#define ATTN_ISA_NEON_DOT_H

#include "neon.h"

#define V_DOT V_DOT_I8
static ALWAYS_INLINE v_u32 v_dot_words(v_u32 acc, v_u32 b, v_u32 a)
{
    return (v_u32)vdotq_s32((int32x4_t)acc, (int8x16_t)b, (int8x16_t)a);
}

#endif
