/* slice.c - Slice: start:end:step along some axes, as in Python: bounds are clamped,
 * negative ones are counted from the end, and steps have either sign.
 *
 * data                        any type and shape
 * starts, ends, axes, steps   attributes up to 9 (without steps), then inputs; axes are
 *                             0, 1, … and steps 1 by default
 *
 * A slice whose bytes are contiguous is a view; another one is copied. Source: ONNX
 * Slice-1, 10. */
#include "move.h"

struct slice_args {
    attnrun_ints starts, ends, axes;
};
static const attnrun_attr_def slice_1_attrs[] = {
    ATTR_INTS_REQUIRED(struct slice_args, starts),
    ATTR_INTS_REQUIRED(struct slice_args, ends), ATTR_INTS(struct slice_args, axes),
    ATTR_END
};

/* What is known of one axis. */
struct bounds {
    attnrun_dim start, end;
    int64_t step;
    bool set;     /* the slice names this axis */
    bool unknown; /* a bound or the step is not known */
};

/* Start and count of a slice of n elements; exact for all 64-bit bounds. Clamped as ONNX
 * says: unlike Python, a start before the first element is the first one for negative
 * steps too. */
static void count_slice(int64_t n, int64_t start, int64_t end, int64_t step,
                        int64_t *first, int64_t *count)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (start < 0)
        start = start < -n ? 0 : start + n;
    if (end < 0)
        end = end < -n ? low : end + n;
    start = start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    uint64_t span = 0, pace = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && end > start)
        span = (uint64_t)(end - start);
    if (step < 0 && start > end)
        span = (uint64_t)(start - end);
    *first = start;
    *count = (int64_t)(span / pace + (span % pace != 0));
}

/* The bound is below 0 for all sizes but 0 (x[-S:]), so that it counts from the end. */
static bool counts_from_end(const attnrun_step *step, attnrun_dim bound)
{
    return dim_is_const(bound) ? bound.value < 0
                               : dim_is(attnrun_dim_max(step, bound, dim_of(0)), 0);
}

/* The place of a bound that counts from the end for some sizes only: T - 5 does so where T < 5. It
 * is the bound, with n added to it where min(1, max(0, -bound)) is 1 and not 0. */
static attnrun_dim either_place(const attnrun_step *step, attnrun_dim n,
                                attnrun_dim bound)
{
    const attnrun_dim back = attnrun_dim_sub(step, dim_of(0), bound);
    const attnrun_dim from_end =
        attnrun_dim_min(step, dim_of(1), attnrun_dim_max(step, dim_of(0), back));
    const attnrun_dim place =
        attnrun_dim_add(step, bound, attnrun_dim_mul(step, n, from_end));
    return attnrun_dim_max(step, dim_of(0), attnrun_dim_min(step, place, n));
}

/* A bound as a distance from the start of a symbolic extent n, exact for short axes, too: the end
 * of x[:-5] is n - min(5, n). The parts of an axis then add up to n: x[:-5] and x[-5:]. */
static attnrun_dim slice_place(const attnrun_step *step, attnrun_dim n, attnrun_dim bound)
{
    if (dim_is_const(bound) && bound.value < -ATTN_MAX_DIM)
        return dim_of(0);
    if (counts_from_end(step, bound)) {
        attnrun_dim back = attnrun_dim_sub(step, dim_of(0), bound);
        return attnrun_dim_sub(step, n, attnrun_dim_min(step, n, back));
    }
    if (dim_equal(n, bound) || (dim_is_const(bound) && bound.value >= ATTN_MAX_DIM))
        return n;
    if (!dim_is(attnrun_dim_min(step, bound, dim_of(0)), 0))
        return either_place(step, n, bound);
    return dim_is(bound, 0) ? bound : attnrun_dim_min(step, bound, n);
}

/* The elements between both bounds of a slice forwards. It must not be wrong for any size: where
 * symbols cancel in a sum of extents, the constant that is left is computed with at load. */
static attnrun_dim symbolic_span(const attnrun_step *step, attnrun_dim n,
                                 const struct bounds *b)
{
    attnrun_dim end = slice_place(step, n, b->end),
                start = slice_place(step, n, b->start),
                span = attnrun_dim_sub(step, end, start);
    bool known = dim_is_const(b->start) && dim_is_const(b->end);
    if (dim_equal(end, n) || (known && dim_is(start, 0)))
        return span;
    if (known &&
        (b->start.value < 0) == (b->end.value < 0)) /* of one side: in order, or empty */
        return b->start.value <= b->end.value ? span : dim_of(0);
    return attnrun_dim_max(step, span, dim_of(0));
}

/* The extent of a slice of a symbolic extent. */
static attnrun_dim symbolic_extent(const attnrun_step *step, attnrun_dim n,
                                   const struct bounds *b)
{
    if (b->unknown || n.expr < 0)
        return attnrun_dim_unknown(step);
    if (b->step < 0) {
        bool all = dim_is_const(b->start) &&
                   (b->start.value == -1 || b->start.value >= ATTN_MAX_DIM) &&
                   dim_is_const(b->end) && b->end.value < -ATTN_MAX_DIM;
        return all && b->step == -1 ? n : attnrun_dim_unknown(step);
    }
    attnrun_dim span = symbolic_span(step, n, b);
    if (b->step == 1)
        return span;
    return attnrun_dim_div(step, attnrun_dim_add(step, span, dim_of(b->step - 1)),
                           dim_of(b->step));
}

/* Element k of a bound: from the attribute, or input `in`. */
static bool bound_of(const attnrun_step *step, attnrun_ints attribute, int in, int64_t k,
                     attnrun_dim *value)
{
    if (attribute.v == NULL)
        return op_move_value(step, in, k, value);
    *value = dim_of(attribute.v[k]);
    return true;
}

static attn_status same_length(const attnrun_step *step, const char *what, int64_t length,
                               int64_t n)
{
    if (length < 0 || length == n)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_SHAPE, "%s has %s, expected %lld, as starts has", what,
                   attn_plural(length, "element"), (long long)n);
}

static attn_status axis_bounds(const attnrun_step *step, const struct slice_args *args,
                               int64_t k, int rank, uint32_t *seen, struct bounds *all)
{
    attnrun_dim at = dim_of(k), pace = dim_of(1), start, end;
    int axis = 0;
    if (args->axes.v != NULL)
        at = dim_of(args->axes.v[k]);
    else if (op_has_in(step, 3) &&
             (!op_move_value(step, 3, k, &at) || !dim_is_const(at))) {
        for (int i = 0; i < rank; i++)
            all[i].set = all[i].unknown = true; /* any axis may be the one */
        return ATTNRUN_OK;
    }
    TRY(op_axis_once(step, at.value, rank, seen, &axis));
    struct bounds *b = &all[axis];
    b->unknown = b->unknown || !bound_of(step, args->starts, 1, k, &start) ||
                 !bound_of(step, args->ends, 2, k, &end) ||
                 (op_has_in(step, 4) && !op_move_value(step, 4, k, &pace)) ||
                 !dim_is_const(pace);
    b->set = true;
    if (b->unknown)
        return ATTNRUN_OK;
    if (pace.value == 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "the step of axis %d is 0, expected a number other than 0", axis);
    b->start = start;
    b->end = end;
    b->step = pace.value;
    return ATTNRUN_OK;
}

/* How many axes are sliced; -1: not known. */
static attn_status slice_length(const attnrun_step *step, const struct slice_args *args,
                                int64_t *n)
{
    if (args->starts.v != NULL) {
        *n = args->starts.n;
        TRY(same_length(step, "ends", args->ends.n, *n));
        if (args->axes.v != NULL)
            TRY(same_length(step, "axes", args->axes.n, *n));
        return ATTNRUN_OK;
    }
    for (int in = 1; in < step->n_in; in++)
        if (op_has_in(step, in))
            TRY(op_need_rank_between(step, in, 0, 1));
    *n = op_move_list_length(step, 1);
    if (*n < 0)
        return ATTNRUN_OK;
    TRY(same_length(step, "ends", op_move_list_length(step, 2), *n));
    if (op_has_in(step, 3))
        TRY(same_length(step, "axes", op_move_list_length(step, 3), *n));
    if (op_has_in(step, 4))
        TRY(same_length(step, "steps", op_move_list_length(step, 4), *n));
    return ATTNRUN_OK;
}

static attn_status slice_plan(attnrun_step *step, const int64_t *first,
                              const int64_t *paces)
{
    const attnrun_type *in = &step->in[0], *out = &step->out[0];
    struct op_copy *copy = step->state;
    int64_t dims[ATTNRUN_MAX_RANK], to_dims[ATTNRUN_MAX_RANK], from[ATTNRUN_MAX_RANK];
    int64_t to[ATTNRUN_MAX_RANK], offset = 0;
    op_move_dims(in, dims);
    op_move_dims(out, to_dims);
    op_move_strides(in->rank, dims, from);
    op_move_strides(in->rank, to_dims, to);
    if (op_count(out, 0, out->rank) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    for (int i = 0; i < in->rank; i++) {
        offset += first[i] * from[i];
        /* A huge pace belongs to an extent of 1: its stride is not used. */
        from[i] = to_dims[i] == 1 ? 0 : from[i] * paces[i];
    }
    op_copy_plan(copy, in->dtype, in->rank, to_dims, from, offset, to, 0);
    op_copy_tasks(step, 0, copy);
    if (op_copy_is_view(copy, &offset))
        attnrun_step_view(step, 0, 0, offset);
    return ATTNRUN_OK;
}

/* The elements of a sliced list. */
static void slice_values(attnrun_step *step, int64_t first, int64_t pace)
{
    attnrun_dim values[64], n = step->out[0].dims[0];
    if (op_move_n_values(step, 0) < 0 || step->in[0].rank != 1 || !dim_is_const(n) ||
        n.value > 64)
        return;
    for (int64_t k = 0; k < n.value; k++)
        if (!op_move_peek(step, 0, first + k * pace, &values[k]))
            values[k] = op_move_no_value();
    attnrun_step_set_values(step, 0, n.value, values);
}

static attn_status slice_infer(attnrun_step *step)
{
    static const struct slice_args inputs = { .starts = { NULL, 0 } };
    const struct slice_args *args = op_move_args(step) ? step->args : &inputs;
    const attnrun_type *in = &step->in[0];
    struct bounds all[ATTNRUN_MAX_RANK] = { { .set = false } };
    int64_t first[ATTNRUN_MAX_RANK] = { 0 }, paces[ATTNRUN_MAX_RANK], count, n = 0;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    uint32_t seen = 0;
    bool planned = step->concrete != 0;
    bool placed = true; /* first and paces are right for all axes */
    TRY(slice_length(step, args, &n));
    if (in->rank < 0 || n < 0)
        return op_move_unknown(step, 0, in->dtype, in->rank);
    if (n > in->rank)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "starts has %s, expected at most %d, the rank of the input",
                       attn_plural(n, "element"), in->rank);
    for (int64_t k = 0; k < n; k++)
        TRY(axis_bounds(step, args, k, in->rank, &seen, all));
    for (int i = 0; i < in->rank; i++) {
        struct bounds *b = &all[i];
        dims[i] = in->dims[i];
        paces[i] = 1;
        if (!b->set)
            continue;
        if (!b->unknown && dim_is_const(dims[i]) && dim_is_const(b->start) &&
            dim_is_const(b->end)) {
            count_slice(dims[i].value, b->start.value, b->end.value, b->step, &first[i],
                        &count);
            dims[i] = dim_of(count);
            paces[i] = b->step;
        } else {
            dims[i] = symbolic_extent(step, dims[i], b);
            planned = placed = false;
        }
    }
    TRY(op_out(step, 0, in->dtype, in->rank, dims));
    if (in->rank == 1 && placed)
        slice_values(step, first[0], paces[0]);
    return planned && op_move_planned(step, 0) ? slice_plan(step, first, paces)
                                               : ATTNRUN_OK;
}

static attn_status slice_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_copy_run(step->state, work, step->y[0].data, step->x[0].data);
}

const attnrun_op_def op_slice_1 = { OP_ROW,
                                    .name = "Slice",
                                    .since = 1,
                                    .inputs = "data:T",
                                    .outputs = "output:T",
                                    .types = "T=all",
                                    .args_bytes = sizeof(struct slice_args),
                                    .state_bytes = sizeof(struct op_copy),
                                    .attrs = slice_1_attrs,
                                    .infer = slice_infer,
                                    .run = slice_run };
const attnrun_op_def op_slice_10 = { OP_ROW,
                                     .name = "Slice",
                                     .since = 10,
                                     .inputs = "data:T starts:I ends:I axes:I? steps:I?",
                                     .outputs = "output:T",
                                     .types = "T=all I=i32,i64",
                                     .state_bytes = sizeof(struct op_copy),
                                     .infer = slice_infer,
                                     .run = slice_run };
