/* outer.h - the step of a register tile: it adds MR elements of A times two vectors of
 * columns to the sums of MR rows. MR, of isa.def, fills the registers. */
#ifndef ATTN_OUTER_H
#define ATTN_OUTER_H

#include "isa.h"

enum { MR = ATTN_F32_ROWS };

/* How many steps of a tile are one text, a divisor of 8. Tiles of up to 8 products a step need
 * several to hide a jump, those of 9 to 16 are faster with two, and those of more with four where
 * products are of pairs of bf16. Where rows share a text, their comparisons would be repeated. */
static ALWAYS_INLINE int steps_at_once(const struct rows rows, const int nv)
{
    const int products = rows.min * nv;
    if (rows.min != rows.max)
        return products > 8 ? 1 : 2;
    return products > 16 ? 4 : products > 8 ? 2 : products > 4 ? 4 : 8;
}

/* acc[i] += a[i * a_row] * b for each row i, nv vectors of b. */
static ALWAYS_INLINE void outer_step(v_f32 (*acc)[2], const float *a, ptrdiff_t a_row,
                                     const float *b, const struct rows rows, const int nv)
{
    v_f32 column[2];
    UNROLL
    for (int v = 0; v < nv; v++)
        column[v] = v_load(b + v * VF);
    const int by_lane = V_BY_LANE && a_row == 1 ? rows.min / VF * VF : 0;
    UNROLL
    for (int i = 0; i < by_lane; i += VF) {
        const v_f32 x = v_load(a + i);
        UNROLL
        for (int l = 0; l < VF; l++)
            UNROLL
        for (int v = 0; v < nv; v++)
            acc[i + l][v] = v_add_product(acc[i + l][v], column[v], v_set(x[l]));
    }
    EACH_ROW (i, rows) {
        if (i < by_lane)
            continue;
        v_f32 x = v_set(a[i * a_row]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = v_add_product(acc[i][v], x, column[v]);
    }
}

#endif
