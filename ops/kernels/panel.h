/* panel.h - columns of B in the form that the tiles of gemm_f32 read.
 *
 * A panel is NR columns of some rows of B (VF columns, where the last ones of B are no
 * more than that), row after row, with zeros behind the last column. In: B with strides.
 * Out: panels. Cost: one copy. */
#ifndef ATTN_PANEL_H
#define ATTN_PANEL_H

#include "isa.h"
#include "transpose.h"

enum { NR = 2 * VF };

/* Packs columns j … j + n - 1 (n <= width) and rows k0 … k0 + k - 1 of B as a panel. Where
 * `col` is 1, B may have any address. */
static inline void pack_panel(float *panel, size_t width, const float *b, ptrdiff_t row,
                              ptrdiff_t col, size_t k, size_t n)
{
    if (row == 1 && n == width) {
        transpose_block(panel, (ptrdiff_t)width, b, col, n, k);
        return;
    }
    for (size_t i = 0; col == 1 && n == width && i < k; i++, panel += width, b += row) {
        prefetch_row(b, row, n);
        for (size_t v = 0; v < width; v += VF) {
            v_f32 x;
            memcpy(&x, b + v, sizeof x); /* any address will do */
            v_store(panel + v, x);
        }
    }
    if (col == 1 && n == width)
        return;
    for (size_t i = 0; i < k; i++, panel += width, b += row) {
        if (col == 1)
            memcpy(panel, b, n * sizeof(float));
        else
            for (size_t j = 0; j < n; j++)
                panel[j] = b[(ptrdiff_t)j * col];
        for (size_t j = n; j < width; j++)
            panel[j] = 0.0f;
    }
}

/* Converts n 16-bit elements of `type` (ATTN_B_F16 or ATTN_B_BF16) to floats. */
static inline void to_floats(float *y, const uint16_t *x, size_t n, int32_t type)
{
    if (type == ATTN_B_F16)
        K_OF_FLOATS(f16_to_f32)(y, x, n);
    else
        K_OF_FLOATS(bf16_to_f32)(y, x, n);
}

#endif
