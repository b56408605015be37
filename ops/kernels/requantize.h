/* requantize.h - what sums of products of bytes become: the bytes of struct attn_requantize, for
 * the kernels of each instruction set. Each operation is rounded by itself, so that all sets give
 * the same bits. Cost: 4 to 11 operations a vector of sums, and one to pack it. */
#ifndef ATTN_KERNELS_REQUANTIZE_H
#define ATTN_KERNELS_REQUANTIZE_H

#include "isa.h"

/* Sums of VF columns as whole numbers, which v_store_pixels() makes bytes of. `z`: those of the
 * other map, where there is one (`two`). */
static ALWAYS_INLINE v_u32 requantized(const struct attn_requantize *to, v_u32 sum,
                                       v_f32 factor, const uint8_t *z, const bool two)
{
    v_f32 q = __builtin_convertvector((v_i32)sum, v_f32) * factor;
    if (!two)
        return v_nearest(v_min(v_set(to->high), q)); /* NaN stays: it is as low */
    const v_i32 apart = (v_i32)(v_load_u8(z) - to->z_zero);
    const v_f32 other =
        v_rounded(__builtin_convertvector(apart, v_f32) * v_set(to->z_ratio));
    q = v_whole(v_min(v_max(q, v_set(to->low)), v_set(to->high)));
    q = v_rounded(q * v_set(to->ratio)) + other;
    return v_nearest(v_min(v_set(255.0f), q + v_set(to->sum_zero)));
}

/* What v_store_pixels() is told, without another map. */
static ALWAYS_INLINE struct attn_byte_limits limits_of(const struct attn_requantize *to)
{
    const int32_t zero = (int32_t)to->zero;
    return (struct attn_byte_limits){ zero, (int32_t)to->low + zero,
                                      (int32_t)to->high + zero };
}

#endif
