/* unfold_tensor.c - com.microsoft UnfoldTensor: all windows of `size` elements along axis
 * `dim`, `step` elements apart.
 *
 * input    any rank from 1 to 7, any type of whole bytes; dim -1 and step 1 by default
 * output   input's dims with (n - size) / step + 1 in the place of n, and a last dim of
 *          `size`: output[…, i, …, k] = input[…, i * step + k, …]
 *
 * Cost: one write of the output. Source: ONNX Runtime contrib operators; compared with
 * onnxruntime 1.32.0. */
#include "move.h"
#include "../tile.h"

struct unfold_args {
    int64_t dim, size, step;
};
static const attnrun_attr_def unfold_attrs[] = {
    ATTR_INT(struct unfold_args, dim, -1),
    ATTR_INT_REQUIRED(struct unfold_args, size),
    ATTR_INT(struct unfold_args, step, 1),
    ATTR_END,
};

struct unfold_state {
    int64_t length, windows,
        inner; /* of the axis: elements, windows; elements behind it */
};

static attn_status unfold_infer(attnrun_step *step)
{
    const struct unfold_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    struct unfold_state *s = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int axis;
    if (args->size < 1 || args->step < 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "size is %lld and step %lld, expected 1 or more",
                       (long long)args->size, (long long)args->step);
    TRY(op_move_need_bytes(step, 0));
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK - 1));
    TRY(op_axis(step, args->dim, in->rank, false, &axis));
    memcpy(dims, in->dims, sizeof dims);
    attnrun_dim n = dims[axis];
    if (dim_is_const(n) && n.value < args->size)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected at least %s along axis %d",
                             attn_plural(args->size, "element"), axis);
    n = attnrun_dim_sub(step, n, dim_of(args->size));
    n = attnrun_dim_add(step, attnrun_dim_div(step, n, dim_of(args->step)), dim_of(1));
    dims[axis] = n;
    dims[in->rank] = dim_of(args->size);
    TRY(op_out(step, 0, in->dtype, in->rank + 1, dims));
    if (!op_move_planned(step, 0))
        return ATTNRUN_OK;
    *s = (struct unfold_state){ in->dims[axis].value, n.value,
                                op_count(in, axis + 1, in->rank) };
    op_unit_tasks(step, 0, op_count(&step->out[0], 0, in->rank + 1), OP_CHUNK, 2);
    return ATTNRUN_OK;
}

static void unfold_elements(const attnrun_step *step, int64_t begin, int64_t end)
{
    const struct unfold_args *args = step->args;
    const struct unfold_state *s = step->state;
    const int64_t bytes = dtype_bytes(step->x[0].dtype);
    const char *x = step->x[0].data;
    char *y = step->y[0].data;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i, k = op_take(&outer, args->size),
                inner = op_take(&outer, s->inner), window = op_take(&outer, s->windows);
        int64_t from = (outer * s->length + window * args->step + k) * s->inner + inner;
        memcpy(y + i * bytes, x + from * bytes, (size_t)bytes);
    }
}

static attn_status unfold_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t n = tensor_count(&step->y[0]);
    for (int64_t t = work->begin; t < work->end; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t end = n - t * OP_CHUNK < OP_CHUNK ? n : (t + 1) * OP_CHUNK;
        unfold_elements(step, t * OP_CHUNK, end);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_unfold_tensor_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "UnfoldTensor",
    .since = 1,
    .inputs = "input:T",
    .outputs = "output:T",
    .types = "T=all",
    .args_bytes = sizeof(struct unfold_args),
    .state_bytes = sizeof(struct unfold_state),
    .attrs = unfold_attrs,
    .infer = unfold_infer,
    .run = unfold_run,
    .cost = "O(output)",
    .source = "ONNX Runtime contrib operators",
};
