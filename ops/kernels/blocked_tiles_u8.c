/* blocked_tiles_u8.c - convolution of maps of u8 in blocks of 16 channels by weights of
 * i8 (struct attn_blocked_bytes), in instruction sets with tiles. It gives the same bits
 * as blocked_conv_u8.c. blocked_tiles.h has the loops and the cost. */
#include "bytes.h"
#include "requantize.h"

#define TILES_CONV struct attn_blocked_bytes
#define TILES_SUM  uint32_t
#define TILES_DOT  _tile_dpbusd
#include "blocked_tiles.h"

static const void *tiles_first(const struct attn_blocked_bytes *d, int64_t column)
{
    return d->begin + column;
}

/* n <= 4 pixels of 16 columns. x_sums: of them, and `zero` what they are multiplied with, where
 * weights have zero points (`zeros`). */
static ALWAYS_INLINE void put_pixels(const struct attn_requantize *to,
                                     const uint32_t *sums, v_f32 factor, v_u32 zero,
                                     const uint32_t *x_sums, const uint8_t *z, uint8_t *y,
                                     const int n, const bool zeros, const bool two)
{
    v_u32 four[4] = { { 0 } };
    UNROLL
    for (int i = 0; i < n; i++) {
        memcpy(&four[i], sums + i * TILE_COLUMNS, sizeof *four);
        if (zeros)
            four[i] -= zero * (x_sums[i] - (v_u32){ 0 });
        four[i] = requantized(to, four[i], factor, two ? z + i * ATTN_BLOCK : NULL, two);
    }
    v_store_pixels(y, ATTN_BLOCK, four, n, limits_of(to), !two);
}

/* All pixels of 16 columns. What they share is copied: it may lie anywhere, for all that the
 * compiler knows. */
static ALWAYS_INLINE void put_columns(const struct attn_blocked_bytes *d,
                                      const struct put *at, int v, const bool zeros,
                                      const bool two)
{
    const struct attn_requantize to = d->to;
    const int64_t column = at->column + v * SIDE, n = at->n;
    const int64_t place = column / ATTN_BLOCK * d->y_block + at->pixel * ATTN_BLOCK;
    const v_f32 factor = v_load(to.factor + column);
    const uint32_t *sums = at->sums + v * SIDE,
                   *x_sums = zeros ? d->x_sums + at->pixel : NULL;
    const uint8_t *z = two ? to.z + place : NULL;
    uint8_t *y = d->y + place;
    v_u32 zero = { 0 };
    if (zeros)
        memcpy(&zero, d->w_zero + column, sizeof zero);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        put_pixels(&to, sums + i * TILE_COLUMNS, factor, zero, zeros ? x_sums + i : NULL,
                   two ? z + i * ATTN_BLOCK : NULL, y + i * ATTN_BLOCK, 4, zeros, two);
    for (; i < n; i++)
        put_pixels(&to, sums + i * TILE_COLUMNS, factor, zero, zeros ? x_sums + i : NULL,
                   two ? z + i * ATTN_BLOCK : NULL, y + i * ATTN_BLOCK, 1, zeros, two);
    if (to.table != NULL)
        look_up_bytes(y, y, to.table, (size_t)(n * ATTN_BLOCK));
}

static void tiles_put(const struct attn_blocked_bytes *d, const struct put *at)
{
    const bool zeros = d->w_zero != NULL, two = d->to.z != NULL;
    for (int v = 0; v < at->nv; v++)
        if (zeros && two)
            put_columns(d, at, v, true, true);
        else if (zeros)
            put_columns(d, at, v, true, false);
        else if (two)
            put_columns(d, at, v, false, true);
        else
            put_columns(d, at, v, false, false);
}

/* The sums of x that zero points of weights are multiplied with. */
static void sum_inputs(const struct attn_blocked_bytes *d)
{
    const int64_t inputs = d->taps[0].inputs;
    const size_t bytes = (size_t)inputs * sizeof *d->ones;
    for (int64_t p = 0; p < d->n_pixels; p++) {
        v_u32 sums = { 0 };
        if (attn_poll_work(d->rows * 4) != ATTNRUN_OK)
            return;
        for (int64_t t = 0; t < d->n_taps; t++) {
            v_u32 ones = { 0 }, x = { 0 };
            memcpy(&ones, d->ones + t * inputs, bytes);
            memcpy(&x, d->x + d->taps[t].offset + d->pixels[p], bytes);
            sums = v_dot_words(sums, ones, x);
        }
        d->x_sums[p] = 0;
        for (int lane = 0; lane < VF; lane++)
            d->x_sums[p] += sums[lane];
    }
}

/* The set that tiles were added to computes what has too few pixels for them. */
void ATTN_CAT4(attn_, blocked_conv_u8, _,
               ATTN_ISA_BYTES)(const struct attn_blocked_bytes *);

void K(blocked_conv_u8)(const struct attn_blocked_bytes *d)
{
    if (!can_tile(d)) {
        ATTN_CAT4(attn_, blocked_conv_u8, _, ATTN_ISA_BYTES)(d);
        return;
    }
    if (d->w_zero != NULL && !d->summed)
        sum_inputs(d);
    run_tiles(d);
}
