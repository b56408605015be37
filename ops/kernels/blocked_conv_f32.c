/* blocked_conv_f32.c - convolution of maps in blocks of 16 channels: struct attn_blocked_conv.
 *
 *   x     f32 [channels / 16][height][width][16], found through the offsets `pixels` and `taps`
 *   w     f32, f16 or bf16: panels of columns, [rows][columns of the panel]
 *   y     f32 [columns / 16][pixel][16]; the formula is in blocked_types.h
 *
 * A tile of up to PIXELS pixels and two vectors of columns stays in registers while the kernel
 * walks the rows of the weights. Each row is a vector of weights for each column vector and one
 * float for each pixel. Nothing is packed at run: the offsets of the pixels cover strides,
 * dilations and the ends of lines at no cost. blocked_panels.h walks the tiles.
 *
 * Weights of f16 and bf16 become floats in registers. The first tile of pixels of a panel stores
 * them to d->floats, where the other tiles read them: a conversion takes about as long as one of
 * the 28 multiplications of a row.
 *
 * Tiles: 14 x 2 vectors (AVX-512: 117 of 118 GFLOP/s in cache), 12 x 2 (NEON), 6 x 2 (others). */
#define PANELS_FLOATS
#include "blocked_place.h"
#include "isa.h"

/* By bytes of a vector and registers. */
#define PIXELS_16_16 6
#define PIXELS_32_16 6
#define PIXELS_16_32 12
#define PIXELS_64_32 14
#define PIXELS       ATTN_CAT4(PIXELS_, VEC_BYTES, _, ATTN_REGISTERS)

/* Rows of weights between those in use and those that go from L2 into L1; halves of a line. */
enum { AHEAD = 8, LINE = 32 };

/* Units of 16 bits of a weight. */
static ALWAYS_INLINE int halves(const int type) { return type == ATTN_B_F32 ? 2 : 1; }

/* VF weights as floats. */
static ALWAYS_INLINE v_f32 load_weights(const uint16_t *w, const int type)
{
    return type == ATTN_B_F16    ? v_load_f16(w)
           : type == ATTN_B_BF16 ? v_load_bf16(w)
                                 : v_load((const float *)(const void *)w);
}

static ALWAYS_INLINE void put_tile(const struct attn_blocked_conv *d, v_f32 (*acc)[2],
                                   const struct place *at, const struct rows rows,
                                   const int nv)
{
    const v_f32 min = v_set(d->min), max = v_set(d->max);
    UNROLL
    for (int v = 0; v < nv; v++) {
        const int64_t column = at->column + v * VF;
        const int64_t place = column / ATTN_BLOCK * d->y_block + column % ATTN_BLOCK +
                              at->pixel * ATTN_BLOCK;
        float *const y = d->y + place;
        const float *const z = d->z != NULL ? d->z + place : NULL;
        if (d->scale != NULL) {
            const v_f32 scale = v_load(d->scale + column),
                        bias = v_load(d->bias + column);
            UNROLL
            for (int i = 0; i < rows.max; i++)
                acc[i][v] = bias + scale * acc[i][v];
        }
        if (z != NULL)
            EACH_ROW (i, rows)
                acc[i][v] += v_load(z + i * ATTN_BLOCK);
        EACH_ROW (i, rows)
            v_store(y + i * ATTN_BLOCK, v_min(max, v_max(min, acc[i][v])));
    }
}

static ALWAYS_INLINE void begin_tile(const struct attn_blocked_conv *d, v_f32 (*acc)[2],
                                     const struct place *at, const struct rows rows,
                                     const int nv)
{
    UNROLL
    for (int v = 0; v < nv; v++) {
        const v_f32 bias =
            d->scale != NULL ? v_set(0.0f) : v_load(d->bias + at->column + v * VF);
        UNROLL
        for (int i = 0; i < rows.max; i++)
            acc[i][v] = bias;
    }
}

static ALWAYS_INLINE void sum_tile(const struct attn_blocked_conv *d, v_f32 (*acc)[2],
                                   const struct place *at, const struct rows rows,
                                   const int nv, const int type)
{
    const int32_t *pixels = d->pixels + at->pixel;
    const uint16_t *w = at->w;
    const int64_t w_row = at->w_row;
    float *floats = at->floats;
    const char *next = at->next;
    for (int64_t t = 0; t < d->n_taps; t++) {
        const float *x[PIXELS];
        UNROLL
        for (int i = 0; i < rows.max; i++)
            x[i] = d->x + d->taps[t].offset + pixels[has_row(rows, i) ? i : 0];
        const int64_t inputs = d->taps[t].inputs;
        for (int64_t c = 0; c < inputs; c++, w += w_row) {
            v_f32 weight[2];
            UNROLL
            for (int v = 0; v < nv; v++)
                weight[v] = load_weights(w + halves(type) * v * VF, type);
            UNROLL
            for (int v = 0; type != ATTN_B_F32 && v < nv; v++)
                v_store(floats + v * VF, weight[v]);
            floats += at->floats_row;
            __builtin_prefetch(next, 0, 2); /* into L2: L1 is full of this panel */
            next += at->next_step;
            UNROLL
            for (int v = 0; v < halves(type) * nv * VF; v += LINE)
                __builtin_prefetch(w + AHEAD * w_row + v, 0, 3);
            EACH_ROW (i, rows) {
                const v_f32 input = v_set(x[i][c]);
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[i][v] += input * weight[v];
            }
        }
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_blocked_conv *d,
                                   const struct place *at, const struct rows rows,
                                   const int nv)
{
    v_f32 acc[PIXELS][2];
    begin_tile(d, acc, at, rows, nv);
    if (at->floats == NULL)
        sum_tile(d, acc, at, rows, nv, ATTN_B_F32);
    else if (d->w_type == ATTN_B_F16)
        sum_tile(d, acc, at, rows, nv, ATTN_B_F16);
    else
        sum_tile(d, acc, at, rows, nv, ATTN_B_BF16);
    put_tile(d, acc, at, rows, nv);
}

static inline void panel_done(const struct attn_blocked_conv *d, const struct place *at,
                              int64_t n, int64_t width)
{
    (void)d, (void)at, (void)n, (void)width;
}

/* Where the weights of a tile are from column c of a panel on: elements of 16 bits, which become
 * floats there or in `row`, if no other tile reads them; or those floats. */
static inline void find_weights(const struct attn_blocked_conv *d, struct place *at,
                                int64_t c, int64_t width, float *row)
{
    const bool kept = d->floats != NULL && d->n_pixels > PIXELS;
    at->floats = NULL;
    if (d->w_type == ATTN_B_F32)
        return;
    if (kept && at->pixel > 0) {
        at->w = d->floats + c;
        at->w_row = halves(ATTN_B_F32) * width;
        return;
    }
    at->floats = kept ? d->floats + c : row;
    at->floats_row = kept ? width : 0;
}

#define PANELS_CONV   struct attn_blocked_conv
#define PANELS_WEIGHT uint16_t
#define PANELS_PIXELS PIXELS
#define PANELS_STEP   halves(d->w_type)
#include "blocked_panels.h"

void K(blocked_conv_f32)(const struct attn_blocked_conv *d) { run_all(d); }
