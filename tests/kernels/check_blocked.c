/* check_blocked.c - kernels over maps in blocks of 16 channels, against plain sums in double.
 * Weights are packed here in the panels that blocked_types.h describes. */
#include <string.h>

#include "blocked_case.h"

double check_clip(double x, float min, float max)
{
    return x != x ? x : x<(double)min ? (double)min : x>(double) max ? (double)max : x;
}

/* None, those of Relu, or those of Clip. */
static void set_limits(struct check *c, float *min, float *max)
{
    const int kind = (int)check_below(c, 3);
    *min = kind == 0 ? -INFINITY : 0.0f;
    *max = kind == 2 ? 2.0f : INFINITY;
}

/* ---- convolution ---- */

/* Room for the floats of a panel of weights. */
static float *make_floats(struct check *c, int64_t rows)
{
    const int64_t panel = attn_blocked_panel(c->k->vec_bytes);
    return check_memory(c, (size_t)(rows * panel) * sizeof(float));
}

/* Weights of any type, and perhaps factors of columns. */
static void make_weights(struct check *c, struct conv_case *t)
{
    const size_t n = (size_t)(t->d.rows * t->d.columns);
    float *weights = check_normal_f32(c, n);
    t->d.w_type = (int32_t)check_below(c, 3); /* ATTN_B_F32, ATTN_B_F16, ATTN_B_BF16 */
    t->d.w = t->d.w_type == ATTN_B_F32
                 ? (const void *)weights
                 : (const void *)check_stored(c, weights, n, t->d.w_type);
    t->weights = weights;
    t->d.floats = check_below(c, 2) ? make_floats(c, t->d.rows) : NULL;
    t->d.scale = check_below(c, 2) ? check_normal_f32(c, (size_t)t->d.columns) : NULL;
}

/* Taps of 1 or 16 inputs, the last one of fewer, anywhere in x. */
void check_make_conv(struct check *c, struct conv_case *t)
{
    const int64_t inputs = check_below(c, 2) != 0 ? BLOCK : 1;
    *t = (struct conv_case){ .x_floats = 1000 };
    t->d.n_taps = 1 + check_below(c, 8);
    t->d.n_pixels = 1 + check_below(c, MAX_PIXELS);
    t->d.columns = BLOCK * (1 + check_below(c, 5));
    t->d.y_block = BLOCK * (t->d.n_pixels + check_below(c, 3));
    for (int64_t i = 0; i < t->d.n_taps; i++) {
        t->taps[i].inputs = i + 1 == t->d.n_taps ? 1 + check_below(c, inputs) : inputs;
        t->taps[i].offset = check_below(c, 200 - BLOCK);
        t->d.rows += t->taps[i].inputs;
    }
    /* In any order, or side by side, as floats or as words of two bf16. */
    const int64_t step = BLOCK >> check_below(c, 2), beside = check_below(c, 2);
    for (int64_t i = 0; i < t->d.n_pixels; i++)
        t->pixels[i] = (int32_t)(beside != 0 ? i * step : check_below(c, 200));
    t->y_floats = (t->d.columns / BLOCK - 1) * t->d.y_block + t->d.n_pixels * BLOCK;
    t->d.x = check_normal_f32(c, (size_t)t->x_floats);
    t->d.bias = check_normal_f32(c, (size_t)t->d.columns);
    t->d.z = check_below(c, 2) ? check_normal_f32(c, (size_t)t->y_floats) : NULL;
    t->d.y = check_memory(c, (size_t)t->y_floats * sizeof(float));
    set_limits(c, &t->d.min, &t->d.max);
    t->d.taps = t->taps;
    t->d.pixels = t->pixels;
}

static void check_conv_pixel(struct check *c, const struct conv_case *of, int64_t pixel,
                             int64_t column)
{
    const struct attn_blocked_conv *d = &of->d;
    const int64_t panel = attn_blocked_panel(c->k->vec_bytes);
    const int64_t first = column / panel * panel;
    const int64_t width = d->columns - first < panel ? d->columns - first : panel;
    const float *w = of->weights + first * d->rows + column - first;
    const int64_t at = column / BLOCK * d->y_block + pixel * BLOCK + column % BLOCK;
    const double scale = d->scale != NULL ? (double)d->scale[column] : 1.0;
    double sum = (double)d->bias[column], size = fabs(sum);
    for (int64_t t = 0; t < d->n_taps; t++)
        for (int64_t i = 0; i < d->taps[t].inputs; i++, w += width) {
            const double term = (double)d->x[d->pixels[pixel] + d->taps[t].offset + i] *
                                (double)*w * scale;
            sum += term;
            size += fabs(term);
        }
    if (d->z != NULL)
        sum += (double)d->z[at];
    check_near(c, (size_t)at, (double)d->y[at], check_clip(sum, d->min, d->max),
               (size + 1.0) * 1e-6);
}

static void bench_conv(struct check *c, int64_t channels, int32_t type, const char *label)
{
    enum { COLUMNS = 64, PIXELS = 56 };
    struct attn_blocked_tap taps[32];
    int32_t pixels[PIXELS];
    for (int32_t i = 0; i < PIXELS; i++)
        pixels[i] = i * BLOCK;
    for (int64_t i = 0; i < channels / BLOCK; i++)
        taps[i] = (struct attn_blocked_tap){ i * PIXELS * BLOCK, BLOCK };
    float *w = check_normal_f32(c, (size_t)(channels * COLUMNS));
    const struct attn_blocked_conv d = {
        .x = check_normal_f32(c, (size_t)(channels * PIXELS)),
        .w = type == ATTN_B_F32
                 ? (const void *)w
                 : (const void *)check_stored(c, w, (size_t)(channels * COLUMNS), type),
        .w_type = type,
        .floats = make_floats(c, channels),
        .bias = check_normal_f32(c, COLUMNS),
        .pixels = pixels,
        .taps = taps,
        .y = check_memory(c, COLUMNS * PIXELS * sizeof(float)),
        .n_taps = channels / BLOCK,
        .rows = channels,
        .n_pixels = PIXELS,
        .columns = COLUMNS,
        .y_block = PIXELS * BLOCK,
        .min = 0.0f,
        .max = INFINITY,
    };
    CHECK_BENCH(c, label, 2.0 * (double)channels * COLUMNS * PIXELS, "GFLOP/s")
    c->k->blocked_conv_f32(&d);
}

void check_blocked_conv_f32(struct check *c)
{
    for (int n = 0; n < 60; n++) {
        struct conv_case t;
        check_make_conv(c, &t);
        make_weights(c, &t);
        c->k->blocked_conv_f32(&t.d);
        for (int64_t pixel = 0; pixel < t.d.n_pixels; pixel++)
            for (int64_t column = 0; column < t.d.columns; column++)
                check_conv_pixel(c, &t, pixel, column);
        check_again(c);
    }
    bench_conv(c, 64, ATTN_B_F32, "64 to 64, 1x1, 56 pixels");
    bench_conv(c, 512, ATTN_B_F32, "512 to 64, 1x1, 56 pixels");
    bench_conv(c, 512, ATTN_B_F16, "512 to 64, 1x1, 56 pixels, weights of f16");
    bench_conv(c, 512, ATTN_B_BF16, "512 to 64, 1x1, 56 pixels, weights of bf16");
}

/* ---- each channel by itself ---- */

static void make_rows(struct check *c, struct attn_blocked_rows *d)
{
    *d = (struct attn_blocked_rows){ .min = -INFINITY, .max = INFINITY };
    for (int a = 0; a < 2; a++) {
        d->in[a] = 1 + check_below(c, 24);
        d->kernel[a] = 1 + check_below(c, 8);
        d->stride[a] = 1 + check_below(c, 3);
        d->dilation[a] = check_below(c, 3) == 0 ? 2 : 1;
        d->before[a] = check_below(c, d->kernel[a] + 1);
    }
    d->row = check_below(c, 3);
    d->rows = 1 + check_below(c, 4);
    d->columns = 1 + check_below(c, 20);
    d->x = check_normal_f32(c, (size_t)(d->in[0] * d->in[1] * BLOCK));
    d->y = check_memory(c, (size_t)(d->rows * d->columns * BLOCK) * sizeof(float));
}

/* What output `at` of lane `lane` sees at a tap; false: nothing. */
static bool seen(const struct attn_blocked_rows *d, int64_t row, int64_t column,
                 int64_t i, int64_t j, int64_t lane, float *x)
{
    const int64_t h = row * d->stride[0] - d->before[0] + i * d->dilation[0];
    const int64_t w = column * d->stride[1] - d->before[1] + j * d->dilation[1];
    if (h < 0 || h >= d->in[0] || w < 0 || w >= d->in[1])
        return false;
    *x = d->x[(h * d->in[1] + w) * BLOCK + lane];
    return true;
}

static void check_depthwise(struct check *c, const struct attn_blocked_rows *d,
                            int64_t at)
{
    const int64_t lane = at % BLOCK, column = at / BLOCK % d->columns;
    const int64_t row = d->row + at / BLOCK / d->columns;
    double sum = (double)d->bias[lane];
    float x;
    for (int64_t i = 0; i < d->kernel[0]; i++)
        for (int64_t j = 0; j < d->kernel[1]; j++)
            if (seen(d, row, column, i, j, lane, &x))
                sum += (double)x * (double)d->w[(i * d->kernel[1] + j) * BLOCK + lane];
    if (d->z != NULL)
        sum += (double)d->z[at];
    check_near(c, (size_t)at, (double)d->y[at], check_clip(sum, d->min, d->max), 3e-5);
}

static void bench_depthwise(struct check *c, int64_t kernel, int64_t stride,
                            const char *label)
{
    enum { SIZE = 56 };
    const struct attn_blocked_rows d = {
        .x = check_normal_f32(c, SIZE * SIZE * BLOCK),
        .w = check_normal_f32(c, (size_t)(kernel * kernel * BLOCK)),
        .bias = check_normal_f32(c, BLOCK),
        .y = check_memory(c, SIZE * SIZE * BLOCK * sizeof(float)),
        .in = { SIZE, SIZE },
        .kernel = { kernel, kernel },
        .stride = { stride, stride },
        .dilation = { 1, 1 },
        .before = { kernel / 2, kernel / 2 },
        .rows = SIZE / stride,
        .columns = SIZE / stride,
        .min = 0.0f,
        .max = 6.0f,
    };
    const double outputs = (double)(SIZE / stride * (SIZE / stride) * BLOCK);
    CHECK_BENCH(c, label, 2.0 * outputs * (double)(kernel * kernel), "GFLOP/s")
    c->k->blocked_depthwise_f32(&d);
}

void check_blocked_depthwise_f32(struct check *c)
{
    for (int n = 0; n < 300; n++) {
        struct attn_blocked_rows d;
        make_rows(c, &d);
        if (n % 2 == 0) { /* those with a tile of their own */
            d.kernel[1] = 3 + 2 * check_below(c, 3);
            d.stride[1] = 1 + check_below(c, 2);
            d.dilation[1] = 1;
        }
        d.w = check_normal_f32(c, (size_t)(d.kernel[0] * d.kernel[1] * BLOCK));
        d.bias = check_normal_f32(c, BLOCK);
        d.z =
            n % 3 == 0 ? check_normal_f32(c, (size_t)(d.rows * d.columns * BLOCK)) : NULL;
        set_limits(c, &d.min, &d.max);
        c->k->blocked_depthwise_f32(&d);
        for (int64_t i = 0; i < d.rows * d.columns * BLOCK; i++)
            check_depthwise(c, &d, i);
        check_again(c);
    }
    bench_depthwise(c, 3, 1, "3x3, 56x56");
    bench_depthwise(c, 3, 2, "3x3 stride 2, 56x56");
    bench_depthwise(c, 5, 1, "5x5, 56x56");
    bench_depthwise(c, 7, 1, "7x7, 56x56");
}

/* ---- pooling ---- */

static void check_pool(struct check *c, const struct attn_blocked_rows *d, int64_t at)
{
    const int64_t lane = at % BLOCK, column = at / BLOCK % d->columns;
    const int64_t row = d->row + at / BLOCK / d->columns;
    double sum = 0.0, max = (double)-INFINITY;
    float x;
    for (int64_t i = 0; i < d->kernel[0]; i++)
        for (int64_t j = 0; j < d->kernel[1]; j++)
            if (seen(d, row, column, i, j, lane, &x)) {
                sum += (double)x;
                max = isnan(x) || (double)x > max ? (double)x : max;
            }
    if (d->row_share == NULL)
        check_f32(c, (size_t)at, d->y[at], max, 0);
    else
        check_near(c, (size_t)at, (double)d->y[at],
                   sum / (double)(d->row_share[row] * d->column_share[column]), 1e-5);
}

/* The mean of many equal pixels, whose roundings do not cancel. */
static void check_large_mean(struct check *c)
{
    enum { SIDE = 250, PIXELS = SIDE * SIDE };
    const float share = (float)SIDE;
    float *x = check_memory(c, PIXELS * BLOCK * sizeof *x);
    for (int i = 0; i < PIXELS * BLOCK; i++)
        x[i] = 0.1f;
    const struct attn_blocked_rows d = {
        .x = x,
        .y = check_memory(c, BLOCK * sizeof(float)),
        .in = { SIDE, SIDE },
        .kernel = { SIDE, SIDE },
        .stride = { 1, 1 },
        .dilation = { 1, 1 },
        .rows = 1,
        .columns = 1,
        .row_share = &share,
        .column_share = &share,
    };
    c->k->blocked_pool_f32(&d);
    for (size_t i = 0; i < BLOCK; i++)
        check_near(c, i, (double)d.y[i], (double)0.1f, 1e-6);
    check_again(c);
}

void check_blocked_pool_f32(struct check *c)
{
    check_large_mean(c);
    for (int n = 0; n < 200; n++) {
        struct attn_blocked_rows d;
        make_rows(c, &d);
        if (n % 2 == 0) {
            float *x = check_normal_f32(c, (size_t)(d.in[0] * d.in[1] * BLOCK));
            if (n % 4 == 0) /* one NaN: it wins where it is seen, in its lane alone */
                x[check_below(c, d.in[0] * d.in[1] * BLOCK)] = NAN;
            d.x = x;
        } else {
            float *shares = check_memory(c, (size_t)(8 + 20) * sizeof(float));
            for (int i = 0; i < 28; i++)
                shares[i] = (float)(1 + check_below(c, 7));
            d.row_share = shares;
            d.column_share = shares + 8;
        }
        c->k->blocked_pool_f32(&d);
        for (int64_t i = 0; i < d.rows * d.columns * BLOCK; i++)
            check_pool(c, &d, i);
        check_again(c);
    }
    const struct attn_blocked_rows d = {
        .x = check_normal_f32(c, 56 * 56 * BLOCK),
        .y = check_memory(c, 28 * 28 * BLOCK * sizeof(float)),
        .in = { 56, 56 },
        .kernel = { 3, 3 },
        .stride = { 2, 2 },
        .dilation = { 1, 1 },
        .before = { 1, 1 },
        .rows = 28,
        .columns = 28,
    };
    CHECK_BENCH(c, "max 3x3 stride 2, 56x56", 4.0 * BLOCK * (56 * 56 + 28 * 28), "GB/s")
    c->k->blocked_pool_f32(&d);
}

void check_blocked_mean_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n * BLOCK);
        float *y = check_memory(c, BLOCK * sizeof(float));
        c->k->blocked_mean_f32(y, x, n);
        for (size_t l = 0; l < BLOCK; l++) {
            double sum = 0.0;
            for (size_t p = 0; p < n; p++)
                sum += (double)x[p * BLOCK + l];
            check_near(c, l, (double)y[l], n > 0 ? sum / (double)n : (double)NAN, 1e-6);
        }
    }
}

void check_blocked_gate_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_edge_f32(c, n * BLOCK), *gate = check_edge_f32(c, BLOCK);
        float *y = check_memory(c, n * BLOCK * sizeof(float));
        c->k->blocked_gate_f32(y, x, gate, n);
        for (size_t i = 0; i < n * BLOCK; i++)
            check_f32(c, i, y[i], (double)(x[i] * gate[i % BLOCK]), 0);
    }
}

/* Pixel p of a map of normalised channels. */
static void check_norm(struct check *c, const struct attn_blocked_norm *d, int64_t p)
{
    double sum = 0.0, squares = 0.0;
    const double n = (double)d->channels;
    for (int64_t i = 0; i < d->channels; i++)
        sum += (double)d->x[i / BLOCK * d->x_block + p * BLOCK + i % BLOCK];
    for (int64_t i = 0; i < d->channels; i++) {
        const double apart =
            (double)d->x[i / BLOCK * d->x_block + p * BLOCK + i % BLOCK] - sum / n;
        squares += apart * apart;
    }
    for (int64_t i = 0; i < d->channels; i++) {
        const int64_t at = i / BLOCK * d->x_block + p * BLOCK + i % BLOCK;
        const double apart = (double)d->x[at] - sum / n;
        const double bias = d->bias != NULL ? (double)d->bias[i] : 0.0;
        check_near(
            c, (size_t)i, (double)d->y[i / BLOCK * d->y_block + p * BLOCK + i % BLOCK],
            apart / sqrt(squares / n + (double)d->epsilon) * (double)d->scale[i] + bias,
            2e-5);
    }
}

void check_blocked_norm_f32(struct check *c)
{
    for (int round = 0; round < 60; round++) {
        const int64_t n = 1 + check_below(c, 20), channels = 1 + check_below(c, 80);
        const int64_t blocks = (channels + BLOCK - 1) / BLOCK, more = check_below(c, 3);
        float *x = check_normal_f32(c, (size_t)(blocks * (n + more) * BLOCK));
        for (int64_t p = 0; p < n; p++) /* lanes beyond the channels hold anything */
            for (int64_t i = channels; i < blocks * BLOCK; i++)
                x[i / BLOCK * (n + more) * BLOCK + p * BLOCK + i % BLOCK] = (float)NAN;
        struct attn_blocked_norm d = {
            .x = x,
            .scale = check_normal_f32(c, (size_t)channels),
            .bias = round % 3 == 0 ? NULL : check_normal_f32(c, (size_t)channels),
            .y = check_memory(c, (size_t)(blocks * n * BLOCK) * sizeof(float)),
            .channels = channels,
            .n = n,
            .x_block = (n + more) * BLOCK,
            .y_block = n * BLOCK,
            .epsilon = 1e-3f,
        };
        c->k->blocked_norm_f32(&d);
        for (int64_t p = 0; p < n; p++)
            check_norm(c, &d, p);
        check_again(c);
    }
}

/* ---- Winograd's tiles ---- */

static void make_tiles(struct check *c, struct attn_winograd *w)
{
    *w = (struct attn_winograd){ .min = -INFINITY, .max = INFINITY };
    int64_t tiles[2];
    for (int a = 0; a < 2; a++) {
        w->in[a] = 1 + check_below(c, 12);
        w->before[a] = check_below(c, 3);
        w->out[a] = 1 + check_below(c, 11);
        w->dilation[a] = 1 + (check_below(c, 2) == 0 ? 0 : check_below(c, 5));
        w->phases[a] = w->dilation[a] < w->out[a] ? w->dilation[a] : w->out[a];
        tiles[a] = ((w->out[a] - 1) / w->dilation[a] + 2) / 2;
    }
    w->tile_columns = tiles[1];
    const int64_t all = tiles[0] * w->phases[0] * w->phases[1] * tiles[1];
    w->first = check_below(c, all);
    w->n = 1 + check_below(c, all - w->first);
    w->plane = BLOCK * (w->n + check_below(c, 3));
}

/* Row or column (axis) of pixel i that a tile has, of those of the output: lines of tiles go
 * through the phases of the columns, those of the rows, then down the map. */
static int64_t tile_at(const struct attn_winograd *w, int64_t tile, int axis, int64_t i)
{
    const int64_t line = tile / w->tile_columns;
    const int64_t phase[2] = { line / w->phases[1] % w->phases[0], line % w->phases[1] };
    const int64_t at[2] = { line / (w->phases[0] * w->phases[1]),
                            tile % w->tile_columns };
    return phase[axis] + (2 * at[axis] + i) * w->dilation[axis];
}

/* The pixel that a tile sees at (i, j), 0 outside of the map. */
static double tile_pixel(const struct attn_winograd *w, int64_t t, int64_t i, int64_t j,
                         int64_t lane)
{
    const int64_t h = tile_at(w, t, 0, i) - w->before[0];
    const int64_t v = tile_at(w, t, 1, j) - w->before[1];
    if (h < 0 || h >= w->in[0] || v < 0 || v >= w->in[1])
        return 0.0;
    return (double)w->x[(h * w->in[1] + v) * BLOCK + lane];
}

void check_winograd_input_f32(struct check *c)
{
    static const double b[4][4] = {
        { 1, 0, -1, 0 }, { 0, 1, 1, 0 }, { 0, -1, 1, 0 }, { 0, 1, 0, -1 }
    };
    for (int n = 0; n < 300; n++) {
        struct attn_winograd w;
        make_tiles(c, &w);
        w.x = check_normal_f32(c, (size_t)(w.in[0] * w.in[1] * BLOCK));
        w.places = check_memory(c, (size_t)(15 * w.plane + w.n * BLOCK) * sizeof(float));
        c->k->winograd_input_f32(&w);
        for (int64_t at = 0; at < w.n * 16 * BLOCK; at++) {
            const int64_t lane = at % BLOCK, place = at / BLOCK % 16, t = at / BLOCK / 16;
            double sum = 0.0;
            for (int64_t k = 0; k < 16; k++)
                sum += b[place / 4][k / 4] * b[place % 4][k % 4] *
                       tile_pixel(&w, w.first + t, k / 4, k % 4, lane);
            check_near(c, (size_t)at,
                       (double)w.places[place * w.plane + t * BLOCK + lane], sum, 1e-5);
        }
        check_again(c);
    }
}

static void check_tile_output(struct check *c, const struct attn_winograd *w, int64_t t,
                              int64_t k, int64_t lane)
{
    static const double a[2][4] = { { 1, 1, 1, 0 }, { 0, 1, -1, -1 } };
    const int64_t h = tile_at(w, w->first + t, 0, k / 2);
    const int64_t v = tile_at(w, w->first + t, 1, k % 2);
    const int64_t at = (h * w->out[1] + v) * BLOCK + lane;
    double sum = 0.0;
    if (h >= w->out[0] || v >= w->out[1])
        return;
    for (int64_t i = 0; i < 16; i++)
        sum += a[k / 2][i / 4] * a[k % 2][i % 4] *
               (double)w->places[i * w->plane + t * BLOCK + lane];
    if (w->scale != NULL)
        sum *= (double)w->scale[lane];
    sum += (double)w->bias[lane];
    if (w->z != NULL)
        sum += (double)w->z[at];
    check_near(c, (size_t)at, (double)w->y[at], check_clip(sum, w->min, w->max),
               w->scale != NULL ? 3e-5 : 1e-5);
}

void check_winograd_output_f32(struct check *c)
{
    for (int n = 0; n < 300; n++) {
        struct attn_winograd w;
        make_tiles(c, &w);
        const size_t map = (size_t)(w.out[0] * w.out[1] * BLOCK);
        w.places = check_normal_f32(c, (size_t)(15 * w.plane + w.n * BLOCK));
        w.bias = check_normal_f32(c, BLOCK);
        w.z = n % 2 == 0 ? check_normal_f32(c, map) : NULL;
        w.scale = n % 3 == 0 ? check_normal_f32(c, BLOCK) : NULL;
        w.y = check_memory(c, map * sizeof(float));
        set_limits(c, &w.min, &w.max);
        c->k->winograd_output_f32(&w);
        for (int64_t i = 0; i < w.n * 4 * BLOCK; i++)
            check_tile_output(c, &w, i / BLOCK / 4, i / BLOCK % 4, i % BLOCK);
        check_again(c);
    }
}
