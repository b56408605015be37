/* tensor_scatter.c - TensorScatter: writes `update` into a cache along its sequence axis.
 *
 * past, present   any type, (batch, …, max_length at `axis`, …); update: the same with
 *                 length there
 * write_indices   i64 (batch), 0 by default: where a sample's update begins
 * mode            linear: index + length <= max_length; circular: modulo max_length
 *
 * Phase 0 checks the indices, and phase 1 copies the cache where present has other
 * memory. Cost: one copy of update, and of the cache where it is copied. Source: ONNX
 * TensorScatter-24. */
#include "move.h"

struct tensor_scatter_args {
    int64_t axis;
    int32_t mode;
};
static const attnrun_attr_def tensor_scatter_attrs[] = {
    ATTR_INT(struct tensor_scatter_args, axis, -2),
    ATTR_ENUM(struct tensor_scatter_args, mode, "linear|circular", 0), ATTR_END
};
struct tensor_scatter_state {
    int64_t batch, prefixes, room, length, row_bytes;
};

static attn_status tensor_scatter_infer(attnrun_step *step)
{
    const struct tensor_scatter_args *args = step->args;
    const attnrun_type *past = &step->in[0], *update = &step->in[1];
    struct tensor_scatter_state *s = step->state;
    int axis = 0;
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (past->rank < 0 || update->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank(step, 1, past->rank));
    TRY(op_axis(step, args->axis, past->rank, false, &axis));
    if (axis == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "axis is 0, which is the batch; expected another axis");
    for (int i = 0; i < past->rank; i++)
        if (i != axis)
            TRY(op_need_dim(step, 1, i, past->dims[i], "as in past_cache"));
    if (dim_is_const(past->dims[axis]) && dim_is_const(update->dims[axis]) &&
        update->dims[axis].value > past->dims[axis].value)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected at most %lld in dim %d",
                             (long long)past->dims[axis].value, axis);
    if (op_has_in(step, 2)) {
        TRY(op_need_rank(step, 2, 1));
        if (op_rank_known(step, 2))
            TRY(op_need_dim(step, 2, 0, past->dims[0], "the batch"));
    }
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    int64_t count = op_count(past, 0, past->rank);
    int64_t filled = op_count(update, 0, update->rank);
    if (count > 0) {
        s->batch = past->dims[0].value;
        s->prefixes = op_count(past, 0, axis);
        s->room = past->dims[axis].value;
        s->length = update->dims[axis].value;
        s->row_bytes = dtype_bytes_of(past->dtype, op_count(past, axis + 1, past->rank));
    }
    op_tasks(step, 0, 1, 0);
    op_move_tasks(step, 1, dtype_bytes_of(past->dtype, count));
    op_tasks(step, 2, filled > 0 ? s->prefixes : 0, s->length * s->row_bytes / 8 + 10);
    return ATTNRUN_OK;
}

static attn_status check_writes(const attnrun_step *step)
{
    const struct tensor_scatter_args *args = step->args;
    const struct tensor_scatter_state *s = step->state;
    for (int64_t b = 0; b < s->batch && op_has_in(step, 2); b++) {
        int64_t at = ((const int64_t *)step->x[2].data)[b];
        if (at < 0 || (args->mode == 0 && at > s->room - s->length))
            return op_fail(step, ATTNRUN_E_RANGE,
                           "element %lld of input 2 is %lld, expected 0 to %lld",
                           (long long)b, (long long)at,
                           args->mode == 0 ? (long long)(s->room - s->length)
                                           : INT64_MAX);
    }
    return ATTNRUN_OK;
}

static attn_status tensor_scatter_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct tensor_scatter_state *s = step->state;
    if (work->phase == 0)
        return check_writes(step);
    if (work->phase == 1) {
        op_move_copy_chunks(step->y[0].data, step->x[0].data, tensor_bytes(&step->x[0]),
                            work->begin, work->end);
        return ATTNRUN_OK;
    }
    for (int64_t p = work->begin; p < work->end; p++) {
        char *to = (char *)step->y[0].data + p * s->room * s->row_bytes;
        const char *from = (const char *)step->x[1].data + p * s->length * s->row_bytes;
        int64_t at = 0;
        if (op_has_in(step, 2)) /* below room: linear ones were checked */
            at = ((const int64_t *)step->x[2].data)[p / (s->prefixes / s->batch)] %
                 s->room;
        int64_t first = s->room - at < s->length ? s->room - at : s->length;
        TRY(attn_poll_copy(to + at * s->row_bytes, from, first * s->row_bytes));
        TRY(attn_poll_copy(to, from + first * s->row_bytes,
                           (s->length - first) * s->row_bytes));
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_tensor_scatter_24 = {
    OP_ROW,
    .name = "TensorScatter",
    .since = 24,
    .inputs = "past_cache:T update:T write_indices:i64?",
    .outputs = "present_cache:T",
    .types = "T=all",
    .args_bytes = sizeof(struct tensor_scatter_args),
    .state_bytes = sizeof(struct tensor_scatter_state),
    .attrs = tensor_scatter_attrs,
    .infer = tensor_scatter_infer,
    .run = tensor_scatter_run
};
