/* identity.c - Identity and BitCast: y is a view of x.
 *
 * Identity  x any tensor, sequence or optional; a tensor is a view, else a copy
 * BitCast   x any tensor, y of dtype `to`, which has as many bits
 *
 * Cost: none for a tensor. Source: ONNX Identity-1 to 25, BitCast-26. */
#include "../sequence/values.h"
#include "elementwise.h"

static attnrun_dim first_of(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    (void)step;
    (void)b;
    return a;
}

static attn_status identity_infer(attnrun_step *step)
{
    TRY(op_out_like(step, 0, 0));
    if (step->in[0].kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    if (step->in[0].dtype != ATTNRUN_STRING)
        attnrun_step_heap_bound(step, 0);
    attnrun_step_view(step, 0, 0, 0);
    op_elementwise_known(step, 0, -1, first_of);
    return ATTNRUN_OK;
}

static attn_status identity_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    (void)work;
    if (x->kind == ATTNRUN_TENSOR && op_has_out(step, 0) && step->y[0].data == x->data &&
        x->data != NULL) /* the view */
        return ATTNRUN_OK;
    return op_value_out(step, 0, x);
}

const attnrun_op_def op_identity_1 = {
    OP_ROW,
    .name = "Identity",
    .since = 1,
    .flags = ATTNRUN_OP_DYNAMIC,
    .inputs = "x:any",
    .outputs = "y:any",
    .infer = identity_infer,
    .run = identity_run,
};

struct bit_cast_args {
    int64_t to;
};
static const attnrun_attr_def bit_cast_attrs[] = {
    ATTR_INT_REQUIRED(struct bit_cast_args, to), ATTR_END
};

static attn_status bit_cast_infer(attnrun_step *step)
{
    const struct bit_cast_args *args = step->args;
    const attnrun_type *x = &step->in[0];
    int32_t to = args->to > 0 && args->to < ATTNRUN_DTYPE_COUNT ? (int32_t)args->to : 0;
    if (to == 0 || to == ATTNRUN_STRING)
        return op_fail(step, ATTNRUN_E_ATTR, "'to' is %lld, expected an element type",
                       (long long)args->to);
    if (dtype_bits(to) != dtype_bits(x->dtype))
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE,
                             "expected elements of %lld bits as %s",
                             (long long)dtype_bits(to), attnrun_dtype_name(to));
    TRY(op_out(step, 0, to, x->rank, x->dims));
    attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

const attnrun_op_def op_bit_cast_26 = {
    OP_ROW,
    .name = "BitCast",
    .since = 26,
    .inputs = "x:A",
    .outputs = "y:B",
    .types = "A=fixed B=fixed",
    .args_bytes = sizeof(struct bit_cast_args),
    .attrs = bit_cast_attrs,
    .infer = bit_cast_infer,
};
