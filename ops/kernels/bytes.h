/* bytes.h - how floats become quantized bytes, and how a table of 256 bytes is applied.
 */
#ifndef ATTN_KERNELS_BYTES_H
#define ATTN_KERNELS_BYTES_H

#include "isa.h"

#define BYTES_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds */

/* clamp(round(x), low, high) + BYTES_MAGIC for whole numbers low and high; halves to even, NaN
 * as low. */
static ALWAYS_INLINE v_f32 round_between(v_f32 x, float low, float high)
{
    return v_min(v_max(x, v_set(low)), v_set(high)) + v_set(BYTES_MAGIC);
}

/* Converts bytes to floats and subtracts a zero point. */
static ALWAYS_INLINE v_f32 bytes_less(const uint8_t *x, uint32_t flip, float zero)
{
    return __builtin_convertvector((v_i32)(v_load_u8(x) ^ flip), v_f32) - v_set(zero);
}

/* y[i] = table[x[i]]; y may be x. */
static inline void look_up_bytes(uint8_t *y, const uint8_t *x, const uint8_t *table,
                                 size_t n)
{
    size_t i = 0;
    for (; i + VEC_BYTES <= n; i += VEC_BYTES)
        v_look_up_u8(y + i, x + i, table);
    for (; i < n; i++)
        y[i] = table[x[i]];
}

#endif
