/* reduce_f32.c - folds n contiguous floats to one number, or adds a row of n floats to n
 * running sums. Sums are taken in vectors over blocks of 16 steps and added in double
 * from block to block, in an order that depends on n only: within 4 u of the sum of the
 * magnitudes. Cost: one read of x.
 */
#include "vmath.h"

enum { BLOCK = 32 * VF };

/* `fill`: a number that adds 0. */
#define SUM_KERNEL(name, expression, fill)                                               \
    static inline v_f32 name##_of(v_f32 x, v_f32 shift)                                  \
    {                                                                                    \
        (void)shift;                                                                     \
        return expression;                                                               \
    }                                                                                    \
    static double name##_blocks(const float *x, float shift, size_t n)                   \
    {                                                                                    \
        v_f32 s = v_set(shift);                                                          \
        double sum = 0;                                                                  \
        while (n > 0) {                                                                  \
            const size_t size = n < BLOCK ? n : BLOCK;                                   \
            size_t i = 0;                                                                \
            v_f32 even = v_set(0.0f), odd = even;                                        \
            for (; i + 2 * VF <= size; i += 2 * VF) {                                    \
                even += name##_of(v_load(x + i), s);                                     \
                odd += name##_of(v_load(x + i + VF), s);                                 \
            }                                                                            \
            if (i + VF <= size) {                                                        \
                even += name##_of(v_load(x + i), s);                                     \
                i += VF;                                                                 \
            }                                                                            \
            if (i < size)                                                                \
                odd += name##_of(v_load_tail(x + i, size - i, fill), s);                 \
            sum += (double)v_reduce_add(even + odd);                                     \
            x += size;                                                                   \
            n -= size;                                                                   \
        }                                                                                \
        return sum;                                                                      \
    }
SUM_KERNEL(sum, x, 0.0f)
SUM_KERNEL(sum_square, x *x, 0.0f)
SUM_KERNEL(sum_abs, v_abs(x), 0.0f)
SUM_KERNEL(sum_exp, v_exp(x - shift), -INFINITY)

double K(sum_f32)(const float *x, size_t n) { return sum_blocks(x, 0, n); }
double K(sum_square_f32)(const float *x, size_t n) { return sum_square_blocks(x, 0, n); }
double K(sum_abs_f32)(const float *x, size_t n) { return sum_abs_blocks(x, 0, n); }
double K(sum_exp_f32)(const float *x, float shift, size_t n)
{
    return sum_exp_blocks(x, shift, n);
}

/* The largest (or smallest) of x, or NaN where any is NaN; n > 0. */
static inline float extreme(const float *x, bool largest, size_t n)
{
    v_f32 best = v_set(x[0]);
    v_i32 nan = best != best;
    for (size_t i = 0; i < n; i += VF) {
        v_f32 v = i + VF <= n ? v_load(x + i) : v_load_tail(x + i, n - i, x[0]);
        best = largest ? v_max(v, best) : v_min(v, best);
        nan |= v != v;
    }
    float lanes[VF], found = x[0];
    int32_t is_nan[VF];
    v_store(lanes, best);
    memcpy(is_nan, &nan, sizeof is_nan);
    for (int k = 0; k < VF; k++) {
        if (is_nan[k])
            return NAN;
        if (largest ? lanes[k] > found : lanes[k] < found)
            found = lanes[k];
    }
    return found;
}

float K(reduce_max_f32)(const float *x, size_t n) { return extreme(x, true, n); }
float K(reduce_min_f32)(const float *x, size_t n) { return extreme(x, false, n); }

/* sum[0 … lanes * VF - 1] += the rows. */
static ALWAYS_INLINE void add_columns(double *sum, const float *x, ptrdiff_t row,
                                      size_t rows, const int lanes)
{
    v_f32 s[4];
    float parts[4 * VF];
    UNROLL
    for (int l = 0; l < lanes; l++)
        s[l] = v_load(x + l * VF);
    for (size_t r = 1; r < rows; r++) {
        x += row;
        prefetch_row(x, row, (size_t)lanes * VF);
        UNROLL
        for (int l = 0; l < lanes; l++)
            s[l] += v_load(x + l * VF);
    }
    UNROLL
    for (int l = 0; l < lanes; l++)
        v_store(parts + l * VF, s[l]);
    for (int i = 0; i < lanes * VF; i++)
        sum[i] += (double)parts[i];
}

void K(add_rows_f32)(double *sum, const float *x, ptrdiff_t row, size_t rows, size_t n)
{
    size_t i = 0;
    if (rows == 0)
        return;
    for (; i + 4 * VF <= n; i += 4 * VF)
        add_columns(sum + i, x + i, row, rows, 4);
    for (; i + VF <= n; i += VF)
        add_columns(sum + i, x + i, row, rows, 1);
    for (; i < n; i++) {
        float part = x[i];
        for (size_t r = 1; r < rows; r++)
            part += x[(ptrdiff_t)r * row + (ptrdiff_t)i];
        sum[i] += (double)part;
    }
}

void K(add_row_square_f32)(double *sum, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (double)x[i] * (double)x[i];
}

void K(add_row_abs_f32)(double *sum, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (double)fabsf(x[i]);
}

/* best[i] = max(best[i], x[i]); NaN in either gives NaN. */
void K(max_row_f32)(double *best, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];
        double larger = best[i] > v ? best[i] : v; /* v where either is NaN */
        best[i] = best[i] != best[i] ? best[i] : larger;
    }
}

void K(min_row_f32)(double *best, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];
        double smaller = best[i] < v ? best[i] : v;
        best[i] = best[i] != best[i] ? best[i] : smaller;
    }
}
