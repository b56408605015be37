/* avx512_amx_bf16.h - AVX-512 with tiles of bytes, and of words of two bf16. */
#ifndef ATTN_ISA_AVX512_AMX_BF16_H
#define ATTN_ISA_AVX512_AMX_BF16_H

#include "avx512_amx.h"
#include "avx512_bf16.h"

#define V_HAS_TILES_BF16 1

/* Between v_tiles_begin() and v_tiles_end(): tiles 0 to 7 of 16 rows of 64 bytes. Their numbers
 * are constants, and rows of memory are `step` bytes apart. */
#define v_tile_zero(tile)           _tile_zero(tile)
#define v_tile_load(tile, x, step)  _tile_loadd(tile, x, step)
#define v_tile_store(tile, y, step) _tile_stored(tile, y, step)
/* to[i][j] += the products of both halves of a[i][k] and b[k][j], for k < 16. Denormal values
 * are 0. */
#define v_tile_dot_bf16(to, a, b) _tile_dpbf16ps(to, a, b)

#endif
