/* unary_template.h - the loops of unary.def for one element type. for_each_dtype.h
 * describes the parameters. There is no include guard. */

/* What is neither below -lambd nor above lambd is 0, NaN too. */
static inline T N(shrink_of)(T x, float lambd, float bias)
{
    double wide = (double)x, moved = 0;
    if (wide < -(double)lambd)
        moved = wide + (double)bias;
    else if (wide > (double)lambd)
        moved = wide - (double)bias;
#if T_FLOAT
    return (T)moved;
#else
    return (T)double_to_int64(moved);
#endif
}

#if T_FLOAT
/* Cut to [0, 1]; NaN stays. */
static inline T N(unit_of)(T x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

static inline T N(gelu_of)(T x, bool with_tanh)
{
    if (with_tanh) {
        T inner = (T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x);
        return (T)0.5 * x * (1 + M(tanh)(inner));
    }
    return (T)0.5 * x * (1 + M(erf)(x * (T)0.70710678118654752440));
}
#endif

#define P(attribute) ((T)a->attribute)
#define UNARY_LOOP(name, f)                                                              \
    static void N(name##_loop)(void *to, const void *from, int64_t n,                    \
                               const struct unary_args *a)                               \
    {                                                                                    \
        T *y = to;                                                                       \
        const T *px = from;                                                              \
        (void)a;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                \
            T x = px[i];                                                                 \
            y[i] = (T)(f);                                                               \
        }                                                                                \
    }
#define UNARY_NONE(name, f)

#if T_IS_BOOL
#define UNARY_B8  UNARY_LOOP
#define UNARY_FLT UNARY_NONE
#define UNARY_SGN UNARY_NONE
#define UNARY_NUM UNARY_NONE
#define UNARY_INT UNARY_NONE
#else
#define UNARY_B8  UNARY_NONE
#define UNARY_NUM UNARY_LOOP
#if T_FLOAT
#define UNARY_FLT UNARY_LOOP
#define UNARY_INT UNARY_NONE
#else
#define UNARY_FLT UNARY_NONE
#define UNARY_INT UNARY_LOOP
#endif
#if T_SIGNED
#define UNARY_SGN UNARY_LOOP
#else
#define UNARY_SGN UNARY_NONE
#endif
#endif
#define UNARY(name, Name, since, group, attributes, cost, f) UNARY_##group(name, f)
#if T_IS_F32
#define UNARY_K(name, Name, since, group, attributes, cost, f)
#else
#define UNARY_K(name, Name, since, group, attributes, cost, f) UNARY_##group(name, f)
#endif
#include "unary.def"
#undef UNARY
#undef UNARY_K
#undef UNARY_B8
#undef UNARY_FLT
#undef UNARY_SGN
#undef UNARY_NUM
#undef UNARY_INT
#undef UNARY_NONE
#undef UNARY_LOOP
#undef P
