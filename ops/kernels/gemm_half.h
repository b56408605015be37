/* gemm_half.h - register tiles of a product whose panel of B has elements of f16 or bf16.
 *
 * In: gemm_tiles.h, and a struct tile with `half`, the panel [k][NR] of 16-bit elements, or for
 * narrow_row() [k][VF].
 * Out: half_tiles[], the tile for each text_of() the rows of A; narrow_row(), that of one row and a
 * panel of one vector. More rows pay for converting such a panel in scratch.
 *
 * The elements become floats in registers, by one conversion a vector. If more rows of A follow,
 * the first tile also stores the panel as floats to `floats`, and the following tiles read these,
 * so that a panel is converted once. The sums have the bits of tile_sum() over the same floats. */
#ifndef ATTN_GEMM_HALF_H
#define ATTN_GEMM_HALF_H

#include "gemm_tiles.h"

enum { HALF_AHEAD = 32 }; /* rows of the panel that are prefetched */

static ALWAYS_INLINE void half_products(const struct tile *t, v_f32 (*acc)[2],
                                        const struct rows rows, const int nv,
                                        const bool f16)
{
    const float *a = t->a;
    const uint16_t *b = t->half;
    const ptrdiff_t a_row = t->a_col != 0 ? 1 : t->a_row;
    const ptrdiff_t a_col = t->a_col != 0 ? t->a_col : 1;
    float *floats = t->floats;
    for (size_t k = 0; k < t->k; k++, a += a_col, b += nv * VF) {
        v_f32 column[2];
        if (rows.max > FEW_ROWS || t->half_ahead)
            __builtin_prefetch(b + nv * VF * HALF_AHEAD, 0, 3);
        UNROLL
        for (int v = 0; v < nv; v++)
            column[v] = v_load_half(b + v * VF, f16);
        EACH_ROW (i, rows) {
            const v_f32 x = v_set(a[i * a_row]);
            UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] = v_add_product(acc[i][v], x, column[v]);
        }
        if (nv == 2 && floats != NULL) {
            v_store(floats, column[0]);
            v_store(floats + VF, column[1]);
            floats += NR;
        }
    }
}

static ALWAYS_INLINE void half_sum(const struct tile *t, const struct rows rows,
                                   const int nv)
{
    v_f32 acc[MR][2] = { { { 0 } } };
    /* Sets without conversions of f16 get such panels as floats. */
    if (V_HAS_F16 && t->half_type == ATTN_B_F16)
        half_products(t, acc, rows, nv, true);
    else
        half_products(t, acc, rows, nv, false);
    tile_end(t, acc, rows, nv);
}

/* clang-format off */
#define HALF_TILE(min, max, nv)                                                          \
    static void half_tile_##min(const struct tile *t, size_t m)                          \
    {                                                                                    \
        half_sum(t, (struct rows){ (int)m, min, max }, nv);                                \
    }
ATTN_TEXTS(ATTN_F32_ROWS, HALF_TILE, 2)
#define HALF(min, max, nv) half_tile_##min,
static void (*const half_tiles[MR])(const struct tile *t, size_t m) = {
    ATTN_TEXTS(ATTN_F32_ROWS, HALF, 2)
};
#undef HALF
#undef HALF_TILE
/* clang-format on */

static void narrow_row(const struct tile *t) { half_sum(t, (struct rows){ 1, 1, 1 }, 1); }

#endif
