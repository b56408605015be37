/* softmax.c - Softmax: y = exp(x - max x) / sum exp(x - max x). LogSoftmax is its
 * logarithm. Hardmax is 1 at the first maximum and 0 elsewhere.
 *
 * x, y   f32 or f64, any shape; lines along `axis` (version 13: -1 by default), or over
 *        all dims from `axis` on (version 1: 1 by default)
 *
 * A line of only -inf gives NaN, as in the reference. Cost: O(n), an exponential for each
 * element. Source: ONNX Softmax-13. */
#include <math.h>

#include "softmax_lines.h"

struct softmax_args {
    int64_t axis;
};
static const attnrun_attr_def softmax_attrs_1[] = {
    ATTR_INT(struct softmax_args, axis, 1), ATTR_END
};
static const attnrun_attr_def softmax_attrs_13[] = {
    ATTR_INT(struct softmax_args, axis, -1), ATTR_END
};

struct softmax_state {
    struct lines lines;
};

static attn_status infer_lines(attnrun_step *step, bool to_the_end)
{
    const struct softmax_args *args = step->args;
    struct softmax_state *state = step->state;
    int axis, rank = step->in[0].rank;
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (rank < 0)
        return ATTNRUN_OK;
    if (rank == 0 || (to_the_end && args->axis == rank))
        axis = rank;
    else
        TRY(op_axis(step, args->axis, rank, false, &axis));
    if (!step->concrete)
        return ATTNRUN_OK;
    return attn_lines_plan(step, &state->lines, &step->in[0], axis,
                           to_the_end || rank == 0 ? rank : axis + 1, 0.6);
}

static attn_status softmax_infer_1(attnrun_step *step) { return infer_lines(step, true); }
static attn_status softmax_infer_13(attnrun_step *step)
{
    return infer_lines(step, false);
}

static void softmax_line_f64(double *y, const double *x, int64_t n, int64_t step,
                             bool log_y)
{
    double max = (double)-INFINITY, sum = 0;
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        max = x[i * step] > max ? x[i * step] : max;
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        sum += exp(x[i * step] - max);
    double shift = log(sum);
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        y[i * step] = log_y ? x[i * step] - max - shift : exp(x[i * step] - max) / sum;
}

static void softmax_task(const attnrun_step *step, const struct lines *lines,
                         int64_t task, bool log_y)
{
    const struct lines_of_task t = attn_lines_of(lines, task);
    if (step->x[0].dtype == ATTNRUN_F64) {
        const double *x = (const double *)step->x[0].data + t.first;
        double *y = (double *)step->y[0].data + t.first;
        for (int64_t i = 0; i < t.n; i++)
            softmax_line_f64(y + i * t.step, x + i * t.step, lines->length, lines->inner,
                             log_y);
        return;
    }
    const float *x = (const float *)step->x[0].data + t.first;
    float *y = (float *)step->y[0].data + t.first;
    if (lines->inner > 1) {
        step->kernels->softmax_columns_f32(y, x, (size_t)lines->length,
                                           (size_t)lines->inner, (size_t)t.n, log_y);
        return;
    }
    for (int64_t i = 0; i < t.n; i++)
        step->kernels->softmax_f32(y + i * t.step, x + i * t.step, (size_t)lines->length,
                                   log_y);
}

static attn_status run_lines(const attnrun_step *step, const attnrun_work *work,
                             bool log_y)
{
    const struct softmax_state *state = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        softmax_task(step, &state->lines, task, log_y);
    }
    return ATTNRUN_OK;
}

static attn_status softmax_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_lines(step, work, false);
}
static attn_status log_softmax_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_lines(step, work, true);
}

/* Where the first maximum is; a NaN counts as one, as in numpy. */
static int64_t first_max(const attnrun_tensor *x, int64_t first, int64_t n, int64_t step)
{
    int64_t best = 0;
    double max = tensor_get_real(x, first);
    for (int64_t i = 1; i < n && !isnan(max) && !attn_stops(i); i++) {
        double value = tensor_get_real(x, first + i * step);
        if (value > max || isnan(value)) {
            max = value;
            best = i;
        }
    }
    return best;
}

static attn_status hardmax_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct lines *lines = &((const struct softmax_state *)step->state)->lines;
    const bool wide = step->x[0].dtype == ATTNRUN_F64;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t l = 0; l < t.n; l++) {
            int64_t first = t.first + l * t.step;
            int64_t best = first_max(&step->x[0], first, lines->length, lines->inner);
            for (int64_t i = 0; i < lines->length && !attn_stops(i); i++) {
                if (wide)
                    ((double *)step->y[0].data)[first + i * lines->inner] = i == best;
                else
                    ((float *)step->y[0].data)[first + i * lines->inner] = i == best;
            }
        }
    }
    return ATTNRUN_OK;
}

#define SOFTMAX_ROW(row, onnx_name, version, runs)                                       \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = onnx_name,                                                               \
        .since = version,                                                                \
        .inputs = "x:T",                                                                 \
        .outputs = "y:T",                                                                \
        .types = "T=f32,f64",                                                            \
        .args_bytes = sizeof(struct softmax_args),                                       \
        .state_bytes = sizeof(struct softmax_state),                                     \
        .attrs = softmax_attrs_##version,                                                \
        .infer = softmax_infer_##version,                                                \
        .run = runs,                                                                     \
        .cost = "O(n)",                                                                  \
    }
SOFTMAX_ROW(op_softmax_1, "Softmax", 1, softmax_run);
SOFTMAX_ROW(op_softmax_13, "Softmax", 13, softmax_run);
SOFTMAX_ROW(op_log_softmax_1, "LogSoftmax", 1, log_softmax_run);
SOFTMAX_ROW(op_log_softmax_13, "LogSoftmax", 13, log_softmax_run);
SOFTMAX_ROW(op_hardmax_1, "Hardmax", 1, hardmax_run);
SOFTMAX_ROW(op_hardmax_13, "Hardmax", 13, hardmax_run);
