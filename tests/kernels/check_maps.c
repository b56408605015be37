/* check_maps.c - the kernels of maps.def against sums in double. */
#include <string.h>

#include "checks.h"

/* ---- statistics ---- */

struct wanted {
    double sum, squares, exp_sum, max, magnitude;
};

static struct wanted stats_of(const float *x, size_t n)
{
    struct wanted w = { .max = -(double)INFINITY };
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        w.sum += v;
        w.squares += v * v;
        w.magnitude += fabs(v);
        w.max = isnan(v) || isnan(w.max) ? (double)NAN : fmax(w.max, v);
    }
    for (size_t i = 0; i < n && w.max > -(double)INFINITY; i++)
        w.exp_sum += exp((double)x[i] - w.max);
    return w;
}

/* In parts; what was not asked for need not be right. */
static void check_stats(struct check *c, const float *x, size_t n, int what)
{
    struct attn_plane_stats s = ATTN_PLANE_STATS;
    const struct wanted w = stats_of(x, n);
    for (size_t at = 0, size; at < n; at += size) {
        size = 1 + (size_t)check_below(c, (int64_t)(n - at));
        c->k->plane_stats_f32(x + at, size, what, &s);
    }
    if (what & ATTN_STAT_SUM)
        check_near(c, 0, s.sum, w.sum, 2e-6 * w.magnitude);
    if (what & ATTN_STAT_SQUARES)
        check_near(c, 1, s.squares, w.squares, 2e-6 * w.squares);
    if (what & (ATTN_STAT_MAX | ATTN_STAT_EXP))
        check_f32(c, 2, s.max, w.max, 0);
    if ((what & ATTN_STAT_EXP) && w.max > -(double)INFINITY)
        check_near(c, 3, s.exp_sum, isinf(w.max) ? (double)NAN : w.exp_sum,
                   3e-6 * w.exp_sum);
    if ((what & ATTN_STAT_EXP) && w.max == -(double)INFINITY)
        check_near(c, 4, s.exp_sum, 0, 0);
}

/* All -inf at first, then something; a NaN; both infinities. */
static void check_odd_stats(struct check *c, float *x, size_t n, int what)
{
    for (size_t i = 0; i < n / 2; i++)
        x[i] = -INFINITY;
    check_stats(c, x, n, what & ~ATTN_STAT_SQUARES);
    x[check_below(c, (int64_t)n)] = NAN;
    check_stats(c, x, n, what);
    for (size_t i = 0; i < n; i++)
        x[i] = isnan(x[i]) || i % 2 == 1 ? INFINITY : x[i];
    check_stats(c, x, n, what);
    for (size_t i = 0; i < n; i++)
        x[i] = -INFINITY;
    check_stats(c, x, n, what & ~ATTN_STAT_SQUARES);
}

void check_plane_stats_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_normal_f32(c, n);
        const int what = 1 + (int)check_below(c, 15);
        if (n == 0)
            continue;
        check_stats(c, x, n, what);
        for (size_t i = 0; i < n; i++)
            x[i] = 30 * x[i] - 50;
        check_stats(c, x, n, what);
        check_odd_stats(c, x, n, what);
    }
    float *x = check_normal_f32(c, 12544);
    for (int what = 1; what < 16; what++)
        check_stats(c, x, 12544, what);
    /* A mean over 112 x 112 pixels is within 1e-7 of that in double. */
    const struct wanted w = stats_of(x, 12544);
    struct attn_plane_stats s = ATTN_PLANE_STATS;
    c->k->plane_stats_f32(x, 12544, ATTN_STAT_SUM, &s);
    check_near(c, 5, s.sum / 12544, w.sum / 12544, 1e-7 * w.magnitude / 12544);
    CHECK_BENCH(c, "sum of 56 x 56", 4.0 * 3136, "GB/s")
    c->k->plane_stats_f32(x, 3136, ATTN_STAT_SUM, &s);
    CHECK_BENCH(c, "sum and maximum of 56 x 56", 4.0 * 3136, "GB/s")
    c->k->plane_stats_f32(x, 3136, ATTN_STAT_SUM | ATTN_STAT_MAX, &s);
    CHECK_BENCH(c, "all of 56 x 56", 4.0 * 3136, "GB/s")
    c->k->plane_stats_f32(x, 3136, 15, &s);
    CHECK_BENCH(c, "sum and maximum of 7 x 7", 4.0 * 49, "GB/s")
    c->k->plane_stats_f32(x, 49, ATTN_STAT_SUM | ATTN_STAT_MAX, &s);
}

void check_small_planes_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t planes = (size_t)check_below(c, 40);
        float *x = check_normal_f32(c, planes * n);
        const int which = (int)check_below(c, 3);
        float *sum = which == 0 ? NULL : check_memory(c, planes * sizeof *sum);
        float *max = which == 1 ? NULL : check_memory(c, planes * sizeof *max);
        if (n == 0)
            continue;
        if (planes > 0 && check_below(c, 2))
            x[check_below(c, (int64_t)(planes * n))] = NAN;
        if (planes > 0 && check_below(c, 2))
            x[check_below(c, (int64_t)(planes * n))] = -INFINITY;
        c->k->small_planes_f32(sum, max, x, n, planes);
        for (size_t i = 0; i < planes; i++) {
            const struct wanted w = stats_of(x + i * n, n);
            if (sum)
                check_near(c, i, (double)sum[i], w.sum,
                           isinf(w.sum) ? 0 : 2e-6 * w.magnitude);
            if (max)
                check_f32(c, i, max[i], w.max, 0);
        }
    }
    const float *x = check_normal_f32(c, 49 * 512);
    float *sum = check_memory(c, 4 * 512), *max = check_memory(c, 4 * 512);
    CHECK_BENCH(c, "sums of 512 x 7 x 7", 4.0 * 49 * 512, "GB/s")
    c->k->small_planes_f32(sum, NULL, x, 49, 512);
    CHECK_BENCH(c, "both of 512 x 7 x 7", 4.0 * 49 * 512, "GB/s")
    c->k->small_planes_f32(sum, max, x, 49, 512);
    const float *larger = check_normal_f32(c, 784 * 64);
    CHECK_BENCH(c, "sums of 64 x 28 x 28", 4.0 * 784 * 64, "GB/s")
    c->k->small_planes_f32(sum, NULL, larger, 784, 64);
}

/* ---- over channels ---- */

void check_pool_channels_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t channels = 1 + (size_t)check_below(c, c->step % 7 == 0 ? 200 : 9);
        const size_t row = n + (size_t)check_below(c, 5);
        float *x = check_normal_f32(c, (channels - 1) * row + n);
        const float *gate = check_below(c, 2) ? check_normal_f32(c, channels) : NULL;
        float *max = check_memory(c, n * sizeof *max),
              *sum = check_memory(c, n * sizeof *sum);
        if (n > 0 && check_below(c, 2))
            x[check_below(c, (int64_t)n)] = NAN;
        c->k->pool_channels_f32(max, sum, x, (ptrdiff_t)row, gate, channels, n);
        for (size_t p = 0; p < n; p++) {
            double want = 0, largest = -(double)INFINITY, magnitude = 0;
            for (size_t i = 0; i < channels; i++) {
                const double v = (double)x[i * row + p] * (gate ? (double)gate[i] : 1.0);
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
    c->k->pool_channels_f32(max, sum, x, 224, gate, 256, 224);
}

/* ---- a matrix and a few vectors ---- */

static void check_sums(struct check *c, const struct attn_dense *d)
{
    for (size_t i = 0; i < d->m; i++)
        for (size_t r = 0; r < d->rows; r++) {
            double want = d->bias ? (double)d->bias[r] * (double)d->bias_factor : 0;
            double magnitude = fabs(want);
            for (size_t j = 0; j < d->k; j++) {
                const double term = (double)d->w[(ptrdiff_t)r * d->w_row + (ptrdiff_t)j] *
                                    (double)d->z[(ptrdiff_t)i * d->z_row + (ptrdiff_t)j];
                want += term;
                magnitude += fabs(term);
            }
            check_near(c, i * d->rows + r,
                       (double)d->y[(ptrdiff_t)i * d->y_row + (ptrdiff_t)r], want,
                       2e-6 * magnitude);
        }
}

/* Sums one by one have the same bits. */
static void check_alone(struct check *c, const struct attn_dense *d)
{
    const size_t i = (size_t)check_below(c, (int64_t)d->m);
    const size_t r = (size_t)check_below(c, (int64_t)d->rows);
    float one;
    struct attn_dense alone = *d;
    alone.w += (ptrdiff_t)r * d->w_row;
    alone.z += (ptrdiff_t)i * d->z_row;
    alone.bias = d->bias ? d->bias + r : NULL;
    alone.y = &one;
    alone.m = alone.rows = 1;
    c->k->dense_rows_f32(&alone);
    check_f32(c, i, one, (double)d->y[(ptrdiff_t)i * d->y_row + (ptrdiff_t)r], 0);
}

void check_dense_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_dense d = { .k = n,
                                .m = (size_t)check_below(c, 10),
                                .rows = (size_t)check_below(c, 40),
                                .bias_factor = 2.0f };
        d.w_row = (ptrdiff_t)(n + (size_t)check_below(c, 3));
        d.z_row = (ptrdiff_t)(n + (size_t)check_below(c, 3));
        d.y_row = (ptrdiff_t)(d.rows + (size_t)check_below(c, 3));
        const size_t w = d.rows > 0 ? (d.rows - 1) * (size_t)d.w_row + n : 0;
        const size_t z = d.m > 0 ? (d.m - 1) * (size_t)d.z_row + n : 0;
        const size_t y = d.m > 0 ? (d.m - 1) * (size_t)d.y_row + d.rows : 0;
        d.w = check_normal_f32(c, w);
        d.z = check_normal_f32(c, z);
        d.y = check_memory(c, y * sizeof *d.y);
        if (check_below(c, 2))
            d.bias = check_normal_f32(c, d.rows);
        c->k->dense_rows_f32(&d);
        check_sums(c, &d);
        if (d.m > 0 && d.rows > 0)
            check_alone(c, &d);
    }
    const float *w = check_normal_f32(c, 512 * 32), *z = check_normal_f32(c, 512);
    float *y = check_memory(c, 512 * 4);
    const struct attn_dense down = {
        .w = w, .z = z, .y = y, .w_row = 512, .m = 1, .rows = 32, .k = 512
    };
    const struct attn_dense up = {
        .w = w, .z = z, .y = y, .w_row = 32, .m = 1, .rows = 512, .k = 32
    };
    CHECK_BENCH(c, "32 rows of 512", 2.0 * 512 * 32, "GFLOP/s")
    c->k->dense_rows_f32(&down);
    CHECK_BENCH(c, "512 rows of 32", 2.0 * 512 * 32, "GFLOP/s")
    c->k->dense_rows_f32(&up);
}

/* ---- the product ---- */

/* By single operations on floats: the bits are those of separate steps. */
static float gated(const struct attn_gate *g, const float *x, const float *identity,
                   size_t c, size_t p)
{
    const size_t at = c * (size_t)g->row + p;
    volatile float v = x[at] * (g->gate ? g->gate[c] : 1.0f);
    if (g->pixels)
        v = v * g->pixels[p];
    if (identity)
        v = v + identity[at];
    return g->relu && v < 0 ? 0.0f : v;
}

void check_gate_planes_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_gate g = { .planes = (size_t)check_below(c, 5),
                               .n = n,
                               .row = (ptrdiff_t)n + check_below(c, 3),
                               .relu = (int32_t)check_below(c, 2) };
        const size_t all = g.planes > 0 ? (g.planes - 1) * (size_t)g.row + n : 0;
        const int place = (int)check_below(c, 3); /* y is apart, x, identity */
        float *x = check_edge_f32(c, all), *identity = check_edge_f32(c, all);
        float *kept_x = check_memory(c, all * sizeof *x),
              *kept_identity = check_memory(c, all * sizeof *x);
        memcpy(kept_x, x, all * sizeof *x);
        memcpy(kept_identity, identity, all * sizeof *x);
        g.x = x;
        g.gate = check_below(c, 4) ? check_normal_f32(c, g.planes) : NULL;
        g.pixels = check_below(c, 2) ? check_normal_f32(c, n) : NULL;
        g.identity = check_below(c, 2) || place == 2 ? identity : NULL;
        g.y = place == 0 ? check_memory(c, all * sizeof *x) : place == 1 ? x : identity;
        c->k->gate_planes_f32(&g);
        for (size_t i = 0; i < g.planes; i++)
            for (size_t p = 0; p < n; p++)
                check_f32(
                    c, i, g.y[i * (size_t)g.row + p],
                    (double)gated(&g, kept_x, g.identity ? kept_identity : NULL, i, p),
                    0);
    }
    float *x = check_normal_f32(c, 16 * 3136), *y = check_normal_f32(c, 16 * 3136);
    const float *gate = check_normal_f32(c, 16), *pixels = check_normal_f32(c, 3136);
    struct attn_gate g = {
        .x = x, .y = y, .gate = gate, .row = 3136, .planes = 16, .n = 3136
    };
    CHECK_BENCH(c, "16 x 56 x 56", 8.0 * 16 * 3136, "GB/s")
    c->k->gate_planes_f32(&g);
    g.pixels = pixels;
    g.identity = x;
    g.relu = 1;
    CHECK_BENCH(c, "16 x 56 x 56, all", 8.0 * 16 * 3136, "GB/s")
    c->k->gate_planes_f32(&g);
}

/* y is apart, or one of what is read, which may be given twice. */
void check_sum_planes_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_sum_planes s = { .n = n,
                                     .maps = 1 + (int32_t)check_below(c, ATTN_SUM_MAPS),
                                     .relu = (int32_t)check_below(c, 2) };
        float *y = check_edge_f32(c, n), *kept = check_memory(c, n * sizeof *kept);
        memcpy(kept, y, n * sizeof *kept);
        double weight[ATTN_SUM_MAPS];
        for (int m = 0; m < s.maps; m++) {
            s.x[m] = check_below(c, 3) == 0 ? y : check_normal_f32(c, n);
            s.weight[m] = check_normal(c);
            weight[m] = (double)s.weight[m];
        }
        const int place = (int)check_below(c, 3); /* of identity: none, apart, y */
        s.identity = place == 0 ? NULL : place == 1 ? check_normal_f32(c, n) : y;
        s.y = y;
        c->k->sum_planes_f32(&s);
        for (size_t p = 0; p < n; p++) {
            double want = 0, size = 0;
            for (int m = 0; m < s.maps; m++) {
                const float x = s.x[m] == y ? kept[p] : s.x[m][p];
                want += weight[m] * (double)x;
                size += fabs(weight[m] * (double)x);
            }
            if (place > 0) {
                const double x = (double)(place == 1 ? s.identity[p] : kept[p]);
                want += x;
                size += fabs(x);
            }
            if (s.relu && !(want > 0) && !isnan(want))
                want = 0;
            if (size > 3e38) /* at the edge of what a float holds */
                continue;
            check_near(c, p, (double)y[p], want, 1e-6 * size + 1e-37);
        }
    }
    struct attn_sum_planes s = { .n = 3136, .maps = 2, .weight = { 0.25f, 0.75f } };
    s.x[0] = check_normal_f32(c, 3136);
    s.x[1] = check_normal_f32(c, 3136);
    s.y = check_normal_f32(c, 3136);
    CHECK_BENCH(c, "2 x 56 x 56", 12.0 * 3136, "GB/s")
    c->k->sum_planes_f32(&s);
}
