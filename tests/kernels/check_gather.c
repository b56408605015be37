/* check_gather.c - rows by number, norms, extremes of columns, masks of pairs. */
#include <string.h>

#include "checks.h"

enum { ROWS = 11, TOKENS = 19 };

static int32_t *numbers(struct check *c, size_t n, int64_t below)
{
    int32_t *x = check_memory(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)check_below(c, below);
    return x;
}

void check_gather_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t x_row = n + check_below(c, 3), y_row = n + check_below(c, 3);
        float *x = check_normal_f32(c, (TOKENS - 1) * x_row + n);
        float *y = check_memory(c, ((ROWS - 1) * y_row + n) * sizeof *y);
        const float *factor = check_below(c, 2) ? check_normal_f32(c, TOKENS) : NULL;
        const int32_t *index = numbers(c, ROWS, TOKENS);
        c->k->gather_rows_f32(y, (ptrdiff_t)y_row, x, (ptrdiff_t)x_row, index, factor,
                              0.5f, ROWS, n);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < n; i++) {
                float times = factor != NULL ? 0.5f * factor[index[r]] : 0.5f;
                check_f32(c, i, y[r * y_row + i],
                          (double)(x[(size_t)index[r] * x_row + i] * times), 0);
            }
    }
}

void check_scatter_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t x_row = n + check_below(c, 3), y_row = n + check_below(c, 3);
        const size_t step = check_below(c, 3);
        float *x = check_normal_f32(c, (ROWS - 1) * x_row + n);
        float *y = check_normal_f32(c, (TOKENS - 1) * y_row + n);
        const float *factor = check_normal_f32(c, 2 * ROWS);
        int32_t index[ROWS];
        for (int32_t r = 0; r < ROWS; r++)
            index[r] = (r * 7 + 3) % TOKENS;
        c->k->scatter_rows_f32(y, (ptrdiff_t)y_row, index, x, (ptrdiff_t)x_row, factor,
                               (ptrdiff_t)step, ROWS, n);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < n; i++)
                check_f32(c, i, y[(size_t)index[r] * y_row + i],
                          (double)(x[r * x_row + i] * factor[r * step]), 0);
    }
}

void check_inverse_norms_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t x_row = n + check_below(c, 3);
        float *x = check_normal_f32(c, (ROWS - 1) * x_row + n);
        float *y = check_memory(c, ROWS * sizeof *y);
        const float add = check_below(c, 2) ? 1e-3f : 0.0f;
        for (size_t i = 0; i < n; i++) /* a row of zeros */
            x[i] = 0.0f;
        c->k->inverse_norms_f32(y, x, (ptrdiff_t)x_row, ROWS, n, add, 1e-12f);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = (double)add;
            for (size_t i = 0; i < n; i++)
                sum += (double)x[r * x_row + i] * (double)x[r * x_row + i];
            const double want = 1 / fmax(sqrt(sum), 1e-12);
            check_near(c, r, (double)y[r], want, 3e-6 * want);
        }
    }
}

/* Small integers: many are equal. */
void check_extremes_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + check_below(c, 3);
        float *x = check_memory(c, ((ROWS - 1) * row + n) * sizeof *x);
        struct attn_extremes e = { check_memory(c, n * sizeof(float)),
                                   check_memory(c, n * sizeof(float)),
                                   check_memory(c, n * sizeof(int32_t)),
                                   check_memory(c, n * sizeof(int32_t)) };
        for (size_t i = 0; i < (ROWS - 1) * row + n; i++)
            x[i] = (float)check_below(c, 7) - 3.0f;
        for (size_t j = 0; j < n; j++) {
            e.max[j] = -INFINITY;
            e.min[j] = INFINITY;
            e.at_max[j] = e.at_min[j] = 0;
        }
        c->k->extremes_f32(x, (ptrdiff_t)row, 4, n, 0, &e);
        c->k->extremes_f32(x + 4 * row, (ptrdiff_t)row, ROWS - 4, n, 4, &e);
        for (size_t j = 0; j < n; j++) {
            size_t max = 0, min = 0;
            for (size_t r = 1; r < ROWS; r++) {
                max = x[r * row + j] > x[max * row + j] ? r : max;
                min = x[r * row + j] < x[min * row + j] ? r : min;
            }
            check_i64(c, j, e.at_max[j], (int64_t)max);
            check_i64(c, j, e.at_min[j], (int64_t)min);
            check_f32(c, j, e.max[j], (double)x[max * row + j], 0);
            check_f32(c, j, e.min[j], (double)x[min * row + j], 0);
        }
    }
}

void check_pair_mask_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + check_below(c, 3);
        float *s = check_normal_f32(c, (ROWS - 1) * row + n);
        float *old = check_memory(c, ((ROWS - 1) * row + n) * sizeof *s);
        struct attn_pairs p = { .query = numbers(c, ROWS, 9),
                                .query_limit = numbers(c, ROWS, 9),
                                .key_limit = numbers(c, n, 9),
                                .self = -5.0f };
        if (check_below(c, 2))
            p.key = numbers(c, n, 9);
        if (check_below(c, 2)) {
            p.query_group = numbers(c, ROWS, 3);
            p.key_group = numbers(c, n, 3);
        }
        memcpy(old, s, ((ROWS - 1) * row + n) * sizeof *s);
        c->k->pair_mask_f32(s, (ptrdiff_t)row, ROWS, n, &p);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t j = 0; j < n; j++) {
                float want = old[r * row + j];
                if (p.key_limit[j] > p.query_limit[r] ||
                    (p.key_group != NULL && p.key_group[j] != p.query_group[r]))
                    want = -INFINITY;
                if (p.key != NULL && p.key[j] == p.query[r])
                    want = p.self;
                check_f32(c, j, s[r * row + j], (double)want, 0);
            }
    }
}
