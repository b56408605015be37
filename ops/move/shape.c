/* shape.c - Shape: the dims start..end of the input, and Size: their product, as i64.
 *
 * start, end   clamped to the rank; negative counts from the end
 *
 * Cost: none; the elements of the input are not read. Source: ONNX Shape-1, 15; Size-1.
 */
#include "move.h"

struct shape_args {
    int64_t start, end;
};
static const attnrun_attr_def shape_attrs[] = {
    ATTR_INT(struct shape_args, start, 0), ATTR_INT(struct shape_args, end, INT64_MAX),
    ATTR_END
};

static int clamp_axis(int64_t axis, int rank)
{
    if (axis < 0)
        axis = axis < -rank ? 0 : axis + rank;
    return axis > rank ? rank : (int)axis;
}

static void shape_range(const attnrun_step *step, int rank, int *first, int *last)
{
    const struct shape_args *args = op_move_args(step);
    *first = args != NULL ? clamp_axis(args->start, rank) : 0;
    *last = args != NULL ? clamp_axis(args->end, rank) : rank;
    if (*last < *first)
        *last = *first;
}

static attn_status shape_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    int first = 0, last = 0;
    if (in->rank < 0)
        return op_move_unknown(step, 0, ATTNRUN_I64, 1);
    shape_range(step, in->rank, &first, &last);
    attnrun_dim n = dim_of(last - first);
    TRY(op_out(step, 0, ATTNRUN_I64, 1, &n));
    attnrun_step_set_values(step, 0, n.value, in->dims + first);
    return ATTNRUN_OK;
}

static attn_status shape_run(const attnrun_step *step, const attnrun_work *work)
{
    int first = 0, last = 0;
    (void)work;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    shape_range(step, step->x[0].rank, &first, &last);
    memcpy(step->y[0].data, step->x[0].dims + first, (size_t)(last - first) * 8);
    return ATTNRUN_OK;
}

static attn_status size_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    TRY(op_out(step, 0, ATTNRUN_I64, 0, NULL));
    if (in->rank < 0)
        return ATTNRUN_OK;
    attnrun_dim n = op_dims_product(step, in->dims, 0, in->rank);
    if (n.expr >= 0)
        attnrun_step_set_values(step, 0, 1, &n);
    return ATTNRUN_OK;
}

static attn_status size_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    if (step->y[0].data != NULL)
        *(int64_t *)step->y[0].data = tensor_count(&step->x[0]);
    return ATTNRUN_OK;
}

const attnrun_op_def op_shape_1 = { OP_ROW,
                                    .name = "Shape",
                                    .since = 1,
                                    .inputs = "data:T",
                                    .outputs = "shape:i64",
                                    .types = "T=all",
                                    .infer = shape_infer,
                                    .run = shape_run };
const attnrun_op_def op_shape_15 = { OP_ROW,
                                     .name = "Shape",
                                     .since = 15,
                                     .inputs = "data:T",
                                     .outputs = "shape:i64",
                                     .types = "T=all",
                                     .args_bytes = sizeof(struct shape_args),
                                     .attrs = shape_attrs,
                                     .infer = shape_infer,
                                     .run = shape_run };
const attnrun_op_def op_size_1 = { OP_ROW,
                                   .name = "Size",
                                   .since = 1,
                                   .inputs = "data:T",
                                   .outputs = "size:i64",
                                   .types = "T=all",
                                   .infer = size_infer,
                                   .run = size_run };
