/* check_blocked_gates.c - gates over maps in blocks of 16 channels, against plain sums in double
 * and single operations on floats. Lanes beyond the channels are NaN here. */
#include <string.h>

#include "checks.h"

enum { BLOCK = ATTN_BLOCK };

void check_blocked_stats_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_normal_f32(c, n * BLOCK);
        float *mean = check_memory(c, BLOCK * sizeof *mean);
        float *max = check_memory(c, BLOCK * sizeof *max);
        if (n > 0 && check_below(c, 2))
            x[check_below(c, (int64_t)n * BLOCK)] = NAN;
        c->k->blocked_stats_f32(mean, max, x, n);
        for (size_t l = 0; l < BLOCK; l++) {
            double sum = 0.0, most = -(double)INFINITY;
            for (size_t p = 0; p < n; p++) {
                sum += (double)x[p * BLOCK + l];
                most = fmax(most, (double)x[p * BLOCK + l]);
            }
            check_near(c, l, (double)mean[l], n > 0 ? sum / (double)n : (double)NAN,
                       1e-6);
            check_f32(c, l, max[l], n > 0 && isnan(sum) ? (double)NAN : most, 0);
        }
    }
    const float *x = check_normal_f32(c, 3136 * BLOCK);
    float mean[BLOCK], max[BLOCK];
    CHECK_BENCH(c, "56 x 56", 4.0 * BLOCK * 3136, "GB/s")
    c->k->blocked_stats_f32(mean, max, x, 3136);
}

static double pixel_of(const float *x, size_t block, const float *gate, size_t channel,
                       size_t p)
{
    const float v = x[channel / BLOCK * block + p * BLOCK + channel % BLOCK];
    return (double)v * (gate != NULL ? (double)gate[channel] : 1.0);
}

void check_blocked_pool_channels_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t channels = 1 + (size_t)check_below(c, c->step % 7 == 0 ? 200 : 40);
        const size_t blocks = (channels + BLOCK - 1) / BLOCK;
        const size_t block = (n + (size_t)check_below(c, 3)) * BLOCK;
        float *x = check_normal_f32(c, (blocks - 1) * block + n * BLOCK);
        const float *gate = check_below(c, 2) ? check_normal_f32(c, channels) : NULL;
        float *max = check_memory(c, n * sizeof *max);
        float *sum = check_memory(c, n * sizeof *sum);
        if (n > 0 && check_below(c, 2))
            x[check_below(c, (int64_t)n) * BLOCK] = NAN;
        for (size_t p = 0; p < n; p++)
            for (size_t i = channels; i < blocks * BLOCK; i++)
                x[i / BLOCK * block + p * BLOCK + i % BLOCK] = NAN;
        c->k->blocked_pool_channels_f32(max, sum, x, (ptrdiff_t)block, gate, channels, n);
        for (size_t p = 0; p < n; p++) {
            double want = 0.0, largest = -(double)INFINITY, magnitude = 0.0;
            for (size_t i = 0; i < channels; i++) {
                const double v = pixel_of(x, block, gate, i, p);
                want += v;
                magnitude += fabs(v);
                largest = fmax(largest, v);
            }
            check_near(c, p, (double)sum[p], want, 1e-6 * magnitude);
            if (!isnan(want))
                check_f32(c, p, max[p], largest, 1);
        }
    }
    const float *x = check_normal_f32(c, 256 * 224), *gate = check_normal_f32(c, 256);
    float *max = check_memory(c, 224 * 4), *sum = check_memory(c, 224 * 4);
    CHECK_BENCH(c, "256 x 224", 4.0 * 256 * 224, "GB/s")
    c->k->blocked_pool_channels_f32(max, sum, x, BLOCK * 224, gate, 256, 224);
}

/* By single operations on floats: the bits are those of separate steps. */
static float gated(const struct attn_gate *g, const float *x, const float *identity,
                   size_t block, size_t i)
{
    const size_t at = block * (size_t)g->row + i;
    volatile float v = x[at] * (g->gate ? g->gate[block * BLOCK + i % BLOCK] : 1.0f);
    if (g->pixels)
        v = v * g->pixels[i / BLOCK];
    if (identity)
        v = v + identity[at];
    return g->relu && v < 0 ? 0.0f : v;
}

void check_blocked_gates_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_gate g = { .planes = (size_t)check_below(c, 4),
                               .n = n,
                               .row = (ptrdiff_t)(n * BLOCK) + check_below(c, 3) * BLOCK,
                               .relu = (int32_t)check_below(c, 2),
                               .blocks = 1 };
        const size_t all = g.planes > 0 ? (g.planes - 1) * (size_t)g.row + n * BLOCK : 0;
        const int place = (int)check_below(c, 3); /* y is apart, x, identity */
        float *x = check_edge_f32(c, all), *identity = check_edge_f32(c, all);
        float *kept_x = check_memory(c, all * sizeof *x);
        float *kept_identity = check_memory(c, all * sizeof *x);
        memcpy(kept_x, x, all * sizeof *x);
        memcpy(kept_identity, identity, all * sizeof *x);
        g.x = x;
        g.gate = check_below(c, 4) ? check_normal_f32(c, g.planes * BLOCK) : NULL;
        g.pixels = check_below(c, 2) ? check_normal_f32(c, n) : NULL;
        g.identity = check_below(c, 2) || place == 2 ? identity : NULL;
        g.y = place == 0 ? check_memory(c, all * sizeof *x) : place == 1 ? x : identity;
        c->k->blocked_gates_f32(&g);
        for (size_t b = 0; b < g.planes; b++)
            for (size_t i = 0; i < n * BLOCK; i++)
                check_f32(
                    c, i, g.y[b * (size_t)g.row + i],
                    (double)gated(&g, kept_x, g.identity ? kept_identity : NULL, b, i),
                    0);
    }
}
