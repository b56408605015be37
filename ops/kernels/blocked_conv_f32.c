/* blocked_conv_f32.c - convolution of maps in blocks of 16 channels: struct
 * attn_blocked_conv.
 *
 * A tile of up to PIXELS pixels and two vectors of columns stays in registers while the rows
 * of the weights pass by: each row is a vector of each column and one float of each pixel.
 * Nothing is packed at run; pixels are found through their offsets, so that strides,
 * dilations and the ends of lines cost nothing. The pixels of a call are cut into tiles of
 * about the same size: 49 are 13, 12, 12 and 12, which all fill the registers.
 *
 * Tiles: 14 x 2 vectors (AVX-512: 117 of 118 GFLOP/s in cache), 12 x 2 (NEON), 6 x 2. */
#include "isa.h"

/* By bytes of a vector and registers. */
#define PIXELS_16_16 6
#define PIXELS_32_16 6
#define PIXELS_16_32 12
#define PIXELS_64_32 14
#define PIXELS       ATTN_CAT4(PIXELS_, VEC_BYTES, _, ATTN_REGISTERS)
enum { PANEL = 2 * VF > ATTN_BLOCK ? 2 * VF : ATTN_BLOCK };

/* A tile: its first pixel and column, and its first weight. */
struct place {
    int64_t pixel, column;
    const float *w;
    int64_t w_row;
};

static ALWAYS_INLINE void put_tile(const struct attn_blocked_conv *d, v_f32 (*acc)[2],
                                   const struct place *at, const int n, const int nv)
{
    const v_f32 least = v_set(d->least), most = v_set(d->most);
    UNROLL
    for (int v = 0; v < nv; v++) {
        const int64_t column = at->column + v * VF;
        const int64_t place = column / ATTN_BLOCK * d->y_block + column % ATTN_BLOCK +
                              at->pixel * ATTN_BLOCK;
        float *const y = d->y + place;
        const float *const z = d->z != NULL ? d->z + place : NULL;
        if (z != NULL) {
            UNROLL
            for (int i = 0; i < n; i++)
                acc[i][v] += v_load(z + i * ATTN_BLOCK);
        }
        UNROLL
        for (int i = 0; i < n; i++)
            v_store(y + i * ATTN_BLOCK, v_min(most, v_max(least, acc[i][v])));
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_blocked_conv *d,
                                   const struct place *at, const int n, const int nv)
{
    v_f32 acc[PIXELS][2];
    const int32_t *pixels = d->pixels + at->pixel;
    const float *w = at->w;
    const int64_t w_row = at->w_row;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const v_f32 bias = v_load(d->bias + at->column + v * VF);
        UNROLL
        for (int i = 0; i < n; i++)
            acc[i][v] = bias;
    }
    for (int64_t t = 0; t < d->n_taps; t++) {
        const float *x[PIXELS];
        UNROLL
        for (int i = 0; i < n; i++)
            x[i] = d->x + d->taps[t].offset + pixels[i];
        const int64_t inputs = d->taps[t].inputs;
        for (int64_t c = 0; c < inputs; c++, w += w_row) {
            v_f32 weight[2];
            UNROLL
            for (int v = 0; v < nv; v++)
                weight[v] = v_load(w + v * VF);
            UNROLL
            for (int i = 0; i < n; i++) {
                const v_f32 input = v_set(x[i][c]);
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[i][v] += input * weight[v];
            }
        }
    }
    put_tile(d, acc, at, n, nv);
}

/* clang-format off */
#define TILE(n, nv)                                                                      \
    static void tile_##n##x##nv(const struct attn_blocked_conv *d, const struct place *at) \
    {                                                                                    \
        run_tile(d, at, n, nv);                                                          \
    }
ATTN_EACH_ROW(PIXELS, TILE, 1)
ATTN_EACH_ROW(PIXELS, TILE, 2)
#define ENTRY(n, nv) tile_##n##x##nv,
static void (*const tiles[2][PIXELS])(const struct attn_blocked_conv *,
                                      const struct place *) = {
    { ATTN_EACH_ROW(PIXELS, ENTRY, 1) }, { ATTN_EACH_ROW(PIXELS, ENTRY, 2) },
};
#undef ENTRY
#undef TILE
/* clang-format on */

/* All pixels of the columns of a panel. */
static void run_panel(const struct attn_blocked_conv *d, struct place at, int64_t width)
{
    const int64_t n_tiles = (d->n_pixels + PIXELS - 1) / PIXELS;
    const float *const w = at.w;
    const int64_t column = at.column;
    for (int64_t t = 0; t < n_tiles; t++) {
        const int64_t end = d->n_pixels * (t + 1) / n_tiles;
        if (attn_poll_work(width * (end - at.pixel) * d->rows / 5) != ATTNRUN_OK)
            return;
        for (int64_t c = 0; c < width; c += 2 * VF) {
            const int nv = width - c > VF ? 2 : 1;
            at.column = column + c;
            at.w = w + c;
            tiles[nv - 1][end - at.pixel - 1](d, &at);
        }
        at.pixel = end;
    }
}

void K(blocked_conv_f32)(const struct attn_blocked_conv *d)
{
    for (int64_t column = 0; column < d->columns; column += PANEL) {
        const int64_t left = d->columns - column, width = left < PANEL ? left : PANEL;
        run_panel(d, (struct place){ 0, column, d->w + column * d->rows, width }, width);
    }
}
