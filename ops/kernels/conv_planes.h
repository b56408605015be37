/* conv_planes.h - what conv_planes.c and conv_depthwise.c share: tiles of pixels of
 * several output channels, the masks of a tap, and the steps after the sums. */
#ifndef ATTN_CONV_PLANES_H
#define ATTN_CONV_PLANES_H

#include "lanes.h"

/* The pixels from p on; `word` is the number of their first mask. */
struct place {
    int64_t channel, p, word;
};

/* A tile of `vectors` vectors. Lists of widths have the wider ones first, and 1 last. */
struct width {
    int vectors;
    void (*run)(const struct attn_conv_planes *d, const struct place *at);
};

static ALWAYS_INLINE int64_t limit(int64_t x, int64_t max)
{
    return x < 0 ? 0 : x < max ? x : max;
}

/* rows[v]: the lanes that see a row of the input for kernel row i. */
static ALWAYS_INLINE void find_rows(const struct attn_conv_planes *d, uint32_t *rows,
                                    int64_t p, int64_t i, const int nv)
{
    const int64_t first = (d->before[0] - i * d->dilation[0]) * d->width;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const int64_t at = p + v * VF;
        rows[v] = v_bits(limit(first - at, VF), limit(first + d->plane - at, VF));
    }
}

/* Of these, the lanes that also see a column for kernel column j; false where there are
 * none. */
static ALWAYS_INLINE bool find_masks(const struct attn_conv_planes *d, v_mask *mask,
                                     const uint32_t *rows, int64_t word, int64_t j,
                                     const int nv)
{
    const uint16_t *edges = d->edges + j * (d->width + ATTN_CONV_EDGES) + word;
    uint32_t any = 0;
    UNROLL
    for (int v = 0; v < nv; v++) {
        any |= edges[v] & rows[v];
        mask[v] = v_lanes(edges[v] & rows[v]);
    }
    return any != 0;
}

/* acc: m rows of `row` vectors, of which nv are used. */
static ALWAYS_INLINE void begin_tile(const struct attn_conv_planes *d, v_f32 *acc,
                                     const struct place *at, const int m, const int nv,
                                     const int row)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        const v_f32 bias = v_set(d->bias != NULL ? d->bias[at->channel + i] : 0.0f);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i * row + v] = bias;
    }
}

/* The compiler assumes that stores may write anywhere, so *d is read before them. */
static ALWAYS_INLINE void put_tile(const struct attn_conv_planes *d, const v_f32 *acc,
                                   const struct place *place, const int m, const int nv,
                                   const int row)
{
    const v_f32 min = v_set(d->min), max = v_set(d->max);
    const int64_t y_channel = d->y_channel, at = place->channel * y_channel + place->p;
    const int64_t left = d->to - place->p;
    float *const y = d->y + at;
    const float *const z = d->z != NULL ? d->z + at : NULL;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const v_mask mask = v_lanes(v_bits(0, limit(left - v * VF, VF)));
        UNROLL
        for (int i = 0; i < m; i++) {
            v_f32 x = acc[i * row + v];
            if (z != NULL)
                x += v_load_lanes(z + i * y_channel + v * VF, mask);
            v_store_lanes(y + i * y_channel + v * VF, mask, v_min(max, v_max(min, x)));
        }
    }
}

/* Computes at most `vectors` vectors, up to d->to. */
static ALWAYS_INLINE void run_pixels(const struct attn_conv_planes *d,
                                     const struct width *width, struct place at,
                                     int64_t vectors)
{
    for (; vectors > 0 && at.p < d->to; vectors -= width->vectors) {
        while (width->vectors > 1 &&
               (width->vectors > vectors || at.p + (width->vectors - 1) * VF >= d->to))
            width++;
        width->run(d, &at);
        at.p += width->vectors * VF;
        for (at.word += width->vectors; at.word >= d->width;)
            at.word -= d->width;
    }
}

#endif
