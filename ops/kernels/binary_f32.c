/* binary_f32.c - the kernels of binary_f32.def: y[i] = f(a[i * a_step], b[i * b_step])
 * for i < n, where a step is 1, or 0 for a scalar. y may be a or b where that operand has
 * step 1. where_f32, which selects one of two, is here, too. Cost: one read of each
 * operand and one write. */
#include "vmath.h"

#define BINARY_F32(name, expression)                                                     \
    static inline v_f32 name##_of(v_f32 a, v_f32 b) { return expression; }               \
    static inline void name##_line(float *y, const float *pa, bool each_a,               \
                                   const float *pb, bool each_b, size_t n)               \
    {                                                                                    \
        v_f32 a = v_set(each_a || n == 0 ? 0.0f : *pa);                                  \
        v_f32 b = v_set(each_b || n == 0 ? 0.0f : *pb);                                  \
        size_t i = 0;                                                                    \
        for (; i + VF <= n; i += VF)                                                     \
            v_store(y + i, name##_of(each_a ? v_load(pa + i) : a,                        \
                                     each_b ? v_load(pb + i) : b));                      \
        if (i < n)                                                                       \
            v_store_tail(y + i,                                                          \
                         name##_of(each_a ? v_load_tail(pa + i, n - i, 1.0f) : a,        \
                                   each_b ? v_load_tail(pb + i, n - i, 1.0f) : b),       \
                         n - i);                                                         \
    }                                                                                    \
    void K(name##_f32)(float *y, const float *a, size_t a_step, const float *b,          \
                       size_t b_step, size_t n)                                          \
    {                                                                                    \
        if (a_step != 0 && b_step != 0)                                                  \
            name##_line(y, a, true, b, true, n);                                         \
        else if (a_step != 0)                                                            \
            name##_line(y, a, true, b, false, n);                                        \
        else                                                                             \
            name##_line(y, a, false, b, b_step != 0, n);                                 \
    }
#include "binary_f32.def"
#undef BINARY_F32

/* All ones where the first n bytes of c are not 0. */
static ALWAYS_INLINE v_i32 mask_of(const uint8_t *c, size_t n)
{
    v_bytes bytes = { 0 };
    memcpy(&bytes, c, n);
    return v_from_bytes(bytes) != 0;
}

static ALWAYS_INLINE void where_line(float *y, const uint8_t *c, bool each_c,
                                     const float *pa, bool each_a, const float *pb,
                                     bool each_b, size_t n)
{
    v_f32 a = v_set(each_a || n == 0 ? 0.0f : *pa);
    v_f32 b = v_set(each_b || n == 0 ? 0.0f : *pb);
    v_i32 mask = (v_i32){ 0 } - (!each_c && n > 0 && *c != 0);
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        v_store(y + i,
                v_select(each_c ? mask_of(c + i, VF) : mask, each_a ? v_load(pa + i) : a,
                         each_b ? v_load(pb + i) : b));
    if (i < n)
        v_store_tail(y + i,
                     v_select(each_c ? mask_of(c + i, n - i) : mask,
                              each_a ? v_load_tail(pa + i, n - i, 0.0f) : a,
                              each_b ? v_load_tail(pb + i, n - i, 0.0f) : b),
                     n - i);
}

void K(where_f32)(float *y, const uint8_t *c, size_t c_step, const float *a,
                  size_t a_step, const float *b, size_t b_step, size_t n)
{
    if (c_step == 0)
        where_line(y, c, false, a, a_step != 0, b, b_step != 0, n);
    else if (a_step != 0 && b_step != 0)
        where_line(y, c, true, a, true, b, true, n);
    else if (a_step != 0)
        where_line(y, c, true, a, true, b, false, n);
    else
        where_line(y, c, true, a, false, b, b_step != 0, n);
}
