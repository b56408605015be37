/* mean_variance_normalization.c - MeanVarianceNormalization:
 *
 *   Y = (X - mean) / (deviation + 1e-9)   over `axes`, (0, 2, 3) by default
 *
 * X, Y   of one shape. Source: ONNX MeanVarianceNormalization-13. */
#include <math.h>

#include "planes.h"

struct mean_variance_args {
    attnrun_ints axes;
};
static const attnrun_attr_def mean_variance_attrs[] = {
    ATTR_INTS(struct mean_variance_args, axes),
    ATTR_END,
};

/* The dims that are reduced, and those that are kept, with their strides. */
struct mean_variance_loops {
    int n;
    int64_t count, size[ATTNRUN_MAX_RANK], stride[ATTNRUN_MAX_RANK];
};
struct mean_variance_state {
    struct mean_variance_loops kept, reduced;
};

static attn_status mark_axes(const attnrun_step *step, bool *marked)
{
    static const int64_t usual[] = { 0, 2, 3 };
    const struct mean_variance_args *args = step->args;
    const int64_t *axes = args->axes.v != NULL ? args->axes.v : usual;
    const int64_t n = args->axes.v != NULL ? args->axes.n : 3;
    for (int64_t i = 0; i < n; i++) {
        int axis;
        TRY(op_axis(step, axes[i], step->in[0].rank, false, &axis));
        marked[axis] = true;
    }
    return ATTNRUN_OK;
}

static attn_status mean_variance_infer(attnrun_step *step)
{
    struct mean_variance_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    bool marked[ATTNRUN_MAX_RANK] = { false };
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (x->rank < 0)
        return ATTNRUN_OK;
    TRY(mark_axes(step, marked));
    if (!step->concrete)
        return ATTNRUN_OK;
    *state = (struct mean_variance_state){ { .count = 1 }, { .count = 1 } };
    int64_t all = op_count(x, 0, x->rank), stride = 1;
    if (all < 0)
        return op_fail(step, ATTNRUN_E_LIMIT, "the tensor is too large");
    for (int i = x->rank - 1; i >= 0 && all > 0; i--) {
        struct mean_variance_loops *l = marked[i] ? &state->reduced : &state->kept;
        l->size[l->n] = x->dims[i].value;
        l->stride[l->n++] = stride;
        l->count *= x->dims[i].value;
        stride *= x->dims[i].value;
    }
    op_tasks(step, 0, all > 0 ? state->kept.count : 0, state->reduced.count * 6 + 20);
    return ATTNRUN_OK;
}

/* Offset of element `index`; the first loop is the innermost. */
static int64_t offset_of(const struct mean_variance_loops *l, int64_t index)
{
    int64_t offset = 0;
    for (int i = 0; i < l->n; i++) {
        offset += index % l->size[i] * l->stride[i];
        index /= l->size[i];
    }
    return offset;
}

static attn_status normalize_group(const attnrun_step *step, int64_t first,
                                   const attnrun_work *work)
{
    const struct mean_variance_loops *l =
        &((const struct mean_variance_state *)step->state)->reduced;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < l->count && !attn_stops(i); i++)
        mean += planes_get(&step->x[0], first + offset_of(l, i));
    mean /= (double)l->count;
    for (int64_t i = 0; i < l->count && !attn_stops(i); i++) {
        double d = planes_get(&step->x[0], first + offset_of(l, i)) - mean;
        square += d * d;
    }
    if (OP_CANCELLED(work))
        return ATTNRUN_E_CANCELLED;
    const double deviation = sqrt(square / (double)l->count) + 1e-9;
    for (int64_t i = 0; i < l->count && !attn_stops(i); i++) {
        int64_t at = first + offset_of(l, i);
        double y = (planes_get(&step->x[0], at) - mean) / deviation;
        if (step->y[0].dtype == ATTNRUN_F64)
            ((double *)step->y[0].data)[at] = y;
        else
            ((float *)step->y[0].data)[at] = (float)y;
    }
    return ATTNRUN_OK;
}

static attn_status mean_variance_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct mean_variance_state *state = step->state;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(normalize_group(step, offset_of(&state->kept, task), work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_mean_variance_normalization_9 = {
    OP_ROW,
    .name = "MeanVarianceNormalization",
    .since = 9,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct mean_variance_args),
    .state_bytes = sizeof(struct mean_variance_state),
    .attrs = mean_variance_attrs,
    .infer = mean_variance_infer,
    .run = mean_variance_run,
    .cost = "O(n)",
};
