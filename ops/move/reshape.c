/* reshape.c - Reshape: the same elements under another shape.
 *
 * data   any type and shape
 * shape  up to 8 integers, each a size; -1 (once): the size that is left, also beside an
 *        empty dim of data that is kept; 0: the size of data at that place, or, with
 *        allowzero, an empty dim
 * y      a view of data
 *
 * Cost: none. Source: ONNX Reshape-1 (attribute), 5, 14. */
#include "view.h"

struct reshape_args {
    attnrun_ints shape;
    int64_t allowzero;
};
static const attnrun_attr_def reshape_1_attrs[] = { ATTR_INTS(struct reshape_args, shape),
                                                    ATTR_IGNORED("consumed_inputs"),
                                                    ATTR_END };
static const attnrun_attr_def reshape_14_attrs[] = {
    ATTR_FLAG(struct reshape_args, allowzero, 0), ATTR_END
};

/* The dims wanted; `left` is the place of -1, or -1. */
struct reshape_target {
    int rank, left;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
};

/* Whether element i of the shape, an expression, is a size in all runs: 0 and -1 stand for another
 * one. Where it divides the number of elements, there are none when it is 0, or the shape does not
 * fit. Beside a -1 (`open`) the sizes are others then: a size that depends on data is not known,
 * but one of an input is, so that it has its place in tensors without elements, too. A number of
 * blocks, floor(n / 8), is 0 for inputs shorter than one. A run refuses these. */
static bool is_size(const attnrun_step *step, bool allowzero, bool open,
                    attnrun_dim value, int i)
{
    const attnrun_type *in = &step->in[0];
    const attnrun_dim least = dim_of(allowzero ? 0 : 1);
    if (dim_equal(attnrun_dim_max(step, value, least), value) ||
        (i < in->rank && dim_equal(value, in->dims[i])))
        return true;
    const attnrun_dim all = op_dims_product(step, in->dims, 0, in->rank);
    const attnrun_dim rest = op_dim_div_exact(step, all, value);
    if (in->rank < 0)
        return false;
    if (dim_equal(attnrun_dim_mul(step, rest, value), all))
        return !open || op_dim_is_given(step, value);
    return op_dim_assume_nonzero(step, value, i < in->rank ? in->dims[i] : least);
}

static attn_status target_dim(const attnrun_step *step, bool allowzero, attnrun_dim value,
                              int i, struct reshape_target *t)
{
    t->dims[i] = value;
    if (!dim_is_const(value) || value.value > 0)
        return ATTNRUN_OK;
    if (value.value == -1) {
        if (t->left >= 0)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "the shape has -1 at %d and at %d, expected at most one -1",
                           t->left, i);
        t->left = i;
    } else if (value.value < -1) {
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "element %d of the shape is %lld, expected -1 or more", i,
                       (long long)value.value);
    } else if (!allowzero && step->in[0].rank < 0) {
        t->dims[i] = attnrun_dim_unknown(step);
    } else if (!allowzero) {
        if (i >= step->in[0].rank)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "element %d of the shape is 0, which stands for a dim of the "
                           "input, but the input has %s",
                           i, attn_plural(step->in[0].rank, "dim"));
        t->dims[i] = step->in[0].dims[i];
    }
    return ATTNRUN_OK;
}

/* Divides what equal dims do not cancel already. */
static attnrun_dim divide_left(const attnrun_step *step, const struct reshape_target *t)
{
    const attnrun_type *in = &step->in[0];
    bool gone[ATTNRUN_MAX_RANK] = { false };
    attnrun_dim above = dim_of(1), below = dim_of(1);
    for (int i = 0; i < t->rank; i++) {
        int k = 0;
        while (i != t->left && k < in->rank &&
               (gone[k] || !dim_equal(in->dims[k], t->dims[i])))
            k++;
        if (i != t->left && k < in->rank)
            gone[k] = true;
        else if (i != t->left)
            below = attnrun_dim_mul(step, below, t->dims[i]);
    }
    for (int k = 0; k < in->rank; k++)
        if (!gone[k])
            above = attnrun_dim_mul(step, above, in->dims[k]);
    if (dim_is(below, 0) || below.expr < 0 || above.expr < 0)
        return attnrun_dim_unknown(step);
    return op_dim_div_exact(step, above, below);
}

static attn_status find_left(const attnrun_step *step, struct reshape_target *t)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim rest = dim_of(1);
    if (in->rank < 0) {
        t->dims[t->left] = attnrun_dim_unknown(step);
        return ATTNRUN_OK;
    }
    for (int i = 0; i < t->rank; i++)
        if (i != t->left)
            rest = attnrun_dim_mul(step, rest, t->dims[i]);
    attnrun_dim all = op_dims_product(step, in->dims, 0, in->rank);
    if (dim_is(rest, 0)) { /* which is a dim of data: what is beside it is left */
        t->dims[t->left] = divide_left(step, t);
        if (dim_is_const(t->dims[t->left]))
            return ATTNRUN_OK;
        return op_fail(
            step, ATTNRUN_E_SHAPE,
            "the shape has both -1 and a dim of 0, so -1 could stand for any size");
    }
    if (dim_is_const(rest) && dim_is_const(all) && all.value % rest.value != 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected a number of elements that is divisible by %lld, "
                             "since the shape has -1",
                             (long long)rest.value);
    t->dims[t->left] = dim_is_const(rest) && dim_is_const(all)
                           ? dim_of(all.value / rest.value)
                           : divide_left(step, t);
    return ATTNRUN_OK;
}

static attn_status check_count(const attnrun_step *step, const struct reshape_target *t)
{
    if (step->in[0].rank < 0)
        return ATTNRUN_OK;
    attnrun_dim all = op_dims_product(step, step->in[0].dims, 0, step->in[0].rank);
    attnrun_dim wanted = op_dims_product(step, t->dims, 0, t->rank);
    if (dim_may_equal(all, wanted))
        return ATTNRUN_OK;
    return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                         "the new shape has %s, but there are %lld",
                         attn_plural(wanted.value, "element"), (long long)all.value);
}

static attn_status reshape_finish(attnrun_step *step, struct reshape_target *t)
{
    if (t->left >= 0)
        TRY(find_left(step, t));
    TRY(check_count(step, t));
    return op_view_out(step, t->rank, t->dims);
}

static attn_status too_long(const attnrun_step *step, int64_t n)
{
    return op_fail(step, ATTNRUN_E_UNSUPPORTED, "the shape has %s, expected at most %d",
                   attn_plural(n, "dim"), ATTNRUN_MAX_RANK);
}

static attn_status reshape_1_infer(attnrun_step *step)
{
    const struct reshape_args *args = step->args;
    struct reshape_target t = { .rank = (int)args->shape.n, .left = -1 };
    if (args->shape.n > ATTNRUN_MAX_RANK)
        return too_long(step, args->shape.n);
    for (int i = 0; i < t.rank; i++)
        TRY(target_dim(step, false, dim_of(args->shape.v[i]), i, &t));
    return reshape_finish(step, &t);
}

static attn_status reshape_infer(attnrun_step *step)
{
    const struct reshape_args *args = op_move_args(step);
    bool allowzero = args != NULL && args->allowzero != 0, zero = false, open = false;
    attnrun_dim value;
    TRY(op_need_rank(step, 1, 1));
    int64_t n = op_rank_known(step, 1) ? op_move_list_length(step, 1) : -1;
    struct reshape_target t = { .rank = (int)n, .left = -1 };
    if (n > ATTNRUN_MAX_RANK)
        return too_long(step, n);
    if (n < 0)
        return op_move_unknown(step, 0, step->in[0].dtype, -1);
    bool all_known = true;
    for (int i = 0; i < t.rank; i++)
        open = open || !op_move_value(step, 1, i, &value) || dim_is(value, -1);
    for (int i = 0; i < t.rank; i++) {
        if (op_move_value(step, 1, i, &value) &&
            (dim_is_const(value) || is_size(step, allowzero, open, value, i))) {
            zero = zero || dim_is(value, 0);
            TRY(target_dim(step, allowzero, value, i, &t));
        } else {
            t.dims[i] = attnrun_dim_unknown(step);
            all_known = false;
        }
    }
    if (allowzero && zero && t.left >= 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "the shape has both 0 and -1, which allowzero 1 does not permit");
    if (all_known)
        return reshape_finish(step, &t);
    if (t.left >= 0)
        t.dims[t.left] = attnrun_dim_unknown(step);
    return op_view_out(step, t.rank, t.dims);
}

const attnrun_op_def op_reshape_1 = { OP_ROW,
                                      .name = "Reshape",
                                      .since = 1,
                                      .inputs = "data:T",
                                      .outputs = "reshaped:T",
                                      .types = "T=all",
                                      .args_bytes = sizeof(struct reshape_args),
                                      .attrs = reshape_1_attrs,
                                      .infer = reshape_1_infer,
                                      .run = op_view_run };
const attnrun_op_def op_reshape_5 = { OP_ROW,
                                      .name = "Reshape",
                                      .since = 5,
                                      .inputs = "data:T shape:i64",
                                      .outputs = "reshaped:T",
                                      .types = "T=all",
                                      .infer = reshape_infer,
                                      .run = op_view_run };
const attnrun_op_def op_reshape_14 = { OP_ROW,
                                       .name = "Reshape",
                                       .since = 14,
                                       .inputs = "data:T shape:i64",
                                       .outputs = "reshaped:T",
                                       .types = "T=all",
                                       .args_bytes = sizeof(struct reshape_args),
                                       .attrs = reshape_14_attrs,
                                       .infer = reshape_infer,
                                       .run = op_view_run };
