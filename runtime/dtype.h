/* dtype.h - element types: sizes, groups, and conversions of the small floats. */
#ifndef ATTN_DTYPE_H
#define ATTN_DTYPE_H

#include <stdbool.h>

#include "checked.h"
#include "status.h"

#define ATTN_DT(name) (UINT32_C(1) << ATTNRUN_##name)

enum { /* sets of dtypes, one bit each */
       ATTN_DT_FLOAT = ATTN_DT(F16) | ATTN_DT(BF16) | ATTN_DT(F32) | ATTN_DT(F64),
       ATTN_DT_SINT = ATTN_DT(I8) | ATTN_DT(I16) | ATTN_DT(I32) | ATTN_DT(I64),
       ATTN_DT_UINT = ATTN_DT(U8) | ATTN_DT(U16) | ATTN_DT(U32) | ATTN_DT(U64),
       ATTN_DT_NUM = ATTN_DT_FLOAT | ATTN_DT_SINT | ATTN_DT_UINT
};

static inline int64_t dtype_bits(int32_t dtype) { return attnrun_dtype_bits(dtype); }

/* Bytes of one element, for types of whole bytes. */
static inline int64_t dtype_bytes(int32_t dtype) { return attnrun_dtype_bits(dtype) / 8; }

/* Bytes of n packed elements; -1 where that overflows. */
static inline int64_t dtype_bytes_of(int32_t dtype, int64_t n)
{
    int64_t bits;
    if (n < 0 || !ck_mul(n, dtype_bits(dtype), &bits) || !ck_add(bits, 7, &bits))
        return -1;
    return bits / 8;
}

static inline bool dtype_in(int32_t dtype, uint32_t set)
{
    return dtype > 0 && dtype < ATTNRUN_DTYPE_COUNT && (set >> dtype & 1) != 0;
}

/* "f32, f16 or f64": the names of a set, for messages; a buffer of this thread. */
const char *attn_dtype_set_names(uint32_t set);

/* Values of the 16-bit, 8-bit, 6-bit and 4-bit floats, rounded to nearest even. */
float attn_f16_to_f32(uint16_t bits);
uint16_t attn_f32_to_f16(float value);
static inline float attn_bf16_to_f32(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } word = { (uint32_t)bits << 16 };
    return word.f;
}
uint16_t attn_f32_to_bf16(float value);
/* dtype: F8*, F6*, F4E2M1; `bits` in the low bits. */
float attn_small_float_to_f32(int32_t dtype, uint8_t bits);
/* `saturate`: beyond the range gives the largest value, else what ONNX Cast says. */
uint8_t attn_f32_to_small_float(int32_t dtype, float value, bool saturate);
/* How F8E8M0 rounds: ONNX Cast's round_mode; the function above rounds up, Cast's
 * default. */
enum attn_round { ATTN_ROUND_UP, ATTN_ROUND_DOWN, ATTN_ROUND_NEAREST };
uint8_t attn_f32_to_f8e8m0(float value, enum attn_round round, bool saturate);
/* Element k of a packed array of a type under 8 bits (sign-extended for I4, I2). */
int32_t attn_subbyte_get(int32_t dtype, const void *data, int64_t k);
void attn_subbyte_set(int32_t dtype, void *data, int64_t k, int32_t value);

#endif
