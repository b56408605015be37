/* attention_f32.c - what happens to a row of a score tile between the two products: cap,
 * masks, and the online softmax (softmax_rows_f32). In: scores, and the running maximum
 * and sum of each row. Out: weights in the place of the scores. Cost: one exponential for
 * each score. */
#include "softmax.h"

static ALWAYS_INLINE float row_max(const float *s, size_t n)
{
    v_f32 m[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        m[i] = v_set(-INFINITY);
    size_t j = 0;
    for (; j + 4 * VF <= n; j += 4 * VF) {
        UNROLL
        for (int i = 0; i < 4; i++)
            m[i] = v_max(m[i], v_load(s + j + i * VF));
    }
    for (; j < n; j += VF)
        m[0] = v_max(m[0], v_load_part(s + j, n - j, -INFINITY));
    return v_reduce_max(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
}

/* s = exp(s + shift); shift is the maximum, negated. Returns the sum. The sum comes first: of
 * scores near the maximum it is exact, however large they are. Of s log2(e) and a shift that was
 * multiplied before, the rounding of the maximum would be left over, and an exponent of its
 * size. */
static ALWAYS_INLINE float row_exp(float *s, size_t n, float shift, float min)
{
    v_f32 sum[4] = { { 0 } };
    size_t j = 0;
    for (; j + 4 * VF <= n; j += 4 * VF) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            v_f32 e = term((v_load(s + j + i * VF) + shift) * LOG2E, min);
            sum[i] += e;
            v_store(s + j + i * VF, e);
        }
    }
    for (; j < n; j += VF) {
        v_f32 e = term((v_load_part(s + j, n - j, -INFINITY) + shift) * LOG2E, min);
        sum[0] += e;
        v_store_part(s + j, e, n - j);
    }
    return v_reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Rows of n scores become exp(score - max). */
void K(softmax_rows_f32)(float *s, ptrdiff_t row, size_t rows, size_t n, float min,
                         struct attn_softmax_row *state)
{
    if (rows == 0)
        return;
    float next = row_max(s, n);
    for (size_t r = 0; r < rows; r++, s += row, state++) {
        float max = next;
        if (r + 1 < rows) /* its chain of operations runs beside this row's */
            next = row_max(s + row, n);
        state->factor = 1.0f;
        if (max > state->max + SLACK || (max > state->max && state->sum == 0.0f)) {
            if (state->max != -INFINITY) /* else nothing is summed yet */
                state->factor = v_exp2(v_set((state->max - max) * LOG2E))[0];
            state->max = max;
            state->shift = -max;
        }
        /* With no score yet the shift is 0, and exp(-inf + 0) = 0. */
        state->sum = state->sum * state->factor + row_exp(s, n, state->shift, min);
    }
}

void K(softcap_f32)(float *s, size_t n, float cap)
{
    /* That of a smaller cap overflows, and 0 times infinity is NaN. */
    const float inverse = 1.0f / (cap > 0x1p-126f ? cap : 0x1p-126f);
    for (size_t i = 0; i < n; i += VF)
        v_store_part(s + i, v_tanh(v_load_part(s + i, n - i, 0.0f) * inverse) * cap,
                     n - i);
}

void K(add_mask_f32)(float *s, const float *mask, size_t n)
{
    for (size_t i = 0; i < n; i += VF) {
        v_f32 m = v_load_part(mask + i, n - i, 0.0f);
        v_f32 y = v_load_part(s + i, n - i, 0.0f) + m;
        v_store_part(s + i, v_select(m == -INFINITY, m, y), n - i);
    }
}

void K(add_map_f32)(float *s, const float *rows, const float *columns, size_t width,
                    size_t first, size_t n)
{
    size_t column = first % width;
    rows += first / width;
    while (n > 0) {
        const size_t run = n < width - column ? n : width - column;
        const v_f32 row = v_set(*rows++);
        for (size_t i = 0; i < run; i += VF)
            v_store_part(s + i,
                         v_load_part(s + i, run - i, 0.0f) +
                             (row + v_load_part(columns + column + i, run - i, 0.0f)),
                         run - i);
        s += run;
        n -= run;
        column = 0;
    }
}

void K(keep_mask_f32)(float *s, const uint8_t *keep, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s[i] = keep[i] != 0 ? s[i] : -INFINITY;
}

/* y[r] = x[r] * scale[r * step] for rows of n. */
void K(scale_rows_f32)(float *y, ptrdiff_t y_row, const float *x, ptrdiff_t x_row,
                       size_t rows, size_t n, const float *scale, ptrdiff_t step)
{
    const size_t whole = n / VF * VF;
    for (size_t r = 0; r < rows; r++, y += y_row, x += x_row, scale += step) {
        const v_f32 factor = v_set(*scale);
        prefetch_row(x, x_row, n);
        for (size_t i = 0; i < whole; i += VF)
            v_store(y + i, v_load(x + i) * factor);
        if (whole < n)
            v_store_tail(y + whole, v_load_tail(x + whole, n - whole, 0.0f) * factor,
                         n - whole);
    }
}
