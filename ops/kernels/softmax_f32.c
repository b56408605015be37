/* softmax_f32.c - softmax and log-softmax of a row, or down columns.
 *
 * There are three passes over a row that stays in L1: maximum, exponential and sum,
 * scale. A NaN in a row makes the sum NaN, and so the row. Cost: an exponential for each
 * element. */
#include "vmath.h"

static float row_max(const float *x, size_t n)
{
    v_f32 m0 = v_set(-INFINITY), m1 = m0;
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i + 2 * VF <= end; i += 2 * VF) {
            m0 = v_max(m0, v_load(x + i));
            m1 = v_max(m1, v_load(x + i + VF));
        }
    for (; i + VF <= n && n - i < 2 * VF; i += VF)
        m0 = v_max(m0, v_load(x + i));
    if (i < n && n - i < VF)
        m1 = v_max(m1, v_load_tail(x + i, n - i, -INFINITY));
    return v_reduce_max(v_max(m0, m1));
}

enum { BLOCK = 4096 };

/* Sum of exp(x - max), a block after the other, so that a row of a million keeps its digits; y,
 * where not NULL, gets the terms. */
static float row_exp(float *y, const float *x, size_t n, float max)
{
    v_f32 s0 = { 0 }, s1 = { 0 }, sum = { 0 };
    size_t i = 0, next = BLOCK;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i + 2 * VF <= end; i += 2 * VF) {
            v_f32 e0 = v_exp(v_load(x + i) - max), e1 = v_exp(v_load(x + i + VF) - max);
            if (i >= next) {
                sum += s0 + s1;
                s0 = s1 = v_set(0);
                next += BLOCK;
            }
            s0 += e0;
            s1 += e1;
            if (y != NULL) {
                v_store(y + i, e0);
                v_store(y + i + VF, e1);
            }
        }
    for (; i < n && n - i < 2 * VF; i += VF) {
        size_t left = n - i < VF ? n - i : VF;
        v_f32 e = v_exp(v_load_tail(x + i, left, -INFINITY) - max);
        if (y != NULL)
            v_store_tail(y + i, e, left);
        /* -inf - -inf in the padding is NaN */
        s0 += left == VF ? e : v_load_tail((const float *)&e, left, 0.0f);
    }
    return v_reduce_add(sum + (s0 + s1));
}

static void scale_row(float *y, float scale, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);) {
        for (; i + VF <= end; i += VF)
            v_store(y + i, v_load(y + i) * scale);
        for (; i < end; i++)
            y[i] *= scale;
    }
}

void K(softmax_f32)(float *y, const float *x, size_t n, int log)
{
    const float max = row_max(x, n);
    if (!log) {
        const float scale = 1.0f / row_exp(y, x, n, max);
        scale_row(y, scale, n);
        return;
    }
    const float shift = logf(row_exp(NULL, x, n, max));
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i < end; i++)
            y[i] = x[i] - max - shift;
}

enum { COLUMN_VECTORS = 4 };

static inline size_t columns_left(size_t n, size_t vector)
{
    return n - vector * VF < VF ? n - vector * VF : VF;
}

/* Some vectors of columns, the last of them padded: n is the number of columns. Rows may
 * be a power of two apart, where their lines share a few places of L1, so the elements of
 * a row that are read together are used at once. */
static ALWAYS_INLINE void columns(float *y, const float *x, size_t length, size_t stride,
                                  const size_t n, int log)
{
    const size_t vectors = (n + VF - 1) / VF;
    v_f32 max[COLUMN_VECTORS], sum[COLUMN_VECTORS];
    for (size_t j = 0; j < vectors; j++) {
        max[j] = v_set(-INFINITY);
        sum[j] = v_set(0);
    }
    for (size_t i = 0, end = 0; attn_segment_of(&end, length, vectors * VEC_BYTES);)
        for (; i < end; i++)
            for (size_t j = 0; j < vectors; j++)
                max[j] = v_max(max[j], v_load_tail(x + i * stride + j * VF,
                                                   columns_left(n, j), 0.0f));
    for (size_t i = 0, end = 0; attn_segment_of(&end, length, vectors * VEC_BYTES);)
        while (i < end) {
            const size_t stop = end - i < BLOCK ? end : i + BLOCK;
            v_f32 part[COLUMN_VECTORS] = { 0 };
            for (; i < stop; i++)
                for (size_t j = 0; j < vectors; j++) {
                    const size_t at = i * stride + j * VF, left = columns_left(n, j);
                    v_f32 e = v_exp(v_load_tail(x + at, left, 0.0f) - max[j]);
                    part[j] += e;
                    if (!log)
                        v_store_tail(y + at, e, left);
                }
            for (size_t j = 0; j < vectors; j++)
                sum[j] += part[j];
        }
    for (size_t j = 0; j < vectors; j++)
        sum[j] = log ? v_log(sum[j]) : 1.0f / sum[j];
    for (size_t i = 0, end = 0; attn_segment_of(&end, length, vectors * VEC_BYTES);)
        for (; i < end; i++)
            for (size_t j = 0; j < vectors; j++) {
                const size_t at = i * stride + j * VF, left = columns_left(n, j);
                const v_f32 v = v_load_tail((log ? x : y) + at, left, 0.0f);
                v_store_tail(y + at, log ? v - max[j] - sum[j] : v * sum[j], left);
            }
}

void K(softmax_columns_f32)(float *y, const float *x, size_t length, size_t stride,
                            size_t n, int log)
{
    size_t j = 0;
    for (; j + COLUMN_VECTORS * VF <= n; j += COLUMN_VECTORS * VF)
        columns(y + j, x + j, length, stride, COLUMN_VECTORS * VF, log);
    for (; j + VF <= n; j += VF)
        columns(y + j, x + j, length, stride, VF, log);
    if (j < n)
        columns(y + j, x + j, length, stride, n - j, log);
}
