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

/* Floats with many that are equal, and now and then a NaN. */
static float *some_floats(struct check *c, size_t n)
{
    float *x = check_memory(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = check_below(c, 50) == 0 ? NAN
               : check_below(c, 2) == 0
                   ? (float)check_below(c, 8) - 4.0f
                   : check_normal(c) * (check_below(c, 9) == 0 ? 1e30f : 1.0f);
    return x;
}

/* -1, 0, 1 as a is less than, equal to or greater than b; NaN is the greatest. */
static int order(float a, float b)
{
    if (a != a || b != b)
        return (a != a) - (b != b);
    return (a > b) - (a < b);
}

void check_rank_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = n % 2 == 0 ? check_edge_f32(c, n) : some_floats(c, n);
        int32_t *rank = check_memory(c, n * sizeof *rank);
        c->k->rank_f32(rank, x, n);
        for (size_t i = 1; i < n; i++) {
            const int32_t a = rank[i - 1], b = rank[i];
            check_f32(c, i, (float)((a > b) - (a < b)), (double)order(x[i - 1], x[i]), 0);
        }
    }
}

/* How many of n ranks are above `rank`. */
static size_t above_it(const int32_t *ranks, size_t n, int32_t rank)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ranks[i] > rank;
    return count;
}

void check_kth_greatest_i32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n == 0)
            continue;
        const float *x = some_floats(c, n);
        int32_t *rank = check_memory(c, n * sizeof *rank);
        c->k->rank_f32(rank, x, n);
        if (n % 3 == 0) /* the ends of what there is */
            rank[n / 2] = check_below(c, 2) == 0 ? INT32_MIN : INT32_MAX;
        const size_t k = 1 + (size_t)check_below(c, (int)n);
        size_t above = n, same = 0;
        const int32_t kth = c->k->kth_greatest_i32(rank, n, k, &above);
        for (size_t i = 0; i < n; i++)
            same += rank[i] == kth;
        check_f32(c, 0, (float)above, (double)above_it(rank, n, kth), 0);
        check_f32(c, 1, above < k && k <= above + same, 1, 0);
    }
}

void check_keep_greatest_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n == 0)
            continue;
        const float *x = some_floats(c, n);
        float *value = check_memory(c, n * sizeof *value);
        int32_t *rank = check_memory(c, n * sizeof *rank);
        int32_t *index = check_memory(c, n * sizeof *index);
        for (size_t i = 0; i < n; i++) {
            index[i] = (int32_t)(3 * i);
            value[i] = x[i];
        }
        c->k->rank_f32(rank, x, n);
        const int32_t last = rank[check_below(c, (int)n)];
        size_t equal = (size_t)check_below(c, 4), expected = 0;
        const size_t kept = c->k->keep_greatest_f32(index, value, rank, n, last, equal);
        for (size_t i = 0; i < n; i++) {
            if (rank[i] < last || (rank[i] == last && equal == 0))
                continue;
            equal -= rank[i] == last;
            if (expected < kept) {
                check_f32(c, i, (float)index[expected], (double)(3 * i), 0);
                check_f32(c, i, (float)order(value[expected], x[i]), 0, 0);
            }
            expected++;
        }
        check_f32(c, n, (float)kept, (double)expected, 0);
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
