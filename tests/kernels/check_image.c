/* check_image.c - columns of a convolution, and rows of a depthwise one. */
#include <string.h>

#include "checks.h"

static void random_window(struct check *c, struct attn_im2col *t, size_t n)
{
    for (int a = 0; a < 3; a++) {
        t->kernel[a] = 1 + check_below(c, a == 2 ? 4 : 3);
        t->stride[a] = 1 + check_below(c, 3);
        t->dilation[a] = 1 + check_below(c, 2);
        t->before[a] = check_below(c, 3);
        t->in[a] = 1 + check_below(c, a == 2 ? 40 : 4);
        t->out[a] = 1 + check_below(c, a == 2 ? 40 : 4);
    }
    if (check_below(c, 4) == 0) { /* one row, as 1x1 convolutions are run */
        t->kernel[2] = t->stride[2] = 1;
        t->before[2] = 0;
        t->in[2] = t->out[2] = 1200;
    }
    if (check_below(c, 3) == 0) { /* rows of one length, no strides, one plane */
        for (int a = 0; a < 3; a++)
            t->stride[a] = 1;
        t->kernel[0] = t->in[0] = t->out[0] = 1;
        t->before[0] = 0;
        t->kernel[1] = 1 + check_below(c, 5);
        t->in[2] = t->out[2];
        t->in[1] = 1 + check_below(c, 40);
        while (t->out[1] * t->out[2] < (int64_t)n + 3)
            t->out[1]++;
    }
    while (t->out[0] * t->out[1] * t->out[2] < (int64_t)n + 3)
        t->out[2] += 50;
}

/* What tap number `tap` sees for output pixel `pixel`. */
static float seen(const struct attn_im2col *t, int64_t tap, int64_t pixel)
{
    int64_t k[3], o[3], at = 0;
    for (int a = 2; a >= 0; a--) {
        k[a] = tap % t->kernel[a];
        tap /= t->kernel[a];
        o[a] = pixel % t->out[a];
        pixel /= t->out[a];
    }
    at = tap;
    for (int a = 0; a < 3; a++) {
        int64_t i = o[a] * t->stride[a] - t->before[a] + k[a] * t->dilation[a];
        if (i < 0 || i >= t->in[a])
            return 0.0f;
        at = at * t->in[a] + i;
    }
    return t->x[at];
}

void check_conv_im2col_f32(struct check *c)
{
    const int64_t nr = c->k->vec_bytes / 2, vf = c->k->vec_bytes / 4;
    const size_t lines = ATTN_IM2COL_LINES;
    CHECK_SIZES(c, n)
    {
        struct attn_im2col t = { .n = (int64_t)n, .pixel = check_below(c, 3) };
        random_window(c, &t, n);
        int64_t channels = 1 + check_below(c, 3);
        int64_t floats = channels * t.in[0] * t.in[1] * t.in[2];
        int64_t taps = channels * t.kernel[0] * t.kernel[1] * t.kernel[2];
        t.k_from = check_below(c, taps);
        t.k_count = 1 + check_below(c, taps - t.k_from);
        int64_t width = t.n / nr * nr + (t.n % nr > vf ? nr : t.n % nr > 0 ? vf : 0);
        t.x = check_edge_f32(c, (size_t)floats);
        t.x_end = t.x + floats;
        t.line = check_memory(c, lines * (n + 2 * (size_t)nr) * sizeof *t.line);
        t.panels = check_memory(c, (size_t)(t.k_count * width) * sizeof *t.panels);
        c->k->conv_im2col_f32(&t);
        for (int64_t i = 0; i < t.n; i++)
            for (int64_t k = 0; k < t.k_count; k++) {
                int64_t first = i / nr * nr, wide = t.n - first > vf ? nr : vf;
                float got = t.panels[first * t.k_count + k * wide + i % nr];
                float want = seen(&t, t.k_from + k, t.pixel + i);
                check_f32(c, (size_t)(k * t.n + i), got, (double)want, 0);
            }
    }
    struct attn_im2col t = { .n = 128,
                             .in = { 1, 56, 56 },
                             .out = { 1, 56, 56 },
                             .kernel = { 1, 3, 3 },
                             .stride = { 1, 1, 1 },
                             .dilation = { 1, 1, 1 },
                             .before = { 0, 1, 1 },
                             .pixel = 1000,
                             .k_count = 576 };
    t.x = check_normal_f32(c, 64 * 56 * 56);
    t.x_end = t.x + 64 * 56 * 56;
    t.line = check_memory(c, lines * (128 + 2 * (size_t)nr) * sizeof *t.line);
    t.panels = check_memory(c, 576 * 128 * sizeof *t.panels);
    CHECK_BENCH(c, "64x56x56, 3x3", 4.0 * 576 * 128, "GB/s")
    c->k->conv_im2col_f32(&t);
}

void check_conv_taps_f32(struct check *c)
{
    const size_t over = (size_t)c->k->vec_bytes / 4;
    CHECK_SIZES(c, n)
    {
        int64_t n_taps = check_below(c, 12), offsets[12];
        float weights[12], bias = check_normal(c);
        size_t reach = 0;
        for (int64_t t = 0; t < n_taps; t++) {
            offsets[t] = check_below(c, 50);
            weights[t] = check_normal(c);
            if ((size_t)offsets[t] > reach)
                reach = (size_t)offsets[t];
        }
        float *x = check_normal_f32(c, n + reach + over);
        float *y = check_memory(c, n * sizeof *y);
        c->k->conv_taps_f32(y, (int64_t)n, x, offsets, weights, n_taps, bias);
        for (size_t i = 0; i < n; i++) {
            double want = (double)bias, size = fabs((double)bias);
            for (int64_t t = 0; t < n_taps; t++) {
                double product = (double)weights[t] * (double)x[offsets[t] + (int64_t)i];
                want += product;
                size += fabs(product);
            }
            check_near(c, i, (double)y[i], want, 1e-6 * size);
        }
    }
    int64_t offsets[9] = { 0, 1, 2, 58, 59, 60, 116, 117, 118 };
    float weights[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    float *x = check_normal_f32(c, 4096), *y = check_memory(c, 3248 * sizeof *y);
    CHECK_BENCH(c, "3x3", 18.0 * 3248, "GFLOP/s")
    c->k->conv_taps_f32(y, 3248, x, offsets, weights, 9, 0.5f);
}

void check_conv_finish_f32(struct check *c)
{
    const int32_t steps[3] = { -1, ATTN_EPI_RELU, ATTN_EPI_CLIP };
    CHECK_SIZES(c, n)
    {
        struct attn_conv_finish f = {
            .n = (int64_t)n, .m = 1 + check_below(c, 4), .alpha = -0.5f, .beta = 1.25f
        };
        f.row = f.n + check_below(c, 3);
        f.step = steps[check_below(c, 3)];
        size_t floats = (size_t)((f.m - 1) * f.row + f.n);
        float *x = check_normal_f32(c, floats), *y = check_memory(c, floats * sizeof *y);
        f.y = y;
        f.bias = check_below(c, 2) != 0 ? check_normal_f32(c, (size_t)f.m) : NULL;
        f.z = check_below(c, 2) != 0 ? check_normal_f32(c, floats) : NULL;
        for (size_t i = 0; i < floats; i++)
            y[i] = x[i];
        c->k->conv_finish_f32(&f);
        for (int64_t r = 0; r < f.m; r++)
            for (int64_t i = r * f.row; i < r * f.row + f.n; i++) {
                float want = x[i] + (f.bias != NULL ? f.bias[r] : 0.0f);
                want += f.z != NULL ? f.z[i] : 0.0f;
                if (f.step == ATTN_EPI_RELU)
                    want = want > 0 ? want : 0;
                if (f.step == ATTN_EPI_CLIP)
                    want = want < f.alpha ? f.alpha : want > f.beta ? f.beta : want;
                check_f32(c, (size_t)i, y[i], (double)want, 0);
            }
    }
    struct attn_conv_finish f = { .n = 128, .m = 64, .row = 3136, .step = ATTN_EPI_RELU };
    float *y = check_normal_f32(c, 64 * 3136);
    f.y = y;
    f.bias = y;
    CHECK_BENCH(c, "64x128, bias, relu", 8.0 * 64 * 128, "GB/s")
    c->k->conv_finish_f32(&f);
}

/* What lies at [channel][a][b][row][column] of a strip. */
static float in_strip(const struct attn_conv_strip *s, int64_t channel, int64_t row,
                      int64_t column)
{
    if (row < 0 || row >= s->in[0] || column < 0 || column >= s->in[1])
        return 0.0f;
    return s->x[(channel * s->in[0] + row) * s->in[1] + column];
}

void check_conv_strip_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_conv_strip s = { .channels = 1 + check_below(c, 3),
                                     .in = { 1 + check_below(c, 5), (int64_t)n + 1 },
                                     .stride = { 1 + check_below(c, 3),
                                                 1 + check_below(c, 4) },
                                     .h = check_below(c, 12) - 6,
                                     .w = check_below(c, 90) - 60,
                                     .rows = 1 + check_below(c, 6),
                                     .columns = 1 + check_below(c, 70),
                                     .tail = c->k->vec_bytes / 4 + check_below(c, 9) };
        const int64_t floats = s.channels * s.in[0] * s.in[1];
        const int64_t planes = s.channels * s.stride[0] * s.stride[1];
        const int64_t all = planes * s.rows * s.columns + s.tail;
        float *to = check_memory(c, (size_t)all * sizeof *to);
        s.x = check_edge_f32(c, (size_t)floats);
        s.x_end = s.x + floats;
        s.to = to;
        c->k->conv_strip_f32(&s);
        for (int64_t i = 0; i < all; i++) {
            const int64_t column = i % s.columns, row = i / s.columns % s.rows;
            const int64_t plane = i / (s.columns * s.rows);
            const int64_t b = plane % s.stride[1], a = plane / s.stride[1] % s.stride[0];
            const float want = i >= all - s.tail
                                   ? 0.0f
                                   : in_strip(&s, plane / (s.stride[0] * s.stride[1]),
                                              s.h + row * s.stride[0] + a,
                                              s.w + column * s.stride[1] + b);
            check_f32(c, (size_t)i, to[i], (double)want, 0);
        }
    }
    struct attn_conv_strip s = { .channels = 8, .in = { 56, 56 }, .stride = { 1, 1 } };
    s.h = s.w = -1;
    s.rows = 16;
    s.columns = 57;
    s.tail = 64;
    s.x = check_normal_f32(c, 8 * 56 * 56 + 100);
    s.x_end = s.x + 8 * 56 * 56 + 100;
    s.to = check_memory(c, (8 * 16 * 57 + 64) * sizeof(float));
    CHECK_BENCH(c, "8 x 16 x 57", 8.0 * 8 * 16 * 57, "GB/s")
    c->k->conv_strip_f32(&s);
}

static void compare_direct(struct check *c, const struct attn_conv_direct *d)
{
    for (int64_t m = 0; m < d->m; m++)
        for (int64_t i = 0; i < d->rows * d->columns; i++) {
            const int64_t p = i / d->columns * d->pitch + i % d->columns;
            const int64_t at =
                m * d->y_channel + i / d->columns * d->y_row + i % d->columns;
            double want = d->bias != NULL ? (double)d->bias[m] : 0, size = fabs(want);
            for (int64_t t = 0; t < d->taps; t++) {
                const double product =
                    (double)d->w[m * d->w_row + t] * (double)d->x[d->offsets[t] + p];
                want += product;
                size += fabs(product);
            }
            want += d->z != NULL ? (double)d->z[at] : 0;
            want = fmin((double)d->max, fmax((double)d->min, want));
            check_near(c, (size_t)at, (double)d->y[at], want, 2e-6 * (size + 1));
        }
}

void check_conv_direct_f32(struct check *c)
{
    const int64_t over = c->k->vec_bytes / 4;
    int64_t offsets[40];
    CHECK_SIZES(c, n)
    {
        struct attn_conv_direct d = { .offsets = offsets,
                                      .taps = check_below(c, 40),
                                      .m = 1 + check_below(c, 19),
                                      .rows = check_below(c, n < 20 ? 9 : 3),
                                      .columns = (int64_t)n,
                                      .min = -INFINITY,
                                      .max = INFINITY };
        d.pitch = d.columns + check_below(c, 4) + (n == 0);
        d.w_row = d.taps + check_below(c, 3);
        d.y_row = d.columns + check_below(c, 2);
        d.y_channel = d.rows * d.y_row + check_below(c, 3);
        if (check_below(c, 2) != 0)
            d.min = -0.5f;
        if (check_below(c, 2) != 0)
            d.max = 1.5f;
        int64_t reach = 0;
        for (int64_t t = 0; t < d.taps; t++) {
            offsets[t] = check_below(c, 50);
            reach = offsets[t] > reach ? offsets[t] : reach;
        }
        d.x = check_normal_f32(c, (size_t)(d.rows * d.pitch + reach + over));
        d.w = check_normal_f32(c, (size_t)(d.m * d.w_row));
        const size_t floats = (size_t)(d.m * d.y_channel);
        float *y = check_memory(c, floats * sizeof *y);
        uint8_t *before = check_memory(c, floats * sizeof *y);
        memcpy(before, y, floats * sizeof *y);
        d.y = y;
        d.bias = check_below(c, 2) != 0 ? check_normal_f32(c, (size_t)d.m) : NULL;
        d.z = check_below(c, 2) != 0 ? check_normal_f32(c, floats) : NULL;
        c->k->conv_direct_f32(&d);
        compare_direct(c, &d);
        for (size_t i = 0; i < floats; i++) {
            const int64_t in = (int64_t)i % d.y_channel;
            if (in >= d.rows * d.y_row || in % d.y_row >= d.columns)
                check_true(c, i, memcmp(before + 4 * i, y + i, 4) == 0, "untouched");
        }
    }
    int64_t taps[72];
    for (int64_t t = 0; t < 72; t++)
        taps[t] = t / 9 * 16 * 57 + t % 9 / 3 * 57 + t % 3;
    struct attn_conv_direct d = { .offsets = taps,
                                  .taps = 72,
                                  .w_row = 72,
                                  .m = 8,
                                  .rows = 14,
                                  .columns = 56,
                                  .pitch = 57,
                                  .y_row = 56,
                                  .y_channel = 56 * 56,
                                  .min = 0,
                                  .max = INFINITY };
    d.x = check_normal_f32(c, 8 * 16 * 57 + 64);
    d.w = check_normal_f32(c, 72 * 8);
    d.y = check_normal_f32(c, 8 * 56 * 56);
    CHECK_BENCH(c, "8 x 8, 3x3, 14x56", 2.0 * 8 * 72 * 14 * 56, "GFLOP/s")
    c->k->conv_direct_f32(&d);
    d.m = 1;
    d.taps = 9;
    CHECK_BENCH(c, "1 x 1, 3x3, 14x56", 2.0 * 9 * 14 * 56, "GFLOP/s")
    c->k->conv_direct_f32(&d);
}

/* Column (i * lanes + l) % width of the output sees a column of the input. */
static uint16_t edge(const struct attn_conv_planes *d, int64_t j, int64_t i,
                     int64_t lanes)
{
    uint16_t bits = 0;
    for (int64_t l = 0; l < lanes; l++) {
        const int64_t column =
            (i * lanes + l) % d->width + j * d->dilation[1] - d->before[1];
        if (column >= 0 && column < d->width)
            bits |= (uint16_t)(1u << l);
    }
    return bits;
}

/* `own`: each output channel has a plane of its own. */
static void compare_planes(struct check *c, const struct attn_conv_planes *d, bool own)
{
    const int64_t taps = d->kernel[0] * d->kernel[1];
    for (int64_t i = 0; i < d->m * (d->to - d->from); i++) {
        const int64_t m = i / (d->to - d->from), p = d->from + i % (d->to - d->from);
        double want = d->bias != NULL ? (double)d->bias[m] : 0, size = fabs(want) + 1;
        for (int64_t k = 0; k < d->channels * taps; k++) {
            const int64_t row =
                p / d->width + k % taps / d->kernel[1] * d->dilation[0] - d->before[0];
            const int64_t column =
                p % d->width + k % d->kernel[1] * d->dilation[1] - d->before[1];
            const int64_t plane = own ? m : k / taps;
            if (row < 0 || row >= d->height || column < 0 || column >= d->width)
                continue;
            const double product =
                (double)d->w[m * d->w_row + k] *
                (double)d->x[plane * d->plane + row * d->width + column];
            want += product;
            size += fabs(product);
        }
        want += d->z != NULL ? (double)d->z[m * d->y_channel + p] : 0;
        want = fmin((double)d->max, fmax((double)d->min, want));
        check_near(c, (size_t)i, (double)d->y[m * d->y_channel + p], want, 2e-6 * size);
    }
}

static void random_planes(struct check *c, struct attn_conv_planes *d, size_t n, bool own)
{
    const int64_t lanes = c->k->vec_bytes / 4;
    *d = (struct attn_conv_planes){
        .channels = own ? 1 : 1 + check_below(c, 4),
        .m = 1 + check_below(c, 19),
        .height = 1 + check_below(c, n < 20 ? 9 : 3),
        .width = (int64_t)n + 1,
        .kernel = { 1 + check_below(c, 3), 1 + check_below(c, 4) },
        .dilation = { 1 + check_below(c, 2), 1 + check_below(c, 3) },
        .before = { check_below(c, 4), check_below(c, 6) },
        .min = check_below(c, 2) != 0 ? -0.5f : -INFINITY,
        .max = check_below(c, 2) != 0 ? 1.5f : INFINITY,
    };
    if (check_below(c, 2) != 0) {
        d->kernel[1] = 3;
        d->before[1] = d->dilation[1];
        d->height += 4;
    }
    const int64_t pixels = (d->height + check_below(c, 6)) * d->width;
    d->plane = d->height * d->width;
    d->from = check_below(c, (pixels - 1) / lanes + 1) * lanes;
    d->to = d->from + 1 + check_below(c, pixels - d->from);
    d->w_row = d->channels * d->kernel[0] * d->kernel[1] + check_below(c, 3);
    d->y_channel = pixels + check_below(c, 3);
    const int64_t masks = d->width + ATTN_CONV_EDGES;
    uint16_t *edges = check_memory(c, (size_t)(d->kernel[1] * masks) * sizeof *edges);
    for (int64_t i = 0; i < d->kernel[1] * masks; i++)
        edges[i] = edge(d, i / masks, i % masks, lanes);
    d->edges = edges;
    d->x = check_normal_f32(c, (size_t)((own ? d->m : d->channels) * d->plane));
    d->w = check_normal_f32(c, (size_t)(d->m * d->w_row));
    d->bias = check_below(c, 2) != 0 ? check_normal_f32(c, (size_t)d->m) : NULL;
}

static void check_planes(struct check *c, void (*run)(const struct attn_conv_planes *d),
                         bool own)
{
    CHECK_SIZES(c, n)
    {
        struct attn_conv_planes d;
        random_planes(c, &d, n, own);
        const size_t floats = (size_t)(d.m * d.y_channel);
        float *y = check_memory(c, floats * sizeof *y);
        uint8_t *before = check_memory(c, floats * sizeof *y);
        memcpy(before, y, floats * sizeof *y);
        d.y = y;
        d.z = check_below(c, 2) != 0 ? check_normal_f32(c, floats) : NULL;
        run(&d);
        compare_planes(c, &d, own);
        for (size_t i = 0; i < floats; i++) {
            const int64_t p = (int64_t)i % d.y_channel;
            if (p < d.from || p >= d.to)
                check_true(c, i, memcmp(before + 4 * i, y + i, 4) == 0, "untouched");
        }
    }
}

/* 8 planes of 56 x 56, 3 x 3, edges[3 * (56 + ATTN_CONV_EDGES)]. */
static struct attn_conv_planes bench_planes(struct check *c, uint16_t *edges)
{
    struct attn_conv_planes d = { .channels = 8,
                                  .m = 8,
                                  .height = 56,
                                  .width = 56,
                                  .plane = 56 * 56,
                                  .kernel = { 3, 3 },
                                  .dilation = { 1, 1 },
                                  .before = { 1, 1 },
                                  .edges = edges,
                                  .w_row = 72,
                                  .to = 56 * 56,
                                  .y_channel = 56 * 56,
                                  .max = INFINITY };
    for (int64_t i = 0; i < 3 * (56 + ATTN_CONV_EDGES); i++)
        edges[i] = edge(&d, i / (56 + ATTN_CONV_EDGES), i % (56 + ATTN_CONV_EDGES),
                        c->k->vec_bytes / 4);
    d.x = check_normal_f32(c, 8 * 56 * 56);
    d.w = check_normal_f32(c, 72 * 8);
    d.y = check_normal_f32(c, 8 * 56 * 56);
    return d;
}

void check_conv_planes_f32(struct check *c)
{
    uint16_t edges[3 * (56 + ATTN_CONV_EDGES)];
    check_planes(c, c->k->conv_planes_f32, false);
    const struct attn_conv_planes d = bench_planes(c, edges);
    CHECK_BENCH(c, "8 x 8, 3x3, 56x56", 2.0 * 8 * 72 * 56 * 56, "GFLOP/s")
    c->k->conv_planes_f32(&d);
}

void check_conv_depthwise_f32(struct check *c)
{
    uint16_t edges[3 * (56 + ATTN_CONV_EDGES)];
    check_planes(c, c->k->conv_depthwise_f32, true);
    struct attn_conv_planes d = bench_planes(c, edges);
    d.channels = 1;
    d.w_row = 9;
    CHECK_BENCH(c, "8 planes, 3x3, 56x56", 2.0 * 8 * 9 * 56 * 56, "GFLOP/s")
    c->k->conv_depthwise_f32(&d);
}

/* ---- resize ---- */

static void check_resize_position(struct check *c, const struct attn_resize_line *d,
                                  int64_t i)
{
    for (int64_t lane = 0; lane < d->inner; lane++) {
        double want = 0.0, size = 0.0;
        for (int64_t t = 0; t < d->taps; t++) {
            const double weight = d->weight ? (double)d->weight[i * d->taps + t] : 1.0;
            const float x = d->x[d->index[i * d->taps + t] * d->inner + lane];
            want += weight * (double)x;
            size += fabs(weight * (double)x);
        }
        check_near(c, (size_t)(i * d->inner + lane), (double)d->y[i * d->inner + lane],
                   want, d->weight ? 1e-6 * size : 0.0);
    }
}

static void bench_resize(struct check *c, const char *label, bool blends)
{
    enum { IN = 28, OUT = 56, INNER = 16 };
    int64_t index[2 * OUT];
    for (int64_t i = 0; i < 2 * OUT; i++)
        index[i] = blends ? (i / 4 + i % 2) % IN : i / 2 % IN;
    const struct attn_resize_line d = {
        .x = check_normal_f32(c, IN * INNER),
        .weight = blends ? check_normal_f32(c, 2 * OUT) : NULL,
        .index = index,
        .y = check_memory(c, OUT * INNER * sizeof(float)),
        .taps = blends ? 2 : 1,
        .n = OUT,
        .inner = INNER,
    };
    CHECK_BENCH(c, label, 4.0 * OUT * INNER, "GB/s")
    c->k->resize_line_f32(&d);
}

void check_resize_line_f32(struct check *c)
{
    enum { MAX_TAPS = 6, MAX_POSITIONS = 12 };
    for (int n = 0; n < 200; n++) {
        int64_t index[MAX_TAPS * MAX_POSITIONS];
        const int64_t in = 1 + check_below(c, 9), inner = 16 * (1 + check_below(c, 6));
        struct attn_resize_line d = { .taps = 1 + check_below(c, MAX_TAPS),
                                      .n = check_below(c, MAX_POSITIONS + 1),
                                      .inner = n % 50 == 0 ? 1040 : inner };
        if (check_below(c, 3) == 0)
            d.taps = 1;
        else
            d.weight = check_normal_f32(c, (size_t)(d.taps * d.n));
        for (int64_t i = 0; i < d.taps * d.n; i++)
            index[i] = check_below(c, in);
        d.index = index;
        d.x = check_normal_f32(c, (size_t)(in * d.inner));
        d.y = check_memory(c, (size_t)(d.n * d.inner) * sizeof(float));
        c->k->resize_line_f32(&d);
        for (int64_t i = 0; i < d.n; i++)
            check_resize_position(c, &d, i);
        check_again(c);
    }
    bench_resize(c, "copies, 28 to 56 of 16", false);
    bench_resize(c, "blends, 28 to 56 of 16", true);
}
