/* outer.h - the step of a register tile: sums of MR rows by two vectors of columns. MR
 * fills the registers: 8 (AVX-512), else 6. */
#ifndef ATTN_OUTER_H
#define ATTN_OUTER_H

#include "isa.h"

#if VEC_BYTES == 64
enum { MR = 8 };
#else
enum { MR = 6 };
#endif

/* acc[i] += a[i * a_row] * b for i < mr, nv vectors of b. */
static ALWAYS_INLINE void outer_step(v_f32 (*acc)[2], const float *a, ptrdiff_t a_row,
                                     const float *b, const int mr, const int nv)
{
    v_f32 column[2];
    UNROLL
    for (int v = 0; v < nv; v++)
        column[v] = v_load(b + v * VF);
    UNROLL
    for (int i = 0; i < mr; i++) {
        v_f32 x = v_set(a[i * a_row]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] += x * column[v];
    }
}

#endif
