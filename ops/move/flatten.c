/* flatten.c - Flatten: (d0 * … * d[axis-1], d[axis] * …), a view.
 *
 * axis   1 by default, 0 to rank; negative counts from the end
 *
 * Cost: none. Source: ONNX Flatten-11. */
#include "view.h"

struct flatten_args {
    int64_t axis;
};
static const attnrun_attr_def flatten_attrs[] = { ATTR_INT(struct flatten_args, axis, 1),
                                                  ATTR_END };

static attn_status flatten_infer(attnrun_step *step)
{
    const struct flatten_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int axis = 0;
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, 2);
    if (args->axis == in->rank)
        axis = in->rank;
    else
        TRY(op_axis(step, args->axis, in->rank, false, &axis));
    attnrun_dim dims[2] = { op_dims_product(step, in->dims, 0, axis),
                            op_dims_product(step, in->dims, axis, in->rank) };
    return op_view_out(step, 2, dims);
}

const attnrun_op_def op_flatten_1 = { OP_ROW,
                                      .name = "Flatten",
                                      .since = 1,
                                      .inputs = "input:T",
                                      .outputs = "output:T",
                                      .types = "T=all",
                                      .args_bytes = sizeof(struct flatten_args),
                                      .attrs = flatten_attrs,
                                      .infer = flatten_infer,
                                      .run = op_view_run };
