/* average_pool.c - AveragePool and LpPool.
 *
 * X            f32 or f64 [N, C, spatial 1 to 3]
 * Y            [N, C, out], see sliding_window.c
 * AveragePool  the mean of what the window sees; with count_include_pad the padding
 *              counts as zeros, but not what lies past the padding with ceil_mode
 * LpPool       (sum of |x|^p)^(1/p), p = 2 by default
 *
 * A task is a row of output pixels of one plane. Cost: one term for each tap of a window.
 * Scratch: a row of the input and one of the output, in doubles, but for means of windows of few
 * lines, which are sums of floats. Source: ONNX AveragePool-19, LpPool-18. */
#include <math.h>

#include "../kernels/kernels.h"
#include "pool.h"

static const attnrun_attr_def average_pool_attrs[] = {
    POOL_ATTR_ROWS, WINDOW_DILATIONS, ATTR_FLAG(struct pool_args, count_include_pad, 0),
    ATTR_END
};
static const attnrun_attr_def lp_pool_attrs[] = { POOL_ATTR_ROWS, WINDOW_DILATIONS,
                                                  ATTR_INT(struct pool_args, p, 2),
                                                  ATTR_END };
static const attnrun_attr_def lp_pool_1_attrs[] = {
    { .name = "auto_pad",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct window_attrs, auto_pad),
      .text = "NOTSET|SAME_UPPER|SAME_LOWER|VALID" },
    ATTR_INTS(struct window_attrs, kernel_shape),
    ATTR_INTS(struct window_attrs, strides),
    ATTR_INTS(struct window_attrs, pads),
    { .name = "p",
      .kind = ATTNRUN_ATTR_FLOAT,
      .offset = offsetof(struct pool_args, p_float),
      .float_default = 2.0f },
    ATTR_END
};

enum { FEW_LINES = 128 };

#define IN(v, p)  (v)
#define SUM(a, v) ((a) + (v))
#define POWER(v, p)                                                                      \
    ((p) == 2.0   ? (double)(v) * (double)(v)                                            \
     : (p) == 1.0 ? fabs((double)(v))                                                    \
                  : pow(fabs((double)(v)), (p)))

#define POOL_NAME  sums_f32
#define POOL_T     double
#define POOL_X     float
#define POOL_FIRST 0.0
#define POOL_IN    IN
#define POOL_JOIN  SUM
#include "pool_row.h"
#define POOL_NAME  sums_f64
#define POOL_T     double
#define POOL_FIRST 0.0
#define POOL_IN    IN
#define POOL_JOIN  SUM
#include "pool_row.h"
#define POOL_NAME  powers_f32
#define POOL_T     double
#define POOL_X     float
#define POOL_FIRST 0.0
#define POOL_IN    POWER
#define POOL_JOIN  SUM
#include "pool_row.h"
#define POOL_NAME  powers_f64
#define POOL_T     double
#define POOL_FIRST 0.0
#define POOL_IN    POWER
#define POOL_JOIN  SUM
#include "pool_row.h"

/* Sums of rows in doubles: those of the outputs follow a line of the input. */
static int64_t sums_bytes(const struct window *w)
{
    return (w->in[2] + w->out[2]) * (int64_t)sizeof(double);
}

static void put_number(const attnrun_step *step, int64_t at, double v)
{
    if (step->x[0].dtype == ATTNRUN_F32)
        ((float *)step->y[0].data)[at] = (float)v;
    else
        ((double *)step->y[0].data)[at] = v;
}

/* Whether a row of means is computed by vectors of floats. The sums of more lines would lose
 * digits. */
static bool means_by_vectors(const attnrun_step *step, const struct window *w)
{
    return step->in[0].dtype == ATTNRUN_F32 && attn_pool_by_vectors(w) &&
           min64(w->kernel[0], w->in[0]) <= FEW_LINES &&
           min64(w->kernel[1], w->in[1]) <= FEW_LINES / max64(1, w->kernel[0]);
}

static attn_status average_pool_infer(attnrun_step *step)
{
    const struct pool_state *state = step->state;
    TRY(attn_pool_infer(step, step->args));
    if (step->concrete && step->out[0].rank > 0)
        step->scratch_bytes = means_by_vectors(step, &state->w)
                                  ? attn_pool_vector_bytes(&state->w)
                                  : sums_bytes(&state->w);
    return ATTNRUN_OK;
}

/* Divides the sums of a row by the elements that their windows have. Those that have `outer` of
 * each tap along the row are side by side. */
static void divide_row(const attnrun_step *step, const struct window *w, float *y,
                       int64_t outer, bool include)
{
    const int64_t full = w->kernel[2];
    const float whole = (float)(outer * full);
    int64_t from = 0, to = w->out[2];
    for (; from < to; from++) {
        const int64_t share = attn_pool_share(w, 2, from, include);
        if (share == full)
            break;
        y[from] /= (float)(outer * share);
    }
    for (; to > from; to--) {
        const int64_t share = attn_pool_share(w, 2, to - 1, include);
        if (share == full)
            break;
        y[to - 1] /= (float)(outer * share);
    }
    step->kernels->div_f32(y + from, y + from, 1, &whole, 0, (size_t)(to - from));
}

static attn_status average_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct pool_args *args = step->args;
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const attnrun_tensor *x = &step->x[0];
    bool include = args->count_include_pad != 0;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct pool_place p = attn_pool_at(state, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t outer = attn_pool_share(w, 0, p.at[0], include) *
                        attn_pool_share(w, 1, p.at[1], include);
        double *line = work->scratch, *sums = line + w->in[2];
        if (means_by_vectors(step, w)) {
            float *y = (float *)step->y[0].data + p.to;
            attn_pool_row_f32(w, y, work->scratch, (const float *)x->data + p.from, p.at,
                              0.0f, step->kernels->add_f32);
            divide_row(step, w, y, outer, include);
            continue;
        }
        if (x->dtype == ATTNRUN_F32)
            sums_f32(sums, line, (const float *)x->data + p.from, w, p.at, 0);
        else
            sums_f64(sums, line, (const double *)x->data + p.from, w, p.at, 0);
        for (int64_t i = 0; i < w->out[2] && !attn_stops(i); i++)
            put_number(step, p.to + i,
                       sums[i] / (double)(outer * attn_pool_share(w, 2, i, include)));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_average_pool_1 = {
    OP_ROW,
    .name = "AveragePool",
    .since = 1,
    .args_bytes = sizeof(struct pool_args),
    .state_bytes = sizeof(struct pool_state),
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .attrs = average_pool_attrs,
    .infer = average_pool_infer,
    .run = average_pool_run,
};

/* ---- LpPool ---- */

static double lp_power(const struct pool_args *args)
{
    return args->p > 0 ? (double)args->p : (double)args->p_float;
}

static attn_status lp_pool_infer(attnrun_step *step)
{
    const struct pool_args *args = step->args;
    if (!(lp_power(args) > 0.0))
        return op_fail(step, ATTNRUN_E_ATTR, "attribute p is %g, expected more than 0",
                       lp_power(args));
    TRY(attn_pool_infer(step, args));
    if (step->concrete && step->out[0].rank > 0)
        step->scratch_bytes = sums_bytes(&((const struct pool_state *)step->state)->w);
    return ATTNRUN_OK;
}

static attn_status lp_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    const attnrun_tensor *x = &step->x[0];
    double power = lp_power(step->args), *line = work->scratch, *sums = line + w->in[2];
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct pool_place p = attn_pool_at(state, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (x->dtype == ATTNRUN_F32)
            powers_f32(sums, line, (const float *)x->data + p.from, w, p.at, power);
        else
            powers_f64(sums, line, (const double *)x->data + p.from, w, p.at, power);
        for (int64_t i = 0; i < w->out[2] && !attn_stops(i); i++)
            put_number(step, p.to + i, pow(sums[i], 1.0 / power));
    }
    return ATTNRUN_OK;
}

#define LP_POOL(since_, attrs_)                                                          \
    const attnrun_op_def op_lp_pool_##since_ = {                                         \
        OP_ROW,                                                                          \
        .name = "LpPool",                                                                \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct pool_args),                                          \
        .state_bytes = sizeof(struct pool_state),                                        \
        .inputs = "X:T",                                                                 \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64",                                                            \
        .attrs = attrs_,                                                                 \
        .infer = lp_pool_infer,                                                          \
        .run = lp_pool_run,                                                              \
    }
LP_POOL(1, lp_pool_1_attrs);
LP_POOL(2, lp_pool_attrs);
