/* norm_rows.c - shapes, weights and the f64 row of layer and RMS normalization.
 * norm_rows.h has the interface. */
#include "norm_rows.h"

#include <math.h>

attn_status attn_norm_check_weight(const attnrun_step *step, int in, int axis)
{
    const attnrun_type *x = &step->in[0], *w = &step->in[in];
    if (x->rank < 0 || w->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 0, x->rank));
    for (int i = 0; i < w->rank; i++) {
        int at = x->rank - w->rank + i;
        if (dim_is(w->dims[i], 1))
            continue;
        if (at < axis && dim_is_const(w->dims[i]))
            return op_fail_input(step, in, ATTNRUN_E_UNSUPPORTED,
                                 "expected 1 in dim %d, which is not normalized", i);
        TRY(op_need_dim(step, in, i, x->dims[at], "the input's dim"));
    }
    return ATTNRUN_OK;
}

static void plan_weight(const attnrun_step *step, struct norm_weight *weight, int in,
                        int axis)
{
    *weight = (struct norm_weight){ .present = in >= 0 && op_has_in(step, in) };
    if (!weight->present)
        return;
    const attnrun_type *x = &step->in[0], *w = &step->in[in];
    int64_t stride = 1;
    weight->direct = true;
    weight->rank = x->rank - axis;
    for (int i = weight->rank - 1; i >= 0; i--) {
        int at = w->rank - weight->rank + i;
        int64_t dim = at >= 0 ? w->dims[at].value : 1;
        weight->dims[i] = x->dims[axis + i].value;
        weight->strides[i] = dim == 1 ? 0 : stride;
        weight->direct = weight->direct && dim == weight->dims[i];
        stride *= dim;
    }
}

attn_status attn_norm_rows_plan(attnrun_step *step, struct norm_rows *rows, int axis,
                                int scale_in, int bias_in)
{
    const attnrun_type *x = &step->in[0];
    TRY(attn_lines_plan(step, &rows->lines, x, axis, x->rank, 0.4));
    if (rows->lines.n_tasks == 0)
        return ATTNRUN_OK;
    plan_weight(step, &rows->scale, scale_in, axis);
    plan_weight(step, &rows->bias, bias_in, axis);
    int64_t bytes = 0, row = rows->lines.length * dtype_bytes(x->dtype);
    if (rows->scale.present && !rows->scale.direct)
        bytes += row;
    if (rows->bias.present && !rows->bias.direct)
        bytes += row;
    step->scratch_bytes = bytes;
    return ATTNRUN_OK;
}

const void *attn_norm_find_weight(const struct norm_weight *weight,
                                  const attnrun_tensor *x, void *room)
{
    if (!weight->present || weight->direct)
        return weight->present ? x->data : NULL;
    const int64_t bytes = dtype_bytes(x->dtype);
    int64_t index[ATTNRUN_MAX_RANK] = { 0 }, from = 0, n = 1;
    for (int i = 0; i < weight->rank; i++)
        n *= weight->dims[i];
    for (int64_t k = 0; k < n && !attn_stops(k); k++) {
        memcpy((char *)room + k * bytes, (const char *)x->data + from * bytes,
               (size_t)bytes);
        for (int i = weight->rank - 1; i >= 0; i--) {
            from += weight->strides[i];
            if (++index[i] < weight->dims[i])
                break;
            from -= weight->strides[i] * weight->dims[i];
            index[i] = 0;
        }
    }
    return room;
}

attn_status attn_norm_stats_out(attnrun_step *step, int out, int32_t dtype, int axis)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    const attnrun_type *x = &step->in[0];
    for (int i = 0; i < x->rank; i++)
        dims[i] = i < axis ? x->dims[i] : dim_of(1);
    return op_out(step, out, dtype, x->rank, x->rank < 0 ? NULL : dims);
}

void attn_norm_empty_plan(attnrun_step *step, const struct lines *lines)
{
    if (lines->n_tasks == 0)
        op_tasks(step, 0, 1, 0);
}

bool attn_norm_empty_run(const attnrun_step *step, const struct lines *lines,
                         int first_stats, int n_stats)
{
    for (int i = first_stats; lines->n_tasks == 0 && i < first_stats + n_stats; i++) {
        if (!op_has_out(step, i) || step->y[i].data == NULL)
            continue;
        const int64_t n = tensor_count(&step->y[i]);
        for (int64_t k = 0; k < n && !attn_stops(k); k++)
            ((float *)step->y[i].data)[k] = NAN;
    }
    return lines->n_tasks == 0;
}

void attn_norm_row_f64(double *y, const double *x, const double *scale,
                       const double *bias, int64_t n, double epsilon, bool rms,
                       double *stats)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; !rms && i < n && !attn_stops(i); i++)
        sum += x[i];
    stats[0] = rms ? 0 : sum / (double)n;
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        squares += (x[i] - stats[0]) * (x[i] - stats[0]);
    stats[1] = 1 / sqrt(squares / (double)n + epsilon);
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        y[i] = (x[i] - stats[0]) * stats[1] * (scale != NULL ? scale[i] : 1) +
               (bias != NULL ? bias[i] : 0);
}
