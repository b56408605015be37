/* quantize_linear.c - QuantizeLinear: y = saturate(round(x / scale) + zero_point).
 *
 * x           f32, f16, bf16 or i32, any shape
 * scale       scalar; or 1-D along `axis`; or, with block_size, x's shape with the axis
 *             divided
 * zero_point  as scale; its dtype is y's; without it output_dtype's, else u8
 * y           x's shape
 *
 * Halves are rounded to even. Float types: y = cast(x / scale), saturating if `saturate`.
 * The division is one of numbers of scale's dtype, or of `precision`: operands and
 * quotient are rounded to it. com.microsoft's has no blocks, and integers only. Cost: one
 * pass. Source: ONNX QuantizeLinear-10 to 28; ONNX Runtime contrib operators. */
#include <math.h>

#include "scales.h"

#include "../../runtime/tensor.h"

struct quantize_args {
    int64_t axis, saturate, block_size, output_dtype, precision;
};
static const attnrun_attr_def quantize_attrs[] = {
    ATTR_INT(struct quantize_args, axis, 1),
    ATTR_FLAG(struct quantize_args, saturate, 1),
    ATTR_INT(struct quantize_args, block_size, 0),
    ATTR_INT(struct quantize_args, output_dtype, 0),
    ATTR_CHOICE(struct quantize_args, precision, "0 " OP_REAL_DTYPES, 0),
    ATTR_END
};

static attn_status quantize_infer(attnrun_step *step)
{
    const struct quantize_args *args = step->args;
    int64_t wanted = args->output_dtype;
    int32_t dtype = ATTNRUN_U8;
    if (op_has_in(step, 2))
        dtype = step->in[2].dtype;
    else if (wanted > 0 && wanted < ATTNRUN_DTYPE_COUNT)
        dtype = (int32_t)wanted;
    if (wanted != 0 && wanted != dtype)
        return op_fail(step, ATTNRUN_E_ATTR, "'output_dtype' is %lld, expected %s",
                       (long long)wanted, attnrun_dtype_name(dtype));
    if (!dtype_in(dtype, ~(ATTN_DT_FLOAT | ATTN_DT(I32) | ATTN_DT(I64) | ATTN_DT(U32) |
                           ATTN_DT(U64) | ATTN_DT(STRING) | ATTN_DT(BOOL) | ATTN_DT(C64) |
                           ATTN_DT(C128) | ATTN_DT(F8E8M0))))
        return op_fail(step, ATTNRUN_E_DTYPE, "cannot quantize to %s",
                       attnrun_dtype_name(dtype));
    TRY(op_out(step, 0, dtype, step->in[0].rank, step->in[0].dims));
    if (!step->concrete || step->in[0].rank < 0)
        return ATTNRUN_OK;
    elementwise_tasks(step, 3000);
    return attn_scales_infer(step, args->axis, args->block_size, step->state);
}

/* The range of an integer dtype; false for floats. */
static bool integer_range(int32_t dtype, float *low, float *high)
{
    int bits = (int)dtype_bits(dtype);
    if (attn_convert_wide(dtype) != ATTNRUN_I64)
        return false;
    if (dtype_in(dtype, ATTN_DT(I8) | ATTN_DT(I16) | ATTN_DT(I4) | ATTN_DT(I2))) {
        *low = (float)-(1 << (bits - 1));
        *high = (float)((1 << (bits - 1)) - 1);
    } else {
        *low = 0;
        *high = (float)((1 << bits) - 1);
    }
    return true;
}

/* What x and the scale are divided in: f16, bf16, or f32 for all others. */
static int32_t division_dtype(const attnrun_step *step)
{
    const struct quantize_args *args = step->args;
    const int32_t dtype =
        args->precision != 0 ? (int32_t)args->precision : step->x[1].dtype;
    return dtype_in(dtype, ATTN_DT(F16) | ATTN_DT(BF16)) ? dtype : ATTNRUN_F32;
}

/* x[i] / scale + zero, ready to be stored: n elements of one scale, or of n scales. */
static void quantize_run_of(float *x, int64_t n, const float *scale, const float *zero,
                            int64_t scale_step, int32_t division, int32_t dtype)
{
    float low, high;
    bool whole = integer_range(dtype, &low, &high);
    for (int64_t i = 0; i < n; i++) {
        const float by = scale[i * scale_step];
        float v = x[i] / by;
        if (division != ATTNRUN_F32)
            v = attn_convert_round_f32(division,
                                       attn_convert_round_f32(division, x[i]) /
                                           attn_convert_round_f32(division, by));
        if (whole) {
            v = nearbyintf(v) + zero[i * scale_step];
            v = v > low ? v : low; /* NaN too */
            v = v < high ? v : high;
        } else {
            v += zero[i * scale_step];
        }
        x[i] = v;
    }
}

/* f32 to bytes with one scale has kernels. */
static bool quantize_kernel(const attnrun_step *step, const float *x, int64_t k,
                            int64_t n, float scale, float zero)
{
    const attnrun_tensor *y = &step->y[0];
    if (y->dtype == ATTNRUN_U8)
        step->kernels->quantize_u8_f32((uint8_t *)y->data + k, x, scale, zero, (size_t)n);
    else if (y->dtype == ATTNRUN_I8)
        step->kernels->quantize_i8_f32((int8_t *)y->data + k, x, scale, zero, (size_t)n);
    else
        return false;
    return true;
}

static attn_status quantize_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct quantize_args *args = step->args;
    const struct convert_rule rule = { args->saturate != 0, ROUND_UP };
    const struct scales *scales = step->state;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    float values[CONVERT_RUN], scale[CONVERT_RUN], zero[CONVERT_RUN] = { 0 };
    const int32_t division = division_dtype(step);
    int64_t begin, end, index, along;
    elementwise_range(work, tensor_count(x), &begin, &end);
    for (int64_t k = begin, n; k < end; k += n) {
        n = scales_run(scales, k, end - k < CONVERT_RUN ? end - k : CONVERT_RUN, &index,
                       &along);
        attn_convert_load_f32(values, x->dtype, x->data, k, n);
        attn_convert_load_f32(scale, step->x[1].dtype, step->x[1].data, index,
                              along ? n : 1);
        if (op_has_in(step, 2))
            attn_convert_load_f32(zero, y->dtype, step->x[2].data, index, along ? n : 1);
        if (division == ATTNRUN_F32 && along == 0 &&
            quantize_kernel(step, values, k, n, scale[0], zero[0]))
            continue;
        quantize_run_of(values, n, scale, zero, along, division, y->dtype);
        attn_convert_store(y->dtype, y->data, k, n, ATTNRUN_F32, values, &rule);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define QUANTIZED                                                                        \
    "i8,u8,i16,u16,i4,u4,i2,u2,f8e4m3fn,f8e4m3fnuz,f8e5m2,f8e5m2fnuz,f4e2m1,"            \
    "f6e2m3,f6e3m2"
const attnrun_op_def op_quantize_linear_10 = {
    OP_ROW,
    .name = "QuantizeLinear",
    .since = 10,
    .inputs = "x:X y_scale:S y_zero_point:Y?",
    .outputs = "y:Y",
    .types = "X=f32,f16,bf16,i32 S=f32,f16,bf16,f8e8m0,i32 Y=" QUANTIZED,
    .args_bytes = sizeof(struct quantize_args),
    .state_bytes = sizeof(struct scales),
    .attrs = quantize_attrs,
    .infer = quantize_infer,
    .run = quantize_run,
};

static const attnrun_attr_def ms_quantize_attrs[] = {
    ATTR_INT(struct quantize_args, axis, 1), ATTR_END
};
const attnrun_op_def op_ms_quantize_linear_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QuantizeLinear",
    .since = 1,
    .inputs = "x:T1 y_scale:T1 y_zero_point:T2?",
    .outputs = "y:T2",
    .types = "T1=f32,f16 T2=i8,u8,i16,u16,i4,u4",
    .args_bytes = sizeof(struct quantize_args),
    .state_bytes = sizeof(struct scales),
    .attrs = ms_quantize_attrs,
    .infer = quantize_infer,
    .run = quantize_run,
    .source = "ONNX Runtime contrib operators",
};
