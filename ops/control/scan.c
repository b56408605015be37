/* scan.c - Scan: (state, y[t]…) = body(state, x[t]…) over the slices of some inputs.
 *
 * inputs    N initial states, then num_scan_inputs tensors, all of T slices along their
 *           axes
 * outputs   N final states, then results stacked along their axes
 * axes, directions (0 forward, 1 backward)   for each scan input and output
 *
 * In Scan-8 every value has a batch dim 0, the scan is along dim 1, and each sample may
 * have a length; what lies behind it is zero. The state buffers are scratch, and so are
 * dense copies of slices that are not contiguous, since the body is planned for dense
 * ones; the results are written in place. Cost: that of the body for each slice, and these
 * copies. Source: ONNX Scan-8, 9. */
#include "control.h"

struct scan_args {
    int32_t body;
    int64_t num_scan_inputs;
    attnrun_ints directions, scan_input_axes, scan_input_directions, scan_output_axes,
        scan_output_directions;
};
static const attnrun_attr_def scan_8_attrs[] = {
    ATTR_GRAPH(struct scan_args, body),
    ATTR_INT_REQUIRED(struct scan_args, num_scan_inputs),
    ATTR_FLAGS(struct scan_args, directions), ATTR_END
};
static const attnrun_attr_def scan_9_attrs[] = {
    ATTR_GRAPH(struct scan_args, body),
    ATTR_INT_REQUIRED(struct scan_args, num_scan_inputs),
    ATTR_INTS(struct scan_args, scan_input_axes),
    ATTR_FLAGS(struct scan_args, scan_input_directions),
    ATTR_INTS(struct scan_args, scan_output_axes),
    ATTR_FLAGS(struct scan_args, scan_output_directions),
    ATTR_END
};

/* Which inputs are what; the same at infer and at run. */
struct scan {
    bool batched;
    int first; /* input: the first state */
    int n_states, n_scanned, n_stacked;
};

static attn_status scan_layout(const attnrun_step *step, struct scan *scan)
{
    const struct scan_args *args = step->args;
    scan->batched = step->node->op->since < 9;
    scan->first = scan->batched ? 1 : 0;
    if (args->num_scan_inputs < 1 || args->num_scan_inputs > step->n_in - scan->first)
        return op_fail(
            step, ATTNRUN_E_ATTR, "num_scan_inputs is %lld, but the node has %s",
            (long long)args->num_scan_inputs, attn_plural(step->n_in, "input"));
    scan->n_scanned = (int)args->num_scan_inputs;
    scan->n_states = step->n_in - scan->first - scan->n_scanned;
    scan->n_stacked = step->n_out - scan->n_states;
    return ATTNRUN_OK;
}

static bool backward(attnrun_ints directions, int i)
{
    return i < directions.n && directions.v[i] != 0;
}

static bool input_backward(const struct scan_args *args, const struct scan *scan, int i)
{
    return backward(scan->batched ? args->directions : args->scan_input_directions, i);
}

/* The axis that scan input or output i of `rank` dims runs along; batched: 1. */
static attn_status scan_axis(const attnrun_step *step, const struct scan *scan,
                             attnrun_ints axes, int i, int rank, int *axis)
{
    *axis = scan->batched ? 1 : 0;
    if (!scan->batched && i < axes.n)
        return op_axis(step, axes.v[i], rank, false, axis);
    if (rank <= *axis)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "a scanned value has rank %d, expected %d or more", rank,
                       *axis + 1);
    return ATTNRUN_OK;
}

static void drop_dim(attnrun_type *type, int axis)
{
    for (int i = axis; i + 1 < type->rank; i++)
        type->dims[i] = type->dims[i + 1];
    type->rank--;
}

static void insert_dim(attnrun_type *type, int axis, attnrun_dim dim)
{
    for (int i = type->rank; i > axis; i--)
        type->dims[i] = type->dims[i - 1];
    type->dims[axis] = dim;
    type->rank++;
}

/* A list of one number for each of n values, where it is there. */
static attn_status scan_check_list(const attnrun_step *step, const char *name,
                                   attnrun_ints list, int n)
{
    if (list.n == 0 || list.n == n)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR, "%s has %s, expected %d", name,
                   attn_plural(list.n, "number"), n);
}

static attn_status scan_check(const attnrun_step *step, const struct scan *scan)
{
    const struct scan_args *args = step->args;
    if (args->body < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute body is missing");
    if (scan->n_stacked < 0)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "it has %s, expected at least %d, one for each state",
                       attn_plural(step->n_out, "output"), scan->n_states);
    TRY(scan_check_list(step, "directions", args->directions, scan->n_scanned));
    TRY(scan_check_list(step, "scan_input_axes", args->scan_input_axes, scan->n_scanned));
    TRY(scan_check_list(step, "scan_input_directions", args->scan_input_directions,
                        scan->n_scanned));
    TRY(scan_check_list(step, "scan_output_axes", args->scan_output_axes,
                        scan->n_stacked));
    TRY(scan_check_list(step, "scan_output_directions", args->scan_output_directions,
                        scan->n_stacked));
    for (int in = scan->first; in < step->n_in; in++) {
        const bool sliced = scan->batched || in >= scan->first + scan->n_states;
        if (step->in[in].kind != ATTNRUN_TENSOR)
            return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected a tensor");
        if (sliced && step->in[in].dtype != 0 && dtype_bits(step->in[in].dtype) < 8)
            return op_fail_input(step, in, ATTNRUN_E_UNSUPPORTED,
                                 "expected elements of whole bytes");
    }
    return op_graph_check(step, args->body, scan->n_states + scan->n_scanned,
                          step->n_out);
}

/* All states and scanned inputs have the batch dim of those before, where that is known. */
static attn_status scan_check_batch(const attnrun_step *step, int in, attnrun_dim *batch)
{
    TRY(op_need_dim(step, in, 0, *batch, "the batch of the inputs before"));
    if (!dim_is_const(*batch))
        *batch = step->in[in].dims[0];
    return ATTNRUN_OK;
}

/* Types of the body's inputs; *iterations: the extent of the scanned axes. */
static attn_status body_inputs(const attnrun_step *step, const struct scan *scan,
                               attnrun_type *types, attnrun_dim *iterations)
{
    const struct scan_args *args = step->args;
    attnrun_dim batch = attnrun_dim_unknown(step);
    *iterations = attnrun_dim_unknown(step);
    for (int i = 0; i < scan->n_states + scan->n_scanned; i++) {
        int in = scan->first + i, axis = 0;
        types[i] = step->in[in];
        if (types[i].rank < 0)
            continue;
        if (i >= scan->n_states) {
            TRY(scan_axis(step, scan, args->scan_input_axes, i - scan->n_states,
                          types[i].rank, &axis));
            attnrun_dim extent = types[i].dims[axis];
            if (!dim_may_equal(extent, *iterations))
                return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                     "expected %s, as in the other scan inputs",
                                     attn_plural(iterations->value, "slice"));
            if (!dim_is_const(*iterations))
                *iterations = extent;
            drop_dim(&types[i], axis);
        }
        if (scan->batched && types[i].rank < 1)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected a batch dim");
        if (scan->batched) {
            TRY(scan_check_batch(step, in, &batch));
            drop_dim(&types[i], 0);
        }
    }
    return ATTNRUN_OK;
}

static attn_status scan_outputs(attnrun_step *step, const struct scan *scan,
                                const attnrun_type *results, attnrun_dim iterations)
{
    const struct scan_args *args = step->args;
    attnrun_dim batch = attnrun_dim_unknown(step);
    int axis = 0;
    for (int i = scan->first; scan->batched && i < step->n_in; i++)
        if (step->in[i].rank > 0)
            batch = step->in[i].dims[0];
    for (int i = 0; i < step->n_out; i++) {
        if (!op_has_out(step, i))
            continue;
        attnrun_type type = results[i];
        int more = scan->batched + (i >= scan->n_states);
        if (type.rank < 0 || type.rank + more > ATTNRUN_MAX_RANK ||
            type.dtype == ATTNRUN_STRING) {
            op_value_forget(&type); /* dynamic */
        } else {
            if (scan->batched)
                insert_dim(&type, 0, batch);
            if (i >= scan->n_states) {
                TRY(scan_axis(step, scan, args->scan_output_axes, i - scan->n_states,
                              type.rank + 1, &axis));
                insert_dim(&type, axis, iterations);
            }
        }
        step->out[i] = type;
    }
    return ATTNRUN_OK;
}

enum { ALIGN = 64 };

/* Of a state or a slice, rounded up. */
static int64_t rounded_bytes(const attnrun_type *type)
{
    int64_t bytes = dtype_bytes_of(type->dtype, op_count(type, 0, type->rank));
    return bytes < 0 || !ck_align(bytes, ALIGN, &bytes) ? -1 : bytes;
}

static attn_status scan_infer(attnrun_step *step)
{
    const struct scan_args *args = step->args;
    attnrun_type *types, *results;
    struct scan scan;
    attnrun_dim iterations;
    TRY(scan_layout(step, &scan));
    TRY(scan_check(step, &scan));
    int n = scan.n_states + scan.n_scanned;
    TRY(op_types(step, n, &types));
    TRY(op_types(step, step->n_out, &results));
    TRY(body_inputs(step, &scan, types, &iterations));
    TRY(op_graph_infer(step, args->body, n, types, step->n_out, results));
    TRY(scan_outputs(step, &scan, results, iterations));
    int64_t bytes = (int64_t)sizeof(attnrun_tensor) * (n + step->n_out) +
                    (int64_t)sizeof(struct op_carry) * scan.n_states;
    ck_align(bytes, ALIGN, &bytes);
    for (int i = 0; i < scan.n_states && step->concrete; i++) {
        int64_t state = rounded_bytes(&types[i]);
        if (state < 0 || !ck_add(bytes, 2 * state, &bytes))
            return op_fail(step, ATTNRUN_E_MEMORY,
                           "two copies of state %d take more than 2^63 - 1 bytes", i);
    }
    for (int i = 0; i < scan.n_scanned && step->concrete && !scan.batched; i++) {
        const int in = scan.n_states + i;
        int axis = 0;
        TRY(scan_axis(step, &scan, args->scan_input_axes, i, step->in[in].rank, &axis));
        if (axis > 0 && !ck_add(bytes, rounded_bytes(&types[in]), &bytes))
            return op_fail_scratch(step);
    }
    step->scratch_bytes = bytes;
    return ATTNRUN_OK;
}

/* Slice `index` of an axis, which goes away. */
static attnrun_tensor slice_of(const attnrun_tensor *from, int axis, int64_t index)
{
    attnrun_tensor t = *from;
    t.data = (char *)from->data + index * from->strides[axis];
    for (int i = axis; i + 1 < t.rank; i++) {
        t.dims[i] = t.dims[i + 1];
        t.strides[i] = t.strides[i + 1];
    }
    t.rank--;
    return t;
}

/* The state of all iterations of the body, in scratch. */
struct iterations {
    struct scan scan;
    attnrun_tensor *inputs, *outputs;
    struct op_carry *carries;
    char *slices;                /* dense copies */
    int64_t batch, n_batches, n; /* iterations of this sample; of the longest one */
    int64_t longest;
};

static void scan_lay_out(const attnrun_step *step, const attnrun_work *work,
                         struct iterations *t)
{
    int n = t->scan.n_states + t->scan.n_scanned;
    t->inputs = work->scratch;
    t->outputs = t->inputs + n;
    t->carries = (struct op_carry *)(void *)(t->outputs + step->n_out);
    memset(t->carries, 0, sizeof *t->carries * (size_t)t->scan.n_states);
    int64_t at = (char *)(t->carries + t->scan.n_states) - (char *)work->scratch;
    ck_align(at, ALIGN, &at);
    for (int i = 0; i < t->scan.n_states; i++) {
        attnrun_tensor now = step->x[t->scan.first + i];
        if (t->scan.batched)
            now = slice_of(&now, 0, t->batch);
        int64_t bytes = tensor_bytes(&now), room = bytes;
        ck_align(bytes, ALIGN, &room);
        t->carries[i].now = now;
        for (int k = 0; k < 2; k++, at += room) {
            t->carries[i].buffer[k] = (char *)work->scratch + at;
            t->carries[i].bytes[k] = bytes;
        }
    }
    t->slices = (char *)work->scratch + at;
}

/* Along an axis that is not the first one a slice has gaps. */
static attn_status close_gaps(attnrun_tensor *slice, char **at)
{
    attnrun_tensor dense = *slice;
    tensor_set_dense(&dense);
    dense.data = *at;
    *at += round_up(tensor_bytes(slice), ALIGN);
    TRY(attn_tensor_copy_polled(&dense, slice));
    *slice = dense;
    return ATTNRUN_OK;
}

static attn_status iteration_inputs(const attnrun_step *step, struct iterations *t,
                                    int64_t iteration)
{
    const struct scan_args *args = step->args;
    const struct scan *scan = &t->scan;
    char *copies = t->slices;
    int axis = 0;
    for (int i = 0; i < scan->n_states; i++)
        t->inputs[i] = t->carries[i].now;
    for (int i = 0; i < scan->n_scanned; i++) {
        const attnrun_tensor *x = &step->x[scan->first + scan->n_states + i];
        TRY(scan_axis(step, scan, args->scan_input_axes, i, x->rank, &axis));
        int64_t at = input_backward(args, scan, i) ? t->n - 1 - iteration : iteration;
        attnrun_tensor slice = slice_of(x, axis, at);
        if (scan->batched)
            slice = slice_of(&slice, 0, t->batch);
        else if (axis > 0)
            TRY(close_gaps(&slice, &copies));
        t->inputs[scan->n_states + i] = slice;
    }
    return ATTNRUN_OK;
}

/* Output i gets its memory with the first slice, unless the plan gave it some. */
static attn_status make_stacked(const attnrun_step *step, struct iterations *t, int i,
                                int axis, const attnrun_tensor *item)
{
    int64_t dims[ATTNRUN_MAX_RANK];
    int rank = 0, lead = t->scan.batched ? 1 : 0;
    if (item->rank + 1 + lead > ATTNRUN_MAX_RANK || dtype_bits(item->dtype) < 8)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output %d would have rank %d, or a type under 8 bits", i,
                       item->rank + 1 + lead);
    for (int d = 0, from = 0; d < item->rank + 1 + lead; d++)
        dims[rank++] = d == axis                   ? t->longest
                       : t->scan.batched && d == 0 ? t->n_batches
                                                   : item->dims[from++];
    const attnrun_tensor *y = &step->y[i];
    if (y->data != NULL &&
        (y->rank != rank || memcmp(y->dims, dims, (size_t)rank * 8) != 0))
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "output %d does not have the shape that was inferred", i);
    TRY(attnrun_step_alloc(step, i, item->dtype, rank, dims));
    if (t->scan.batched && step->y[i].data != NULL)
        memset(step->y[i].data, 0, (size_t)tensor_bytes(&step->y[i]));
    return ATTNRUN_OK;
}

static attn_status store_slice(const attnrun_step *step, struct iterations *t,
                               int64_t iteration, int i, const attnrun_tensor *item)
{
    const struct scan_args *args = step->args;
    int which = i - t->scan.n_states, axis = 0, lead = t->scan.batched ? 1 : 0;
    TRY(scan_axis(step, &t->scan, args->scan_output_axes, which, item->rank + 1 + lead,
                  &axis));
    if (iteration == 0 && t->batch == 0)
        TRY(make_stacked(step, t, i, axis, item));
    if (step->y[i].data == NULL)
        return ATTNRUN_OK;
    int64_t at =
        backward(args->scan_output_directions, which) ? t->n - 1 - iteration : iteration;
    bool fits =
        step->y[i].rank == item->rank + 1 + lead && step->y[i].dtype == item->dtype;
    attnrun_tensor to = fits ? slice_of(&step->y[i], axis, at) : *item;
    if (fits && t->scan.batched)
        to = slice_of(&to, 0, t->batch);
    if (!fits || memcmp(to.dims, item->dims, (size_t)item->rank * 8) != 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "output %d: iteration %lld gives a shape that differs from that "
                       "of iteration 0",
                       i, (long long)iteration);
    attnrun_tensor from = *item;
    if (item->dtype == ATTNRUN_STRING) /* the body's, until it runs again */
        TRY(op_heap_copy(step, i, item, &from));
    tensor_copy(&to, &from);
    return ATTNRUN_OK;
}

static attn_status scan_iteration(const attnrun_step *step, const attnrun_work *work,
                                  struct iterations *t, int64_t iteration)
{
    const struct scan_args *args = step->args;
    int n = t->scan.n_states + t->scan.n_scanned;
    TRY(iteration_inputs(step, t, iteration));
    TRY(op_graph_run(step, work, args->body, n, t->inputs, step->n_out, t->outputs));
    for (int i = 0; i < t->scan.n_states; i++) {
        const attnrun_tensor *from = &t->outputs[i], *now = &t->carries[i].now;
        if (from->kind != ATTNRUN_TENSOR || from->dtype != now->dtype ||
            from->rank != now->rank ||
            memcmp(from->dims, now->dims, (size_t)now->rank * 8) != 0)
            return op_fail(step, ATTNRUN_E_SHAPE, "state %d changes its shape or type",
                           i);
        TRY(op_carry_set(step, i, &t->carries[i], from));
    }
    for (int i = t->scan.n_states; i < step->n_out; i++)
        if (op_has_out(step, i))
            TRY(store_slice(step, t, iteration, i, &t->outputs[i]));
    for (int i = 0; i < t->scan.n_states && !t->scan.batched; i++)
        op_carry_release(step, i, &t->carries[i]); /* batched: the output is there, too */
    return ATTNRUN_OK;
}

/* Writes the final states and, where there was no iteration, empty results. */
static attn_status scan_finish(const attnrun_step *step, struct iterations *t)
{
    const struct scan_args *args = step->args;
    for (int i = 0; i < t->scan.n_states; i++) {
        const attnrun_tensor *now = &t->carries[i].now;
        if (!op_has_out(step, i))
            continue;
        if (!t->scan.batched) {
            TRY(op_value_out(step, i, now));
            continue;
        }
        const attnrun_tensor *x = &step->x[t->scan.first + i];
        TRY(attnrun_step_alloc(step, i, x->dtype, x->rank, x->dims));
        attnrun_tensor to = slice_of(&step->y[i], 0, t->batch);
        tensor_copy(&to, now);
    }
    for (int i = t->scan.n_states; i < step->n_out && t->longest == 0; i++)
        TRY(op_empty_out(step, i, args->body, i, 1 + t->scan.batched));
    return ATTNRUN_OK;
}

static attn_status sample_iterations(const attnrun_step *step, struct iterations *t)
{
    t->n = t->longest;
    if (!t->scan.batched || !op_has_in(step, 0))
        return ATTNRUN_OK;
    if (step->x[0].rank != 1 || step->x[0].dims[0] != t->n_batches)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected %s",
                             attn_plural(t->n_batches, "length"));
    t->n = tensor_get_int(&step->x[0], t->batch);
    if (t->n < 0 || t->n > t->longest || (t->batch == 0 && t->n == 0 && t->longest > 0))
        return op_fail(step, ATTNRUN_E_RANGE, "length %lld is %lld, expected 1 to %lld",
                       (long long)t->batch, (long long)t->n, (long long)t->longest);
    return ATTNRUN_OK;
}

static attn_status scan_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct scan_args *args = step->args;
    struct iterations t = { .n_batches = 1 };
    int axis = 0;
    TRY(scan_layout(step, &t.scan));
    const attnrun_tensor *x = &step->x[t.scan.first + t.scan.n_states];
    TRY(scan_axis(step, &t.scan, args->scan_input_axes, 0, x->rank, &axis));
    t.longest = x->dims[axis];
    if (t.scan.batched)
        t.n_batches = x->dims[0];
    for (; t.batch < t.n_batches; t.batch++) { /* slices of nothing may be very many */
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(op_check_iterations(step, t.batch));
        TRY(sample_iterations(step, &t));
        scan_lay_out(step, work, &t);
        for (int64_t iteration = 0; iteration < t.n; iteration++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            TRY(op_check_iterations(step, iteration));
            TRY(scan_iteration(step, work, &t, iteration));
        }
        TRY(scan_finish(step, &t));
    }
    return ATTNRUN_OK;
}

#define SCAN_ROW                                                                         \
    OP_ROW, .flags = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS, .name = "Scan",             \
        .outputs = "final_state_and_scan_outputs:any*!",                                 \
        .args_bytes = sizeof(struct scan_args), .infer = scan_infer, .run = scan_run

const attnrun_op_def op_scan_8 = {
    SCAN_ROW, .since = 8, .attrs = scan_8_attrs,
    .inputs = "sequence_lens:i64? initial_state_and_scan_inputs:any*!"
};
const attnrun_op_def op_scan_9 = { SCAN_ROW, .since = 9, .attrs = scan_9_attrs,
                                   .inputs = "initial_state_and_scan_inputs:any*!" };
