/* check_features.c - the kernels of attention by features. */
#include <string.h>

#include "checks.h"

enum { ROWS = 3, MAPS = ATTN_MAP_SIN + 1 };

static double map(int32_t kind, double x)
{
    switch (kind) {
    case ATTN_MAP_RELU:
        return fmax(x, 0);
    case ATTN_MAP_ELU1:
        return x > 0 ? x + 1 : exp(x);
    case ATTN_MAP_EXP:
        return exp(x);
    case ATTN_MAP_EXP2:
        return exp2(x);
    case ATTN_MAP_REQU:
        return x > 0 ? x * x : 0;
    case ATTN_MAP_SIGMOID:
        return 1 / (1 + exp(-x));
    case ATTN_MAP_TANH:
        return tanh(x);
    case ATTN_MAP_GELU:
        return x / 2 * (1 + erf(x / sqrt(2.0)));
    case ATTN_MAP_ABS:
        return fabs(x);
    case ATTN_MAP_COS:
        return cos(x);
    case ATTN_MAP_SIN:
        return sin(x);
    default:
        return x;
    }
}

struct features_case {
    struct attn_features f;
    float x[ROWS * 1003];
    float row_sums[ROWS], column_sums[1000];
};

/* Bits of `form`: which vectors there are. */
static void open_case(struct check *c, struct features_case *t, size_t n, unsigned form)
{
    struct attn_features *f = &t->f;
    const size_t row = n + (size_t)check_below(c, 3);
    *f = (struct attn_features){ .rows = ROWS, .n = n, .scale = 1 };
    f->map = (int32_t)check_below(c, MAPS);
    f->x_row = f->y_row = (ptrdiff_t)row;
    float *x = check_normal_f32(c, (ROWS - 1) * row + n);
    memcpy(t->x, x, ((ROWS - 1) * row + n) * sizeof *x);
    f->x = f->y = x;
    if ((form & 1) != 0)
        f->row_shift = check_normal_f32(c, ROWS);
    if ((form & 2) != 0)
        f->column_shift = check_normal_f32(c, n);
    if ((form & 4) != 0) {
        float *factor = check_normal_f32(c, ROWS);
        factor[1] = 0;
        f->row_factor = factor;
    }
    if ((form & 8) != 0)
        f->column_factor = check_normal_f32(c, n);
    if ((form & 16) != 0) {
        f->weights = check_normal_f32(c, n);
        f->dots = check_memory(c, ROWS * sizeof(float));
    }
    if ((form & 32) != 0)
        f->row_sums = check_normal_f32(c, ROWS);
    if ((form & 64) != 0)
        f->column_sums = check_normal_f32(c, n);
    if ((form & 128) != 0)
        f->add = 0.25f;
    if ((form & 256) != 0)
        f->scale = -0.5f;
    memcpy(t->row_sums, f->row_sums ? f->row_sums : t->x, ROWS * sizeof(float));
    memcpy(t->column_sums, f->column_sums ? f->column_sums : t->x, n * sizeof(float));
}

static double want(const struct features_case *t, size_t r, size_t i)
{
    const struct attn_features *f = &t->f;
    double x = (double)(f->scale * t->x[r * (size_t)f->x_row + i]);
    if (f->row_shift != NULL)
        x -= (double)f->row_shift[r];
    if (f->column_shift != NULL)
        x -= (double)f->column_shift[i];
    x = map(f->map, x) + (double)f->add;
    x *= f->row_factor != NULL ? (double)f->row_factor[r] : 1;
    return x * (f->column_factor != NULL ? (double)f->column_factor[i] : 1);
}

static void compare_case(struct check *c, const struct features_case *t)
{
    const struct attn_features *f = &t->f;
    double columns[1000] = { 0 }, sizes[1000] = { 0 };
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0, dot = 0, size = 0;
        for (size_t i = 0; i < f->n; i++) {
            double y = want(t, r, i);
            check_near(c, i, (double)f->y[r * (size_t)f->y_row + i], y,
                       2e-6 * fabs(y) + 2e-6);
            sum += y;
            size += fabs(y) + 1;
            columns[i] += y;
            sizes[i] += fabs(y) + 1;
            if (f->dots != NULL)
                dot += y * (double)f->weights[i];
        }
        if (f->dots != NULL)
            check_near(c, r, (double)f->dots[r], dot, 2e-5 * size + 1e-5);
        if (f->row_sums != NULL)
            check_near(c, r, (double)f->row_sums[r], sum + (double)t->row_sums[r],
                       1e-5 * size + 1e-5);
    }
    for (size_t i = 0; f->column_sums != NULL && i < f->n; i++)
        check_near(c, i, (double)f->column_sums[i],
                   columns[i] + (double)t->column_sums[i], 1e-5 * sizes[i] + 1e-5);
}

/* Without a stabilizer exponents may be as large as they like. */
static void check_overflow(struct check *c)
{
    static const float x[] = { 126,  127.5f, 128,       200, 1e30f, INFINITY,
                               -151, -1e30f, -INFINITY, NAN, 0,     -127.5f };
    enum { N = sizeof x / sizeof *x };
    float *y = check_memory(c, N * sizeof *y);
    const struct attn_features f = {
        .x = x, .y = y, .rows = 1, .n = N, .map = ATTN_MAP_EXP2, .scale = 1
    };
    c->k->features_f32(&f);
    for (size_t i = 0; i < N; i++)
        check_f32(c, i, y[i], exp2((double)x[i]), 2);
    check_again(c);
}

void check_features_f32(struct check *c)
{
    static struct features_case t;
    check_overflow(c);
    static const unsigned forms[] = { 16, 16 | 1 | 128, 64, 2 | 32, 0 };
    CHECK_SIZES(c, n)
    {
        for (int turn = 0; turn < 12; turn++) {
            open_case(c, &t, n, turn < 5 ? forms[turn] : (unsigned)check_below(c, 512));
            if (turn < 5) /* the frequent ones */
                t.f.map = turn == 1 || turn == 3 ? ATTN_MAP_EXP2 : t.f.map % 3;
            c->k->features_f32(&t.f);
            compare_case(c, &t);
            check_again(c);
        }
    }
    enum { N = 64, R = 128 };
    float *x = check_normal_f32(c, N * R), *y = check_memory(c, N * R * sizeof *y);
    float *sums = check_normal_f32(c, N), *dots = check_normal_f32(c, R);
    struct attn_features f = { .x = x,
                               .y = y,
                               .x_row = N,
                               .y_row = N,
                               .rows = R,
                               .n = N,
                               .map = ATTN_MAP_ELU1,
                               .scale = 1,
                               .column_sums = sums };
    CHECK_BENCH(c, "elu1 of keys", 1.0 * N * R, "Gelement/s")
    c->k->features_f32(&f);
    f.column_sums = NULL;
    f.weights = sums;
    f.dots = dots;
    CHECK_BENCH(c, "elu1 of queries", 1.0 * N * R, "Gelement/s")
    c->k->features_f32(&f);
    f.map = ATTN_MAP_EXP2;
    f.row_shift = dots;
    f.dots = check_normal_f32(c, R);
    CHECK_BENCH(c, "exp2 of queries", 1.0 * N * R, "Gelement/s")
    c->k->features_f32(&f);
    check_again(c);
}

void check_causal_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + (size_t)check_below(c, 3);
        const ptrdiff_t first = (ptrdiff_t)check_below(c, (int64_t)n + 4) - 3;
        float *s = check_normal_f32(c, (ROWS - 1) * row + n), old[ROWS * 1003];
        float *sums = check_normal_f32(c, ROWS), before[ROWS];
        memcpy(old, s, ((ROWS - 1) * row + n) * sizeof *s);
        memcpy(before, sums, sizeof before);
        c->k->causal_rows_f32(s, (ptrdiff_t)row, ROWS, n, first, sums);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = (double)before[r];
            for (size_t j = 0; j < n; j++) {
                bool kept = (ptrdiff_t)j <= first + (ptrdiff_t)r;
                double want_s = kept ? (double)old[r * row + j] : 0;
                check_near(c, j, (double)s[r * row + j], want_s, 0);
                sum += want_s;
            }
            check_near(c, r, (double)sums[r], sum, 1e-5 * (double)(n + 1));
        }
    }
}

void check_multiply_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + (size_t)check_below(c, 3);
        float *y = check_normal_f32(c, (ROWS - 1) * row + n), old[ROWS * 1003];
        const float *factors = check_normal_f32(c, ROWS);
        memcpy(old, y, ((ROWS - 1) * row + n) * sizeof *y);
        c->k->multiply_rows_f32(y, (ptrdiff_t)row, ROWS, n, factors);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < n; i++)
                check_f32(c, i, y[r * row + i],
                          (double)old[r * row + i] * (double)factors[r], 0.5);
    }
}

void check_max_columns_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + (size_t)check_below(c, 3);
        const float *x = check_normal_f32(c, (ROWS - 1) * row + n);
        float *y = check_normal_f32(c, n), old[1000];
        const uint8_t keep[ROWS] = { 1, (uint8_t)check_below(c, 2), 7 };
        const bool masked = check_below(c, 2) == 0;
        memcpy(old, y, n * sizeof *y);
        c->k->max_columns_f32(y, x, (ptrdiff_t)row, ROWS, n, masked ? keep : NULL);
        for (size_t i = 0; i < n; i++) {
            double max = (double)old[i];
            for (size_t r = 0; r < ROWS; r++)
                if (!masked || keep[r] != 0)
                    max = fmax(max, (double)x[r * row + i]);
            check_near(c, i, (double)y[i], max, 0);
        }
    }
}

void check_square_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + (size_t)check_below(c, 3);
        const float *x = check_normal_f32(c, (ROWS - 1) * row + n);
        float *y = check_memory(c, ROWS * sizeof *y);
        c->k->square_rows_f32(y, x, (ptrdiff_t)row, ROWS, n);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)x[r * row + i] * (double)x[r * row + i];
            check_near(c, r, (double)y[r], sum, 1e-6 * sum);
        }
    }
}
