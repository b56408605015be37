/* unary_f32.c - the kernels of unary_f32.def, and those that the compiler vectorizes by
 * itself: y[i] = f(x[i]) for i < n. y may be x. p points to two parameters. Cost: one
 * read and one write. */
#include "vtrig.h"

/* e^x - 1 without the cancellation near 0: (u - 1) x / log u. */
static inline v_f32 v_expm1(v_f32 x)
{
    v_f32 u = v_exp(x);
    v_f32 less = u - 1.0f;
    v_f32 near = v_select(less == 0.0f, x, less * (x / v_log(u)));
    return v_select(v_abs(x) < 1.0f, near, less);
}

/* max(x, 0) + log(1 + e^-|x|); the quotient keeps what 1 + e rounds away. */
static inline v_f32 softplus(v_f32 x)
{
    v_f32 e = v_exp(-v_abs(x));
    v_f32 u = e + 1.0f;
    v_f32 log1p = v_select(u == 1.0f, e, v_log(u) * (e / (u - 1.0f)));
    return v_relu(x) + log1p;
}

/* x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). */
static inline v_f32 mish(v_f32 x)
{
    v_f32 e = v_exp(v_min(v_set(20.0f), x)); /* from there on the factor is 1 */
    v_f32 n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}

/* A loop over whole vectors. */
typedef void vectors_fn(float *y, const float *x, size_t n, const float *p);

/* The rest of a row becomes a vector of its own, so that a kernel has one loop. */
static __attribute__((noinline)) void each(vectors_fn *of, float *y, const float *x,
                                           size_t n, const float *p)
{
    const size_t rest = n % VF, whole = n - rest;
    float last[VF];
    if (rest > 0)
        v_store(last, v_load_tail(x + whole, rest, 0.0f));
    of(y, x, whole, p);
    if (rest == 0)
        return;
    of(last, last, VF, p);
    v_store_tail(y + whole, v_load(last), rest);
}

#define UNARY_F32(name, expression)                                                      \
    static void name##_vectors(float *y, const float *x_row, size_t n, const float *p)   \
    {                                                                                    \
        const v_f32 p0 = v_set(p[0]), p1 = v_set(p[1]);                                  \
        (void)p0;                                                                        \
        (void)p1;                                                                        \
        for (size_t i = 0; i < n; i += VF) {                                             \
            const v_f32 x = v_load(x_row + i);                                           \
            v_store(y + i, expression);                                                  \
        }                                                                                \
    }                                                                                    \
    void K(name##_f32)(float *y, const float *x, size_t n, const float *p)               \
    {                                                                                    \
        each(name##_vectors, y, x, n, p);                                                \
    }
#include "unary_f32.def"
#undef UNARY_F32

void K(sqrt_f32)(float *y, const float *x, size_t n, const float *p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        y[i] = sqrtf(x[i]);
}

void K(floor_f32)(float *y, const float *x, size_t n, const float *p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        y[i] = floorf(x[i]);
}

void K(ceil_f32)(float *y, const float *x, size_t n, const float *p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        y[i] = ceilf(x[i]);
}

/* Halves go to the even neighbour. */
void K(round_f32)(float *y, const float *x, size_t n, const float *p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        y[i] = nearbyintf(x[i]);
}
