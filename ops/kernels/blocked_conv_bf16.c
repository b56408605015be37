/* blocked_conv_bf16.c - convolution of maps in blocks of 16 channels whose operands are
 * words of two bf16; the sums are floats. In and out: struct attn_blocked_conv. It uses
 * tiles where the instruction set has them and the pixels are a grid.
 * Cost: one word of two products for each two inputs, output and tap. */
#include "blocked_place.h"
#include "isa.h"

/* Pixels of a tile by bytes of a vector and registers. */
#define MAX_16_16    6
#define MAX_32_16    6
#define MAX_16_32    12
#define MAX_64_32    14
#define WORDS_PIXELS ATTN_CAT4(MAX_, VEC_BYTES, _, ATTN_REGISTERS)
typedef uint32_t v_u32_u __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));

static ALWAYS_INLINE v_u32 load_words(const void *p) { return *(const v_u32_u *)p; }

struct wide {
    v_u32 all;
};
static ALWAYS_INLINE struct wide promote(v_u32 w) { return (struct wide){ w }; }

static ALWAYS_INLINE v_f32 words_add(v_f32 acc, struct wide w, v_u32 x)
{
    return v_dot_bf16(acc, w.all, x[0]);
}

static ALWAYS_INLINE v_f32 words_first(const struct attn_blocked_conv *d, int64_t column)
{
    return v_load(d->bias + column);
}

/* Vectors of z and y from element `at` on. */
static ALWAYS_INLINE v_f32 z_at(const struct attn_blocked_conv *d, int64_t at)
{
    return d->z_bf16 ? v_load_bf16((const uint16_t *)(const void *)d->z + at)
                     : v_load(d->z + at);
}
static ALWAYS_INLINE void put_y(const struct attn_blocked_conv *d, int64_t at, v_f32 y)
{
    if (d->y_bf16)
        v_store_bf16((uint16_t *)(void *)d->y + at, y);
    else
        v_store(d->y + at, y);
}

static ALWAYS_INLINE const uint8_t *words_pixel(const struct attn_blocked_conv *d,
                                                int64_t offset)
{
    return (const uint8_t *)(d->x + offset);
}

/* Sums of n pixels and nv vectors of columns, as rows of two vectors, become y: any z and y. Tiles
 * share this text. */
static __attribute__((noinline)) void put_sums(const struct attn_blocked_conv *d,
                                               const float *sums, const struct place *at,
                                               int64_t n, int64_t nv)
{
    const v_f32 min = v_set(d->min), max = v_set(d->max);
    for (int64_t v = 0; v < nv; v++) {
        const int64_t column = at->column + v * VF;
        int64_t place = column / ATTN_BLOCK * d->y_block + column % ATTN_BLOCK +
                        at->pixel * ATTN_BLOCK;
        for (int64_t i = 0; i < n; i++, place += ATTN_BLOCK) {
            v_f32 y = v_load(sums + (2 * i + v) * VF);
            if (d->z != NULL)
                y += z_at(d, place);
            put_y(d, place, v_min(max, v_max(min, y)));
        }
    }
}

static ALWAYS_INLINE void words_put(const struct attn_blocked_conv *d, v_f32 (*acc)[2],
                                    const struct place *at, const struct rows rows,
                                    const int nv)
{
    float sums[WORDS_PIXELS * 2 * VF];
    EACH_ROW (i, rows) {
        UNROLL
        for (int v = 0; v < nv; v++)
            v_store(sums + (2 * i + v) * VF, acc[i][v]);
    }
    put_sums(d, sums, at, rows.n, nv);
}

static inline void panel_done(const struct attn_blocked_conv *d, const struct place *at,
                              int64_t n, int64_t width)
{
    (void)d, (void)at, (void)n, (void)width;
}

#define WORDS_CONV struct attn_blocked_conv
#define WORDS_SUM  v_f32
enum {
    WORDS_BESIDE = ATTN_BLOCK / 2,
    WORDS_BYTES = ATTN_BLOCK * 2,
    WORDS_HAS_BESIDE = 1
};
#include "blocked_words.h"

/* ---- tiles of words ---- */

#if V_HAS_TILES_BF16
#define TILES_CONV struct attn_blocked_conv
#define TILES_SUM  float
#define TILES_DOT  v_tile_dot_bf16
#include "blocked_tiles.h"

static const void *tiles_first(const struct attn_blocked_conv *d, int64_t column)
{
    return d->bias + column;
}

static void tiles_put(const struct attn_blocked_conv *d, const struct put *at)
{
    put_sums(d, at->sums, &(struct place){ .column = at->column, .pixel = at->pixel },
             at->n, at->nv);
}
#else
static bool can_tile(const struct attn_blocked_conv *d) { return (void)d, false; }
static void run_tiles(const struct attn_blocked_conv *d) { (void)d; }
#endif

void K(blocked_conv_bf16)(const struct attn_blocked_conv *d)
{
    if (can_tile(d))
        run_tiles(d);
    else
        run_all(d);
}

void K(words_bf16)(uint32_t *words, const float *x, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);) {
        for (; i + VF <= end; i += VF) {
            const v_u32 two = v_words_bf16(x + 2 * i);
            memcpy(words + i, &two, sizeof two);
        }
        if (i < end) {
            float tail[2 * VF] = { 0 };
            memcpy(tail, x + 2 * i, (end - i) * 2 * sizeof *x);
            const v_u32 two = v_words_bf16(tail);
            memcpy(words + i, &two, (end - i) * sizeof *words);
        }
        i = end;
    }
}

void K(words_of_blocks_bf16)(uint32_t *words, ptrdiff_t step, const float *x,
                             ptrdiff_t x_step, size_t n)
{
    for (size_t i = 0; i < n; i++, words += step, x += x_step)
        for (int v = 0; v < ATTN_BLOCK; v += VF)
            v_store_bf16((uint16_t *)(void *)words + v, v_load(x + v));
}

#define ZIP(i, from) ((from) + (i) / 2 + (i) % 2 * VF)

/* Words of VF pixels of channels that lie `plane` floats apart. */
static ALWAYS_INLINE void words_of_pixels(uint32_t *words, const float *x,
                                          ptrdiff_t plane, size_t channels)
{
    const size_t unit = (channels + 1) / 2;
    v_u32 pairs[ATTN_BLOCK / 2];
    for (size_t j = 0; j < unit; j++, x += 2 * plane)
        pairs[j] = v_pair_bf16(v_load(x),
                               2 * j + 1 < channels ? v_load(x + plane) : (v_f32){ 0 });
    if (unit == 2) {
        pairs[2] = V_SHUFFLE(pairs[0], pairs[1], ZIP, 0);
        pairs[3] = V_SHUFFLE(pairs[0], pairs[1], ZIP, VF / 2);
        memcpy(words, pairs + 2, 2 * sizeof *pairs);
        return;
    }
    for (size_t j = 0; j < unit; j++)
        for (size_t i = 0; i < VF; i++)
            words[i * unit + j] = pairs[j][i];
}

void K(words_of_planes_bf16)(uint32_t *words, const float *x, ptrdiff_t plane,
                             size_t channels, size_t n)
{
    const size_t unit = (channels + 1) / 2;
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        words_of_pixels(words + i * unit, x + i, plane, channels);
    if (i == n)
        return;
    float some[ATTN_BLOCK * VF] = { 0 };
    uint32_t last[ATTN_BLOCK / 2 * VF];
    for (size_t c = 0; c < channels; c++)
        memcpy(some + c * VF, x + (ptrdiff_t)c * plane + i, (n - i) * sizeof *x);
    words_of_pixels(last, some, VF, channels);
    memcpy(words + i * unit, last, (n - i) * unit * sizeof *words);
}
