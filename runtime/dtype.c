/* dtype.c - element types: names, sizes, and the values of the small floats.
 *
 * Small floats are sign, exponent, mantissa with a bias of their own; subnormals as in
 * IEEE. Source: ONNX Cast-25 and onnx.proto (packing), OCP OFP8 and OCP MX 1.0
 * (encodings). */
#include "dtype.h"

#include <stdio.h>
#include <string.h>

const char *attnrun_dtype_name(int32_t dtype)
{
    switch (dtype) {
#define X(name, code, text, bits)                                                        \
    case code:                                                                           \
        return text;
        ATTNRUN_DTYPE_LIST(X)
#undef X
    default:
        return "undefined";
    }
}

int32_t attnrun_dtype_bits(int32_t dtype)
{
    static const uint8_t table[ATTNRUN_DTYPE_COUNT] = {
#define X(name, code, text, bits) [code] = (bits),
        ATTNRUN_DTYPE_LIST(X)
#undef X
    };
    return dtype < 0 || dtype >= ATTNRUN_DTYPE_COUNT ? 0 : table[dtype];
}

const char *attn_dtype_set_names(uint32_t set)
{
    static _Thread_local char text[320];
    const uint32_t known = (uint32_t)((UINT64_C(1) << ATTNRUN_DTYPE_COUNT) - 1);
    size_t n = 0;
    text[0] = 0;
    for (int32_t dtype = 1; dtype < ATTNRUN_DTYPE_COUNT; dtype++)
        if (dtype_in(dtype, set)) {
            const bool last = (uint64_t)(set & known) >> (dtype + 1) == 0;
            int more = snprintf(text + n, sizeof text - n, "%s%s",
                                n == 0 ? ""
                                : last ? " or "
                                       : ", ",
                                attnrun_dtype_name(dtype));
            if (more < 0 || (size_t)more >= sizeof text - n)
                break;
            n += (size_t)more;
        }
    return text;
}

/* ---- bits ---- */
static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* n >> shift, rounded to nearest even; 0 < shift < 32. */
static uint32_t shift_round(uint32_t n, int shift)
{
    uint32_t half = UINT32_C(1) << (shift - 1), rest = n & (2 * half - 1);
    uint32_t kept = n >> shift;
    return kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
}

/* The code of |value| without its sign, rounded to nearest even, as if the exponent had
 * no upper end; value finite. A carry out of the mantissa raises the exponent by itself.
 */
static uint32_t encode(uint32_t magnitude, int mantissa_bits, int bias)
{
    int exponent = (int)(magnitude >> 23) - 127, min = 1 - bias,
        shift = 23 - mantissa_bits;
    uint32_t fraction = magnitude & 0x7fffff;
    if (exponent >= min)
        return shift_round((uint32_t)(exponent + bias) << 23 | fraction, shift);
    shift += min - exponent;
    if (exponent == -127 || shift > 25)
        return 0; /* below half of the smallest subnormal */
    return shift_round(fraction | 0x800000, shift);
}

/* The value of sign-less `code`; 2^-149 is below the smallest value of every format. */
static float decode(uint32_t code, int mantissa_bits, int bias)
{
    uint32_t fraction = code & ((UINT32_C(1) << mantissa_bits) - 1);
    int exponent = (int)(code >> mantissa_bits);
    float unit = bits_float((uint32_t)(127 + 1 - bias - mantissa_bits) << 23);
    if (exponent == 0)
        return (float)fraction * unit;
    return bits_float((uint32_t)(exponent - bias + 127) << 23 |
                      fraction << (23 - mantissa_bits));
}

/* ---- 16 bits ---- */
float attn_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, code = bits & 0x7fff;
    if (code >= 0x7c00)
        return bits_float(sign | 0x7f800000 | (code & 0x3ff) << 13);
    return bits_float(sign | float_bits(decode(code, 10, 15)));
}

uint16_t attn_f32_to_f16(float value)
{
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t sign = bits >> 16 & 0x8000, code;
    if (magnitude > 0x7f800000) /* stays NaN, quiet, with the high bits of its payload */
        code = 0x7e00 | (magnitude >> 13 & 0x3ff);
    else if (magnitude >= 0x477ff000) /* 65520: halfway from the largest to 2^16 */
        code = 0x7c00;
    else
        code = encode(magnitude, 10, 15);
    return (uint16_t)(sign | code);
}

uint16_t attn_f32_to_bf16(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_round(bits, 16);
}

/* ---- 8, 6 and 4 bits ---- */
struct small_format {
    uint8_t bits, mantissa_bits, bias;
    uint8_t largest; /* code of the largest finite value */
    uint8_t
        infinity; /* code of what follows it, NaN where there is no infinity; 0: none */
    uint8_t nan;  /* 0: none */
    bool unsigned_nan; /* "fnuz": one NaN, in the place of -0 */
};

static const struct small_format *small_format(int32_t dtype)
{
    static const struct small_format formats[ATTNRUN_DTYPE_COUNT] = {
        [ATTNRUN_F8E4M3FN] = { 8, 3, 7, 0x7e, 0x7f, 0x7f, false },
        [ATTNRUN_F8E4M3FNUZ] = { 8, 3, 8, 0x7f, 0x80, 0x80, true },
        [ATTNRUN_F8E5M2] = { 8, 2, 15, 0x7b, 0x7c, 0x7e, false },
        [ATTNRUN_F8E5M2FNUZ] = { 8, 2, 16, 0x7f, 0x80, 0x80, true },
        [ATTNRUN_F6E2M3] = { 6, 3, 1, 0x1f, 0, 0, false },
        [ATTNRUN_F6E3M2] = { 6, 2, 3, 0x1f, 0, 0, false },
        [ATTNRUN_F4E2M1] = { 4, 1, 1, 0x07, 0, 0, false },
    };
    return &formats[dtype > 0 && dtype < ATTNRUN_DTYPE_COUNT ? dtype : 0];
}

static float f8e8m0_to_f32(uint8_t code)
{
    if (code == 0xff)
        return bits_float(0x7fc00000);
    return bits_float(code == 0 ? 0x400000 : (uint32_t)code << 23);
}

float attn_small_float_to_f32(int32_t dtype, uint8_t bits)
{
    if (dtype == ATTNRUN_F8E8M0)
        return f8e8m0_to_f32(bits);
    const struct small_format *f = small_format(dtype);
    if (f->bits == 0)
        return 0;
    uint8_t sign_bit = (uint8_t)(1 << (f->bits - 1));
    uint32_t sign = (bits & sign_bit) != 0 ? UINT32_C(1) << 31 : 0;
    uint8_t code = bits & (uint8_t)(sign_bit - 1);
    if (f->unsigned_nan && bits == f->nan)
        return bits_float(0x7fc00000);
    if (f->nan != 0 && code > f->largest) {
        bool infinite = f->infinity != f->nan && code == f->infinity;
        return bits_float(sign | (infinite ? 0x7f800000 : 0x7fc00000));
    }
    return bits_float(sign | float_bits(decode(code, f->mantissa_bits, f->bias)));
}

uint8_t attn_f32_to_f8e8m0(float value, enum attn_round round, bool saturate)
{
    const uint32_t largest = 0xfe;
    uint32_t magnitude = float_bits(value) & 0x7fffffff;
    uint32_t code = magnitude >> 23, fraction = magnitude & 0x7fffff;
    if (magnitude > 0x7f800000)
        return 0xff;
    if (magnitude == 0x7f800000)
        return (uint8_t)(saturate ? largest : 0xff);
    if (code == 0) { /* the smallest value, 2^-127, is subnormal in f32 */
        if (fraction < 0x400000)
            return saturate ? 0 : 0xff;
        fraction = (fraction & 0x3fffff) << 1;
        if (round == ATTN_ROUND_NEAREST)
            return fraction >= 0x400000;
        return round == ATTN_ROUND_UP && fraction > 0;
    }
    if (round == ATTN_ROUND_UP)
        code += fraction > 0;
    else if (round == ATTN_ROUND_NEAREST) /* ties round up */
        code += fraction >= 0x400000;
    if (code > largest)
        code = saturate ? largest : 0xff;
    return (uint8_t)code;
}

uint8_t attn_f32_to_small_float(int32_t dtype, float value, bool saturate)
{
    if (dtype == ATTNRUN_F8E8M0)
        return attn_f32_to_f8e8m0(value, ATTN_ROUND_UP, saturate);
    const struct small_format *f = small_format(dtype);
    if (f->bits == 0)
        return 0;
    uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    uint8_t sign = (uint8_t)(bits >> 31 << (f->bits - 1));
    if (magnitude > 0x7f800000) {
        if (f->nan == 0) /* no NaN in the format: zero of the other sign, as ml_dtypes */
            return sign ^ (uint8_t)(1 << (f->bits - 1));
        return f->unsigned_nan ? f->nan : (uint8_t)(sign | f->nan);
    }
    uint32_t code =
        magnitude == 0x7f800000 ? 0xff : encode(magnitude, f->mantissa_bits, f->bias);
    if (code > f->largest) {
        if (!saturate && f->infinity != 0)
            return f->unsigned_nan ? f->nan : (uint8_t)(sign | f->infinity);
        code = f->largest;
    }
    if (code == 0 && f->unsigned_nan)
        return 0; /* no -0: its code is NaN */
    return (uint8_t)(sign | code);
}

/* ---- packed elements: from the low bits upwards; 6-bit ones may lie across two bytes
 * ---- */
int32_t attn_subbyte_get(int32_t dtype, const void *data, int64_t k)
{
    const uint8_t *bytes = data;
    int width = attnrun_dtype_bits(dtype);
    int64_t bit = k * width;
    int at = (int)(bit & 7);
    uint32_t word = (uint32_t)bytes[bit >> 3] >> at;
    if (at + width > 8)
        word |= (uint32_t)bytes[(bit >> 3) + 1] << (8 - at);
    int32_t value = (int32_t)(word & ((UINT32_C(1) << width) - 1));
    if ((dtype == ATTNRUN_I4 || dtype == ATTNRUN_I2) && (value >> (width - 1)) != 0)
        value -= 1 << width;
    return value;
}

void attn_subbyte_set(int32_t dtype, void *data, int64_t k, int32_t value)
{
    uint8_t *bytes = data;
    int width = attnrun_dtype_bits(dtype);
    int64_t bit = k * width;
    int at = (int)(bit & 7);
    uint32_t mask = ((UINT32_C(1) << width) - 1) << at;
    uint32_t word = (uint32_t)value << at & mask;
    uint8_t *first = &bytes[bit >> 3];
    *first = (uint8_t)((*first & ~mask) | word);
    if (at + width > 8)
        first[1] = (uint8_t)((first[1] & ~(mask >> 8)) | word >> 8);
}
