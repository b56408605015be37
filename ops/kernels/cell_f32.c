/* cell_f32.c - softmax attention of a cell in floats: see cell.h. */
#define PAIRS 0
#include "cell.h"

void K(cell_pack_f32)(float *to, const float *q, ptrdiff_t row, size_t dim,
                      size_t queries)
{
    K(gemm_pack_f32)(to, q, 1, row, dim, queries);
}

void K(cell_f32)(const struct attn_cell_f32 *cell) { run_cell(cell); }
