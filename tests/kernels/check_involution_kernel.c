/* check_involution_kernel.c - tiles of an involution, and means of squares of pixels. */
#include "checks.h"

static int64_t between(struct check *c, int64_t min, int64_t max)
{
    return min + check_below(c, max - min + 1);
}

/* A tile whose rows have `columns` pixels, somewhere in an image. */
static struct attn_involution random_tile(struct check *c, int64_t columns)
{
    struct attn_involution t = { .columns = columns,
                                 .rows = between(c, 1, 4),
                                 .channels = between(c, 1, 20),
                                 .size = 1 + 2 * check_below(c, 4),
                                 .stride = between(c, 1, 4),
                                 .row = check_below(c, 4),
                                 .column = check_below(c, 4) };
    if (check_below(c, 2) == 0)
        t.stride = 1;
    t.h = (t.row + t.rows + check_below(c, 3)) * t.stride;
    t.w = (t.column + t.columns + check_below(c, 3)) * t.stride;
    t.x_channel = t.h * t.w + check_below(c, 3);
    t.y_row = t.columns + (check_below(c, 2) == 0 ? 0 : check_below(c, 5));
    t.kernel_row = t.columns + (check_below(c, 2) == 0 ? 0 : check_below(c, 5));
    t.kernel_tap = (t.rows - 1) * t.kernel_row + t.columns + check_below(c, 3);
    t.y_channel = (t.rows - 1) * t.y_row + t.columns + check_below(c, 3);
    return t;
}

/* Memory for it: inputs are random, the output's gaps keep what they have. */
static float *give_memory(struct check *c, struct attn_involution *t, size_t *n_y)
{
    const size_t kernels = (size_t)((t->size * t->size - 1) * t->kernel_tap +
                                    (t->rows - 1) * t->kernel_row + t->columns) +
                           ATTN_INVOLUTION_OVER;
    t->x = check_normal_f32(c, (size_t)((t->channels - 1) * t->x_channel + t->h * t->w));
    t->kernel = check_normal_f32(c, kernels);
    *n_y = (size_t)((t->channels - 1) * t->y_channel + (t->rows - 1) * t->y_row +
                    t->columns);
    t->y = check_memory(c, *n_y * sizeof(float));
    for (size_t i = 0; i < *n_y; i++)
        t->y[i] = -1234.5f;
    t->strip = check_memory(
        c, (size_t)attn_involution_strip(t->size, t->stride, t->rows, t->columns) *
               sizeof(float));
    return t->y;
}

/* The sum for a pixel; *size: that of the terms' amounts. */
static double pixel(const struct attn_involution *t, int64_t channel, int64_t r,
                    int64_t i, double *size)
{
    const int64_t before = (t->size - 1) / 2;
    double sum = 0;
    *size = 0;
    for (int64_t tap = 0; tap < t->size * t->size; tap++) {
        const int64_t row = (t->row + r) * t->stride - before + tap / t->size;
        const int64_t column = (t->column + i) * t->stride - before + tap % t->size;
        if (row < 0 || row >= t->h || column < 0 || column >= t->w)
            continue;
        const double term =
            (double)t->kernel[tap * t->kernel_tap + r * t->kernel_row + i] *
            (double)t->x[channel * t->x_channel + row * t->w + column];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void check_tile(struct check *c, int64_t columns)
{
    struct attn_involution t = random_tile(c, columns);
    size_t n_y;
    float *y = give_memory(c, &t, &n_y);
    c->k->involution_f32(&t);
    for (int64_t channel = 0; channel < t.channels; channel++)
        for (int64_t r = 0; r < t.rows; r++)
            for (int64_t i = 0; i < t.columns; i++) {
                const int64_t at = channel * t.y_channel + r * t.y_row + i;
                double size, want = pixel(&t, channel, r, i, &size);
                check_near(c, (size_t)at, (double)y[at], want, 2e-6 * size + 1e-30);
                y[at] = -1234.5f;
            }
    for (size_t i = 0; i < n_y; i++)
        check_true(c, i, y[i] == -1234.5f, "nothing else is written");
}

static void bench(struct check *c, const char *label, int64_t columns, int64_t rows,
                  int64_t stride)
{
    struct attn_involution t = { .columns = columns,
                                 .rows = rows,
                                 .channels = 16,
                                 .size = 7,
                                 .stride = stride,
                                 .h = 28 * stride,
                                 .w = columns * stride,
                                 .row = 12,
                                 .y_row = columns,
                                 .kernel_row = columns,
                                 .kernel_tap = columns * rows };
    size_t n_y;
    t.x_channel = t.h * t.w;
    t.y_channel = columns * 28;
    give_memory(c, &t, &n_y);
    CHECK_BENCH(c, label, 2.0 * 49 * 16 * (double)(columns * rows), "GFLOP/s")
    c->k->involution_f32(&t);
}

void check_involution_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n > 0 && n < 200)
            check_tile(c, (int64_t)n);
    }
    bench(c, "7x7, 16 channels, 4x28", 28, 4, 1);
    bench(c, "7x7, 16 channels, 8x14", 14, 8, 1);
    bench(c, "7x7, 16 channels, 4x28, stride 2", 28, 4, 2);
}

void check_square_means_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const int64_t side = between(c, 1, 5), gap = check_below(c, 3);
        const int64_t row = (int64_t)n * side + gap;
        float *x = check_normal_f32(c, (size_t)(row * side - gap));
        float *y = check_memory(c, n * sizeof *y);
        c->k->square_means_f32(y, x, row, side, n);
        for (size_t p = 0; p < n; p++) {
            double want = 0, size = 0;
            for (int64_t i = 0; i < side * side; i++) {
                const int64_t at = i / side * row + (int64_t)p * side + i % side;
                want += (double)x[at];
                size += fabs((double)x[at]);
            }
            const double area = (double)(side * side);
            check_near(c, p, (double)y[p], want / area, 1e-6 * size / area);
        }
    }
    float *x = check_normal_f32(c, 4 * 1024), *y = check_memory(c, 1024 * sizeof *y);
    CHECK_BENCH(c, "2x2", 16.0 * 1024, "GB/s")
    c->k->square_means_f32(y, x, 2048, 2, 1024);
}
