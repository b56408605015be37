/* attention_f64.c - products of a row of doubles with rows of keys or values, which are
 * `row` doubles apart.
 *
 *   dot_rows    y[j] = sum of x[i] rows_j[i] over n, for n_rows rows
 *   sum_rows    y[i] += sum of weights[j] rows_j[i], i < n; a row of weight 0 is not read
 *
 * y must not overlap an operand. Cost: 2 n n_rows FLOPs; the rows are read once. */
#include "isa.h"

enum { VD = VEC_BYTES / 8, SUMS = 4 };
typedef double v_f64 __attribute__((vector_size(VEC_BYTES)));
typedef double v_f64_u __attribute__((vector_size(VEC_BYTES), aligned(8), may_alias));

static ALWAYS_INLINE v_f64 load(const double *p) { return *(const v_f64_u *)p; }

static double dot(const double *x, const double *row, size_t n)
{
    v_f64 sums[SUMS] = { { 0 } };
    double sum = 0;
    size_t i = 0;
    for (; i + SUMS * VD <= n; i += SUMS * VD) {
        UNROLL
        for (size_t s = 0; s < SUMS; s++)
            sums[s] += load(x + i + s * VD) * load(row + i + s * VD);
    }
    for (; i + VD <= n; i += VD)
        sums[0] += load(x + i) * load(row + i);
    for (; i < n; i++)
        sum += x[i] * row[i];
    const v_f64 all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (size_t s = 0; s < VD; s++)
        sum += all[s];
    return sum;
}

void K(dot_rows_f64)(double *y, const double *x, const double *rows, ptrdiff_t row,
                     size_t n_rows, size_t n)
{
    for (size_t j = 0; j < n_rows; j++)
        y[j] = dot(x, rows + (ptrdiff_t)j * row, n);
}

void K(sum_rows_f64)(double *y, const double *weights, const double *rows, ptrdiff_t row,
                     size_t n_rows, size_t n)
{
    size_t i = 0;
    for (; i + SUMS * VD <= n; i += SUMS * VD) {
        v_f64 sums[SUMS];
        UNROLL
        for (size_t s = 0; s < SUMS; s++)
            sums[s] = load(y + i + s * VD);
        for (size_t j = 0; j < n_rows; j++) {
            const double *from = rows + (ptrdiff_t)j * row + i;
            if (weights[j] == 0)
                continue;
            UNROLL
            for (size_t s = 0; s < SUMS; s++)
                sums[s] += weights[j] * load(from + s * VD);
        }
        UNROLL
        for (size_t s = 0; s < SUMS; s++)
            *(v_f64_u *)(y + i + s * VD) = sums[s];
    }
    for (; i < n; i++)
        for (size_t j = 0; j < n_rows; j++)
            if (weights[j] != 0)
                y[i] += weights[j] * rows[(ptrdiff_t)j * row + (ptrdiff_t)i];
}
