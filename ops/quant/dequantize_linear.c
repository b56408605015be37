/* dequantize_linear.c - DequantizeLinear: y = (x - zero_point) * scale.
 *
 * x           integers of up to 32 bits, f8 or smaller floats; any shape
 * scale       scalar; or 1-D along `axis`; or, with block_size, x's shape with the axis
 *             divided
 * zero_point  as scale, of x's dtype; 0 by default
 * y           of scale's dtype, or output_dtype
 *
 * com.microsoft's has no blocks, and integers only. Cost: one pass. Source: ONNX
 * DequantizeLinear-10 to 28; ONNX Runtime contrib operators. */
#include "scales.h"

#include "../../runtime/tensor.h"

struct dequantize_args {
    int64_t axis, block_size, output_dtype;
};
static const attnrun_attr_def dequantize_attrs[] = {
    ATTR_INT(struct dequantize_args, axis, 1),
    ATTR_INT(struct dequantize_args, block_size, 0),
    ATTR_INT(struct dequantize_args, output_dtype, 0), ATTR_END
};

static attn_status dequantize_infer(attnrun_step *step)
{
    const struct dequantize_args *args = step->args;
    int64_t wanted = args->output_dtype != 0 ? args->output_dtype : step->in[1].dtype;
    if (wanted != ATTNRUN_F32 && wanted != ATTNRUN_F16 && wanted != ATTNRUN_BF16)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "'output_dtype' is %lld, expected f32, f16 or bf16",
                       (long long)args->output_dtype);
    TRY(op_out(step, 0, (int32_t)wanted, step->in[0].rank, step->in[0].dims));
    if (!step->concrete || step->in[0].rank < 0)
        return ATTNRUN_OK;
    elementwise_tasks(step, 2000);
    return attn_scales_infer(step, args->axis, args->block_size, step->state);
}

/* Bytes to f32 with one scale have kernels. */
static bool dequantize_kernel(const attnrun_step *step, int64_t k, int64_t n, float scale,
                              float zero)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    float *to = (float *)y->data + k;
    if (y->dtype != ATTNRUN_F32)
        return false;
    if (x->dtype == ATTNRUN_U8)
        step->kernels->dequantize_u8_f32(to, (const uint8_t *)x->data + k, scale, zero,
                                         (size_t)n);
    else if (x->dtype == ATTNRUN_I8)
        step->kernels->dequantize_i8_f32(to, (const int8_t *)x->data + k, scale, zero,
                                         (size_t)n);
    else
        return false;
    return true;
}

static attn_status dequantize_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct scales *scales = step->state;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    float values[CONVERT_RUN], scale[CONVERT_RUN], zero[CONVERT_RUN] = { 0 };
    int64_t begin, end, index, along;
    elementwise_range(work, tensor_count(x), &begin, &end);
    for (int64_t k = begin, n; k < end; k += n) {
        n = scales_run(scales, k, end - k < CONVERT_RUN ? end - k : CONVERT_RUN, &index,
                       &along);
        attn_convert_load_f32(scale, step->x[1].dtype, step->x[1].data, index,
                              along ? n : 1);
        if (op_has_in(step, 2))
            attn_convert_load_f32(zero, x->dtype, step->x[2].data, index, along ? n : 1);
        if (along == 0 && dequantize_kernel(step, k, n, scale[0], zero[0]))
            continue;
        attn_convert_load_f32(values, x->dtype, x->data, k, n);
        for (int64_t i = 0; i < n; i++)
            values[i] = (values[i] - zero[i * along]) * scale[i * along];
        attn_convert_store_f32(y->dtype, y->data, k, n, values);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define QUANTIZED                                                                        \
    "i8,u8,i16,u16,i32,i4,u4,i2,u2,f8e4m3fn,f8e4m3fnuz,f8e5m2,f8e5m2fnuz,"               \
    "f4e2m1,f6e2m3,f6e3m2"
const attnrun_op_def op_dequantize_linear_10 = {
    OP_ROW,
    .name = "DequantizeLinear",
    .since = 10,
    .inputs = "x:X x_scale:S x_zero_point:X?",
    .outputs = "y:Y",
    .types = "X=" QUANTIZED " S=f32,f16,bf16,f8e8m0 Y=f32,f16,bf16",
    .args_bytes = sizeof(struct dequantize_args),
    .state_bytes = sizeof(struct scales),
    .attrs = dequantize_attrs,
    .infer = dequantize_infer,
    .run = dequantize_run,
};

static const attnrun_attr_def ms_dequantize_attrs[] = {
    ATTR_INT(struct dequantize_args, axis, 1), ATTR_END
};
const attnrun_op_def op_ms_dequantize_linear_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "DequantizeLinear",
    .since = 1,
    .inputs = "x:T1 x_scale:T2 x_zero_point:T1?",
    .outputs = "y:T2",
    .types = "T1=i8,u8,i16,u16,i32,i4,u4 T2=f32,f16",
    .args_bytes = sizeof(struct dequantize_args),
    .state_bytes = sizeof(struct scales),
    .attrs = ms_dequantize_attrs,
    .infer = dequantize_infer,
    .run = dequantize_run,
    .source = "ONNX Runtime contrib operators",
};
