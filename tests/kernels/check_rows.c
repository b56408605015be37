/* check_rows.c - softmax, layer and RMS normalization, mean and variance, in double. */
#include "checks.h"

static void softmax_line(double *y, const float *x, size_t n, size_t stride, int log)
{
    double max = (double)-INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, (double)x[i * stride]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i * stride] - max);
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i * stride] - max;
        y[i * stride] = isnan(sum) ? (double)NAN
                        : log      ? d - (double)logf((float)sum)
                                   : exp(d) / sum;
    }
}

/* Sums of n terms of float, relative; a result of 1 or more in a logarithm. */
static void compare_softmax(struct check *c, const float *y, const double *want, size_t n,
                            int log)
{
    for (size_t i = 0; i < n; i++)
        check_near(c, i, (double)y[i], want[i],
                   log ? 3e-6 + 2e-7 * fabs(want[i]) : 2e-6 * want[i] + 1e-37);
}

static void fill(struct check *c, float *x, size_t n, int form)
{
    for (size_t i = 0; i < n; i++)
        x[i] = form == 1 && check_below(c, 3) == 0 ? -INFINITY : 4 * check_normal(c);
    if (form == 2 && n > 0)
        x[check_below(c, (int64_t)n)] = NAN;
    for (size_t i = 0; form == 3 && i < n; i++)
        x[i] = -INFINITY;
}

void check_softmax_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        static double want[1000];
        int log = (int)check_below(c, 2);
        float *x = check_memory(c, n * sizeof *x), *y = check_memory(c, n * sizeof *y);
        fill(c, x, n, (int)check_below(c, 5));
        c->k->softmax_f32(y, x, n, log);
        softmax_line(want, x, n, 1, log);
        compare_softmax(c, y, want, n, log);
        c->k->softmax_f32(x, x, n, log);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, x[i], (double)y[i], 0);
    }
    float *x = check_normal_f32(c, 1024), *y = check_memory(c, 1024 * sizeof *y);
    CHECK_BENCH(c, "1024", 8.0 * 1024, "GB/s")
    c->k->softmax_f32(y, x, 1024, 0);
}

void check_softmax_columns_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        static double want[40 * 1003];
        size_t length = (size_t)check_below(c, 40),
               stride = n + (size_t)check_below(c, 3);
        size_t all = length == 0 || n == 0 ? 0 : (length - 1) * stride + n;
        int log = (int)check_below(c, 2);
        float *x = check_memory(c, all * sizeof *x),
              *y = check_memory(c, all * sizeof *y);
        fill(c, x, all, (int)check_below(c, 2));
        if (all > 0)
            x[0] = 1; /* a column of -inf alone is left to softmax_f32 */
        c->k->softmax_columns_f32(y, x, length, stride, n, log);
        for (size_t j = 0; j < n; j++) {
            softmax_line(want + j, x + j, length, stride, log);
            for (size_t i = 0; i < length; i++)
                compare_softmax(c, y + i * stride + j, want + i * stride + j, 1, log);
        }
    }
}

static void mean_variance(const float *x, size_t n, double *mean, double *variance)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *variance = squares / (double)n;
}

void check_layer_norm_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_normal_f32(c, n), *y = check_memory(c, n * sizeof *y), stats[2];
        const float *scale = check_below(c, 3) ? check_normal_f32(c, n) : NULL;
        const float *bias = check_below(c, 3) ? check_normal_f32(c, n) : NULL;
        float offset = check_below(c, 2) ? 100.0f : 0.0f;
        for (size_t i = 0; i < n; i++)
            x[i] += offset;
        c->k->layer_norm_f32(y, x, scale, bias, n, 1e-3f, stats);
        if (n == 0)
            continue;
        double mean, variance;
        mean_variance(x, n, &mean, &variance);
        double inverse = 1 / sqrt(variance + (double)1e-3f);
        check_near(c, n, (double)stats[0], mean, 2e-7 * (fabs(mean) + 1));
        check_near(c, n + 1, (double)stats[1], inverse, 2e-5 * inverse);
        for (size_t i = 0; i < n; i++) {
            double s = scale ? (double)scale[i] : 1, b = bias ? (double)bias[i] : 0;
            double want = ((double)x[i] - mean) * inverse;
            check_near(c, i, (double)y[i], want * s + b,
                       (2e-5 * fabs(want) + 1e-6 * (1 + fabs(mean) * inverse)) *
                               (fabs(s) + 1e-3) +
                           1e-6 * (1 + fabs(b)));
        }
    }
    float *x = check_normal_f32(c, 768), *y = check_memory(c, 768 * sizeof *y), stats[2];
    CHECK_BENCH(c, "768", 8.0 * 768, "GB/s")
    c->k->layer_norm_f32(y, x, x, x, 768, 1e-5f, stats);
}

void check_rms_norm_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n);
        const float *scale = check_below(c, 3) ? check_normal_f32(c, n) : NULL;
        float *y = check_memory(c, n * sizeof *y), got;
        double squares = 0;
        c->k->rms_norm_f32(y, x, scale, n, 1e-3f, &got);
        for (size_t i = 0; i < n; i++)
            squares += (double)x[i] * (double)x[i];
        double inverse = 1 / sqrt(squares / (double)n + (double)1e-3f);
        for (size_t i = 0; i < n; i++) {
            double want = (double)x[i] * inverse * (scale ? (double)scale[i] : 1);
            check_near(c, i, (double)y[i], want, 2e-6 * fabs(want) + 1e-30);
        }
    }
}

void check_mean_variance_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n);
        float stats[2];
        double mean, variance;
        c->k->mean_variance_f32(x, n, stats);
        mean_variance(x, n, &mean, &variance);
        check_near(c, n, (double)stats[0], mean, 1e-6);
        check_near(c, n + 1, (double)stats[1], variance, 4e-6 * variance + 1e-12);
    }
    /* The roundings of equal terms do not cancel. */
    const size_t n = ((size_t)1 << 20) + 37;
    float *x = check_memory(c, n * sizeof *x), stats[2];
    for (size_t i = 0; i < n; i++)
        x[i] = i % 2 == 0 ? 1.1f : -1.1f;
    double mean, variance;
    c->k->mean_variance_f32(x, n, stats);
    mean_variance(x, n, &mean, &variance);
    check_near(c, n, (double)stats[0], mean, 1e-6);
    check_near(c, n + 1, (double)stats[1], variance, 4e-6 * variance);
}

void check_normalize_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n);
        const float *scale = check_below(c, 3) ? check_normal_f32(c, n) : NULL;
        const float *bias = check_below(c, 3) ? check_normal_f32(c, n) : NULL;
        float *y = check_memory(c, n * sizeof *y);
        c->k->normalize_f32(y, x, scale, bias, n, 0.5f, 3.0f);
        for (size_t i = 0; i < n; i++) {
            double want = ((double)x[i] - 0.5) * 3.0 * (scale ? (double)scale[i] : 1);
            double tolerance = 1e-6 * (fabs(want) + 2);
            want += bias ? (double)bias[i] : 0;
            check_near(c, i, (double)y[i], want, tolerance + 1e-6 * fabs(want));
        }
    }
}

void check_scale_shift_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n);
        float *y = check_memory(c, n * sizeof *y);
        c->k->scale_shift_f32(y, x, n, 0.5f, 3.0f, -1.0f);
        for (size_t i = 0; i < n; i++) {
            double want = ((double)x[i] - 0.5) * 3.0 - 1.0;
            check_near(c, i, (double)y[i], want, 1e-6 * (fabs(want) + 2));
        }
    }
}
