/* gemm_pack.c - packs a whole constant B as panels, once for a model: B of floats, or of
 * 16-bit elements, which gemm_f32 converts to floats a panel at a time. Cost: one copy.
 */
#include "panel.h"

void K(gemm_pack_f32)(float *packed, const float *b, ptrdiff_t row, ptrdiff_t col,
                      size_t k, size_t n)
{
    for (size_t j = 0; j < n; j += NR) {
        size_t left = n - j < NR ? n - j : NR;
        size_t width = left <= VF ? VF : NR;
        if (attn_poll_work((int64_t)(4 * width * k)) != ATTNRUN_OK)
            return;
        pack_panel(packed, width, b + (ptrdiff_t)j * col, row, col, k, left);
        packed += width * k;
    }
}

void K(gemm_pack_16)(uint16_t *packed, const uint16_t *b, ptrdiff_t row, ptrdiff_t col,
                     size_t k, size_t n)
{
    for (size_t j = 0; j < n; j += NR, b += NR * col) {
        const size_t left = n - j < NR ? n - j : NR, width = left <= VF ? VF : NR;
        if (attn_poll_work((int64_t)(2 * width * k)) != ATTNRUN_OK)
            return;
        for (size_t i = 0; i < k; i++, packed += width)
            for (size_t v = 0; v < width; v++)
                packed[v] =
                    v < left ? b[(ptrdiff_t)i * row + (ptrdiff_t)v * col] : (uint16_t)0;
    }
}
