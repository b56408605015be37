/* resize_vectors.c - a resize of floats along one axis, or along two axes that follow
 * each other, where what lies behind them is a vector of a multiple of 16 floats. Such
 * are maps in blocks of 16 channels, and maps whose channels come last.
 *
 * in    X and the tables of resize_table.c
 * out   Y; a task is one line of vectors: the lines that it reads are added up in
 *       scratch, then the taps along it. A line that is the only one is read where it is.
 *
 * The terms are those of resize_run.c, in the same order. Cost: the taps of an axis for
 * each element. Scratch: a line of vectors. */
#include "resize.h"

enum { VECTOR = 16 };

attn_status attn_resize_plan_vectors(attnrun_step *step, struct resize_state *s)
{
    const struct resize_args *args = step->args;
    const bool crop = args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    int last = s->rank - 1, active = 0;
    int64_t inner = 1, line;
    s->inner = 0;
    if (step->in[0].dtype != ATTNRUN_F32 || crop || s->rows == 0)
        return ATTNRUN_OK;
    for (; last >= 0 && !s->axes[last].active; last--)
        if (!ck_mul(inner, s->axes[last].out, &inner))
            return ATTNRUN_OK;
    for (int a = 0; a < last; a++)
        active += s->axes[a].active;
    if (last < 0 || inner % VECTOR != 0 || inner == 0)
        return ATTNRUN_OK;
    s->two_axes = last > 0 && s->axes[last - 1].active;
    if (active != s->two_axes)
        return ATTNRUN_OK;
    const struct resize_axis *axis = &s->axes[last];
    if (!ck_mul(axis->in, inner, &line) || !ck_mul(line, 4, &line))
        return op_fail(step, ATTNRUN_E_LIMIT, "the input is too large");
    s->inner = inner;
    s->vectors_axis = last;
    s->rows = op_count(&step->out[0], 0, last);
    step->scratch_bytes = args->mode != RESIZE_NEAREST && s->two_axes ? line : 0;
    const double above = s->two_axes ? (double)s->axes[last - 1].taps : 0.0;
    const double cost = ((double)axis->in * above + (double)(axis->out * axis->taps)) *
                        (double)inner * 0.06;
    op_tasks(step, 1, s->rows, cost < 1e15 ? (int64_t)cost + 50 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

struct tables {
    const struct resize_axis *axis;
    const int64_t *index;
    const float *weight;
};

static struct tables tables_of(const struct resize_axis *axis, const uint8_t *shared)
{
    return (struct tables){ axis, (const int64_t *)(const void *)(shared + axis->index),
                            (const float *)(const void *)(shared + axis->weight_f32) };
}

/* Finds the line between the lines of a plane that output line `at` reads. */
static const float *find_line(const attnrun_step *step, const struct tables *above,
                              const float *plane, int64_t at, float *scratch)
{
    const struct resize_args *args = step->args;
    const struct resize_state *s = step->state;
    const int64_t taps = above->axis->taps, line = s->axes[s->vectors_axis].in * s->inner;
    const float *weight = above->weight + at * taps;
    int64_t counts = 0, first = 0;
    for (int64_t t = taps - 1; t >= 0; t--)
        if (weight[t] != 0.0f) {
            counts++;
            first = t;
        }
    if (args->mode == RESIZE_NEAREST || (counts == 1 && weight[first] == 1.0f))
        return plane + above->index[at * taps + first] * line;
    const struct attn_resize_line d = { .x = plane,
                                        .weight = weight,
                                        .index = above->index + at * taps,
                                        .y = scratch,
                                        .taps = taps,
                                        .n = 1,
                                        .inner = line };
    step->kernels->resize_line_f32(&d);
    return scratch;
}

attn_status attn_resize_vectors(const attnrun_step *step, const attnrun_work *work)
{
    const struct resize_args *args = step->args;
    const struct resize_state *s = step->state;
    const struct resize_axis *axis = &s->axes[s->vectors_axis];
    const struct resize_axis *before = s->vectors_axis > 0 ? axis - 1 : NULL;
    const struct tables along = tables_of(axis, work->shared);
    const int64_t line = axis->in * s->inner;
    for (int64_t row = work->begin; row < work->end; row++) {
        const float *x = step->x[0].data;
        if (s->two_axes) {
            const struct tables above = tables_of(before, work->shared);
            x = find_line(step, &above, x + row / before->out * before->in * line,
                          row % before->out, work->scratch);
        } else {
            x += row * line;
        }
        const struct attn_resize_line d = {
            .x = x,
            .weight = args->mode != RESIZE_NEAREST ? along.weight : NULL,
            .index = along.index,
            .y = (float *)step->y[0].data + row * axis->out * s->inner,
            .taps = axis->taps,
            .n = axis->out,
            .inner = s->inner
        };
        step->kernels->resize_line_f32(&d);
        if (OP_CANCELLED_AFTER(work, axis->out * 4))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}
