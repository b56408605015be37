/* arg_reduce.c - ArgMax, ArgMin: the index of the largest (smallest) element along an
 * axis.
 *
 * data               any real type and shape; y i64
 * axis               0 by default, negative from the end
 * keepdims           1 by default: the axis stays as 1
 * select_last_index  0 by default: the first of equal elements
 *
 * NaN counts as best, as in numpy. Cost: one read of data. Source: ONNX ArgMax, ArgMin 1
 * to 13. */
#include <math.h>

#include "../elementwise/elementwise.h"
#include "../kernels/kernels.h"
#include "axis_lines.h"

struct arg_args {
    int64_t axis, keepdims, select_last_index;
};
static const attnrun_attr_def arg_attrs[] = {
    ATTR_INT(struct arg_args, axis, 0), ATTR_FLAG(struct arg_args, keepdims, 1),
    ATTR_FLAG(struct arg_args, select_last_index, 0), ATTR_END
};
struct arg_state {
    int32_t axis;
};

typedef int64_t best_index(const void *line, int64_t n, int64_t stride, bool largest,
                           bool last);
#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_TEMPLATE "reduce/arg_template.h"
#include "../for_each_dtype.h"
static best_index *const finders[ATTNRUN_DTYPE_COUNT] = { LOOPS_NUM(best_index) };

static attn_status arg_infer(attnrun_step *step)
{
    const struct arg_args *args = step->args;
    const attnrun_type *x = &step->in[0];
    struct arg_state *state = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int axis, rank = 0;
    TRY(op_need_loop(step, 0, finders[x->dtype] != NULL));
    if (x->rank < 0)
        return op_out(step, 0, ATTNRUN_I64, -1, NULL);
    if (x->rank == 0 && args->axis >= -1 && args->axis <= 0)
        return op_out(step, 0, ATTNRUN_I64, 0, NULL);
    TRY(op_axis(step, args->axis, x->rank, false, &axis));
    state->axis = axis;
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            dims[rank++] = x->dims[d];
        else if (args->keepdims)
            dims[rank++] = dim_of(1);
    TRY(op_out(step, 0, ATTNRUN_I64, rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t n = op_count(&step->out[0], 0, rank), length = x->dims[axis].value;
    if (length == 0 && n > 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected elements along axis %d",
                             axis);
    int64_t per_task = lines_per_task(length);
    op_tasks(step, 0, ceil_div(n, per_task), per_task * length);
    return ATTNRUN_OK;
}

/* The same of floats that are one after the other: the extreme of each segment, then where it is
 * in the segment that has the best one. */
static int64_t best_of_floats(const struct attn_kernels *kernels, const float *x,
                              int64_t n, bool largest, bool last)
{
    enum { SEGMENT = 1 << 16 };
    float best = 0;
    int64_t first = 0, found = 0;
    for (int64_t i = 0; i < n; i += SEGMENT) {
        const int64_t length = min64(SEGMENT, n - i);
        const float v = largest ? kernels->reduce_max_f32(x + i, (size_t)length)
                                : kernels->reduce_min_f32(x + i, (size_t)length);
        if (isnan(v))
            return finders[ATTNRUN_F32](x, n, 1, largest, last);
        if (i == 0 || (largest ? v > best : v < best) ||
            (last && v >= best && v <= best)) {
            best = v;
            first = i;
        }
        if (attn_poll_work(length * (int64_t)sizeof *x) != ATTNRUN_OK)
            return 0;
    }
    const int64_t end = min64(n, first + SEGMENT);
    for (int64_t i = first; i < end; i++)
        if (x[i] >= best && x[i] <= best) {
            found = i;
            if (!last)
                break;
        }
    return found;
}

static attn_status arg_run(const attnrun_step *step, const attnrun_work *work,
                           bool largest)
{
    const struct arg_args *args = step->args;
    const struct arg_state *state = step->state;
    const attnrun_tensor *x = &step->x[0];
    int64_t *y = step->y[0].data;
    if (x->rank == 0) {
        y[0] = 0;
        return ATTNRUN_OK;
    }
    struct lines lines = lines_along(x, state->axis);
    int64_t per_task = lines_per_task(lines.length), size = dtype_bytes(x->dtype);
    const bool floats = x->dtype == ATTNRUN_F32 && lines.inner == 1;
    for (int64_t line = work->begin * per_task; line < work->end * per_task; line++) {
        if (line >= lines.count)
            break;
        const char *from = (const char *)x->data + lines_start(&lines, line) * size;
        const bool last = args->select_last_index != 0;
        y[line] = floats
                      ? best_of_floats(step->kernels, (const float *)(const void *)from,
                                       lines.length, largest, last)
                      : finders[x->dtype](from, lines.length, lines.inner, largest, last);
        if (OP_CANCELLED_AFTER(work, lines.length * size))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status arg_max_run(const attnrun_step *step, const attnrun_work *work)
{
    return arg_run(step, work, true);
}

static attn_status arg_min_run(const attnrun_step *step, const attnrun_work *work)
{
    return arg_run(step, work, false);
}

#define ARG_ROW                                                                          \
    OP_ROW, .since = 1, .inputs = "data:T", .outputs = "reduced:i64",                    \
        .types = "T=" TYPES_NUM, .args_bytes = sizeof(struct arg_args),                  \
        .state_bytes = sizeof(struct arg_state), .attrs = arg_attrs, .infer = arg_infer
const attnrun_op_def op_arg_max_1 = { ARG_ROW, .name = "ArgMax", .run = arg_max_run };
const attnrun_op_def op_arg_min_1 = { ARG_ROW, .name = "ArgMin", .run = arg_min_run };
