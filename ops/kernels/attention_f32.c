/* attention_f32.c - what happens to a row of a score tile between the two products. */
#include "vmath.h"

static ALWAYS_INLINE v_f32 load_part(const float *x, size_t n, float fill)
{
    return n >= VF ? v_load(x) : v_load_tail(x, n, fill);
}

static ALWAYS_INLINE void store_part(float *y, v_f32 v, size_t n)
{
    if (n >= VF)
        v_store(y, v);
    else
        v_store_tail(y, v, n);
}

float K(softmax_more_f32)(float *s, size_t n, float *state)
{
    v_f32 m = v_set(-INFINITY), sum = { 0 };
    for (size_t j = 0; j < n; j += VF)
        m = v_max(m, load_part(s + j, n - j, -INFINITY));
    float max = v_reduce_max(m), old = state[0];
    max = old > max ? old : max;
    /* -inf - -inf is NaN: with no score yet, exp(-inf - 0) = 0 is meant. */
    const float shift = max == -INFINITY ? 0.0f : max;
    size_t i = 0;
    v_f32 more = { 0 };
    for (; i + 2 * VF <= n; i += 2 * VF) {
        v_f32 e = v_exp_negative(v_load(s + i) - shift);
        v_f32 f = v_exp_negative(v_load(s + i + VF) - shift);
        sum += e;
        more += f;
        v_store(s + i, e);
        v_store(s + i + VF, f);
    }
    sum += more;
    for (; i < n; i += VF) {
        v_f32 e = v_exp_negative(load_part(s + i, n - i, -INFINITY) - shift);
        sum += e;
        store_part(s + i, e, n - i);
    }
    const float factor = old == -INFINITY ? 0.0f : v_exp(v_set(old - shift))[0];
    state[0] = max;
    state[1] = state[1] * factor + v_reduce_add(sum);
    return factor;
}

void K(softcap_f32)(float *s, size_t n, float cap)
{
    const float inverse = 1.0f / cap;
    for (size_t i = 0; i < n; i += VF)
        store_part(s + i, v_tanh(load_part(s + i, n - i, 0.0f) * inverse) * cap, n - i);
}

void K(add_mask_f32)(float *s, const float *mask, size_t n)
{
    for (size_t i = 0; i < n; i += VF) {
        v_f32 m = load_part(mask + i, n - i, 0.0f);
        v_f32 y = load_part(s + i, n - i, 0.0f) + m;
        store_part(s + i, v_select(m == -INFINITY, m, y), n - i);
    }
}

void K(keep_mask_f32)(float *s, const uint8_t *keep, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s[i] = keep[i] != 0 ? s[i] : -INFINITY;
}
