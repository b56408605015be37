/* convert_dtypes.c - every dtype to and from four wide types. convert_dtypes.h has the
 * interface. In: n elements at any address. Out: n elements of the other type, rounded or
 * saturated as Cast states. Cost: one pass. */
#include "convert_dtypes.h"

#include <math.h>

int32_t attn_convert_wide(int32_t dtype)
{
    switch (dtype) {
    case ATTNRUN_F64:
        return ATTNRUN_F64;
    case ATTNRUN_U64:
        return ATTNRUN_U64;
    case ATTNRUN_F32:
    case ATTNRUN_F16:
    case ATTNRUN_BF16:
    case ATTNRUN_F8E4M3FN:
    case ATTNRUN_F8E4M3FNUZ:
    case ATTNRUN_F8E5M2:
    case ATTNRUN_F8E5M2FNUZ:
    case ATTNRUN_F8E8M0:
    case ATTNRUN_F4E2M1:
    case ATTNRUN_F6E2M3:
    case ATTNRUN_F6E3M2:
        return ATTNRUN_F32;
    case ATTNRUN_STRING:
    case ATTNRUN_C64:
    case ATTNRUN_C128:
    case ATTNRUN_UNDEFINED:
        return ATTNRUN_UNDEFINED;
    default:
        return ATTNRUN_I64;
    }
}

/* to[i] = (type)from[i] for elements of plain C types. */
#define PROMOTE(to_type, from_type)                                                      \
    for (int64_t i = 0; i < n; i++)                                                      \
    ((to_type *)wide)[i] = (to_type)((const from_type *)array)[first + i]

static void load_small_float(float *wide, int32_t dtype, const void *array, int64_t first,
                             int64_t n)
{
    const uint8_t *bytes = array;
    for (int64_t i = 0; i < n; i++) {
        uint8_t bits = dtype_bits(dtype) == 8
                           ? bytes[first + i]
                           : (uint8_t)attn_subbyte_get(dtype, array, first + i);
        wide[i] = attn_small_float_to_f32(dtype, bits);
    }
}

static void load_float(float *wide, int32_t dtype, const void *array, int64_t first,
                       int64_t n)
{
    const uint16_t *halves = array;
    if (dtype == ATTNRUN_F32)
        memcpy(wide, (const float *)array + first, (size_t)n * sizeof *wide);
    else if (dtype == ATTNRUN_F16)
        for (int64_t i = 0; i < n; i++)
            wide[i] = attn_f16_to_f32(halves[first + i]);
    else if (dtype == ATTNRUN_BF16)
        for (int64_t i = 0; i < n; i++)
            wide[i] = attn_bf16_to_f32(halves[first + i]);
    else
        load_small_float(wide, dtype, array, first, n);
}

void attn_convert_load(void *wide, int32_t dtype, const void *array, int64_t first,
                       int64_t n)
{
    switch (dtype) {
    case ATTNRUN_F64:
    case ATTNRUN_U64:
    case ATTNRUN_I64:
        memcpy(wide, (const char *)array + first * 8, (size_t)n * 8);
        break;
    case ATTNRUN_BOOL:
    case ATTNRUN_U8:
        PROMOTE(int64_t, uint8_t);
        break;
    case ATTNRUN_I8:
        PROMOTE(int64_t, int8_t);
        break;
    case ATTNRUN_U16:
        PROMOTE(int64_t, uint16_t);
        break;
    case ATTNRUN_I16:
        PROMOTE(int64_t, int16_t);
        break;
    case ATTNRUN_U32:
        PROMOTE(int64_t, uint32_t);
        break;
    case ATTNRUN_I32:
        PROMOTE(int64_t, int32_t);
        break;
    case ATTNRUN_U4:
    case ATTNRUN_I4:
    case ATTNRUN_U2:
    case ATTNRUN_I2:
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)wide)[i] = attn_subbyte_get(dtype, array, first + i);
        break;
    default:
        load_float(wide, dtype, array, first, n);
    }
}

/* The exponent alone, rounded as asked; Inf and NaN are 0xff. */
static uint8_t f32_to_f8e8m0(float x, const struct convert_rule *rule)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0xff)
        return 0xff;
    bool up = false;
    if (rule->round_mode == ROUND_UP)
        up = fraction != 0;
    else if (rule->round_mode == ROUND_NEAREST)
        up = fraction > 0x400000 || (fraction == 0x400000 && exponent > 0);
    if (up && !(rule->saturate && exponent == 0xfe))
        exponent++;
    return (uint8_t)exponent;
}

static void store_small_float(int32_t dtype, void *array, int64_t first, int64_t n,
                              const float *x, const struct convert_rule *rule)
{
    uint8_t *bytes = array;
    bool whole = dtype_bits(dtype) == 8;
    for (int64_t i = 0; i < n; i++) {
        uint8_t bits = dtype == ATTNRUN_F8E8M0
                           ? f32_to_f8e8m0(x[i], rule)
                           : attn_f32_to_small_float(dtype, x[i], rule->saturate);
        if (whole)
            bytes[first + i] = bits;
        else
            attn_subbyte_set(dtype, array, first + i, bits);
    }
}

static void store_float(int32_t dtype, void *array, int64_t first, int64_t n,
                        const float *x, const struct convert_rule *rule)
{
    uint16_t *halves = (uint16_t *)array + first;
    if (dtype == ATTNRUN_F16)
        for (int64_t i = 0; i < n; i++)
            halves[i] = attn_f32_to_f16(x[i]);
    else if (dtype == ATTNRUN_BF16)
        for (int64_t i = 0; i < n; i++)
            halves[i] = attn_f32_to_bf16(x[i]);
    else
        store_small_float(dtype, array, first, n, x, rule);
}

/* Doubles are rounded once: by the float next to each towards 0, with an odd last bit where it is
 * not the double. */
static void store_halves(uint16_t *halves, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++) {
        float y = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &y, sizeof bits);
        if ((double)y != x[i] && !isnan(x[i]))
            bits = (bits - (fabs((double)y) > fabs(x[i]))) | 1;
        memcpy(&y, &bits, sizeof bits);
        halves[i] = attn_f32_to_f16(y);
    }
}

/* One wide type to everything: the loops of convert_template.h, once per wide type. */
#define FROM       float
#define N(name)    name##_f32
#define TO_INT(x)  double_to_int64((double)(x))
#define TO_UINT(x) double_to_uint64((double)(x))
#include "convert_template.h"
#define FROM       double
#define N(name)    name##_f64
#define TO_INT(x)  double_to_int64(x)
#define TO_UINT(x) double_to_uint64(x)
#include "convert_template.h"
#define FROM       int64_t
#define N(name)    name##_i64
#define TO_INT(x)  (x)
#define TO_UINT(x) (uint64_t)(x)
#include "convert_template.h"
#define FROM       uint64_t
#define N(name)    name##_u64
#define TO_INT(x)  (int64_t)(x)
#define TO_UINT(x) (x)
#include "convert_template.h"

void attn_convert_store(int32_t dtype, void *array, int64_t first, int64_t n,
                        int32_t wide_dtype, const void *wide,
                        const struct convert_rule *rule)
{
    switch (wide_dtype) {
    case ATTNRUN_F32:
        store_all_f32(dtype, array, first, n, wide, rule);
        break;
    case ATTNRUN_F64:
        if (dtype == ATTNRUN_F16)
            store_halves((uint16_t *)array + first, n, wide);
        else
            store_all_f64(dtype, array, first, n, wide, rule);
        break;
    case ATTNRUN_U64:
        store_all_u64(dtype, array, first, n, wide, rule);
        break;
    default:
        store_all_i64(dtype, array, first, n, wide, rule);
    }
}

void attn_convert_load_f32(float *x, int32_t dtype, const void *array, int64_t first,
                           int64_t n)
{
    union convert_run run;
    int32_t wide = attn_convert_wide(dtype);
    if (wide == ATTNRUN_F32) {
        load_float(x, dtype, array, first, n);
        return;
    }
    attn_convert_load(&run, dtype, array, first, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = wide == ATTNRUN_F64   ? (float)run.f64[i]
               : wide == ATTNRUN_U64 ? (float)run.u64[i]
                                     : (float)run.i64[i];
}

void attn_convert_store_f32(int32_t dtype, void *array, int64_t first, int64_t n,
                            const float *x)
{
    const struct convert_rule rule = { true, ROUND_UP };
    store_all_f32(dtype, array, first, n, x, &rule);
}

float attn_convert_round_f32(int32_t dtype, float x)
{
    if (dtype == ATTNRUN_F16)
        return attn_f16_to_f32(attn_f32_to_f16(x));
    return dtype == ATTNRUN_BF16 ? attn_bf16_to_f32(attn_f32_to_bf16(x)) : x;
}
