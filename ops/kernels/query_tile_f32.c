/* query_tile_f32.c - softmax attention of a query tile in floats. query_tile.h has the
 * algorithm. */
#define PAIRS 0
#include "query_tile.h"

void K(query_tile_pack_f32)(float *to, const float *q, ptrdiff_t row, size_t dim,
                            size_t queries)
{
    K(gemm_pack_f32)(to, q, 1, row, dim, queries);
}

void K(query_tile_f32)(const struct attn_query_tile_f32 *tile) { run_query_tile(tile); }
