/* lp_normalization.c - LpNormalization: y = x / |x|_p along one axis, p 1 or 2; 0 where
 * the norm is 0.
 *
 * x, y   any shape;  axis -1, p 2 by default
 * Source: ONNX LpNormalization-22. */
#include <math.h>

#include "lines.h"
#include "planes.h"

struct lp_normalization_args {
    int64_t axis, p;
};
static const attnrun_attr_def lp_normalization_attrs[] = {
    ATTR_INT(struct lp_normalization_args, axis, -1),
    ATTR_CHOICE(struct lp_normalization_args, p, "1..2", 2),
    ATTR_END,
};

static attn_status lp_normalization_infer(attnrun_step *step)
{
    const struct lp_normalization_args *args = step->args;
    int axis, rank = step->in[0].rank;
    if (args->p != 1 && args->p != 2)
        return op_fail(step, ATTNRUN_E_ATTR, "p is %lld, expected 1 or 2",
                       (long long)args->p);
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (rank < 0)
        return ATTNRUN_OK;
    TRY(op_axis(step, args->axis, rank, false, &axis));
    if (!step->concrete)
        return ATTNRUN_OK;
    return attn_lines_plan(step, step->state, &step->in[0], axis, axis + 1, 1.5);
}

static double line_norm(const attnrun_tensor *x, int64_t first, int64_t n, int64_t step,
                        int64_t p)
{
    double sum = 0;
    for (int64_t i = 0; i < n && !attn_stops(i); i++) {
        double value = planes_get(x, first + i * step);
        sum += p == 1 ? fabs(value) : value * value;
    }
    return p == 1 ? sum : sqrt(sum);
}

static attn_status lp_normalization_run(const attnrun_step *step,
                                        const attnrun_work *work)
{
    const struct lp_normalization_args *args = step->args;
    const struct lines *lines = step->state;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t l = 0; l < t.n; l++) {
            int64_t first = t.first + l * t.step;
            double norm = line_norm(x, first, lines->length, lines->inner, args->p);
            for (int64_t i = 0; i < lines->length && !attn_stops(i); i++) {
                int64_t at = first + i * lines->inner;
                double value = norm == 0 ? 0 : planes_get(x, at) / norm;
                if (y->dtype == ATTNRUN_F64)
                    ((double *)y->data)[at] = value;
                else
                    ((float *)y->data)[at] = (float)value;
            }
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_lp_normalization_1 = {
    OP_ROW,
    .name = "LpNormalization",
    .since = 1,
    .inputs = "input:T",
    .outputs = "output:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct lp_normalization_args),
    .state_bytes = sizeof(struct lines),
    .attrs = lp_normalization_attrs,
    .infer = lp_normalization_infer,
    .run = lp_normalization_run,
    .cost = "O(n)",
};
