/* additive_f32.c - scores of additive attention: sums over units of v f(q + k). Each
 * register holds a vector of keys, so no sum goes across lanes.
 *
 * tanh(a + b) = 1 - 2 / (exp(2a) exp(2b) + 1). Where both exponentials are given, a term
 * costs one product, one quotient and one sum instead of an exponential. In: a query, and
 * keys that lie in columns. Out: a score for each key. Cost: a term for each unit and
 * key. */
#include "vmath.h"

enum form { TANH, RELU, QUOTIENT };
enum { UNITS = 32 };

static ALWAYS_INLINE v_f32 term(enum form form, v_f32 q, v_f32 v, v_f32 k)
{
    if (form == QUOTIENT)
        return v_over(v, q * k + 1.0f);
    return v * (form == TANH ? v_tanh(q + k) : v_relu(q + k));
}

/* Adds units 0 … u - 1 to `vectors` whole vectors of keys. */
static ALWAYS_INLINE void columns(enum form form, float *s, const float *q,
                                  const float *v, const float *k, ptrdiff_t k_row,
                                  size_t u, const int vectors)
{
    v_f32 sum[4] = { 0 };
    for (size_t i = 0; i < u; i++, k += k_row) {
        const v_f32 unit = v_set(q[i]), factor = v_set(v[i]);
        UNROLL
        for (int c = 0; c < vectors; c++)
            sum[c] += term(form, unit, factor, v_load(k + c * VF));
    }
    UNROLL
    for (int c = 0; c < vectors; c++)
        v_store(s + c * VF, v_load(s + c * VF) + sum[c]);
}

static ALWAYS_INLINE void add_units(enum form form, float *s, const float *q,
                                    const float *v, const float *k, ptrdiff_t k_row,
                                    size_t u, size_t n)
{
    size_t j = 0;
    for (; j + 4 * VF <= n; j += 4 * VF)
        columns(form, s + j, q, v, k + j, k_row, u, 4);
    for (; j + VF <= n; j += VF)
        columns(form, s + j, q, v, k + j, k_row, u, 1);
    if (j == n)
        return;
    v_f32 sum = v_set(0.0f);
    for (size_t i = 0; i < u; i++)
        sum += term(form, v_set(q[i]), v_set(v[i]),
                    v_load_tail(k + (ptrdiff_t)i * k_row + j, n - j, 0.0f));
    v_store_tail(s + j, v_load_tail(s + j, n - j, 0.0f) + sum, n - j);
}

/* UNITS at a time: short sums of many terms of similar size lose fewer digits. */
static ALWAYS_INLINE void scores(enum form form, float *s, float base, const float *q,
                                 const float *v, const float *k, ptrdiff_t k_row,
                                 size_t u, size_t n)
{
    for (size_t j = 0; j < n; j++)
        s[j] = base;
    for (size_t i = 0; i < u; i += UNITS)
        add_units(form, s, q + i, v + i, k + (ptrdiff_t)i * k_row, k_row,
                  u - i < UNITS ? u - i : UNITS, n);
}

void K(additive_tanh_f32)(float *s, const float *q, const float *v, const float *k,
                          ptrdiff_t k_row, size_t u, size_t n)
{
    scores(TANH, s, 0.0f, q, v, k, k_row, u, n);
}

void K(additive_relu_f32)(float *s, const float *q, const float *v, const float *k,
                          ptrdiff_t k_row, size_t u, size_t n)
{
    scores(RELU, s, 0.0f, q, v, k, k_row, u, n);
}

void K(additive_exp_f32)(float *s, float base, const float *q, const float *w,
                         const float *k, ptrdiff_t k_row, size_t u, size_t n)
{
    scores(QUOTIENT, s, base, q, w, k, k_row, u, n);
}
