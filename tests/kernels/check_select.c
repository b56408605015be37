/* check_select.c - kernels of ops/kernels/select.def. */
#include "checks.h"

void check_select_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *s = check_edge_f32(c, n);
        int32_t *index = check_memory(c, n * sizeof *index);
        float *value = check_memory(c, n * sizeof *value);
        const float t = check_normal(c);
        const size_t found = c->k->select_f32(index, value, s, n, 7, t);
        size_t expected = 0;
        for (size_t i = 0; i < n; i++)
            if (!(s[i] < t)) {
                if (expected < found) {
                    check_f32(c, i, (float)index[expected], (double)(i + 7), 0);
                    check_f32(c, i, value[expected], (double)s[i], 0);
                }
                expected++;
            }
        check_f32(c, n, (float)found, (double)expected, 0);
    }
}

/* Terms of one size, each of which a long sum would round the same way. */
static void gather_many(struct check *c)
{
    enum { MANY = 20000, N = 75 };
    int32_t *index = check_memory(c, MANY * sizeof *index);
    float *weight = check_memory(c, MANY * sizeof *weight), x[N], y[N];
    for (int i = 0; i < MANY; i++) {
        index[i] = 0;
        weight[i] = 0.3f;
    }
    for (int i = 0; i < N; i++) {
        x[i] = 1.0f + (float)i / 128.0f;
        y[i] = 0.0f;
    }
    c->k->gather_sum_f32(y, x, N, index, weight, MANY, N);
    for (size_t i = 0; i < N; i++) {
        const double want = MANY * (double)0.3f * (double)x[i];
        check_near(c, i, (double)y[i], want, 1e-5 * want);
    }
}

void check_gather_sum_f32(struct check *c)
{
    enum { ROWS = 5 };
    gather_many(c);
    CHECK_SIZES(c, n)
    {
        const size_t x_row = n + (size_t)check_below(c, 3);
        const int32_t index[] = { 2, 0, 4, 2, 1 };
        float *x = check_memory(c, (4 * x_row + n) * sizeof *x), weight[ROWS];
        float *y = check_memory(c, n * sizeof *y), old[1000];
        for (size_t i = 0; i < 4 * x_row + n; i++)
            x[i] = (float)check_below(c, 64) / 16.0f; /* sums are exact */
        for (size_t i = 0; i < ROWS; i++)
            weight[i] = (float)check_below(c, 64) / 16.0f;
        for (size_t i = 0; i < n; i++)
            y[i] = old[i] = (float)check_below(c, 64);
        c->k->gather_sum_f32(y, x, (ptrdiff_t)x_row, index, weight, ROWS, n);
        for (size_t i = 0; i < n; i++) {
            double sum = (double)old[i];
            for (size_t r = 0; r < ROWS; r++)
                sum += (double)weight[r] * (double)x[(size_t)index[r] * x_row + i];
            check_f32(c, i, y[i], sum, 0);
        }
    }
}
