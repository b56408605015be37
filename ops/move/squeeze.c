/* squeeze.c - Squeeze: takes out dims of 1. y is a view.
 *
 * axes   which dims; absent: all of extent 1 (an attribute up to 12, then an input)
 *
 * Cost: none. Source: ONNX Squeeze-1, 13. */
#include "view.h"

struct squeeze_args {
    attnrun_ints axes;
};
static const attnrun_attr_def squeeze_attrs[] = { ATTR_INTS(struct squeeze_args, axes),
                                                  ATTR_END };

static attn_status squeeze_marked(attnrun_step *step, const bool *marked)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < in->rank; i++) {
        if (!marked[i])
            dims[rank++] = in->dims[i];
        else if (dim_is_const(in->dims[i]) && in->dims[i].value != 1)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected extent 1 at axis %d",
                                 i);
    }
    return op_view_out(step, rank, dims);
}

static attn_status squeeze_axes(attnrun_step *step, const int64_t *axes, int n)
{
    bool marked[ATTNRUN_MAX_RANK] = { false };
    if (!op_rank_known(step, 0))
        return op_move_unknown(step, 0, step->in[0].dtype, -1);
    TRY(op_view_axes(step, axes, n, step->in[0].rank, marked));
    return squeeze_marked(step, marked);
}

static attn_status squeeze_all(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    bool marked[ATTNRUN_MAX_RANK] = { false };
    for (int i = 0; i < in->rank; i++) {
        if (!dim_is_const(in->dims[i]))
            return op_move_unknown(step, 0, in->dtype, -1);
        marked[i] = in->dims[i].value == 1;
    }
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    return squeeze_marked(step, marked);
}

static attn_status squeeze_1_infer(attnrun_step *step)
{
    const struct squeeze_args *args = step->args;
    if (args->axes.v == NULL)
        return squeeze_all(step);
    if (args->axes.n > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_ATTR, "axes has %s, expected at most %d",
                       attn_plural(args->axes.n, "element"), ATTNRUN_MAX_RANK);
    return squeeze_axes(step, args->axes.v, (int)args->axes.n);
}

static attn_status squeeze_13_infer(attnrun_step *step)
{
    int64_t axes[ATTNRUN_MAX_RANK];
    int n = 0;
    bool known = false;
    if (!op_has_in(step, 1))
        return squeeze_all(step);
    TRY(op_ints(step, 1, axes, ATTNRUN_MAX_RANK, &n, &known));
    if (!known)
        return op_move_unknown(step, 0, step->in[0].dtype, -1);
    return squeeze_axes(step, axes, n);
}

const attnrun_op_def op_squeeze_1 = { OP_ROW,
                                      .name = "Squeeze",
                                      .since = 1,
                                      .inputs = "data:T",
                                      .outputs = "squeezed:T",
                                      .types = "T=all",
                                      .args_bytes = sizeof(struct squeeze_args),
                                      .attrs = squeeze_attrs,
                                      .infer = squeeze_1_infer,
                                      .run = op_view_run };
const attnrun_op_def op_squeeze_13 = { OP_ROW,
                                       .name = "Squeeze",
                                       .since = 13,
                                       .inputs = "data:T axes:i64?",
                                       .outputs = "squeezed:T",
                                       .types = "T=all",
                                       .infer = squeeze_13_infer,
                                       .run = op_view_run };
