/* cumulative.c - CumSum, CumProd: y[j] = x[0] op … op x[j] along an axis.
 *
 * x          any real type, any shape of rank >= 1; y the same
 * axis       scalar i32 or i64, negative from the end
 * exclusive  0 by default; 1 leaves x[j] out of y[j]
 * reverse    0 by default; 1 starts at the end of the axis
 *
 * Cost: one pass. Source: ONNX CumSum-11, 14, CumProd-26. */
#include "../elementwise/elementwise.h"
#include "axis_lines.h"

struct cumulative_args {
    int64_t exclusive, reverse;
};
static const attnrun_attr_def cumulative_attrs[] = {
    ATTR_FLAG(struct cumulative_args, exclusive, 0),
    ATTR_FLAG(struct cumulative_args, reverse, 0), ATTR_END
};
struct cumulative_state {
    int32_t split; /* the axis was known: tasks are groups of lines. Else one task */
};

/* stride may be negative: elements. */
typedef void cumulate_fn(void *y, const void *x, int64_t n, int64_t stride, bool product,
                         bool exclusive);
#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_TEMPLATE "reduce/cumulative_template.h"
#include "../for_each_dtype.h"
static cumulate_fn *const cumulate[ATTNRUN_DTYPE_COUNT] = { LOOPS_NUM(cumulate) };

static attn_status read_axis(const attnrun_step *step, int *axis)
{
    const attnrun_tensor *at = &step->x[1];
    if (tensor_count(at) != 1)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected one element");
    int64_t value = tensor_get_int(at, 0);
    int rank = step->in[0].rank;
    if (value < -rank || value >= rank)
        return op_fail(step, ATTNRUN_E_RANGE, "axis is %lld, expected %d to %d",
                       (long long)value, -rank, rank - 1);
    *axis = (int)(value < 0 ? value + rank : value);
    return ATTNRUN_OK;
}

static attn_status cumulative_infer(attnrun_step *step)
{
    struct cumulative_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    int axis;
    TRY(op_need_loop(step, 0, cumulate[x->dtype] != NULL));
    TRY(op_out_like(step, 0, 0));
    if (x->rank == 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected rank 1 or more");
    if (x->rank < 0 || !step->concrete || !op_known(step, 1))
        return ATTNRUN_OK;
    TRY(read_axis(step, &axis));
    int64_t length = x->dims[axis].value, count = op_count(x, 0, x->rank);
    int64_t n = length > 0 ? count / length : 0, per_task = lines_per_task(length);
    state->split = 1;
    op_tasks(step, 0, ceil_div(n, per_task), per_task * length);
    return ATTNRUN_OK;
}

static attn_status cumulative_run(const attnrun_step *step, const attnrun_work *work,
                                  bool product)
{
    const struct cumulative_args *args = step->args;
    const struct cumulative_state *state = step->state;
    const attnrun_tensor *x = &step->x[0];
    int64_t size = dtype_bytes(x->dtype);
    int axis;
    TRY(read_axis(step, &axis));
    struct lines lines = lines_along(x, axis);
    if (lines.length == 0)
        return ATTNRUN_OK;
    int64_t per_task = state->split ? lines_per_task(lines.length) : lines.count;
    for (int64_t line = work->begin * per_task; line < work->end * per_task; line++) {
        if (line >= lines.count)
            break;
        int64_t at = lines_start(&lines, line), stride = lines.inner;
        if (args->reverse) {
            at += (lines.length - 1) * stride;
            stride = -stride;
        }
        cumulate[x->dtype]((char *)step->y[0].data + at * size,
                           (const char *)x->data + at * size, lines.length, stride,
                           product, args->exclusive != 0);
        if (OP_CANCELLED_AFTER(work, lines.length * size))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status cum_sum_run(const attnrun_step *step, const attnrun_work *work)
{
    return cumulative_run(step, work, false);
}

static attn_status cum_prod_run(const attnrun_step *step, const attnrun_work *work)
{
    return cumulative_run(step, work, true);
}

#define CUMULATIVE_ROW                                                                   \
    OP_ROW, .inputs = "x:T axis:I", .outputs = "y:T",                                    \
        .types = "T=" TYPES_NUM " I=i32,i64",                                            \
        .args_bytes = sizeof(struct cumulative_args),                                    \
        .state_bytes = sizeof(struct cumulative_state), .attrs = cumulative_attrs,       \
        .infer = cumulative_infer
const attnrun_op_def op_cum_sum_11 = { CUMULATIVE_ROW, .name = "CumSum", .since = 11,
                                       .run = cum_sum_run };
const attnrun_op_def op_cum_prod_26 = { CUMULATIVE_ROW, .name = "CumProd", .since = 26,
                                        .run = cum_prod_run };
