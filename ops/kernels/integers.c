/* integers.c - the steps after n sums of products of bytes.
 *
 *   requantize  y = clamp(round(x * factor), low - zero, high - zero) + zero as a byte,
 *               in double, halves to even, NaN as low; low and high within a byte
 *   rescale     y = x * scale + bias, in float
 *
 * Source: ONNX QLinearMatMul-21, ONNX Runtime's MatMulIntegerToFloat. */
#include "isa.h"

void K(requantize_i32)(uint8_t *y, const int32_t *x, const double *factor, size_t step,
                       double zero, double low, double high, size_t n)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds */
    const double min = low - zero, max = high - zero, one = n > 0 ? factor[0] : 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i] * (step != 0 ? factor[i] : one);
        v = v > min ? v : min;
        v = v < max ? v : max;
        y[i] = (uint8_t)(int32_t)(v + magic - magic + zero);
    }
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
