/* unsqueeze.c - Unsqueeze: inserts dims of 1; axes are places in the result. y is a view.
 * com.microsoft ExpandDims takes one axis (i32). Cost: none. Source: ONNX Unsqueeze-1
 * (attribute), 13; ONNX Runtime contrib operators. */
#include "view.h"

struct unsqueeze_args {
    attnrun_ints axes;
};
static const attnrun_attr_def unsqueeze_attrs[] = {
    ATTR_INTS_REQUIRED(struct unsqueeze_args, axes), ATTR_END
};

static attn_status unsqueeze_axes(attnrun_step *step, const int64_t *axes, int64_t n)
{
    const attnrun_type *in = &step->in[0];
    bool marked[ATTNRUN_MAX_RANK] = { false };
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    if (n > ATTNRUN_MAX_RANK - in->rank)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the result would have %s, expected at most %d",
                       attn_plural(in->rank + n, "dim"), ATTNRUN_MAX_RANK);
    int rank = in->rank + (int)n, next = 0;
    TRY(op_view_axes(step, axes, (int)n, rank, marked));
    for (int i = 0; i < rank; i++)
        dims[i] = marked[i] ? dim_of(1) : in->dims[next++];
    return op_view_out(step, rank, dims);
}

static attn_status unsqueeze_1_infer(attnrun_step *step)
{
    const struct unsqueeze_args *args = step->args;
    return unsqueeze_axes(step, args->axes.v, args->axes.n);
}

static attn_status unsqueeze_13_infer(attnrun_step *step)
{
    int64_t axes[ATTNRUN_MAX_RANK];
    int n = 0;
    bool known = false;
    TRY(op_ints(step, 1, axes, ATTNRUN_MAX_RANK, &n, &known));
    if (known)
        return unsqueeze_axes(step, axes, n);
    int64_t length = op_rank_known(step, 1) ? op_move_list_length(step, 1) : -1;
    int rank = step->in[0].rank;
    return op_move_unknown(step, 0, step->in[0].dtype,
                           length >= 0 && rank >= 0 && length <= ATTNRUN_MAX_RANK - rank
                               ? rank + (int)length
                               : -1);
}

const attnrun_op_def op_unsqueeze_1 = { OP_ROW,
                                        .name = "Unsqueeze",
                                        .since = 1,
                                        .inputs = "data:T",
                                        .outputs = "expanded:T",
                                        .types = "T=all",
                                        .args_bytes = sizeof(struct unsqueeze_args),
                                        .attrs = unsqueeze_attrs,
                                        .infer = unsqueeze_1_infer,
                                        .run = op_view_run };
const attnrun_op_def op_unsqueeze_13 = { OP_ROW,
                                         .name = "Unsqueeze",
                                         .since = 13,
                                         .inputs = "data:T axes:i64",
                                         .outputs = "expanded:T",
                                         .types = "T=all",
                                         .infer = unsqueeze_13_infer,
                                         .run = op_view_run };

static attn_status expand_dims_infer(attnrun_step *step)
{
    int64_t axis;
    int n = 0, rank = step->in[0].rank;
    bool known = false;
    TRY(op_need_rank_between(step, 1, 0, 1));
    if (step->in[1].rank == 1)
        TRY(op_need_dim(step, 1, 0, dim_of(1), "one axis"));
    TRY(op_ints(step, 1, &axis, 1, &n, &known));
    return known ? unsqueeze_axes(step, &axis, 1)
                 : op_move_unknown(step, 0, step->in[0].dtype,
                                   rank >= 0 && rank < ATTNRUN_MAX_RANK ? rank + 1 : -1);
}

const attnrun_op_def op_ms_expand_dims_1 = {
    OP_ROW_OF("com.microsoft"), .name = "ExpandDims", .since = 1,
    .inputs = "X:T axis:i32",   .outputs = "Y:T",     .types = "T=all",
    .infer = expand_dims_infer, .run = op_view_run
};
