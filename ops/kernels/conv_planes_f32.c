/* conv_planes_f32.c - convolution without columns and without a copy of the input, where
 * rows of the output are as long as those of the input. A tile of pixels of several
 * output channels stays in registers while all taps are applied. A tap is a vector of
 * pixels, in place in the plane, times one weight of each channel. Pixels outside of a
 * row or a column are not loaded: each tap of the kernel has one mask for all channels.
 * image_types.h describes the operands (struct attn_conv_planes).
 *
 * Sums are in the order of kernel rows, kernel columns, channels, whatever the tile.
 * Cost: 2 channels taps FLOPs an element. */
#include "conv_planes.h"

enum { MAX_M = REGISTERS == 32 ? 8 : 4, MAX_V = REGISTERS == 32 ? 8 : 5 };
enum { LINE = 16 };

/* acc += the taps of all channels at one place of the kernel. */
static ALWAYS_INLINE void add_channels(const struct attn_conv_planes *d,
                                       v_f32 (*acc)[MAX_V], const float *x,
                                       const float *w, const v_mask *mask, const int m,
                                       const int nv)
{
    const int64_t plane = d->plane, w_row = d->w_row, taps = d->kernel[0] * d->kernel[1];
    for (int64_t c = d->channels; c > 0; c--, x += plane, w += taps) {
        v_f32 seen[MAX_V];
        UNROLL
        for (int v = 0; v < nv; v++)
            seen[v] = v_load_lanes(x + v * VF, mask[v]);
        UNROLL
        for (int i = 0; i < m; i++) {
            v_f32 weight = v_set(w[i * w_row]);
            UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] += weight * seen[v];
        }
    }
}

static ALWAYS_INLINE void add_taps(const struct attn_conv_planes *d, v_f32 (*acc)[MAX_V],
                                   const struct place *at, const int m, const int nv)
{
    const float *w = d->w + at->channel * d->w_row;
    for (int64_t i = 0; i < d->kernel[0]; i++) {
        uint32_t rows[MAX_V];
        find_rows(d, rows, at->p, i, nv);
        const int64_t shift = (i * d->dilation[0] - d->before[0]) * d->width;
        for (int64_t j = 0; j < d->kernel[1]; j++, w++) {
            v_mask mask[MAX_V];
            const float *x = d->x + at->p + shift + j * d->dilation[1] - d->before[1];
            if (find_masks(d, mask, rows, at->word, j, nv))
                add_channels(d, acc, x, w, mask, m, nv);
        }
    }
}

/* The same where all kernel rows see the input, for 3 kernel columns of which the middle
 * one sees all columns: the masks stay in registers. A load with a mask takes the place
 * of a product; only vector `edge` has masks, or all where that is ALL. */
enum { ALL = -1 };
static ALWAYS_INLINE void add_inner(const struct attn_conv_planes *d, v_f32 (*acc)[MAX_V],
                                    const struct place *at, const int m, const int nv,
                                    const int edge)
{
    const int64_t w_row = d->w_row, plane = d->plane, masks = d->width + ATTN_CONV_EDGES;
    const int64_t down = d->dilation[0] * d->width, right = d->dilation[1];
    const float *w = d->w + at->channel * w_row;
    const float *x = d->x + at->p - d->before[0] * d->width - d->before[1];
    v_mask mask[3][MAX_V];
    UNROLL
    for (int j = 0; j < 3; j += 2)
        UNROLL
    for (int v = 0; v < nv; v++)
        mask[j][v] = v_lanes(d->edges[j * masks + at->word + v]);
    for (int64_t c = d->channels; c > 0; c--, x += plane) {
        const float *row = x;
        for (int64_t i = d->kernel[0]; i > 0; i--, row += down, w += 3)
            UNROLL
        for (int j = 0; j < 3; j++) {
            v_f32 seen[MAX_V];
            UNROLL
            for (int v = 0; v < nv; v++) {
                const float *from = row + j * right + v * VF;
                seen[v] = j != 1 && (edge == ALL || edge == v)
                              ? v_load_lanes(from, mask[j][v])
                              : v_load(from);
            }
            UNROLL
            for (int k = 0; k < m; k++) {
                v_f32 weight = v_set(w[k * w_row + j]);
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[k][v] += weight * seen[v];
            }
        }
    }
}

/* The one vector that has masks, or ALL. */
static ALWAYS_INLINE int find_edge(const struct attn_conv_planes *d,
                                   const struct place *at, const int nv)
{
    const uint16_t *left = d->edges + at->word;
    const uint16_t *right = left + 2 * (d->width + ATTN_CONV_EDGES);
    int edge = 0, n = 0;
    UNROLL
    for (int v = 0; v < nv; v++)
        if ((left[v] & right[v]) != v_bits(0, VF)) {
            edge = v;
            n++;
        }
    return n > 1 ? ALL : edge;
}

static ALWAYS_INLINE void add_inner_taps(const struct attn_conv_planes *d,
                                         v_f32 (*acc)[MAX_V], const struct place *at,
                                         const int m, const int nv)
{
    const int edge = nv == 3 ? find_edge(d, at, nv) : ALL;
    if (edge == ALL)
        add_inner(d, acc, at, m, nv, ALL);
    else if (edge == 0)
        add_inner(d, acc, at, m, nv, 0);
    else if (edge == 1)
        add_inner(d, acc, at, m, nv, 1);
    else
        add_inner(d, acc, at, m, nv, 2);
}

static ALWAYS_INLINE void run_tile(const struct attn_conv_planes *d,
                                   const struct place *at, const int m, const int nv)
{
    v_f32 acc[MAX_M][MAX_V];
    begin_tile(d, &acc[0][0], at, m, nv, MAX_V);
    const int64_t top = d->before[0] * d->width;
    const int64_t bottom =
        d->plane + top - (d->kernel[0] - 1) * d->dilation[0] * d->width;
    if (d->kernel[1] == 3 && d->before[1] == d->dilation[1] && at->p >= top &&
        at->p + nv * VF <= bottom)
        add_inner_taps(d, acc, at, m, nv);
    else
        add_taps(d, acc, at, m, nv);
    put_tile(d, &acc[0][0], at, m, nv, MAX_V);
}

/* clang-format off */
#define TILE(m, nv)                                                                      \
    static void tile_##m##x##nv(const struct attn_conv_planes *d, const struct place *at) \
    {                                                                                    \
        run_tile(d, at, m, nv);                                                          \
    }
TILE(1, 1) TILE(1, 2) TILE(1, 5) TILE(2, 1) TILE(2, 2) TILE(2, 5)
TILE(4, 1) TILE(4, 2) TILE(4, 3)
TILE(1, 8) TILE(2, 8) TILE(4, 5) TILE(8, 1) TILE(8, 2) TILE(8, 3) /* of 32 registers */
#undef TILE

/* By number of registers and of channels. */
static const struct width widths_32[4][4] = {
    { { 8, tile_1x8 }, { 5, tile_1x5 }, { 2, tile_1x2 }, { 1, tile_1x1 } },
    { { 8, tile_2x8 }, { 5, tile_2x5 }, { 2, tile_2x2 }, { 1, tile_2x1 } },
    { { 5, tile_4x5 }, { 3, tile_4x3 }, { 2, tile_4x2 }, { 1, tile_4x1 } },
    { { 3, tile_8x3 }, { 2, tile_8x2 }, { 1, tile_8x1 } },
};
static const struct width widths_16[3][4] = {
    { { 5, tile_1x5 }, { 2, tile_1x2 }, { 1, tile_1x1 } },
    { { 5, tile_2x5 }, { 2, tile_2x2 }, { 1, tile_2x1 } },
    { { 3, tile_4x3 }, { 2, tile_4x2 }, { 1, tile_4x1 } },
};
/* clang-format on */

static const struct width *widths_of(int64_t m, int64_t *channels)
{
    const int log = m >= 8 && REGISTERS == 32 ? 3 : m >= 4 ? 2 : m >= 2 ? 1 : 0;
    *channels = 1 << log;
    return REGISTERS == 32 ? widths_32[log] : widths_16[log];
}

/* All channels of a few pixels: what they see stays in cache. */
void K(conv_planes_f32)(const struct attn_conv_planes *d)
{
    int64_t channels;
    const int64_t vectors = widths_of(d->m, &channels)->vectors;
    struct place at = { 0, d->from, d->from / VF % d->width };
    for (int64_t i = 0; i < d->m * d->w_row; i += LINE) /* they are read in jumps */
        __builtin_prefetch(d->w + i, 0, 2);
    for (; at.p < d->to; at.p += vectors * VF) {
        for (at.channel = 0; at.channel < d->m; at.channel += channels) {
            const struct width *width = widths_of(d->m - at.channel, &channels);
            if (attn_poll_work(channels * vectors * VF * d->w_row / 5) != ATTNRUN_OK)
                return;
            run_pixels(d, width, at, vectors);
        }
        for (at.word += vectors; at.word >= d->width;)
            at.word -= d->width;
    }
}
