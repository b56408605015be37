/* max_pool.c - MaxPool: the largest element of each window. Padding never wins.
 *
 * X        f32, f64, i8 or u8 [N, C, spatial 1 to 3];  Y [N, C, out], see
 *          sliding_window.c
 * Indices  i64, shaped as Y: where the first largest element lies in X, counted over all
 *          of X with the spatial axes in row-major (storage_order 0) or column-major
 *          order
 *
 * NaN wins. A window that sees nothing gives the lowest value and the index -1. A task is
 * a row of output pixels of one plane. Cost: one comparison for each tap of a window.
 * Source: ONNX MaxPool-12. */
#include <math.h>

#include "../kernels/kernels.h"
#include "pool.h"

static const attnrun_attr_def max_pool_attrs[] = {
    POOL_ATTR_ROWS, WINDOW_DILATIONS, ATTR_FLAG(struct pool_args, storage_order, 0),
    ATTR_END
};

#define IN(v, p)      (v)
#define WIN(a, v)     ((v) > (a) || (v) != (v) ? (v) : (a))
#define WIN_INT(a, v) ((v) > (a) ? (v) : (a))

#define POOL_NAME  pool_f32
#define POOL_T     float
#define POOL_FIRST -INFINITY
#define POOL_IN    IN
#define POOL_JOIN  WIN
#include "pool_row.h"
#define POOL_NAME  pool_f64
#define POOL_T     double
#define POOL_FIRST (double)-INFINITY
#define POOL_IN    IN
#define POOL_JOIN  WIN
#include "pool_row.h"
#define POOL_NAME  pool_i8
#define POOL_T     int8_t
#define POOL_FIRST INT8_MIN
#define POOL_IN    IN
#define POOL_JOIN  WIN_INT
#include "pool_row.h"
#define POOL_NAME  pool_u8
#define POOL_T     uint8_t
#define POOL_FIRST 0
#define POOL_IN    IN
#define POOL_JOIN  WIN_INT
#include "pool_row.h"

static attn_status max_pool_infer(attnrun_step *step)
{
    const struct pool_args *args = step->args;
    if (args->storage_order < 0 || args->storage_order > 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute storage_order is %lld, expected 0 or 1",
                       (long long)args->storage_order);
    TRY(attn_pool_infer(step, args));
    const struct window *w = &((const struct pool_state *)step->state)->w;
    if (step->concrete && step->out[0].rank > 0)
        step->scratch_bytes = max64(step->scratch_bytes, attn_pool_vector_bytes(w));
    if (step->n_out > 1) {
        attnrun_dim dims[ATTNRUN_MAX_RANK];
        memcpy(dims, step->out[0].dims, sizeof dims);
        TRY(op_out(step, 1, ATTNRUN_I64, step->out[0].rank, dims));
    }
    return ATTNRUN_OK;
}

static void max_pool_run_row(const attnrun_step *step, void *line,
                             const struct pool_place *p)
{
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const int64_t from = p->from, to = p->to, *at = p->at;
    const void *x = step->x[0].data;
    void *y = step->y[0].data;
    switch (step->x[0].dtype) {
    case ATTNRUN_F32:
        if (attn_pool_by_vectors(w))
            attn_pool_row_f32(w, (float *)y + to, line, (const float *)x + from, at,
                              -INFINITY, step->kernels->max_f32);
        else
            pool_f32((float *)y + to, line, (const float *)x + from, w, at, 0);
        break;
    case ATTNRUN_F64:
        pool_f64((double *)y + to, line, (const double *)x + from, w, at, 0);
        break;
    case ATTNRUN_I8:
        pool_i8((int8_t *)y + to, line, (const int8_t *)x + from, w, at, 0);
        break;
    default:
        pool_u8((uint8_t *)y + to, line, (const uint8_t *)x + from, w, at, 0);
        break;
    }
}

static double element(const attnrun_tensor *x, int64_t i)
{
    switch (x->dtype) {
    case ATTNRUN_F32:
        return (double)((const float *)x->data)[i];
    case ATTNRUN_F64:
        return ((const double *)x->data)[i];
    case ATTNRUN_I8:
        return ((const int8_t *)x->data)[i];
    default:
        return ((const uint8_t *)x->data)[i];
    }
}

/* Finds the place of the first largest element that the window at `at` sees, within the
 * plane. */
static int64_t find_largest(const attnrun_tensor *x, const struct window *w,
                            int64_t plane, const int64_t at[3], bool column_major)
{
    struct pool_rows rows = attn_pool_rows(w, at);
    int64_t found = -1;
    double best = 0.0;
    while (attn_pool_next(&rows) && attn_poll_work(4 * rows.n + 4) == ATTNRUN_OK)
        for (int64_t i = 0; i < rows.n; i++) {
            const int64_t place = rows.from + i * rows.step, line = place / w->in[2];
            const double v = element(x, plane + place);
            if (found >= 0 && !(v > best || (isnan(v) && !isnan(best))))
                continue;
            best = v;
            found = column_major
                        ? line / w->in[1] +
                              (line % w->in[1] + place % w->in[2] * w->in[1]) * w->in[0]
                        : place;
        }
    return found;
}

static void index_row(const attnrun_step *step, const struct pool_place *p)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    int64_t *y = (int64_t *)step->y[1].data + p->to;
    for (int64_t i = 0; i < w->out[2]; i++) {
        const int64_t where[3] = { p->at[0], p->at[1], i };
        int64_t found =
            find_largest(&step->x[0], w, p->from, where, args->storage_order != 0);
        y[i] = found < 0 ? -1 : p->from + found;
    }
}

static attn_status max_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct pool_place p = attn_pool_at(step->state, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (step->y[0].data != NULL)
            max_pool_run_row(step, work->scratch, &p);
        if (step->n_out > 1 && step->y[1].data != NULL)
            index_row(step, &p);
    }
    return ATTNRUN_OK;
}

#define MAX_POOL_ROW                                                                     \
    .args_bytes = sizeof(struct pool_args), .state_bytes = sizeof(struct pool_state),    \
    .inputs = "X:T", .attrs = max_pool_attrs, .infer = max_pool_infer,                   \
    .run = max_pool_run
const attnrun_op_def op_max_pool_1 = {
    OP_ROW,           .name = "MaxPool",    .since = 1,
    .outputs = "Y:T", .types = "T=f32,f64", MAX_POOL_ROW
};

const attnrun_op_def op_max_pool_8 = {
    OP_ROW,
    .name = "MaxPool",
    .since = 8,
    .outputs = "Y:T Indices:i64?",
    .types = "T=f32,f64,i8,u8",
    MAX_POOL_ROW,
};
