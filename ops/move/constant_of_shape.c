/* constant_of_shape.c - ConstantOfShape: a tensor of that shape filled with one element.
 *
 * input   i64 (rank): the shape of the output
 * value   a tensor of one element, f32 0 by default
 *
 * Cost: one write of the output. Source: ONNX ConstantOfShape-9. */
#include "move.h"

struct constant_args {
    attnrun_tensor value;
};
static const attnrun_attr_def constant_attrs[] = {
    ATTR_TENSOR(struct constant_args, value), ATTR_END
};

static void constant_values(attnrun_step *step)
{
    const struct constant_args *args = step->args;
    attnrun_dim values[64];
    int32_t dtype = step->out[0].dtype;
    if ((dtype != ATTNRUN_I64 && dtype != ATTNRUN_I32) || !op_move_planned(step, 0))
        return;
    int64_t n = op_count(&step->out[0], 0, step->out[0].rank);
    for (int64_t k = 0; k < n && n <= 64; k++)
        values[k] = dim_of(tensor_get_int(&args->value, 0));
    if (n <= 64)
        attnrun_step_set_values(step, 0, n, values);
}

static attn_status constant_infer(attnrun_step *step)
{
    const struct constant_args *args = step->args;
    bool given = args->value.kind == ATTNRUN_TENSOR;
    int32_t dtype = given ? args->value.dtype : ATTNRUN_F32;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (given && tensor_count(&args->value) != 1)
        return op_fail(step, ATTNRUN_E_ATTR, "value has %s, expected 1",
                       attn_plural(tensor_count(&args->value), "element"));
    if (dtype_bits(dtype) < 8)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "value is %s, expected a type of whole bytes",
                       attnrun_dtype_name(dtype));
    TRY(op_need_rank(step, 0, 1));
    int64_t n = op_rank_known(step, 0) ? op_move_list_length(step, 0) : -1;
    if (n < 0)
        return op_move_unknown(step, 0, dtype, -1);
    if (n > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the shape has %s, expected at most %d", attn_plural(n, "dim"),
                       ATTNRUN_MAX_RANK);
    for (int i = 0; i < n; i++) {
        if (!op_move_value(step, 0, i, &dims[i]))
            dims[i] = attnrun_dim_unknown(step);
        if (dim_is_const(dims[i]) && dims[i].value < 0)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "element %d of the shape is %lld, expected 0 or more", i,
                           (long long)dims[i].value);
    }
    TRY(op_out(step, 0, dtype, (int)n, dims));
    constant_values(step);
    if (op_move_planned(step, 0))
        op_unit_tasks(step, 0, op_count(&step->out[0], 0, (int)n), OP_CHUNK, 0.5);
    return ATTNRUN_OK;
}

static attn_status constant_run(const attnrun_step *step, const attnrun_work *work)
{
    static const char zero[16] = { 0 };
    const struct constant_args *args = step->args;
    const void *value = args->value.kind == ATTNRUN_TENSOR ? args->value.data : zero;
    int64_t bytes = dtype_bytes(step->y[0].dtype), n = tensor_count(&step->y[0]);
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t from = t * OP_CHUNK, left = n - from;
        op_move_fill((char *)step->y[0].data + from * bytes,
                     left < OP_CHUNK ? left : OP_CHUNK, value, bytes);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_constant_of_shape_9 = { OP_ROW,
                                                .name = "ConstantOfShape",
                                                .since = 9,
                                                .inputs = "input:i64",
                                                .outputs = "output:T",
                                                .types = "T=all",
                                                .args_bytes =
                                                    sizeof(struct constant_args),
                                                .attrs = constant_attrs,
                                                .infer = constant_infer,
                                                .run = constant_run };
