/* blocked_gates_f32.c - the work of gates over maps in blocks of 16 channels: statistics
 * of the pixels of a block, maximum and sum over the channels of a pixel, and the product
 * of map and gates. maps_f32.c has the same for plain maps. Lanes beyond the channels are
 * never counted. Cost: one read of the map, and one write of the product. */
#include "transpose.h"
#include "vmath.h"

enum { TOGETHER = VF == 16 ? 8 : 4 };

static ALWAYS_INLINE v_f32 max_or_nan(v_f32 v, v_f32 acc)
{
    return v_select((v > acc) | (v != v), v, acc);
}

/* ---- over pixels ---- */

/* Mean of n pixels of a block, and their maximum unless max is NULL. Up to 64 pixels are
 * added as floats, those sums as doubles. */
static ALWAYS_INLINE void pool_block(float *mean, float *max, const float *x, size_t n)
{
    enum { CHUNK = 64 };
    const v_f64 share = (double)n - (v_f64){ 0 };
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF) {
        v_f64 low = { 0 }, high = { 0 };
        v_f32 maxima[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            maxima[j] = v_set(-INFINITY);
        for (size_t p = 0; p < n; p += CHUNK) {
            if (attn_poll_work(4 * CHUNK * VF) != ATTNRUN_OK)
                return;
            v_f32 acc[4] = { { 0 } };
            const float *at = x + p * ATTN_BLOCK + lane;
            const size_t count = n - p < CHUNK ? n - p : CHUNK;
            size_t i = 0;
            for (; i + 4 <= count; i += 4)
                UNROLL
            for (size_t j = 0; j < 4; j++) {
                const v_f32 v = v_load(at + (i + j) * ATTN_BLOCK);
                acc[j] += v;
                maxima[j] = max_or_nan(v, maxima[j]);
            }
            for (; i < count; i++) {
                const v_f32 v = v_load(at + i * ATTN_BLOCK);
                acc[0] += v;
                maxima[0] = max_or_nan(v, maxima[0]);
            }
            const v_f32 sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
            low += v_promote(sum, false);
            high += v_promote(sum, true);
        }
        v_store(mean + lane, v_narrow(low / share, high / share));
        if (max != NULL)
            v_store(max + lane, max_or_nan(max_or_nan(maxima[0], maxima[1]),
                                           max_or_nan(maxima[2], maxima[3])));
    }
}

void K(blocked_stats_f32)(float *mean, float *max, const float *x, size_t n)
{
    pool_block(mean, max, x, n);
}

void K(blocked_mean_f32)(float *mean, const float *x, size_t n)
{
    pool_block(mean, NULL, x, n);
}

/* ---- over channels ---- */

static const float ones[ATTN_BLOCK] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

/* Sums and maxima of the lanes of TOGETHER pixels at x, over all blocks. Pixels that are not
 * there, from `n` on, are the last one again. */
static ALWAYS_INLINE void pool_pixels(v_f32 *sums, v_f32 *maxima, const float *x,
                                      ptrdiff_t block, const float *gate, size_t channels,
                                      size_t n)
{
    v_f32 sum[TOGETHER], max[TOGETHER];
    ptrdiff_t at[TOGETHER];
    size_t c = 0;
    UNROLL
    for (size_t i = 0; i < TOGETHER; i++) {
        sum[i] = v_set(0.0f);
        max[i] = v_set(-INFINITY);
        at[i] = (ptrdiff_t)(i < n ? i : n - 1) * ATTN_BLOCK;
    }
    for (; c + VF <= channels; c += VF) {
        const float *from = x + (ptrdiff_t)(c / ATTN_BLOCK) * block + c % ATTN_BLOCK;
        const v_f32 factor = gate != NULL ? v_load(gate + c) : v_set(1.0f);
        UNROLL
        for (int i = 0; i < TOGETHER; i++) {
            const v_f32 v = factor * v_load(from + at[i]);
            sum[i] += v;
            max[i] = v_max(v, max[i]);
        }
    }
    if (c < channels) {
        const float *from = x + (ptrdiff_t)(c / ATTN_BLOCK) * block + c % ATTN_BLOCK;
        const size_t left = channels - c;
        const v_f32 factor =
            gate != NULL ? v_load_tail(gate + c, left, 0.0f) : v_set(1.0f);
        const v_i32 inside = v_load_tail(ones, left, 0.0f) > 0.5f;
        UNROLL
        for (int i = 0; i < TOGETHER; i++) {
            const v_f32 v = factor * v_load_tail(from + at[i], left, 0.0f);
            sum[i] += v;
            max[i] = v_max(v_select(inside, v, v_set(-INFINITY)), max[i]);
        }
    }
    UNROLL
    for (int i = 0; i < TOGETHER; i++) {
        sums[i] = sum[i];
        maxima[i] = max[i];
    }
}

void K(blocked_pool_channels_f32)(float *max, float *sum, const float *x, ptrdiff_t block,
                                  const float *gate, size_t channels, size_t n)
{
    for (size_t p = 0; p < n; p += VF) {
        v_f32 sums[VF], maxima[VF];
        const size_t left = n - p;
        for (size_t i = 0; i < VF; i += TOGETHER) {
            const size_t first = i < left ? i : left - 1;
            pool_pixels(sums + i, maxima + i, x + (p + first) * ATTN_BLOCK, block, gate,
                        channels, left - first);
        }
        const v_f32 all = add_lanes_of_rows(sums), lane_max = max_lanes_of_rows(maxima);
        if (left >= VF) {
            v_store(sum + p, all);
            v_store(max + p, lane_max);
        } else {
            v_store_tail(sum + p, all, left);
            v_store_tail(max + p, lane_max, left);
        }
        if (attn_poll_work(4 * VF * (int64_t)channels) != ATTNRUN_OK)
            return;
    }
}

/* ---- the product ---- */

static ALWAYS_INLINE void gate_block(const struct attn_gate *g, ptrdiff_t at,
                                     v_f32 factor, const bool pixels, const bool identity,
                                     const bool relu)
{
    for (size_t p = 0; p < g->n; p++, at += ATTN_BLOCK) {
        v_f32 v = v_load(g->x + at) * factor;
        if (pixels)
            v *= v_set(g->pixels[p]);
        if (identity)
            v = v_rounded(v) + v_load(g->identity + at);
        if (relu)
            v = v_relu(v);
        v_store(g->y + at, v);
    }
}

static ALWAYS_INLINE void gate_blocks(const struct attn_gate *given, const bool pixels,
                                      const bool identity)
{
    const struct attn_gate g = *given; /* stores may write anywhere, but not here */
    for (size_t b = 0; b < g.planes; b++)
        for (ptrdiff_t lane = 0; lane < ATTN_BLOCK; lane += VF) {
            const ptrdiff_t at = (ptrdiff_t)b * g.row + lane;
            const v_f32 factor = g.gate != NULL
                                     ? v_load(g.gate + b * ATTN_BLOCK + (size_t)lane)
                                     : v_set(1.0f);
            if (g.relu)
                gate_block(&g, at, factor, pixels, identity, true);
            else
                gate_block(&g, at, factor, pixels, identity, false);
        }
}

void K(blocked_gates_f32)(const struct attn_gate *g)
{
    if (g->pixels != NULL && g->identity != NULL)
        gate_blocks(g, true, true);
    else if (g->pixels != NULL)
        gate_blocks(g, true, false);
    else if (g->identity != NULL)
        gate_blocks(g, false, true);
    else
        gate_blocks(g, false, false);
}
