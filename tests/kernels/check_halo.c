/* check_halo.c - boxes of pixels, sums of rows with rows, columns that move down. */
#include "checks.h"

void check_copy_boxes_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct attn_boxes b = { .n = n,
                                .planes = (size_t)check_below(c, 4),
                                .rows = (size_t)check_below(c, 4),
                                .x_step = check_below(c, 2) == 0 ? 1 : 2 };
        const ptrdiff_t wide = n > 0 ? (ptrdiff_t)(n - 1) * b.x_step + 1 : 0;
        b.x_row = wide + check_below(c, 3);
        b.y_row = (ptrdiff_t)n + check_below(c, 3) + (n == 0);
        b.x_plane = (ptrdiff_t)b.rows * b.x_row + check_below(c, 3);
        b.y_plane = (ptrdiff_t)b.rows * b.y_row + check_below(c, 3);
        const bool some = b.planes > 0 && b.rows > 0;
        const ptrdiff_t planes = (ptrdiff_t)b.planes - 1, rows = (ptrdiff_t)b.rows - 1;
        const ptrdiff_t n_x = some ? planes * b.x_plane + rows * b.x_row + wide : 0;
        const ptrdiff_t n_y =
            some ? planes * b.y_plane + rows * b.y_row + (ptrdiff_t)n : 0;
        float *y = check_memory(c, (size_t)n_y * sizeof *y);
        b.x = check_edge_f32(c, (size_t)n_x);
        b.y = y;
        for (ptrdiff_t i = 0; i < n_y; i++)
            y[i] = -1234.5f;
        c->k->copy_boxes_f32(&b);
        for (ptrdiff_t i = 0; i < n_y; i++) {
            const ptrdiff_t p = i / b.y_plane, r = i % b.y_plane / b.y_row;
            const ptrdiff_t at = i % b.y_plane % b.y_row;
            const bool inside = r < (ptrdiff_t)b.rows && at < (ptrdiff_t)n;
            const float want =
                inside ? b.x[p * b.x_plane + r * b.x_row + at * b.x_step] : -1234.5f;
            check_f32(c, (size_t)i, y[i], (double)want, 0);
        }
    }
    struct attn_boxes b = { .x = check_normal_f32(c, 64 * 1024),
                            .y = check_memory(c, 64 * 196 * sizeof(float)),
                            .x_plane = 1024,
                            .x_row = 32,
                            .x_step = 1,
                            .y_plane = 196,
                            .y_row = 14,
                            .planes = 64,
                            .rows = 14,
                            .n = 14 };
    CHECK_BENCH(c, "64 of 14x14", 8.0 * 64 * 196, "GB/s")
    c->k->copy_boxes_f32(&b);
}

void check_add_outer_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t m = (size_t)check_below(c, 4), k = (size_t)check_below(c, 4);
        const float *a = check_normal_f32(c, m * n), *b = check_normal_f32(c, k * n);
        float *y = check_memory(c, m * k * n * sizeof *y);
        c->k->add_outer_f32(y, a, m, b, k, n);
        for (size_t i = 0; i < m * k * n; i++) {
            const float want = a[i / n / k * n + i % n] + b[i / n % k * n + i % n];
            check_f32(c, i, y[i], (double)want, 0);
        }
    }
    const float *a = check_normal_f32(c, 14 * 64), *b = check_normal_f32(c, 14 * 64);
    float *y = check_memory(c, 196 * 64 * sizeof *y);
    CHECK_BENCH(c, "14, 14, 64", 4.0 * 196 * 64, "GB/s")
    c->k->add_outer_f32(y, a, 14, b, 14, 64);
}

void check_shear_columns_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t rows = (size_t)check_below(c, 40);
        const float *from = check_edge_f32(c, rows * n);
        float *x = check_memory(c, rows * n * sizeof *x);
        int32_t *shift = check_memory(c, n * sizeof *shift);
        for (size_t p = 0; p < n; p++)
            shift[p] = (int32_t)check_below(c, rows > 0 ? (int64_t)rows : 1);
        for (size_t i = 0; i < rows * n; i++)
            x[i] = from[i];
        c->k->shear_columns_f32(x, rows, n, shift);
        for (size_t r = 0; r < rows; r++)
            for (size_t p = 0; p < n; p++)
                if (r >= (size_t)shift[p])
                    check_f32(c, r * n + p, x[r * n + p],
                              (double)from[(r - (size_t)shift[p]) * n + p], 0);
    }
    float *x = check_normal_f32(c, 21 * 64);
    int32_t shift[64];
    for (int p = 0; p < 64; p++)
        shift[p] = p % 8;
    CHECK_BENCH(c, "21x64, by 7", 4.0 * 21 * 64, "GB/s")
    c->k->shear_columns_f32(x, 21, 64, shift);
}
