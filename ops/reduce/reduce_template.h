/* reduce_template.h - folds of one element type into accumulators. for_each_dtype.h
 * describes the parameters.
 *
 * Floats are summed in double, integers modulo 2^64. A row is n elements that go into n
 * accumulators. f32 has kernels, except for products. There is no include guard. */
#if T_FLOAT
#define SUM_MEMBER   f
#define BEST_MEMBER  f
#define WIDE(x)      ((double)(x))
#define MAGNITUDE(x) fabs((double)(x))
#elif T_SIGNED
#define SUM_MEMBER   u
#define BEST_MEMBER  i
#define WIDE(x)      ((uint64_t)(int64_t)(x))
#define MAGNITUDE(x) ((x) < 0 ? 0 - WIDE(x) : WIDE(x))
#else
#define SUM_MEMBER   u
#define BEST_MEMBER  u
#define WIDE(x)      ((uint64_t)(x))
#define MAGNITUDE(x) WIDE(x)
#endif

#define FOLD(name, statement)                                                            \
    static void N(name##_run)(const struct attn_kernels *kernels, union accumulator *to, \
                              const void *from, int64_t n)                               \
    {                                                                                    \
        const T *x = from;                                                               \
        union accumulator a = *to;                                                       \
        (void)kernels;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                \
            T v = x[i];                                                                  \
            statement;                                                                   \
        }                                                                                \
        *to = a;                                                                         \
    }                                                                                    \
    static void N(name##_row)(const struct attn_kernels *kernels, union accumulator *to, \
                              const void *from, int64_t n)                               \
    {                                                                                    \
        const T *x = from;                                                               \
        (void)kernels;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                \
            T v = x[i];                                                                  \
            union accumulator a = to[i];                                                 \
            statement;                                                                   \
            to[i] = a;                                                                   \
        }                                                                                \
    }

#if !T_IS_BOOL
#if !T_IS_F32
FOLD(sum, a.SUM_MEMBER += WIDE(v))
FOLD(square, a.SUM_MEMBER += WIDE(v) * WIDE(v))
FOLD(abs, a.SUM_MEMBER += MAGNITUDE(v))
#endif
FOLD(prod, a.SUM_MEMBER *= WIDE(v))
#endif
#if T_FLOAT && !T_IS_F32
FOLD(max, a.f = v > a.f || v != v ? v : a.f)
FOLD(min, a.f = v < a.f || v != v ? v : a.f)
#elif !T_FLOAT
FOLD(max, if (v > a.BEST_MEMBER) a.BEST_MEMBER = v)
FOLD(min, if (v < a.BEST_MEMBER) a.BEST_MEMBER = v)
#endif
#undef FOLD
#undef SUM_MEMBER
#undef BEST_MEMBER
#undef WIDE
#undef MAGNITUDE
