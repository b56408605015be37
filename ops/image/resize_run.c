/* resize_run.c - computes the lines of a resize. Phase 0 makes the tables of positions
 * and weights. In phase 1 a task is one line along the last axis: the lines that it reads
 * are added up, then the taps along it. Integers are rounded towards zero, as the
 * reference of ONNX and ONNX Runtime do; those with antialias go axis by axis instead
 * (resize_passes.c). Positions that are vectors are in resize_vectors.c. Scratch: a line
 * of the input. */
#include <math.h>

#include "resize.h"

/* With antialias the first or the last tap of a position may have no weight, but its element may
 * be NaN: the tap takes half of the weight, and the element, of the tap beside it. */
static void share_ends(const struct resize_axis *axis, int64_t *index, double *weight,
                       float *weight_f32)
{
    for (int64_t i = 0; i < axis->out && !attn_stops(i); i++) {
        for (int64_t t = 0; t < axis->taps; t += axis->taps - 1) {
            const int64_t by = t == 0 ? 1 : t - 1;
            if (weight[t] != 0.0 || index[0] < 0)
                continue;
            index[t] = index[by];
            weight[t] = weight[by] /= 2.0;
            weight_f32[t] = weight_f32[by] /= 2.0f;
        }
        index += axis->taps;
        weight += axis->taps;
        weight_f32 += axis->taps;
    }
}

static void make_tables(const attnrun_step *step, uint8_t *shared, int64_t a)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *axis = &state->axes[a];
    if (a >= state->rank || !axis->active || axis->in == 0 || axis->out == 0)
        return;
    double roi[2] = { 0.0, 1.0 };
    int which[ATTNRUN_MAX_RANK], n = 0;
    bool crop = args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    if (crop && attn_resize_given(step, 1) &&
        attn_resize_axes(step, state->rank, which, &n) == ATTNRUN_OK &&
        tensor_count(&step->x[1]) == 2 * n)
        for (int i = 0; i < n; i++)
            if (which[i] == a) {
                roi[0] = tensor_get_real(&step->x[1], i);
                roi[1] = tensor_get_real(&step->x[1], n + i);
            }
    int64_t *const index = (int64_t *)(void *)(shared + axis->index);
    double *const weight = (double *)(void *)(shared + axis->weight);
    float *const weight_f32 = (float *)(void *)(shared + axis->weight_f32);
    attn_resize_table(args, axis, roi, index, weight, weight_f32);
    if (state->n_passes > 0)
        attn_resize_round_weights(step, axis, weight);
    else if (args->antialias && axis->scale < 1.0) /* more than two taps */
        share_ends(axis, index, weight, weight_f32);
}

/* The lines that output line `row` comes from, one combination of taps after the
 * other. */
struct resize_lines {
    const struct resize_state *state;
    const uint8_t *shared;
    int64_t at[ATTNRUN_MAX_RANK], tap[ATTNRUN_MAX_RANK];
};

static void lines_begin(struct resize_lines *l, int64_t row)
{
    for (int a = l->state->rank - 2; a >= 0; a--) {
        l->at[a] = row % l->state->axes[a].out;
        row /= l->state->axes[a].out;
        l->tap[a] = 0;
    }
}

static bool lines_next(struct resize_lines *l)
{
    if (attn_poll_work(l->state->last_in * 4) != ATTNRUN_OK)
        return false;
    for (int a = l->state->rank - 2; a >= 0; a--) {
        if (++l->tap[a] < l->state->axes[a].taps)
            return true;
        l->tap[a] = 0;
    }
    return false;
}

/* The input line of the current combination, -1 where it is extrapolated, and its
 * weight. */
static int64_t lines_get(const struct resize_lines *l, double *weight)
{
    int64_t line = 0;
    bool outside = false;
    *weight = 1.0;
    for (int a = 0; a + 1 < l->state->rank; a++) {
        const struct resize_axis *axis = &l->state->axes[a];
        int64_t at = l->at[a];
        if (axis->active) {
            int64_t i = at * axis->taps;
            const int64_t *index =
                (const int64_t *)(const void *)(l->shared + axis->index);
            const double *w = (const double *)(const void *)(l->shared + axis->weight);
            outside = outside || index[i] < 0;
            at = index[i + l->tap[a]];
            *weight *= w[i + l->tap[a]];
        }
        line = line * axis->in + at;
    }
    return outside ? -1 : line;
}

/* Sums that are whole numbers but for the rounding of doubles stay these numbers. */
#define WHOLE 1e-12

static void put_real(int32_t dtype, void *data, int64_t i, double v)
{
    if (dtype == ATTNRUN_F32)
        ((float *)data)[i] = (float)v;
    else if (dtype == ATTNRUN_F64)
        ((double *)data)[i] = v;
    else
        attn_resize_put_int(dtype, data, i, trunc(v + v * WHOLE));
}

static void fill_line(const attnrun_step *step, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    for (int64_t i = 0; i < state->last_out; i++)
        put_real(step->y[0].dtype, step->y[0].data, row * state->last_out + i,
                 (double)args->extrapolation_value);
}

static void pick_line(uint8_t *y, const uint8_t *x, const int64_t *index, int64_t n,
                      int64_t bytes)
{
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[index[i]];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 2 * i, x + 2 * index[i], 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 4 * i, x + 4 * index[i], 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 8 * i, x + 8 * index[i], 8);
        break;
    }
}

static void run_nearest(const attnrun_step *step, struct resize_lines *l, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    int64_t bytes = dtype_bytes(step->x[0].dtype);
    double weight;
    int64_t line = lines_get(l, &weight);
    if (line < 0) {
        fill_line(step, row);
        return;
    }
    uint8_t *y = (uint8_t *)step->y[0].data + row * state->last_out * bytes;
    const uint8_t *x = (const uint8_t *)step->x[0].data + line * state->last_in * bytes;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    if (!last->active) {
        memcpy(y, x, (size_t)(state->last_out * bytes));
        return;
    }
    const int64_t *index = (const int64_t *)(const void *)(l->shared + last->index);
    if (args->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE) {
        pick_line(y, x, index, state->last_out, bytes);
        return;
    }
    for (int64_t i = 0; i < state->last_out; i++) {
        if (index[i] < 0)
            put_real(step->y[0].dtype, y, i, (double)args->extrapolation_value);
        else
            memcpy(y + i * bytes, x + index[i] * bytes, (size_t)bytes);
    }
}

static void taps_f32(float *y, const float *line, const struct resize_axis *a,
                     const int64_t *index, const float *weight)
{
    if (a->taps == 2) {
        for (int64_t i = 0; i < a->out; i++, index += 2, weight += 2)
            y[i] = weight[0] * line[index[0]] + weight[1] * line[index[1]];
        return;
    }
    for (int64_t i = 0; i < a->out; i++, index += a->taps, weight += a->taps) {
        float sum = 0.0f;
        for (int64_t t = 0; t < a->taps; t++)
            sum += weight[t] * line[index[t]];
        y[i] = sum;
    }
}

static void run_f32(const attnrun_step *step, struct resize_lines *l, float *line,
                    int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    float *y = (float *)step->y[0].data + row * state->last_out;
    bool first = true, direct = !last->active;
    float *sum = direct ? y : line;
    do {
        double weight;
        int64_t from = lines_get(l, &weight);
        if (from < 0) {
            fill_line(step, row);
            return;
        }
        const float *x = (const float *)step->x[0].data + from * state->last_in;
        float w = (float)weight;
        if (first)
            for (int64_t i = 0; i < state->last_in; i++)
                sum[i] = w * x[i];
        else if (w != 0.0f)
            for (int64_t i = 0; i < state->last_in; i++)
                sum[i] += w * x[i];
        first = false;
    } while (lines_next(l));
    if (direct)
        return;
    const int64_t *index = (const int64_t *)(const void *)(l->shared + last->index);
    const float *weight = (const float *)(const void *)(l->shared + last->weight_f32);
    if (args->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE) {
        taps_f32(y, line, last, index, weight);
        return;
    }
    for (int64_t i = 0; i < last->out; i++, index += last->taps, weight += last->taps) {
        float value = 0.0f;
        for (int64_t t = 0; index[0] >= 0 && t < last->taps; t++)
            value += weight[t] * line[index[t]];
        y[i] = index[0] < 0 ? args->extrapolation_value : value;
    }
}

/* Computes a line of any other type, in f64. */
static void run_real(const attnrun_step *step, struct resize_lines *l, double *line,
                     int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    for (int64_t i = 0; i < state->last_in; i++)
        line[i] = 0.0;
    do {
        double weight;
        int64_t from = lines_get(l, &weight);
        if (from < 0) {
            fill_line(step, row);
            return;
        }
        for (int64_t i = 0; i < state->last_in; i++)
            line[i] += weight * tensor_get_real(&step->x[0], from * state->last_in + i);
    } while (lines_next(l));
    bool direct = !last->active;
    for (int64_t i = 0; i < state->last_out && !attn_stops(i); i++) {
        double value = direct ? line[i] : 0.0;
        if (!direct) {
            const int64_t *index =
                (const int64_t *)(const void *)(l->shared + last->index);
            const double *w = (const double *)(const void *)(l->shared + last->weight);
            index += i * last->taps;
            for (int64_t t = 0; index[0] >= 0 && t < last->taps; t++)
                value += w[i * last->taps + t] * line[index[t]];
            if (index[0] < 0)
                value = (double)args->extrapolation_value;
        }
        put_real(step->y[0].dtype, step->y[0].data, row * state->last_out + i, value);
    }
}

attn_status attn_resize_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct resize_args *args = step->args;
    if (work->phase == 0) {
        for (int64_t a = work->begin; a < work->end; a++)
            make_tables(step, work->shared, a);
        return ATTNRUN_OK;
    }
    if (((const struct resize_state *)step->state)->n_passes > 0)
        return attn_resize_pass(step, work);
    if (((const struct resize_state *)step->state)->inner > 0)
        return attn_resize_vectors(step, work);
    struct resize_lines l = { .state = step->state, .shared = work->shared };
    for (int64_t row = work->begin; row < work->end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        lines_begin(&l, row);
        if (args->mode == RESIZE_NEAREST)
            run_nearest(step, &l, row);
        else if (step->x[0].dtype == ATTNRUN_F32)
            run_f32(step, &l, work->scratch, row);
        else
            run_real(step, &l, work->scratch, row);
    }
    return ATTNRUN_OK;
}
