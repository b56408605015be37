/* cell_bf16.c - softmax attention of a cell with products of bf16: see cell.h. Scores, terms
 * and sums are floats. Long keys are multiplied as floats. */
#define PAIRS 1
#include "cell.h"

void K(cell_pack_bf16)(float *to, const float *q, ptrdiff_t row, size_t dim,
                       size_t queries)
{
    if (dim > ATTN_CELL_PAIRS_DIM)
        K_OF_FLOATS(cell_pack_f32)(to, q, row, dim, queries);
    else
        K(gemm_pack_bf16)((uint32_t *)(void *)to, q, ATTN_B_F32, 1, row, dim, queries);
}

void K(cell_bf16)(const struct attn_cell_f32 *cell)
{
    if (cell->dim > ATTN_CELL_PAIRS_DIM)
        K_OF_FLOATS(cell_f32)(cell);
    else
        run_cell(cell);
}
