/* select_f32.c - few elements out of many: candidates above a threshold, sums of some
 * rows of a matrix. */
#include "vmath.h"

enum { ROWS = 256 };

/* Bit i: x[i] is not below t, or NaN. */
static ALWAYS_INLINE uint32_t not_below(v_f32 x, v_f32 t)
{
#if VEC_BYTES == 64 && defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, (__m512)t, _CMP_NLT_UQ);
#elif VEC_BYTES == 32 && defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, (__m256)t, _CMP_NLT_UQ));
#else
    uint32_t bits = 0;
    v_i32 below = x < t;
    for (int i = 0; i < VF; i++)
        bits |= (uint32_t)(below[i] == 0) << i;
    return bits;
#endif
}

size_t K(select_f32)(int32_t *index, float *value, const float *s, size_t n,
                     int32_t first, float threshold)
{
    const v_f32 t = v_set(threshold);
    size_t found = 0;
    for (size_t i = 0; i < n; i += VF) {
        const size_t left = n - i;
        uint32_t bits =
            not_below(left >= VF ? v_load(s + i) : v_load_tail(s + i, left, 0.0f), t);
        if (left < VF)
            bits &= (UINT32_C(1) << left) - 1;
        for (; bits != 0; bits &= bits - 1) {
            const size_t at = i + (size_t)__builtin_ctz(bits);
            index[found] = first + (int32_t)at;
            value[found++] = s[at];
        }
    }
    return found;
}

/* Columns d … d + nv * VF - 1, in registers. */
static ALWAYS_INLINE void sum_columns(float *y, const float *x, ptrdiff_t x_row,
                                      const int32_t *index, const float *weight,
                                      size_t rows, const int nv)
{
    v_f32 acc[4] = { 0 };
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + index[i] * x_row;
        const v_f32 w = v_set(weight[i]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[v] += w * v_load(row + v * VF);
    }
    UNROLL
    for (int v = 0; v < nv; v++)
        v_store(y + v * VF, v_load(y + v * VF) + acc[v]);
}

static void sum_rows(float *y, const float *x, ptrdiff_t x_row, const int32_t *index,
                     const float *weight, size_t rows, size_t n)
{
    size_t d = 0;
    for (; d + 4 * VF <= n; d += 4 * VF)
        sum_columns(y + d, x + d, x_row, index, weight, rows, 4);
    for (; d + VF <= n; d += VF)
        sum_columns(y + d, x + d, x_row, index, weight, rows, 1);
    for (; d < n; d++) {
        float sum = 0.0f;
        for (size_t i = 0; i < rows; i++)
            sum += weight[i] * x[index[i] * x_row + (ptrdiff_t)d];
        y[d] += sum;
    }
}

/* ROWS at a time: many terms of about one size lose less in short sums. */
void K(gather_sum_f32)(float *y, const float *x, ptrdiff_t x_row, const int32_t *index,
                       const float *weight, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows; i += ROWS)
        sum_rows(y, x, x_row, index + i, weight + i, rows - i < ROWS ? rows - i : ROWS,
                 n);
}
