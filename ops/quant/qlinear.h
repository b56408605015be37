/* qlinear.h - what the operators of the QOperator form share: real = (q - zero) * scale
 * of bytes, with one scale and zero point a tensor.
 *
 *   infer:  op_qlinear_check() for each pair of scale and zero point
 *   run:    op_qlinear_of() reads a pair; op_qlinear_byte() quantizes, halves to even;
 *           op_qlinear_table() is a function of one byte as 256 results */
#ifndef ATTN_QLINEAR_H
#define ATTN_QLINEAR_H

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

struct op_qlinear {
    float scale, zero;
};

/* Fails unless input `scale` and, where it is there, input `zero` are one number each. */
attn_status op_qlinear_check(const attnrun_step *step, int scale, int zero);
struct op_qlinear op_qlinear_of(const attnrun_step *step, int scale, int zero);

static inline float op_qlinear_real(bool is_signed, uint8_t byte, struct op_qlinear q)
{
    return ((is_signed ? (float)(int8_t)byte : (float)byte) - q.zero) * q.scale;
}
/* saturate(round(x) + zero); NaN as the lowest number. Numbers up to 2^22 are rounded by an
 * addition, since a call of the C library would take most of the time; larger ones saturate. */
static inline uint8_t op_qlinear_byte(bool is_signed, float x, float zero)
{
    const float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
    const float max = 1 << 22, magic = 12582912.0f;
    x = x > -max ? x : -max;
    x = x < max ? x : max;
    x = (x + magic - magic) + zero;
    x = x > low ? x : low;
    x = x < high ? x : high;
    return (uint8_t)(int32_t)x;
}
/* The mean of n bytes, of which `sum` is the sum, as ONNX Runtime rounds it. */
static inline uint8_t op_qlinear_mean(bool is_signed, int64_t sum, int64_t n,
                                      struct op_qlinear from, struct op_qlinear to)
{
    const float factor = from.scale / (to.scale * (float)n);
    return op_qlinear_byte(is_signed, (float)(sum - n * (int64_t)from.zero) * factor,
                           to.zero);
}
/* table[byte] = the byte of f(real of byte, arg); f NULL: the same number. */
void op_qlinear_table(uint8_t table[256], bool is_signed, struct op_qlinear from,
                      struct op_qlinear to, float (*f)(float x, float arg), float arg);

#endif
