/* check_blocked_words.c - kernels over blocked maps whose operands are words of two bf16, against
 * plain sums in double of the rounded operands. */
#include <string.h>

#include "blocked_case.h"

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double word_product(const float *x, const float *w)
{
    uint32_t a, b;
    double sum = 0.0;
    memcpy(&a, x, sizeof a);
    memcpy(&b, w, sizeof b);
    for (int half = 0; half < 2; half++) {
        const uint32_t one = half ? a & 0xffff0000u : a << 16,
                       other = half ? b & 0xffff0000u : b << 16;
        float p, q;
        memcpy(&p, &one, sizeof p);
        memcpy(&q, &other, sizeof q);
        sum += (double)p * (double)q;
    }
    return sum;
}

/* z or y in bf16, for what words are multiplied with. */
static const float *narrow(struct check *c, const float *x, int64_t n)
{
    float *words = check_memory(c, (size_t)(n + 1) * sizeof *words);
    memset(words, 0, (size_t)(n + 1) * sizeof *words);
    c->k->words_bf16((uint32_t *)words, x, (size_t)n / 2);
    return words;
}
static double element_at(const float *x, bool bf16, int64_t at)
{
    float y;
    uint32_t bits;
    if (!bf16)
        return (double)x[at];
    bits = (uint32_t)((const uint16_t *)(const void *)x)[at] << 16;
    memcpy(&y, &bits, sizeof y);
    return (double)y;
}

static void check_words_pixel(struct check *c, const struct attn_blocked_conv *d,
                              int64_t pixel, int64_t column)
{
    const int64_t panel = attn_blocked_panel(c->k->vec_bytes);
    const int64_t first = column / panel * panel;
    const int64_t width = d->columns - first < panel ? d->columns - first : panel;
    const float *w = (const float *)d->w + first * d->rows + column - first;
    double sum = (double)d->bias[column];
    for (int64_t t = 0; t < d->n_taps; t++)
        for (int64_t i = 0; i < d->taps[t].inputs; i++, w += width)
            sum += word_product(d->x + d->pixels[pixel] + d->taps[t].offset + i, w);
    const int64_t at = column / BLOCK * d->y_block + pixel * BLOCK + column % BLOCK;
    if (d->z != NULL)
        sum += element_at(d->z, d->z_bf16, at);
    const double y = check_clip(sum, d->min, d->max);
    check_near(c, (size_t)at, element_at(d->y, d->y_bf16, at), y,
               1e-4 + (d->y_bf16 ? fabs(y) / 256 : 0.0));
}

/* Perhaps a grid of pixels, as tiles read it: taps of the same number of words. Lines may be far
 * apart, or their pixels in one row of places. */
void check_make_grid(struct check *c, struct attn_pixel_grid *grid,
                     struct attn_blocked_tap *taps, int64_t n_taps, int32_t *pixels,
                     int64_t n_pixels)
{
    const int64_t inputs = 1 + check_below(c, 16);
    *grid = (struct attn_pixel_grid){ 0 };
    if (check_below(c, 4) == 0)
        return;
    for (int64_t t = 0; t < n_taps; t++)
        taps[t].inputs = inputs;
    do
        grid->columns = 1 + check_below(c, n_pixels);
    while (n_pixels % grid->columns != 0);
    grid->lines = n_pixels / grid->columns;
    grid->column_step = 1 + check_below(c, 20);
    grid->line_step = check_below(c, 2) != 0
                          ? grid->column_step * (grid->columns + check_below(c, 4))
                          : grid->column_step * grid->columns + check_below(c, 30);
    for (int64_t p = 0; p < n_pixels; p++)
        pixels[p] = (int32_t)(7 + p / grid->columns * grid->line_step +
                              p % grid->columns * grid->column_step);
}

void check_blocked_conv_bf16(struct check *c)
{
    for (int n = 0; n < 60; n++) {
        struct conv_case t;
        check_make_conv(c, &t);
        check_make_grid(c, &t.d.grid, t.taps, t.d.n_taps, t.pixels, t.d.n_pixels);
        t.d.rows = 0;
        for (int64_t i = 0; i < t.d.n_taps; i++)
            t.d.rows += t.taps[i].inputs;
        t.x_floats = 4000;
        float *x = check_memory(c, (size_t)t.x_floats * sizeof *x);
        float *w = check_memory(c, (size_t)(t.d.rows * t.d.columns) * sizeof *w);
        c->k->words_bf16((uint32_t *)x, check_normal_f32(c, (size_t)t.x_floats * 2),
                         (size_t)t.x_floats);
        c->k->words_bf16((uint32_t *)w,
                         check_normal_f32(c, (size_t)(t.d.rows * t.d.columns) * 2),
                         (size_t)(t.d.rows * t.d.columns));
        t.d.x = x;
        t.d.w = w;
        t.d.y_bf16 = check_below(c, 2) != 0;
        t.d.z_bf16 = t.d.z != NULL && check_below(c, 2) != 0;
        if (t.d.z_bf16)
            t.d.z = narrow(c, t.d.z, t.y_floats);
        c->k->blocked_conv_bf16(&t.d);
        for (int64_t pixel = 0; pixel < t.d.n_pixels; pixel++)
            for (int64_t column = 0; column < t.d.columns; column++)
                check_words_pixel(c, &t.d, pixel, column);
        check_again(c);
    }
    enum { COLUMNS = 64, PIXELS = 56, ROWS = 256 };
    struct attn_blocked_tap taps[32];
    int32_t pixels[PIXELS];
    for (int32_t i = 0; i < PIXELS; i++)
        pixels[i] = i * BLOCK / 2;
    for (int64_t i = 0; i < ROWS * 2 / BLOCK; i++)
        taps[i] = (struct attn_blocked_tap){ i * PIXELS * BLOCK / 2, BLOCK / 2 };
    struct attn_blocked_conv d = {
        .x = check_normal_f32(c, ROWS * PIXELS),
        .w = check_normal_f32(c, ROWS * COLUMNS),
        .bias = check_normal_f32(c, COLUMNS),
        .pixels = pixels,
        .taps = taps,
        .y = check_memory(c, COLUMNS * PIXELS * sizeof(float)),
        .n_taps = ROWS * 2 / BLOCK,
        .rows = ROWS,
        .n_pixels = PIXELS,
        .columns = COLUMNS,
        .y_block = PIXELS * BLOCK,
        .max = INFINITY,
    };
    if (c->k->tiles) { /* of words of bf16, too, where this kernel is */
        d.grid = (struct attn_pixel_grid){ 1, PIXELS, PIXELS * 16, 16 };
        d.n_taps = ROWS / 16;
        for (int64_t i = 0; i < d.n_taps; i++)
            taps[i] = (struct attn_blocked_tap){ i * PIXELS * 16, 16 };
    }
    CHECK_BENCH(c, "512 to 64, 1x1, 56 pixels", 4.0 * ROWS * COLUMNS * PIXELS, "GFLOP/s")
    c->k->blocked_conv_bf16(&d);
}

void check_words_bf16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, 2 * n);
        uint32_t *y = check_memory(c, n * sizeof *y);
        c->k->words_bf16(y, x, n);
        for (size_t i = 0; i < 2 * n; i++) {
            const uint32_t bits = i % 2 ? y[i / 2] & 0xffff0000u : y[i / 2] << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            check_f32(c, i, got, (double)rounded(x[i]), 0);
        }
    }
}

void check_words_of_blocks_bf16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t step = 8 + (size_t)check_below(c, 9),
                     x_step = BLOCK * (1 + (size_t)check_below(c, 3));
        const float *x = check_normal_f32(c, n * x_step + BLOCK);
        uint32_t *y = check_memory(c, (n * step + 8) * sizeof *y), one[8];
        c->k->words_of_blocks_bf16(y, (ptrdiff_t)step, x, (ptrdiff_t)x_step, n);
        for (size_t i = 0; i < n; i++) {
            c->k->words_bf16(one, x + i * x_step, 8);
            for (size_t word = 0; word < 8; word++)
                check_i64(c, i, y[i * step + word], one[word]);
        }
    }
}

void check_words_of_planes_bf16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t channels = 1 + (size_t)check_below(c, BLOCK), plane = n + 3;
        const size_t unit = (channels + 1) / 2;
        const float *x = check_normal_f32(c, channels * plane);
        uint32_t *y = check_memory(c, n * unit * sizeof *y), one;
        c->k->words_of_planes_bf16(y, x, (ptrdiff_t)plane, channels, n);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < unit; j++) {
                const float two[2] = { x[2 * j * plane + i],
                                       2 * j + 1 < channels ? x[(2 * j + 1) * plane + i]
                                                            : 0.0f };
                c->k->words_bf16(&one, two, 1);
                check_i64(c, i, y[i * unit + j], one);
            }
    }
}
