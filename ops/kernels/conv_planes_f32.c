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

/* acc += the products of a tap of one channel. Whole tiles leave no registers for the weights, and
 * others compare the number of vectors once. */
static ALWAYS_INLINE void add_whole(v_f32 (*acc)[MAX_V], const float *x, const float *w,
                                    int64_t w_row, const v_mask *mask, const int m,
                                    const int nv)
{
    v_f32 seen[MAX_V];
    UNROLL
    for (int v = 0; v < nv; v++)
        seen[v] = v_load_lanes(x + v * VF, mask[v]);
    UNROLL
    for (int i = 0; i < m; i++) {
        const v_f32 weight = v_set(w[i * w_row]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] += weight * seen[v];
    }
}
static ALWAYS_INLINE void add_some(v_f32 (*acc)[MAX_V], const float *x, const float *w,
                                   int64_t w_row, const v_mask *mask, const int m,
                                   const struct rows nv)
{
    v_f32 weight[MAX_M];
    UNROLL
    for (int i = 0; i < m; i++)
        weight[i] = v_set(w[i * w_row]);
    EACH_ROW (v, nv) {
        const v_f32 seen = v_load_lanes(x + v * VF, mask[v]);
        UNROLL
        for (int i = 0; i < m; i++)
            acc[i][v] += weight[i] * seen;
    }
}

/* acc += the taps of all channels at one place of the kernel. */
static ALWAYS_INLINE void add_channels(const struct attn_conv_planes *d,
                                       v_f32 (*acc)[MAX_V], const float *x,
                                       const float *w, const v_mask *mask, const int m,
                                       const struct rows nv)
{
    const int64_t plane = d->plane, w_row = d->w_row, taps = d->kernel[0] * d->kernel[1];
    for (int64_t c = d->channels; c > 0; c--, x += plane, w += taps)
        if (nv.min == nv.max)
            add_whole(acc, x, w, w_row, mask, m, nv.max);
        else
            add_some(acc, x, w, w_row, mask, m, nv);
}

static ALWAYS_INLINE void add_taps(const struct attn_conv_planes *d, v_f32 (*acc)[MAX_V],
                                   const struct place *at, const int m,
                                   const struct rows nv)
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
                                   const struct place *at, const int m,
                                   const struct rows nv)
{
    v_f32 acc[MAX_M][MAX_V];
    begin_tile(d, &acc[0][0], at, m, nv, MAX_V);
    const int64_t top = d->before[0] * d->width;
    const int64_t bottom =
        d->plane + top - (d->kernel[0] - 1) * d->dilation[0] * d->width;
    if (nv.min == nv.max && d->kernel[1] == 3 && d->before[1] == d->dilation[1] &&
        at->p >= top && at->p + nv.max * VF <= bottom)
        add_inner_taps(d, acc, at, m, nv.max);
    else
        add_taps(d, acc, at, m, nv);
    put_tile(d, &acc[0][0], at, m, nv, MAX_V);
}

/* 3 and 5 vectors of 4 channels, and 5 and 8 of fewer, fill 16 and 32 registers. */
enum { V_OF_4 = REGISTERS == 32 ? 5 : 3 };
TEXTS(1, MAX_V)
TEXTS(2, MAX_V)
TEXTS(4, V_OF_4)
TEXTS(8, 3)

static const struct texts all_texts[] = { { MAX_V, whole_1, some_1 },
                                          { MAX_V, whole_2, some_2 },
                                          { V_OF_4, whole_4, some_4 } };
static const struct texts eight = { 3, whole_8, some_8 }; /* of 32 registers */

/* All channels of a few pixels: what they see stays in cache. */
void K(conv_planes_f32)(const struct attn_conv_planes *d)
{
    int64_t channels;
    const int64_t vectors = texts_of(all_texts, &eight, d->m, &channels)->vectors;
    struct place at = { 0, d->from, d->from / VF % d->width };
    for (int64_t i = 0; i < d->m * d->w_row; i += LINE) /* they are read in jumps */
        __builtin_prefetch(d->w + i, 0, 2);
    for (; at.p < d->to; at.p += vectors * VF) {
        for (at.channel = 0; at.channel < d->m; at.channel += channels) {
            const struct texts *texts =
                texts_of(all_texts, &eight, d->m - at.channel, &channels);
            if (attn_poll_work(channels * vectors * VF * d->w_row / 5) != ATTNRUN_OK)
                return;
            run_pixels(d, texts, at, vectors);
        }
        for (at.word += vectors; at.word >= d->width;)
            at.word -= d->width;
    }
}
