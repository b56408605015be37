/* for_each_dtype.h - includes the header FOR_EACH_TEMPLATE once per element type of the
 * requested groups, with these parameters:
 *
 *   T          the C type                    float … uint64_t
 *   N(name)    name with the type's suffix   relu_f32
 *   M(name)    libm's function of the type   expf, exp (for integers: the double one)
 *   IS_NAN(x)                                0 for integers
 *   T_FLOAT, T_SIGNED, T_IS_F32, T_IS_BOOL   0 or 1
 *   W          the type to compute in        T; integers: unsigned, at least 32 bits, so
 *                                            that overflow wraps instead of being
 *                                            undefined
 *
 * Define FOR_EACH_TEMPLATE and any of FOR_EACH_FLOAT, FOR_EACH_SINT, FOR_EACH_UINT,
 * FOR_EACH_BOOL to 1 before the include; all are undefined at the end. There is no
 * include guard. */
#define FOR_EACH_CAT_(a, b) a##_##b
#define FOR_EACH_CAT(a, b)  FOR_EACH_CAT_(a, b)
#define N(name)             FOR_EACH_CAT(name, T_SUFFIX)

#define T_IS_BOOL 0
#if defined(FOR_EACH_FLOAT)
#define IS_NAN(x) ((x) != (x))
#define T_FLOAT   1
#define T_SIGNED  1
#define T         float
#define W         float
#define T_SUFFIX  f32
#define T_IS_F32  1
#define M(name)   name##f
#include FOR_EACH_TEMPLATE
#undef T_IS_F32
#define T_IS_F32 0
#undef T
#undef W
#undef T_SUFFIX
#undef M
#define T        double
#define W        double
#define T_SUFFIX f64
#define M(name)  name
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#undef M
#undef T_FLOAT
#undef T_SIGNED
#undef T_IS_F32
#undef IS_NAN
#endif

#define M(name)   name
#define IS_NAN(x) 0
#define T_FLOAT   0
#define T_IS_F32  0
#if defined(FOR_EACH_SINT)
#define T_SIGNED 1
#define T        int8_t
#define W        uint32_t
#define T_SUFFIX i8
#include FOR_EACH_TEMPLATE
#undef T
#undef T_SUFFIX
#define T        int16_t
#define T_SUFFIX i16
#include FOR_EACH_TEMPLATE
#undef T
#undef T_SUFFIX
#define T        int32_t
#define T_SUFFIX i32
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#define T        int64_t
#define W        uint64_t
#define T_SUFFIX i64
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#undef T_SIGNED
#endif

#define T_SIGNED 0
#if defined(FOR_EACH_UINT)
#define W        uint32_t
#define T        uint8_t
#define T_SUFFIX u8
#include FOR_EACH_TEMPLATE
#undef T
#undef T_SUFFIX
#define T        uint16_t
#define T_SUFFIX u16
#include FOR_EACH_TEMPLATE
#undef T
#undef T_SUFFIX
#define T        uint32_t
#define T_SUFFIX u32
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#define T        uint64_t
#define W        uint64_t
#define T_SUFFIX u64
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#endif
#undef T_IS_BOOL
#define T_IS_BOOL 1
#if defined(FOR_EACH_BOOL)
#define T        uint8_t
#define W        uint32_t
#define T_SUFFIX b8
#include FOR_EACH_TEMPLATE
#undef T
#undef W
#undef T_SUFFIX
#endif
#undef T_IS_BOOL
#undef T_IS_F32
#undef T_SIGNED
#undef T_FLOAT
#undef IS_NAN
#undef M
#undef N
#undef FOR_EACH_CAT
#undef FOR_EACH_CAT_
#undef FOR_EACH_TEMPLATE
#undef FOR_EACH_FLOAT
#undef FOR_EACH_SINT
#undef FOR_EACH_UINT
#undef FOR_EACH_BOOL
