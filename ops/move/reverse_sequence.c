/* reverse_sequence.c - ReverseSequence: the first sequence_lens[b] steps of sample b in
 * reverse order; the other steps are copied.
 *
 * input                   any type, (time, batch, …) or (batch, time, …)
 * time_axis, batch_axis   0 and 1 (default), or 1 and 0
 *
 * Phase 0 checks the lengths: 0 to the extent of the time axis. Cost: one copy. Source:
 * ONNX ReverseSequence-10. */
#include "move.h"

struct reverse_args {
    int64_t batch_axis, time_axis;
};
static const attnrun_attr_def reverse_attrs[] = {
    ATTR_INT(struct reverse_args, batch_axis, 1),
    ATTR_INT(struct reverse_args, time_axis, 0), ATTR_END
};

static attn_status reverse_infer(attnrun_step *step)
{
    const struct reverse_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    TRY(op_out_like(step, 0, 0));
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, 1, 1));
    if (!(args->batch_axis == 0 && args->time_axis == 1) &&
        !(args->batch_axis == 1 && args->time_axis == 0))
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "batch_axis is %lld and time_axis %lld, expected 0 and 1, or 1 and 0",
            (long long)args->batch_axis, (long long)args->time_axis);
    if (in->rank >= 0 && op_rank_known(step, 1))
        TRY(op_need_dim(step, 1, 0, in->dims[args->batch_axis], "the batch"));
    if (!op_move_planned(step, 0))
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    int64_t count = op_count(in, 0, in->rank);
    int64_t row = count == 0 ? 0 : dtype_bytes_of(in->dtype, op_count(in, 2, in->rank));
    op_tasks(step, 0, 1, 0);
    op_tasks(step, 1, count == 0 ? 0 : op_count(in, 0, 2), row / 8 + 10);
    return ATTNRUN_OK;
}

static attn_status check_lengths(const attnrun_step *step, int64_t steps)
{
    for (int64_t b = 0; b < step->x[1].dims[0]; b++) {
        int64_t n = ((const int64_t *)step->x[1].data)[b];
        if (n < 0 || n > steps)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "element %lld of sequence_lens is %lld, expected 0 to %lld",
                           (long long)b, (long long)n, (long long)steps);
    }
    return ATTNRUN_OK;
}

static attn_status reverse_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct reverse_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    int64_t second = x->dims[1], steps = x->dims[args->time_axis];
    if (work->phase == 0)
        return check_lengths(step, steps);
    int64_t bytes = tensor_dims_product(x, 2, x->rank) * dtype_bytes(x->dtype);
    for (int64_t r = work->begin; r < work->end; r++) {
        int64_t i = r / second, j = r % second;
        int64_t batch = args->batch_axis == 0 ? i : j, t = args->batch_axis == 0 ? j : i;
        int64_t n = ((const int64_t *)step->x[1].data)[batch];
        int64_t from = t < n ? n - 1 - t : t;
        int64_t source =
            args->batch_axis == 0 ? batch * second + from : from * second + batch;
        TRY(attn_poll_copy((char *)step->y[0].data + r * bytes,
                           (const char *)x->data + source * bytes, bytes));
        if (OP_CANCELLED_AFTER(work, 64))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_reverse_sequence_10 = { OP_ROW,
                                                .name = "ReverseSequence",
                                                .since = 10,
                                                .inputs = "input:T sequence_lens:i64",
                                                .outputs = "Y:T",
                                                .types = "T=all",
                                                .args_bytes = sizeof(struct reverse_args),
                                                .attrs = reverse_attrs,
                                                .infer = reverse_infer,
                                                .run = reverse_run };
