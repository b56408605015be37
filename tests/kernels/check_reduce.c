/* check_reduce.c - the kernels of reduce.def against sums in double. */
#include <string.h>

#include "checks.h"

typedef double sum_kernel(const float *x, size_t n);
typedef double term(double x);

static double same(double x) { return x; }
static double square(double x) { return x * x; }

/* A block of 1024 floats is summed in float: its rounding is bounded by the sum of
 * magnitudes. */
static void check_sum(struct check *c, sum_kernel *kernel, term *of)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_normal_f32(c, n);
        double want = 0, magnitude = 0;
        for (size_t i = 0; i < n; i++) {
            want += of((double)x[i]);
            magnitude += fabs(of((double)x[i]));
        }
        check_near(c, 0, kernel(x, n), want, 64 * 6e-8 * magnitude);
        if (n > 0) {
            x[check_below(c, (int64_t)n)] = NAN;
            check_near(c, 0, kernel(x, n), (double)NAN, 0);
        }
    }
    float *x = check_normal_f32(c, 5000);
    double want = 0, magnitude = 0;
    for (size_t i = 0; i < 5000; i++) {
        want += of((double)x[i]);
        magnitude += fabs(of((double)x[i]));
    }
    check_near(c, 5000, kernel(x, 5000), want, 64 * 6e-8 * magnitude);
    CHECK_BENCH(c, "5000", 4.0 * 5000, "GB/s")
    kernel(x, 5000);
}

void check_sum_f32(struct check *c) { check_sum(c, c->k->sum_f32, same); }
void check_sum_square_f32(struct check *c) { check_sum(c, c->k->sum_square_f32, square); }
void check_sum_abs_f32(struct check *c) { check_sum(c, c->k->sum_abs_f32, fabs); }

void check_sum_exp_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_normal_f32(c, n);
        double want = 0;
        if (n > 3)
            x[2] = -INFINITY;
        for (size_t i = 0; i < n; i++)
            want += exp((double)x[i] - 2.5);
        check_near(c, 0, c->k->sum_exp_f32(x, 2.5f, n), want, 1e-6 * want);
    }
}

static void check_extreme(struct check *c, float (*kernel)(const float *, size_t),
                          double sign)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_edge_f32(c, n);
        double want = -(double)INFINITY;
        if (n == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            want = isnan(x[i]) || isnan(want) ? (double)NAN
                                              : fmax(want, sign * (double)x[i]);
        check_f32(c, 0, kernel(x, n), sign * want, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = isnan(x[i]) ? 0 : x[i];
        want = -(double)INFINITY;
        for (size_t i = 0; i < n; i++)
            want = fmax(want, sign * (double)x[i]);
        check_f32(c, 1, kernel(x, n), sign * want, 0);
    }
}

void check_reduce_max_f32(struct check *c) { check_extreme(c, c->k->reduce_max_f32, 1); }
void check_reduce_min_f32(struct check *c) { check_extreme(c, c->k->reduce_min_f32, -1); }

static void check_row(struct check *c, void (*kernel)(double *, const float *, size_t),
                      term *of)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_edge_f32(c, n);
        double *sum = check_memory_f64(c, n);
        for (size_t i = 0; i < n; i++)
            sum[i] = (double)i;
        kernel(sum, x, n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)i + of((double)x[i]);
            check_near(c, i, sum[i], want, 1e-15 * fabs(want));
        }
    }
}

void check_add_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        size_t rows = (size_t)check_below(c, 9), row = n + (size_t)check_below(c, 3);
        const float *x = check_normal_f32(c, rows > 0 ? (rows - 1) * row + n : 0);
        double *sum = check_memory_f64(c, n);
        for (size_t i = 0; i < n; i++)
            sum[i] = (double)i;
        c->k->add_rows_f32(sum, x, (ptrdiff_t)row, rows, n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)i, size = 0;
            for (size_t r = 0; r < rows; r++) {
                want += (double)x[r * row + i];
                size += fabs((double)x[r * row + i]);
            }
            check_near(c, i, sum[i], want, 6e-7 * size + 1e-15 * (double)i);
        }
    }
    const float *x = check_normal_f32(c, 8 * 4096);
    double *sum = check_memory_f64(c, 4096);
    for (size_t i = 0; i < 4096; i++)
        sum[i] = 0;
    CHECK_BENCH(c, "8 x 4096", 4.0 * 8 * 4096, "GB/s")
    c->k->add_rows_f32(sum, x, 4096, 8, 4096);
}
void check_add_row_square_f32(struct check *c)
{
    check_row(c, c->k->add_row_square_f32, square);
}
void check_add_row_abs_f32(struct check *c) { check_row(c, c->k->add_row_abs_f32, fabs); }

static void check_best_row(struct check *c,
                           void (*kernel)(double *, const float *, size_t), double sign)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_edge_f32(c, n), *first = check_edge_f32(c, n);
        double *best = check_memory_f64(c, n);
        for (size_t i = 0; i < n; i++)
            best[i] = (double)first[i];
        kernel(best, x, n);
        for (size_t i = 0; i < n; i++) {
            double a = sign * (double)first[i], b = sign * (double)x[i];
            check_near(c, i, sign * best[i],
                       isnan(a) || isnan(b) ? (double)NAN : fmax(a, b), 0);
        }
    }
}

void check_max_row_f32(struct check *c) { check_best_row(c, c->k->max_row_f32, 1); }
void check_min_row_f32(struct check *c) { check_best_row(c, c->k->min_row_f32, -1); }

/* Most are good; the others are beyond an edge or far out. */
static int64_t random_index(struct check *c, int64_t limit)
{
    const int64_t far[] = {
        limit, -limit - 1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
    };
    if (limit == 0 || check_below(c, 40) == 0)
        return far[check_below(c, 6)];
    return check_below(c, 2 * limit) - limit;
}

void check_indices_within_i64(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        int64_t limit = check_below(c, 4) ? 1 + check_below(c, 1000) : 0;
        char *x = check_memory(c, n * 8); /* not aligned */
        bool good = true;
        for (size_t i = 0; i < n; i++) {
            int64_t index = random_index(c, limit);
            memcpy(x + 8 * i, &index, 8);
            good = good && index >= -limit && index < limit;
        }
        check_i64(c, n, c->k->indices_within_i64(x, limit, n), good);
    }
    const void *x = check_bytes(c, 8 * 4096);
    CHECK_BENCH(c, "4096", 8.0 * 4096, "GB/s")
    c->k->indices_within_i64(x, 1000, 4096);
}

void check_indices_within_i32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        int64_t limit = check_below(c, 4) ? 1 + check_below(c, 1000) : INT64_C(1) << 40;
        int32_t *x = check_memory(c, n * 4);
        bool good = true;
        for (size_t i = 0; i < n; i++) {
            x[i] = (int32_t)random_index(c, limit > INT32_MAX ? 1000 : limit);
            good = good && x[i] >= -limit && x[i] < limit;
        }
        check_i64(c, n, c->k->indices_within_i32(x, limit, n), good);
    }
}
