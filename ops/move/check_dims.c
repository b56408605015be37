/* check_dims.c - CheckDims: y is a view of x, whose dims must be the last dims of `like`.
 *
 * x, like  any shapes;  y as x
 *
 * Formulas (expand() of a row) write it where an operator must not broadcast in all ways
 * that the operators of its formula could. The check holds for every shape, also for
 * shapes that are known only at run. Where the dims are known to be right it is an
 * Identity. Domain attnrun.fused: exporters never write it. Cost: nothing but the check.
 */
#include "../../runtime/op.h"

enum { X, LIKE };

static attn_status check_dims_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[X], *like = &step->in[LIKE];
    if (x->rank >= 0 && like->rank >= 0) {
        if (x->rank > like->rank)
            return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                                 "expected at most the %s of input 1",
                                 attn_plural(like->rank, "dim"));
        for (int i = 0; i < x->rank; i++)
            TRY(op_need_dim(step, X, i, like->dims[like->rank - x->rank + i],
                            "the dim of input 1"));
    }
    TRY(op_out_like(step, 0, X));
    attnrun_step_view(step, 0, X, 0);
    return ATTNRUN_OK;
}

static attn_status check_dims_expand(const attnrun_step *step, attnrun_body *body)
{
    const attnrun_type *x = &step->in[X], *like = &step->in[LIKE];
    if (x->rank < 0 || like->rank < x->rank)
        return ATTNRUN_OK;
    for (int i = 0; i < x->rank; i++)
        if (!dim_equal(x->dims[i], like->dims[like->rank - x->rank + i]))
            return ATTNRUN_OK;
    return attnrun_body_add(body, "y = Identity(x)");
}

const attnrun_op_def op_check_dims_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "CheckDims",
    .since = 1,
    .inputs = "x:T like:U",
    .outputs = "y:T",
    .types = "T=fixed U=fixed",
    .infer = check_dims_infer,
    .expand = check_dims_expand,
};
