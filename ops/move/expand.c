/* expand.c - Expand: numpy broadcasting of x.
 *
 * x       any type and shape
 * shape   i64 (rank); both ways: an extent of 1 in it keeps x's
 * y       the broadcast shape
 *
 * Cost: one write of y. Source: ONNX Expand-8. */
#include "move.h"

static attn_status expand_plan(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0], *out = &step->out[0];
    int64_t n[ATTNRUN_MAX_RANK], strides[ATTNRUN_MAX_RANK], dims[ATTNRUN_MAX_RANK];
    int64_t from[ATTNRUN_MAX_RANK], to[ATTNRUN_MAX_RANK], offset = 0;
    int shift = out->rank - in->rank;
    op_move_dims(in, n);
    op_move_strides(in->rank, n, strides);
    op_move_dims(out, dims);
    op_move_strides(out->rank, dims, to);
    for (int i = 0; i < out->rank; i++)
        from[i] = i < shift || n[i - shift] == 1 ? 0 : strides[i - shift];
    op_copy_plan(step->state, in->dtype, out->rank, dims, from, 0, to, 0);
    op_copy_tasks(step, 0, step->state);
    if (op_copy_is_view(step->state, &offset))
        attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

/* A single known element repeated. */
static void expand_values(attnrun_step *step)
{
    attnrun_dim values[64], one;
    const attnrun_type *out = &step->out[0];
    for (int i = 0; i < out->rank; i++)
        if (!dim_is_const(out->dims[i]))
            return;
    int64_t n = op_count(out, 0, out->rank), count = op_move_n_values(step, 0);
    if (count == n)
        op_move_values_along(step);
    if (n > 64 || count != 1 || !op_move_peek(step, 0, 0, &one))
        return;
    for (int64_t k = 0; k < n; k++)
        values[k] = one;
    attnrun_step_set_values(step, 0, n, values);
}

static attn_status expand_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK], wanted;
    TRY(op_need_rank(step, 1, 1));
    int64_t n = op_rank_known(step, 1) ? op_move_list_length(step, 1) : -1;
    if (n < 0 || in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    if (n > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the shape has %s, expected at most %d", attn_plural(n, "dim"),
                       ATTNRUN_MAX_RANK);
    int rank = (int)n > in->rank ? (int)n : in->rank;
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - in->rank), element = i - (rank - (int)n);
        dims[i] = at >= 0 ? in->dims[at] : dim_of(1);
        if (element < 0)
            continue;
        if (!op_move_value(step, 1, element, &wanted)) {
            bool fixed = dim_is_const(dims[i]) && dims[i].value != 1;
            dims[i] = fixed ? dims[i] : attnrun_dim_unknown(step);
            continue;
        }
        if (dim_is_const(wanted) && wanted.value < 0)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "element %d of the shape is %lld, expected 0 or more", element,
                           (long long)wanted.value);
        if (!dim_may_equal(dims[i], wanted) && dims[i].value != 1 && wanted.value != 1)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                                 "expected 1 or %lld in dim %d to be expanded",
                                 (long long)wanted.value, at);
        dims[i] = op_broadcast_dim(step, dims[i], wanted);
    }
    TRY(op_out(step, 0, in->dtype, rank, dims));
    expand_values(step);
    return op_move_planned(step, 0) ? expand_plan(step) : ATTNRUN_OK;
}

static attn_status expand_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_copy_run(step->state, work, step->y[0].data, step->x[0].data);
}

const attnrun_op_def op_expand_8 = { OP_ROW,
                                     .name = "Expand",
                                     .since = 8,
                                     .inputs = "input:T shape:i64",
                                     .outputs = "output:T",
                                     .types = "T=all",
                                     .state_bytes = sizeof(struct op_copy),
                                     .infer = expand_infer,
                                     .run = expand_run };
