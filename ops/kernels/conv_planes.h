/* conv_planes.h - what conv_planes_f32.c and conv_depthwise.c share: tiles of pixels of
 * several output channels, the masks of a tap, and the steps after the sums. */
#ifndef ATTN_CONV_PLANES_H
#define ATTN_CONV_PLANES_H

#include "lanes.h"

/* The pixels from p on; `word` is the number of their first mask. */
struct place {
    int64_t channel, p, word;
};

#define TEXTS_CONV  struct attn_conv_planes
#define TEXTS_PLACE struct place
#include "conv_texts.h"

static ALWAYS_INLINE int64_t limit(int64_t x, int64_t max)
{
    return x < 0 ? 0 : x < max ? x : max;
}

/* rows[v]: the lanes that see a row of the input for kernel row i. */
static ALWAYS_INLINE void find_rows(const struct attn_conv_planes *d, uint32_t *rows,
                                    int64_t p, int64_t i, const struct rows nv)
{
    const int64_t first = (d->before[0] - i * d->dilation[0]) * d->width;
    UNROLL
    for (int v = 0; v < nv.max; v++) {
        const int64_t at = p + v * VF;
        rows[v] = v_bits(limit(first - at, VF), limit(first + d->plane - at, VF));
    }
}

/* Of these, the lanes that also see a column for kernel column j; false where there are
 * none. */
static ALWAYS_INLINE bool find_masks(const struct attn_conv_planes *d, v_mask *mask,
                                     const uint32_t *rows, int64_t word, int64_t j,
                                     const struct rows nv)
{
    const uint16_t *edges = d->edges + j * (d->width + ATTN_CONV_EDGES) + word;
    uint32_t any = 0;
    UNROLL
    for (int v = 0; v < nv.max; v++)
        mask[v] = v_lanes(0);
    EACH_ROW (v, nv) {
        any |= edges[v] & rows[v];
        mask[v] = v_lanes(edges[v] & rows[v]);
    }
    return any != 0;
}

/* acc: m rows of `row` vectors, of which nv are used. */
static ALWAYS_INLINE void begin_tile(const struct attn_conv_planes *d, v_f32 *acc,
                                     const struct place *at, const int m,
                                     const struct rows nv, const int row)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        const v_f32 bias = v_set(d->bias != NULL ? d->bias[at->channel + i] : 0.0f);
        UNROLL
        for (int v = 0; v < nv.max; v++)
            acc[i * row + v] = bias;
    }
}

/* Sums of vector v of a channel become y. */
static ALWAYS_INLINE void put_vector(const struct attn_conv_planes *d, v_f32 x,
                                     int64_t at, v_mask mask)
{
    if (d->z != NULL)
        x += v_load_lanes(d->z + at, mask);
    v_store_lanes(d->y + at, mask, v_min(v_set(d->max), v_max(v_set(d->min), x)));
}

/* The lanes of vector v of a tile. */
static ALWAYS_INLINE v_mask lanes_of(const struct attn_conv_planes *d,
                                     const struct place *place, int v)
{
    return v_lanes(v_bits(0, limit(d->to - place->p - v * VF, VF)));
}

/* The end of all tiles of fewer vectors: m rows of nv. */
static __attribute__((noinline)) void put_sums(const struct attn_conv_planes *d,
                                               const float *sums,
                                               const struct place *place, int m, int nv)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < nv; v++, sums += VF)
            put_vector(d, v_load(sums),
                       (place->channel + i) * d->y_channel + place->p + v * VF,
                       lanes_of(d, place, v));
}

/* The compiler assumes that stores may write anywhere, so *all is read before them. */
static ALWAYS_INLINE void put_tile(const struct attn_conv_planes *all, const v_f32 *acc,
                                   const struct place *place, const int m,
                                   const struct rows nv, const int row)
{
    if (nv.min != nv.max) {
        float sums[8 * 8 * VF], *to = sums;
        UNROLL
        for (int i = 0; i < m; i++)
            EACH_ROW (v, nv) {
                v_store(to, acc[i * row + v]);
                to += VF;
            }
        put_sums(all, sums, place, m, nv.n);
        return;
    }
    const struct attn_conv_planes d = { .y = all->y,
                                        .z = all->z,
                                        .y_channel = all->y_channel,
                                        .to = all->to,
                                        .min = all->min,
                                        .max = all->max };
    const int64_t at = place->channel * d.y_channel + place->p;
    UNROLL
    for (int v = 0; v < nv.max; v++) {
        const v_mask mask = lanes_of(&d, place, v);
        UNROLL
        for (int i = 0; i < m; i++)
            put_vector(&d, acc[i * row + v], at + i * d.y_channel + v * VF, mask);
    }
}

/* Computes at most `vectors` vectors, up to d->to. */
static ALWAYS_INLINE void run_pixels(const struct attn_conv_planes *d,
                                     const struct texts *texts, struct place at,
                                     int64_t vectors)
{
    for (int n; vectors > 0 && at.p < d->to; vectors -= n) {
        const int64_t seen = (d->to - at.p + VF - 1) / VF;
        const int64_t left = seen < vectors ? seen : vectors;
        n = left < texts->vectors ? (int)left : texts->vectors;
        if (n == texts->vectors)
            texts->whole(d, &at);
        else
            texts->some(d, &at, n);
        at.p += n * VF;
        for (at.word += n; at.word >= d->width;)
            at.word -= d->width;
    }
}

#endif
