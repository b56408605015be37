/* bytes.h - how a table of 256 bytes is applied. */
#ifndef ATTN_KERNELS_BYTES_H
#define ATTN_KERNELS_BYTES_H

#include "isa.h"

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
