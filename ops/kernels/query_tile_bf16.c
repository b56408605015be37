/* query_tile_bf16.c - softmax attention of a query tile with products of bf16.
 * query_tile.h has the algorithm. Scores, terms and sums are floats. Keys with many
 * elements are multiplied as floats, and so are all keys where the instruction set does
 * not multiply pairs of bf16. */
#include "isa.h"

#if V_HAS_TILES_BF16

#define PAIRS 0
#include "query_tile_squares.h"

void K(query_tile_pack_bf16)(float *to, const float *q, ptrdiff_t row, size_t dim,
                             size_t queries)
{
    if (dim > MAX_DIM) {
        K_OF_FLOATS(query_tile_pack_f32)(to, q, row, dim, queries);
        return;
    }
    const size_t steps = (dim + BLOCK - 1) / BLOCK,
                 whole = (queries + SIDE - 1) / SIDE * SIDE;
    for (size_t r = 0; r < whole; r++, q += row) {
        float *square = to + r / SIDE * steps * SQUARE + r % SIDE * SIDE;
        for (size_t d = 0; d < dim; d += BLOCK, square += SQUARE)
            if (r < queries)
                pair_row(square, q + d, dim - d < BLOCK ? dim - d : BLOCK);
            else
                v_store(square, v_set(0.0f));
    }
}

void K(query_tile_bf16)(const struct attn_query_tile_f32 *tile)
{
    if (tile->dim > MAX_DIM)
        K_OF_FLOATS(query_tile_f32)(tile);
    else
        run_squares(tile);
}

#elif V_HAS_DOT_BF16

#define PAIRS 1
#include "query_tile.h"

void K(query_tile_pack_bf16)(float *to, const float *q, ptrdiff_t row, size_t dim,
                             size_t queries)
{
    if (dim > ATTN_TILE_PAIRS_DIM)
        K_OF_FLOATS(query_tile_pack_f32)(to, q, row, dim, queries);
    else
        K(gemm_pack_bf16)((uint32_t *)(void *)to, q, ATTN_B_F32, 1, row, dim, queries);
}

void K(query_tile_bf16)(const struct attn_query_tile_f32 *tile)
{
    if (tile->dim > ATTN_TILE_PAIRS_DIM)
        K_OF_FLOATS(query_tile_f32)(tile);
    else
        run_query_tile(tile);
}

#else

void K(query_tile_pack_bf16)(float *to, const float *q, ptrdiff_t row, size_t dim,
                             size_t queries)
{
    K_OF_FLOATS(query_tile_pack_f32)(to, q, row, dim, queries);
}

void K(query_tile_bf16)(const struct attn_query_tile_f32 *tile)
{
    K_OF_FLOATS(query_tile_f32)(tile);
}

#endif
