/* avx512_amx.h - AVX-512 with tiles of 16 rows of 16 words, and their products of bytes.
 * blocked_tiles.h has the loops of convolutions by tiles; the steps after their sums are
 * here. */
#ifndef ATTN_ISA_AVX512_AMX_H
#define ATTN_ISA_AVX512_AMX_H

#include "avx512_vnni.h"

#define V_HAS_TILES V_HAS_TILES
enum { V_HAS_TILES = 1 };
/* Tiles are loaded by instructions of which gcc does not know that they read memory: what was
 * stored before is there. */
static ALWAYS_INLINE void v_tiles_fence(void) { __asm__ volatile("" : : : "memory"); }
static inline void v_tiles_begin(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    v_tiles_fence();
    _tile_loadconfig(&config);
}
static inline void v_tiles_end(void) { _tile_release(); }

/* out = sums over whole 16s of words of 32 rows of a (u8) and 32 columns of b (i8), whose
 * words are side by side; rows in words. */
static inline void v_tiles_sum(uint32_t *out, size_t out_row, const uint32_t *a,
                               size_t a_row, const uint8_t *b, size_t words)
{
    enum { SIDE = 16, COLUMNS = 2 * SIDE };
    v_tiles_fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; words >= SIDE; words -= SIDE, a += SIDE, b += SIDE * 4 * COLUMNS) {
        _tile_loadd(6, b, 4 * COLUMNS);
        _tile_loadd(4, a, 4 * a_row);
        _tile_loadd(7, b + 4 * SIDE, 4 * COLUMNS);
        _tile_loadd(5, a + SIDE * a_row, 4 * a_row);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, out, 4 * out_row);
    _tile_stored(1, out + SIDE, 4 * out_row);
    _tile_stored(2, out + SIDE * out_row, 4 * out_row);
    _tile_stored(3, out + SIDE * out_row + SIDE, 4 * out_row);
}

#endif
