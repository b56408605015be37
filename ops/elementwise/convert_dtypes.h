/* convert_dtypes.h - elements of any dtype to and from the four wide types f32, f64, i64
 * and u64, which hold every smaller one exactly: f32 the floats up to 32 bits, i64 bool
 * and the integers. */
#ifndef ATTN_CONVERT_DTYPES_H
#define ATTN_CONVERT_DTYPES_H

#include "../../runtime/op.h"

enum { CONVERT_RUN = 512 }; /* elements that callers convert at once, on their stack */

union convert_run {
    float f32[CONVERT_RUN];
    double f64[CONVERT_RUN];
    int64_t i64[CONVERT_RUN];
    uint64_t u64[CONVERT_RUN];
};

enum { ROUND_UP, ROUND_DOWN, ROUND_NEAREST };

struct convert_rule { /* for f8 types, as ONNX Cast has them */
    bool saturate;
    int round_mode; /* F8E8M0 only */
};

/* The wide type (an ATTNRUN_ dtype) of a dtype; UNDEFINED for strings and complex. */
int32_t attn_convert_wide(int32_t dtype);
/* Elements first … first + n - 1 of an array of `dtype` into its wide type. */
void attn_convert_load(void *wide, int32_t dtype, const void *array, int64_t first,
                       int64_t n);
/* The other way; `wide_dtype` any of the four. Floats become integers towards zero,
 * clamped to 64 bits, then cut to the type's bits; NaN gives 0. */
void attn_convert_store(int32_t dtype, void *array, int64_t first, int64_t n,
                        int32_t wide_dtype, const void *wide,
                        const struct convert_rule *rule);
/* Any real dtype to f32, n <= CONVERT_RUN. */
void attn_convert_load_f32(float *x, int32_t dtype, const void *array, int64_t first,
                           int64_t n);
/* f32 to any real dtype, saturating. */
void attn_convert_store_f32(int32_t dtype, void *array, int64_t first, int64_t n,
                            const float *x);
float attn_convert_round_f32(int32_t dtype,
                             float x); /* to a f16 or bf16 and back; else x */

/* Towards zero; beyond the range the nearest integer, NaN 0. */
static inline int64_t double_to_int64(double x)
{
    if (!(x < 9223372036854775808.0))
        return x > 0 ? INT64_MAX : 0;
    return x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}
static inline uint64_t double_to_uint64(double x)
{
    if (x < 9223372036854775808.0)
        return (uint64_t)double_to_int64(x);
    if (!(x < 18446744073709551616.0))
        return x > 0 ? UINT64_MAX : 0;
    return (uint64_t)x;
}

#endif
