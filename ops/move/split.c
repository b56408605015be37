/* split.c - Split: cuts a tensor of any type along one axis. The results are views where
 * no dim before the axis is above 1, and copies elsewhere.
 *
 * split        the extents (attribute up to 12, then input); absent: equal parts
 * num_outputs  from 18: parts of ceil(n / num_outputs), the last one smaller
 *
 * Source: ONNX Split-1, 2, 13, 18. */
#include "move.h"

struct split_args {
    int64_t axis, num_outputs;
    attnrun_ints split;
};
static const attnrun_attr_def split_1_attrs[] = { ATTR_INT(struct split_args, axis, 0),
                                                  ATTR_INTS(struct split_args, split),
                                                  ATTR_END };
static const attnrun_attr_def split_13_attrs[] = { ATTR_INT(struct split_args, axis, 0),
                                                   ATTR_END };
static const attnrun_attr_def split_18_attrs[] = {
    ATTR_INT(struct split_args, axis, 0), ATTR_INT(struct split_args, num_outputs, 0),
    ATTR_END
};
struct split_state {
    int64_t row_bytes, total_bytes;
    int32_t axis;
};

/* The extent of part i where nothing states it. */
static attn_status even_part(const attnrun_step *step, attnrun_dim n, int i,
                             attnrun_dim *part)
{
    const struct split_args *args = step->args;
    int64_t parts = args->num_outputs > 0 ? args->num_outputs : step->n_out;
    if (args->num_outputs > 0 && step->n_out > parts)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "num_outputs is %lld, expected %d as there are outputs",
                       (long long)parts, step->n_out);
    if (!dim_is_const(n)) {
        *part = parts == 1 ? n : attnrun_dim_unknown(step);
        if (parts > 1 && n.expr > 0 && args->num_outputs == 0)
            *part = attnrun_dim_div(step, n, dim_of(parts));
        return ATTNRUN_OK;
    }
    if (args->num_outputs == 0 && n.value % parts != 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected an extent that divides into %lld equal parts",
                             (long long)parts);
    int64_t chunk = ceil_div(n.value, parts);
    int64_t start = i * chunk < n.value ? i * chunk : n.value;
    *part = dim_of(n.value - start < chunk ? n.value - start : chunk);
    return ATTNRUN_OK;
}

/* The extent of part i, of numbers or, in opset 1, of floats. */
static int64_t split_extent_of(const attnrun_tensor *split, int i)
{
    if (!dtype_in(split->dtype, ATTN_DT_FLOAT))
        return tensor_get_int(split, i);
    const double real = tensor_get_real(split, i);
    return real >= 0 && real <= (double)ATTN_MAX_DIM ? (int64_t)real : -1;
}

/* The extents of all parts; n_out of them. `whole` is their sum where all are known. */
static attn_status stated_part(const attnrun_step *step, attnrun_dim n, int i,
                               attnrun_dim *part)
{
    const struct split_args *args = step->args;
    int64_t stated = -1;
    bool known = true;
    if (args->split.v != NULL)
        stated = args->split.n;
    else if (op_has_in(step, 1)) {
        TRY(op_need_rank(step, 1, 1));
        stated = op_move_list_length(step, 1);
    } else
        return even_part(step, n, i, part);
    if (stated >= 0 && stated != step->n_out)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "split has %s, expected %d, one for each output",
                       attn_plural(stated, "element"), step->n_out);
    if (args->split.v != NULL)
        *part = dim_of(args->split.v[i]);
    else if (op_known(step, 1))
        *part = dim_of(split_extent_of(&step->x[1], i));
    else
        known = stated >= 0 && op_move_value(step, 1, i, part);
    if (!known)
        *part = attnrun_dim_unknown(step);
    else if (dim_is_const(*part) && part->value < 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "element %d of split is %lld, expected 0 or more", i,
                       (long long)part->value);
    return ATTNRUN_OK;
}

/* run: the extent of part i, as infer() found it; absent outputs have one too. */
static int64_t part_at_run(const attnrun_step *step, int i)
{
    const struct split_state *state = step->state;
    const struct split_args *args = step->args;
    attnrun_dim part = dim_of(0);
    if (args->split.v != NULL)
        return args->split.v[i];
    if (op_has_in(step, 1))
        return split_extent_of(&step->x[1], i);
    (void)even_part(step, step->in[0].dims[state->axis], i, &part);
    return part.value;
}

static void split_values(attnrun_step *step, int axis)
{
    attnrun_dim values[64];
    int64_t n = op_move_n_values(step, 0), at = 0;
    if (n < 0 || axis != 0 || step->in[0].rank != 1)
        return;
    for (int64_t k = 0; k < n; k++)
        if (!op_move_peek(step, 0, k, &values[k]))
            values[k] = op_move_no_value();
    for (int i = 0; i < step->n_out; i++) {
        attnrun_dim part = step->out[i].dims[0];
        if (!op_has_out(step, i) || !dim_is_const(part) || part.value > n - at)
            return;
        attnrun_step_set_values(step, i, part.value, values + at);
        at += part.value;
    }
}

static attn_status split_plan(attnrun_step *step, int axis, const int64_t *starts)
{
    struct split_state *state = step->state;
    const attnrun_type *in = &step->in[0];
    int64_t count = op_count(in, 0, in->rank), row = op_count(in, axis, in->rank);
    int64_t bits = dtype_bits(in->dtype);
    state->axis = axis;
    if (count <= 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    int64_t inner = op_count(in, axis + 1, in->rank);
    for (int i = 0; i < step->n_out && bits < 8; i++)
        if (row != count || starts[i] * inner * bits % 8 != 0)
            return op_move_need_bytes(step, 0);
    state->row_bytes = dtype_bytes_of(in->dtype, row);
    state->total_bytes = dtype_bytes_of(in->dtype, count);
    op_move_tasks(step, 0, state->total_bytes);
    for (int i = 0; i < step->n_out && row == count; i++)
        if (op_has_out(step, i))
            attnrun_step_view(step, i, 0, starts[i] * inner * bits / 8);
    return ATTNRUN_OK;
}

enum { SPLIT_MAX = 1024 };

static attn_status split_infer(attnrun_step *step)
{
    const struct split_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK], sum = dim_of(0), part;
    int64_t starts[SPLIT_MAX];
    int axis = 0;
    if (step->n_out > SPLIT_MAX)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "it has %s, expected at most %d",
                       attn_plural(step->n_out, "output"), SPLIT_MAX);
    for (int i = 0; i < step->n_out && in->rank < 0; i++)
        TRY(op_move_unknown(step, i, in->dtype, -1));
    if (in->rank < 0)
        return ATTNRUN_OK;
    if (op_has_in(step, 1) && args->num_outputs > 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "both split and num_outputs are given, expected one of them");
    TRY(op_axis(step, args->axis, in->rank, false, &axis));
    memcpy(dims, in->dims, sizeof dims);
    for (int i = 0; i < step->n_out; i++) {
        TRY(stated_part(step, in->dims[axis], i, &part));
        starts[i] = sum.value;
        sum = attnrun_dim_add(step, sum, part);
        dims[axis] = part;
        TRY(op_out(step, i, in->dtype, in->rank, dims));
    }
    bool partial = args->num_outputs > step->n_out;
    if (!partial && !dim_may_equal(sum, in->dims[axis]))
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected %lld at axis %d, the sum of the parts",
                             (long long)sum.value, axis);
    split_values(step, axis);
    bool planned = step->concrete && dim_is_const(sum);
    return planned ? split_plan(step, axis, starts) : ATTNRUN_OK;
}

static attn_status split_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct split_state *state = step->state;
    const char *x = step->x[0].data;
    int64_t inner = tensor_dims_product(&step->x[0], state->axis + 1, step->x[0].rank);
    int64_t at = work->begin * OP_MOVE_CHUNK, end = work->end * OP_MOVE_CHUNK;
    if (end > state->total_bytes)
        end = state->total_bytes;
    while (at < end) {
        int64_t row = at / state->row_bytes, skip = at % state->row_bytes;
        int64_t row_end = (row + 1) * state->row_bytes;
        for (int i = 0; i < step->n_out && at < end; i++) {
            int64_t bytes =
                dtype_bytes_of(step->in[0].dtype, part_at_run(step, i) * inner);
            if (skip >= bytes) {
                skip -= bytes;
                continue;
            }
            int64_t n = bytes - skip < end - at ? bytes - skip : end - at;
            char *to = step->y[i].data;
            if (to != NULL && to + row * bytes + skip != x + at)
                TRY(attn_poll_copy(to + row * bytes + skip, x + at, n));
            at += n;
            skip = 0;
        }
        if (at < row_end && at < end)
            at = row_end; /* parts that num_outputs names and the node does not list */
        if (OP_CANCELLED_AFTER(work, 64))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define SPLIT_ROW                                                                        \
    OP_ROW, .name = "Split", .types = "T=all", .args_bytes = sizeof(struct split_args),  \
        .state_bytes = sizeof(struct split_state), .infer = split_infer,                 \
        .run = split_run

const attnrun_op_def op_split_1 = { SPLIT_ROW, .since = 1, .inputs = "input:T split:T?",
                                    .outputs = "outputs:T*", .attrs = split_1_attrs };
const attnrun_op_def op_split_2 = { SPLIT_ROW, .since = 2, .inputs = "input:T",
                                    .outputs = "outputs:T*", .attrs = split_1_attrs };
const attnrun_op_def op_split_13 = { SPLIT_ROW, .since = 13,
                                     .inputs = "input:T split:i64?",
                                     .outputs = "outputs:T*", .attrs = split_13_attrs };
const attnrun_op_def op_split_18 = { SPLIT_ROW, .since = 18,
                                     .inputs = "input:T split:i64?",
                                     .outputs = "outputs:T*", .attrs = split_18_attrs };
