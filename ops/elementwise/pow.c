/* pow.c - Pow: z = x ^ y with numpy broadcasting; z has x's dtype.
 *
 * x  f32, f64, i32, i64; y any number
 *
 * Integers wrap. An integer to a negative power is 0, except for 1 and -1. An integer to
 * a fractional power is computed in double and truncated. f32 to the powers 2, 3 and 1/2
 * are kernels, and to whole powers up to 64 products of doubles. Cost: one pass. Source:
 * ONNX Pow-1 to 15. */
#include <math.h>

#include "binary.h"
#include "convert_dtypes.h"

/* x as doubles or integers comes from the template, the exponents in their wide type. */
typedef void pow_loop(void *z, const void *x, int64_t x_step, const union convert_run *y,
                      int32_t wide, int64_t y_step, int64_t n);

static double exponent_at(const union convert_run *y, int32_t wide, int64_t i)
{
    return wide == ATTNRUN_F32   ? (double)y->f32[i]
           : wide == ATTNRUN_F64 ? y->f64[i]
           : wide == ATTNRUN_U64 ? (double)y->u64[i]
                                 : (double)y->i64[i];
}

static uint64_t whole_power(uint64_t base, uint64_t exponent)
{
    uint64_t power = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1)
            power *= base;
    return power;
}

/* The exponent is of the type `wide`, i64 or u64. */
static int64_t int_power(int64_t x, int64_t exponent, int32_t wide)
{
    if (exponent >= 0 || wide == ATTNRUN_U64)
        return (int64_t)whole_power((uint64_t)x, (uint64_t)exponent);
    if (x == 1 || x == -1)
        return x == 1 || exponent % 2 == 0 ? 1 : -1;
    return 0;
}

/* Exponents of other types than f32 may have more than 24 bits, and then be odd, say. */
static float float_power(float x, double exponent, int32_t wide)
{
    return wide == ATTNRUN_F32 ? powf(x, (float)exponent)
                               : (float)pow((double)x, exponent);
}
static double double_power(double x, double exponent, int32_t wide)
{
    (void)wide;
    return pow(x, exponent);
}

#define POW_FLOAT(name, type, function)                                                  \
    static void name(void *z, const void *x, int64_t x_step, const union convert_run *y, \
                     int32_t wide, int64_t y_step, int64_t n)                            \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                  \
            ((type *)z)[i] = function(((const type *)x)[i * x_step],                     \
                                      exponent_at(y, wide, i * y_step), wide);           \
    }
POW_FLOAT(pow_f32, float, float_power)
POW_FLOAT(pow_f64, double, double_power)

#define POW_INT(name, type)                                                              \
    static void name(void *z, const void *x, int64_t x_step, const union convert_run *y, \
                     int32_t wide, int64_t y_step, int64_t n)                            \
    {                                                                                    \
        bool whole = wide == ATTNRUN_I64 || wide == ATTNRUN_U64;                         \
        for (int64_t i = 0; i < n; i++) {                                                \
            type base = ((const type *)x)[i * x_step];                                   \
            if (whole)                                                                   \
                ((type *)z)[i] = (type)int_power(base, y->i64[i * y_step], wide);        \
            else                                                                         \
                ((type *)z)[i] = (type)double_to_int64(                                  \
                    pow((double)base, exponent_at(y, wide, i * y_step)));                \
        }                                                                                \
    }
POW_INT(pow_i32, int32_t)
POW_INT(pow_i64, int64_t)

static void finish_infer(attnrun_step *step)
{
    op_elementwise_inplace(step, 0);
    elementwise_tasks(step, 10000);
}

static attn_status pow_infer(attnrun_step *step)
{
    TRY(op_elementwise_broadcast(step, 0, 2, step->in[0].dtype));
    finish_infer(step);
    return ATTNRUN_OK;
}

static attn_status pow_old_infer(attnrun_step *step)
{
    struct binary_state *state = step->state;
    TRY(attn_binary_old_infer(step, step->in[0].dtype, &state->append));
    finish_infer(step);
    return ATTNRUN_OK;
}

/* Whole exponents, in double: a product rounds by 2^-53 where the result has 24 bits. YOSO's
 * ninth powers of 34 million scores took 150 ms by powf. */
static bool pow_whole(float *z, const float *x, int64_t n, double exponent)
{
    if (!(exponent >= 4 && exponent <= 64 && exponent == floor(exponent)))
        return false;
    for (int64_t i = 0; i < n; i++) {
        double power = 1, base = (double)x[i];
        for (uint32_t left = (uint32_t)exponent; left > 0; left >>= 1, base *= base)
            if (left & 1)
                power *= base;
        z[i] = (float)power;
    }
    return true;
}

/* Exponents that are a kernel; false for others. */
static bool pow_constant(const attnrun_step *step, float *z, const float *x, int64_t n,
                         double exponent)
{
    static const float none[2];
    if (exponent == 2)
        step->kernels->mul_f32(z, x, 1, x, 1, (size_t)n);
    else if (exponent == 3)
        step->kernels->cube_f32(z, x, (size_t)n, none);
    else if (exponent == 0.5)
        step->kernels->pow_half_f32(z, x, (size_t)n, none);
    else
        return pow_whole(z, x, n, exponent);
    return true;
}

/* Computes a segment of at most CONVERT_RUN elements. */
static void pow_segment(const attnrun_step *step, const struct nd_iter *it, int64_t first,
                        int64_t n)
{
    union convert_run exponents;
    const attnrun_tensor *x = &step->x[0], *y = &step->x[1];
    int32_t wide = attn_convert_wide(y->dtype);
    int64_t size = dtype_bytes(x->dtype);
    char *z = it->p[0] + first * size;
    const char *from = it->p[1] + first * it->step[1];
    bool one = it->step[2] == 0;
    attn_convert_load(&exponents, y->dtype, it->p[2] + first * it->step[2], 0,
                      one ? 1 : n);
    if (x->dtype == ATTNRUN_F32 && one && (it->step[1] != 0 || n == 1) &&
        pow_constant(step, (float *)(void *)z, (const float *)(const void *)from, n,
                     exponent_at(&exponents, wide, 0)))
        return;
    pow_loop *loop = x->dtype == ATTNRUN_F32   ? pow_f32
                     : x->dtype == ATTNRUN_F64 ? pow_f64
                     : x->dtype == ATTNRUN_I32 ? pow_i32
                                               : pow_i64;
    loop(z, from, it->step[1] != 0, &exponents, wide, !one, n);
}

static void pow_segments(const attnrun_step *step, const struct nd_iter *it,
                         const void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < it->n; i += CONVERT_RUN)
        pow_segment(step, it, i, min64(it->n - i, CONVERT_RUN));
}

static attn_status pow_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct binary_state *state = step->state;
    attnrun_tensor y = step->x[1];
    const attnrun_tensor *operands[] = { &step->x[0], &y };
    attn_binary_append(&y, state->append);
    return op_elementwise_run(step, work, operands, 2, pow_segments, NULL);
}

static const attnrun_attr_def pow_1_attrs[] = {
    ATTR_INT(struct binary_args, axis, OP_INT_ABSENT),
    ATTR_FLAG(struct binary_args, broadcast, 0), ATTR_END
};
#define POW_ROW                                                                          \
    OP_ROW, .name = "Pow", .inputs = "x:T y:U", .outputs = "z:T",                        \
        .types = "T=f32,f64,i32,i64 U=" TYPES_NUM,                                       \
        .args_bytes = sizeof(struct binary_args),                                        \
        .state_bytes = sizeof(struct binary_state), .run = pow_run
const attnrun_op_def op_pow_1 = { POW_ROW, .since = 1, .attrs = pow_1_attrs,
                                  .infer = pow_old_infer,
                                  .expand = attn_binary_old_expand };
const attnrun_op_def op_pow_7 = { POW_ROW, .since = 7, .infer = pow_infer };
