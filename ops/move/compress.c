/* compress.c - Compress: the slices along `axis` where condition is true; without an
 * axis, the elements of the flattened input.
 *
 * input      any type and shape
 * condition  b8 (n); a shorter one counts as false behind its end
 * output     the input's dims with fewer slices, or (m) without an axis
 *
 * The step is a dynamic-shape step. Cost: one copy of the result. Source: ONNX
 * Compress-9. */
#include "move.h"

struct compress_args {
    int64_t axis;
};
static const attnrun_attr_def compress_attrs[] = {
    ATTR_INT(struct compress_args, axis, OP_INT_ABSENT), ATTR_END
};

static attn_status compress_infer(attnrun_step *step)
{
    const struct compress_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int axis = 0, rank = args->axis == OP_INT_ABSENT ? 1 : in->rank;
    TRY(op_need_rank(step, 1, 1));
    TRY(op_move_need_bytes(step, 0));
    if (rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    if (args->axis != OP_INT_ABSENT)
        TRY(op_axis(step, args->axis, in->rank, false, &axis));
    for (int i = 0; i < rank; i++)
        dims[i] = i == axis ? attnrun_dim_unknown(step) : in->dims[i];
    if (step->concrete)
        attnrun_step_heap_bound(step,
                                dtype_bytes_of(in->dtype, op_count(in, 0, in->rank)));
    return op_out(step, 0, in->dtype, rank, dims);
}

static attn_status compress_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct compress_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    const uint8_t *condition = step->x[1].data;
    bool flat = args->axis == OP_INT_ABSENT;
    int axis = flat ? 0 : (int)(args->axis < 0 ? args->axis + x->rank : args->axis);
    int64_t extent = flat ? tensor_count(x) : x->dims[axis], n = 0,
            dims[ATTNRUN_MAX_RANK];
    int64_t length = step->x[1].dims[0] < extent ? step->x[1].dims[0] : extent;
    for (int64_t k = 0; k < length && !attn_stops(k); k++)
        n += condition[k] != 0;
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = n;
    TRY(attnrun_step_alloc(step, 0, x->dtype, flat ? 1 : x->rank, dims));
    int64_t outer = flat ? 1 : tensor_dims_product(x, 0, axis);
    int64_t inner = flat ? 1 : tensor_dims_product(x, axis + 1, x->rank);
    int64_t bytes = inner * dtype_bytes(x->dtype);
    char *y = step->y[0].data;
    if (y == NULL || tensor_count(x) == 0)
        return ATTNRUN_OK;
    for (int64_t o = 0; o < outer; o++) {
        const char *from = (const char *)x->data + o * extent * bytes;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t k = 0; k < length; k++)
            if (condition[k] != 0) {
                if (OP_CANCELLED_AFTER(work, 4))
                    return ATTNRUN_E_CANCELLED;
                TRY(attn_poll_copy(y, from + k * bytes, bytes));
                y += bytes;
            }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_compress_9 = { OP_ROW,
                                       .flags = ATTNRUN_OP_DYNAMIC,
                                       .name = "Compress",
                                       .since = 9,
                                       .inputs = "input:T condition:b8",
                                       .outputs = "output:T",
                                       .types = "T=all",
                                       .args_bytes = sizeof(struct compress_args),
                                       .attrs = compress_attrs,
                                       .infer = compress_infer,
                                       .run = compress_run };
