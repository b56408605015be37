/* binary_template.h - the loops of binary.def for one element type. for_each_dtype.h
 * describes the parameters. There is no include guard. */
#if !T_IS_BOOL
/* Integers: b is not 0, which binary.c has checked; the smallest T / -1 wraps. */
static inline T N(quotient)(T a, T b)
{
#if T_FLOAT
    return a / b;
#elif T_SIGNED
    if (b == -1)
        return (T)(0 - (W)a);
    return (T)(a / b);
#else
    return (T)(a / b);
#endif
}

/* The sign of a. */
static inline T N(remainder)(T a, T b)
{
#if T_FLOAT
    return M(fmod)(a, b);
#elif T_SIGNED
    return b == -1 ? 0 : (T)(a % b);
#else
    return (T)(a % b);
#endif
}

/* The sign of b. */
static inline T N(floor_mod)(T a, T b)
{
    T r = N(remainder)(a, b);
#if T_FLOAT
    if (r == 0 && b != 0)
        return M(copysign)(0, b);
#endif
#if T_SIGNED
    if (r != 0 && (r < 0) != (b < 0))
        r = (T)(r + b);
#endif
    return r;
}

#if !T_FLOAT
/* Counts that are negative or not below the width leave only the sign's extension. */
static inline T N(shift)(T a, T b, int direction)
{
    const int bits = (int)sizeof(T) * 8;
    bool all = b > bits - 1;
#if T_SIGNED
    all = all || b < 0;
    if (direction == SHIFT_RIGHT)
        return (T)(a >> (all ? bits - 1 : (int)b));
#else
    if (direction == SHIFT_RIGHT)
        return all ? 0 : (T)((W)a >> b);
#endif
    return all ? 0 : (T)((W)a << b);
}

static bool N(any_zero)(const char *b, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (*(const T *)(const void *)(b + i * step) == 0)
            return true;
    return false;
}
#endif
#endif

#define BINARY_LOOP(name, to_type, f)                                                    \
    static void N(name##_loop)(void *to, const char *pa, int64_t a_step, const char *pb, \
                               int64_t b_step, int64_t n,                                \
                               const struct binary_args *args)                           \
    {                                                                                    \
        to_type *z = to;                                                                 \
        (void)args;                                                                      \
        if (a_step == sizeof(T) && b_step == sizeof(T)) {                                \
            for (int64_t i = 0; i < n; i++) {                                            \
                T a = ((const T *)(const void *)pa)[i],                                  \
                  b = ((const T *)(const void *)pb)[i];                                  \
                z[i] = (to_type)(f);                                                     \
            }                                                                            \
            return;                                                                      \
        }                                                                                \
        if (a_step == sizeof(T) && b_step == 0) {                                        \
            T b = *(const T *)(const void *)pb;                                          \
            for (int64_t i = 0; i < n; i++) {                                            \
                T a = ((const T *)(const void *)pa)[i];                                  \
                z[i] = (to_type)(f);                                                     \
            }                                                                            \
            return;                                                                      \
        }                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                \
            T a = *(const T *)(const void *)(pa + i * a_step);                           \
            T b = *(const T *)(const void *)(pb + i * b_step);                           \
            z[i] = (to_type)(f);                                                         \
        }                                                                                \
    }
#define BINARY_NONE(name, to_type, f)
#define TO_SAME T
#define TO_B8   uint8_t

#if T_IS_BOOL
#define BINARY_NUM BINARY_NONE
#define BINARY_INT BINARY_NONE
#define BINARY_B8  BINARY_LOOP
#else
#define BINARY_NUM BINARY_LOOP
#define BINARY_B8  BINARY_NONE
#if T_FLOAT
#define BINARY_INT BINARY_NONE
#else
#define BINARY_INT BINARY_LOOP
#endif
#endif
#define BINARY_EQ BINARY_LOOP
#define BINARY(name, Name, since, group, attrs, out, known, cost, f)                     \
    BINARY_##group(name, TO_##out, f)
#define BINARY_OLD(name, Name, group, out)
#if T_IS_F32
#define BINARY_K(name, Name, since, group, attrs, out, known, cost, f)
#define BINARY_LOOPS(name, group, known, f)
#else
#define BINARY_K                            BINARY
#define BINARY_LOOPS(name, group, known, f) BINARY_##group(name, T, f)
#endif
#include "binary.def"
#undef BINARY
#undef BINARY_K
#undef BINARY_OLD
#undef BINARY_LOOPS
#undef BINARY_NUM
#undef BINARY_INT
#undef BINARY_B8
#undef BINARY_EQ
#undef BINARY_LOOP
#undef BINARY_NONE
#undef TO_SAME
#undef TO_B8
