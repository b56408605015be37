/* blocked_tiles_u8.c - convolution of maps of u8 in blocks of 16 channels by weights of
 * i8 (struct attn_blocked_bytes), in instruction sets with tiles. It gives the same bits
 * as blocked_conv_u8.c. blocked_tiles.h has the loops and the cost. */
#include "bytes.h"

/* Up to 4 pixels of 16 columns become numbers, of which saturation makes bytes. `z` points
 * to the bytes of the other map, NULL: none. */
static ALWAYS_INLINE v_u32 requantized(const struct attn_requantize *to, v_u32 sum,
                                       v_f32 factor, const uint8_t *z)
{
    v_f32 q = __builtin_convertvector((v_i32)sum, v_f32) * factor;
    if (z == NULL)
        return v_nearest(v_min(v_set(to->high), q)); /* NaN stays: it is as low */
    const v_f32 other = v_rounded(bytes_less(z, 0, to->z_zero) * v_set(to->z_ratio));
    q = round_between(q, to->low, to->high) - v_set(BYTES_MAGIC);
    q = v_rounded(q * v_set(to->ratio)) + other;
    return v_nearest(v_min(v_set(255.0f), q + v_set(to->sum_zero)));
}

/* What the sums of n <= 4 pixels of 16 columns become. */
static ALWAYS_INLINE void put_pixels(const struct attn_blocked_bytes *d,
                                     const uint32_t *sums, int64_t pixel, int64_t column,
                                     const int n)
{
    const v_f32 factor = v_load(d->to.factor + column);
    const int64_t at = column / ATTN_BLOCK * d->y_block + pixel * ATTN_BLOCK;
    v_u32 four[4] = { { 0 } };
    UNROLL
    for (int i = 0; i < n; i++) {
        memcpy(&four[i], sums + i * 2 * VF, sizeof *four);
        if (d->w_zero != NULL) {
            v_u32 zero;
            memcpy(&zero, d->w_zero + column, sizeof zero);
            four[i] -= zero * (d->x_sums[pixel + i] - (v_u32){ 0 });
        }
        four[i] = requantized(&d->to, four[i], factor,
                              d->to.z != NULL ? d->to.z + at + i * ATTN_BLOCK : NULL);
    }
    const bool two = d->to.z != NULL;
    const int32_t zero = (int32_t)d->to.zero;
    v_store_pixels(d->y + at, four, n, zero, two ? 0 : (int32_t)d->to.low + zero,
                   two ? 255 : (int32_t)d->to.high + zero);
}

#define TILES_CONV struct attn_blocked_bytes
#define TILES_SUM  uint32_t
#define TILES_DOT  _tile_dpbusd
#include "blocked_tiles.h"

static const void *tiles_first(const struct attn_blocked_bytes *d, int64_t column)
{
    return d->begin + column;
}

static void tiles_put(const struct attn_blocked_bytes *d, const struct put *at)
{
    for (int v = 0; v < at->nv; v++) {
        const int64_t column = at->column + v * SIDE;
        const uint32_t *sums = at->sums + v * SIDE;
        int64_t i = 0;
        for (; i + 4 <= at->n; i += 4, sums += 4 * TILE_COLUMNS)
            put_pixels(d, sums, at->pixel + i, column, 4);
        for (; i < at->n; i++, sums += TILE_COLUMNS)
            put_pixels(d, sums, at->pixel + i, column, 1);
        uint8_t *y = d->y + column / ATTN_BLOCK * d->y_block + at->pixel * ATTN_BLOCK;
        if (d->to.table != NULL)
            look_up_bytes(y, y, d->to.table, (size_t)(at->n * ATTN_BLOCK));
    }
}

/* The sums of x that zero points of weights are multiplied with. */
static void tiles_copied(const struct attn_blocked_bytes *d, const struct tile_cut *c)
{
    uint32_t last[SIDE] = { 0 };
    if (d->w_zero == NULL)
        return;
    memcpy(last, d->ones + (c->steps - 1) * SIDE, (size_t)c->last * sizeof *last);
    for (int64_t p = 0; p < d->n_pixels; p++) {
        const uint8_t *x =
            d->copy + p / c->pixels * c->steps * TILE_BYTES + p % c->pixels * STEP_BYTES;
        v_u32 sums = { 0 };
        if (attn_poll_work(d->rows * 4) != ATTNRUN_OK)
            return;
        for (int64_t s = 0; s < c->steps; s++, x += TILE_BYTES) {
            v_u32 ones, bytes;
            memcpy(&ones, s + 1 < c->steps ? d->ones + s * SIDE : last, sizeof ones);
            memcpy(&bytes, x, sizeof bytes);
            sums = v_dot_words(sums, ones, bytes);
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
    enum { MIN_PIXELS = 4 };
    if (d->n_pixels < MIN_PIXELS || d->copy == NULL) {
        ATTN_CAT4(attn_, blocked_conv_u8, _, ATTN_ISA_BYTES)(d);
        return;
    }
    run_tiles(d);
}
