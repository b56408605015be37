/* concat_from_sequence.c - ConcatFromSequence: joins the tensors of a list.
 *
 * list      tensors of any type, whose dims are equal except that of the axis
 * axis      the axis along which they are joined
 * new_axis  1: they are stacked along a new axis instead
 *
 * The step is a dynamic-shape step. Cost: one copy. Source: ONNX ConcatFromSequence-11.
 */
#include "values.h"

struct from_sequence_args {
    int64_t axis, new_axis;
};
static const attnrun_attr_def concat_attrs[] = {
    ATTR_INT_REQUIRED(struct from_sequence_args, axis),
    ATTR_FLAG(struct from_sequence_args, new_axis, 0), ATTR_END
};

static attn_status from_sequence_infer(attnrun_step *step)
{
    return op_value_unknown(step, 0, ATTNRUN_TENSOR, step->in[0].dtype);
}

/* An element as it stands in the result: with an axis of 1 where that is new. */
static attnrun_tensor shaped(const attnrun_tensor *item, int axis, bool new_axis)
{
    attnrun_tensor t = *item;
    if (!new_axis)
        return t;
    for (int k = t.rank; k > axis; k--) {
        t.dims[k] = t.dims[k - 1];
        t.strides[k] = t.strides[k - 1]; /* those of a caller's element may be any */
    }
    t.dims[axis] = 1;
    t.rank++;
    return t;
}

static attn_status sum_dims(const attnrun_step *step, int axis, bool new_axis,
                            int64_t *dims, int *rank)
{
    const attnrun_tensor *items = step->x[0].data;
    for (int64_t i = 0; i < step->x[0].dims[0]; i++) {
        attnrun_tensor t = shaped(&items[i], axis, new_axis);
        if (i == 0) {
            *rank = t.rank;
            memcpy(dims, t.dims, sizeof t.dims);
            continue;
        }
        bool fits = t.rank == *rank && t.dtype == items[0].dtype;
        for (int k = 0; fits && k < *rank; k++)
            fits = k == axis || t.dims[k] == dims[k];
        if (!fits || !ck_add(dims[axis], t.dims[axis], &dims[axis]))
            return op_fail(
                step, ATTNRUN_E_SHAPE,
                "element %lld of the sequence is %s, which does not fit element 0, %s",
                (long long)i, attn_tensor_format(&t), attn_tensor_format(&items[0]));
    }
    return ATTNRUN_OK;
}

static attn_status from_sequence_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct from_sequence_args *args = step->args;
    const attnrun_tensor *items = step->x[0].data;
    bool new_axis = args->new_axis != 0;
    int64_t n = step->x[0].dims[0], dims[ATTNRUN_MAX_RANK], at = 0;
    int axis = 0, rank = 0;
    if (n == 0)
        return op_fail(step, ATTNRUN_E_RANGE, "the sequence is empty");
    if (new_axis && items[0].rank >= ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the result would have more than %d dims", ATTNRUN_MAX_RANK);
    if (dtype_bits(items[0].dtype) < 8)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the elements are of a type under 8 bits, expected whole bytes");
    for (int64_t i = 0; i < n; i++) /* before an axis is put into each */
        if (items[i].rank != items[0].rank)
            return op_fail(step, ATTNRUN_E_SHAPE, "element %lld has rank %d, expected %d",
                           (long long)i, items[i].rank, items[0].rank);
    TRY(op_axis(step, args->axis, items[0].rank + new_axis, false, &axis));
    TRY(sum_dims(step, axis, new_axis, dims, &rank));
    TRY(attnrun_step_alloc(step, 0, items[0].dtype, rank, dims));
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    for (int64_t i = 0; i < n; i++) {
        attnrun_tensor from = shaped(&items[i], axis, new_axis), to = step->y[0];
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        to.dims[axis] = from.dims[axis];
        if (tensor_count(&from) > 0) {
            to.data = (char *)to.data + at * to.strides[axis];
            tensor_copy(&to, &from);
        }
        at += from.dims[axis];
    }
    bool strings = items[0].dtype == ATTNRUN_STRING;
    return strings ? op_heap_strings(step, 0, &step->y[0]) : ATTNRUN_OK;
}

const attnrun_op_def op_concat_from_sequence_11 = { OP_ROW,
                                                    .flags = ATTNRUN_OP_DYNAMIC,
                                                    .name = "ConcatFromSequence",
                                                    .since = 11,
                                                    .inputs = "input_sequence:seq(T)",
                                                    .outputs = "concat_result:T",
                                                    .types = "T=all",
                                                    .args_bytes =
                                                        sizeof(struct from_sequence_args),
                                                    .attrs = concat_attrs,
                                                    .infer = from_sequence_infer,
                                                    .run = from_sequence_run };
