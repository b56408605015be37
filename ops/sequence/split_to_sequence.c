/* split_to_sequence.c - SplitToSequence: the segments of a tensor along an axis, as a
 * list.
 *
 * input      any type and shape
 * split      a scalar: segments of that extent, the last one smaller; a list: the
 *            extents; absent: segments of 1, without the axis where keepdims is 0
 * axis       0 by default
 *
 * Cost: one copy. Source: ONNX SplitToSequence-11. */
#include "values.h"

struct to_sequence_args {
    int64_t axis, keepdims;
};
static const attnrun_attr_def split_attrs[] = {
    ATTR_INT(struct to_sequence_args, axis, 0),
    ATTR_FLAG(struct to_sequence_args, keepdims, 1), ATTR_END
};

/* All elements, and the largest possible number of segments. */
static attn_status bound(attnrun_step *step, int axis)
{
    const attnrun_type *x = &step->in[0];
    int64_t bytes = dtype_bytes_of(x->dtype, op_count(x, 0, x->rank));
    int64_t segments = x->dims[axis].value, heads;
    if (op_has_in(step, 1) && step->in[1].rank == 1) /* some may be empty */
        segments = step->in[1].dims[0].value;
    if (x->dtype != ATTNRUN_STRING && bytes >= 0 &&
        ck_mul(segments, (int64_t)(sizeof(attnrun_tensor) + OP_HEAP_BLOCK), &heads) &&
        ck_add(bytes, heads, &bytes))
        attnrun_step_heap_bound(step, bytes);
    return ATTNRUN_OK;
}

static attn_status split_infer(attnrun_step *step)
{
    const struct to_sequence_args *args = step->args;
    int axis = 0;
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    if (op_rank_known(step, 0))
        TRY(op_axis(step, args->axis, step->in[0].rank, false, &axis));
    if (op_has_in(step, 1))
        TRY(op_need_rank_between(step, 1, 0, 1));
    if (dtype_bits(step->in[0].dtype) < 8)
        return op_fail_input(step, 0, ATTNRUN_E_UNSUPPORTED,
                             "expected a type of whole bytes");
    if (step->concrete)
        TRY(bound(step, axis));
    return op_value_unknown(step, 0, ATTNRUN_SEQUENCE, step->in[0].dtype);
}

/* The number of segments; fails where the extents do not fit. */
static attn_status count_segments(const attnrun_step *step, int64_t extent,
                                  int64_t *segments)
{
    const attnrun_tensor *split = &step->x[1];
    int64_t sum = 0;
    *segments = extent;
    if (!op_has_in(step, 1))
        return ATTNRUN_OK;
    *segments = split->rank == 0 ? 1 : split->dims[0];
    for (int64_t i = 0; i < *segments; i++) {
        int64_t n = tensor_get_int(split, i);
        const int min = split->rank == 0;
        if (n < min || !ck_add(sum, n, &sum))
            return op_fail(step, ATTNRUN_E_RANGE,
                           "element %lld of split is %lld, expected %d or more, and a "
                           "sum below 2^63",
                           (long long)i, (long long)n, min);
    }
    if (split->rank == 0)
        *segments = ceil_div(extent, sum);
    else if (sum != extent)
        return op_fail(step, ATTNRUN_E_RANGE, "split sums up to %lld, expected %lld",
                       (long long)sum, (long long)extent);
    return ATTNRUN_OK;
}

static int64_t segment_extent(const attnrun_step *step, int64_t i, int64_t left)
{
    if (!op_has_in(step, 1))
        return 1;
    if (step->x[1].rank == 1)
        return tensor_get_int(&step->x[1], i);
    int64_t n = tensor_get_int(&step->x[1], 0);
    return n < left ? n : left;
}

static attn_status split_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct to_sequence_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    int axis = (int)(args->axis < 0 ? args->axis + x->rank : args->axis);
    bool squeeze = !op_has_in(step, 1) && args->keepdims == 0;
    int64_t extent = x->dims[axis], segments = 0, at = 0;
    TRY(count_segments(step, extent, &segments));
    TRY(op_sequence(step, 0, segments));
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    attnrun_tensor *items = step->y[0].data;
    step->y[0].dtype = x->dtype;
    for (int64_t i = 0; i < segments; i++) {
        attnrun_tensor segment = *x;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        segment.dims[axis] = segment_extent(step, i, extent - at);
        segment.data =
            (char *)x->data + (tensor_count(x) > 0 ? at * x->strides[axis] : 0);
        at += segment.dims[axis];
        for (int k = axis; squeeze && k + 1 < x->rank; k++) {
            segment.dims[k] = x->dims[k + 1];
            segment.strides[k] = x->strides[k + 1];
        }
        segment.rank -= squeeze;
        TRY(op_heap_copy(step, 0, &segment, &items[i]));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_split_to_sequence_11 = { OP_ROW,
                                                 .flags = ATTNRUN_OP_DYNAMIC,
                                                 .name = "SplitToSequence",
                                                 .since = 11,
                                                 .inputs = "input:T split:I?",
                                                 .outputs = "output_sequence:seq(T)",
                                                 .types = "T=all I=i32,i64",
                                                 .args_bytes =
                                                     sizeof(struct to_sequence_args),
                                                 .attrs = split_attrs,
                                                 .infer = split_infer,
                                                 .run = split_run };
