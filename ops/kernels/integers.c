/* integers.c - the steps after n sums of products of bytes.
 *
 *   requantize  y = clamp(round((x + bias) * factor) + zero, low, high) as a byte, in float as
 *               ONNX Runtime does it, halves to even, NaN as low; low and high within a byte
 *   rescale     y = x * scale + bias, in float
 *
 * Source: ONNX QLinearMatMul-21, ONNX Runtime's MatMulIntegerToFloat. */
#include "isa.h"

/* VF sums as whole numbers, before the zero point is added. */
static ALWAYS_INLINE v_u32 requantized_sums(const int32_t *x, const int32_t *bias,
                                            v_f32 factor, v_f32 high)
{
    v_i32 sum;
    memcpy(&sum, x, sizeof sum);
    if (bias != NULL) {
        v_i32 more;
        memcpy(&more, bias, sizeof more);
        sum = (v_i32)((v_u32)sum + (v_u32)more);
    }
    const v_f32 q = __builtin_convertvector(sum, v_f32) * factor;
    return v_nearest(v_min(high, q)); /* NaN stays: it is as low */
}

void K(requantize_i32)(uint8_t *y, const int32_t *x, const int32_t *bias,
                       const float *factor, size_t step, struct attn_byte_limits to,
                       size_t n)
{
    const int32_t flip = to.low < 0 ? 128 : 0; /* bytes of i8 are u8 less 128 */
    const v_f32 high = v_set((float)(to.high - to.zero));
    const v_f32 one = v_set(n > 0 ? factor[0] : 0.0f);
    const struct attn_byte_limits shifted = { to.zero + flip, to.low + flip,
                                              to.high + flip };
    v_u32 q[4];
    size_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF) {
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            const size_t at = i + k * VF;
            q[k] = requantized_sums(x + at, bias != NULL ? bias + at : NULL,
                                    step != 0 ? v_load(factor + at) : one, high);
        }
        v_store_pixels(y + i, VF, q, 4, shifted, true);
    }
    for (; i < n; i += VF) {
        const size_t rest = n - i < VF ? n - i : VF;
        int32_t sums[VF] = { 0 }, more[VF] = { 0 };
        uint8_t bytes[VF];
        memcpy(sums, x + i, rest * sizeof *sums);
        if (bias != NULL)
            memcpy(more, bias + i, rest * sizeof *more);
        q[0] = requantized_sums(
            sums, more, step != 0 ? v_load_part(factor + i, rest, 0.0f) : one, high);
        v_store_pixels(bytes, VF, q, 1, shifted, true);
        memcpy(y + i, bytes, rest);
    }
    for (i = 0; flip != 0 && i < n; i++)
        y[i] ^= 128;
}

void K(rescale_i32)(float *y, const int32_t *x, const float *scale, size_t step,
                    const float *bias, size_t n)
{
    const float one = n > 0 ? scale[0] : 0;
    for (size_t i = 0; bias == NULL && i < n; i++)
        y[i] = (float)x[i] * (step != 0 ? scale[i] : one);
    for (size_t i = 0; bias != NULL && i < n; i++) {
        float product = (float)x[i] * (step != 0 ? scale[i] : one);
        y[i] = product + bias[i];
    }
}
