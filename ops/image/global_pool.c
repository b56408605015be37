/* global_pool.c - GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one number for each
 * channel of each image.
 *
 * X             f32 or f64 [N, C, any]
 * Y             [N, C, 1, …, 1]
 * GlobalLpPool  (sum of |x|^p)^(1/p), p = 2 by default
 *
 * Cost: one pass over X. Source: ONNX GlobalAveragePool-1, GlobalMaxPool-1,
 * GlobalLpPool-2. */
#include <math.h>

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

struct global_pool_args {
    int64_t p;
    float p_float;
};
struct global_pool_state {
    int64_t plane;
};

static const attnrun_attr_def lp_attrs[] = { ATTR_INT(struct global_pool_args, p, 2),
                                             ATTR_END };
static const attnrun_attr_def lp_1_attrs[] = { { .name = "p",
                                                 .kind = ATTNRUN_ATTR_FLOAT,
                                                 .offset = offsetof(
                                                     struct global_pool_args, p_float),
                                                 .float_default = 2.0f },
                                               ATTR_END };

static attn_status global_pool_infer(attnrun_step *step)
{
    struct global_pool_state *state = step->state;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    int rank = step->in[0].rank;
    attnrun_dim out[ATTNRUN_MAX_RANK] = { step->in[0].dims[0], step->in[0].dims[1] };
    for (int i = 2; i < rank; i++)
        out[i] = dim_of(1);
    TRY(op_out(step, 0, step->in[0].dtype, rank, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->plane = op_count(&step->in[0], 2, rank);
    int64_t planes = op_count(&step->in[0], 0, 2);
    if (state->plane < 0 || planes < 0)
        return op_fail_size(step, "the number of planes, or of pixels of a plane,",
                            "2^63 - 1");
    op_tasks(step, 0, planes, state->plane / 4 + 20);
    return ATTNRUN_OK;
}

static attn_status average_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t n = ((const struct global_pool_state *)step->state)->plane;
    for (int64_t p = work->begin; p < work->end && !OP_CANCELLED(work); p++) {
        if (step->x[0].dtype == ATTNRUN_F32) {
            const float *x = (const float *)step->x[0].data + p * n;
            ((float *)step->y[0].data)[p] =
                (float)(step->kernels->sum_f32(x, (size_t)n) / (double)n);
            continue;
        }
        const double *x = (const double *)step->x[0].data + p * n;
        double sum = 0.0;
        for (int64_t i = 0; i < n && !attn_stops(i); i++)
            sum += x[i];
        ((double *)step->y[0].data)[p] = sum / (double)n;
    }
    return ATTNRUN_OK;
}

static attn_status max_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t n = ((const struct global_pool_state *)step->state)->plane;
    for (int64_t p = work->begin; p < work->end && !OP_CANCELLED(work); p++) {
        if (step->x[0].dtype == ATTNRUN_F32) {
            const float *x = (const float *)step->x[0].data + p * n;
            ((float *)step->y[0].data)[p] =
                n > 0 ? step->kernels->reduce_max_f32(x, (size_t)n) : -INFINITY;
            continue;
        }
        const double *x = (const double *)step->x[0].data + p * n;
        double best = (double)-INFINITY;
        for (int64_t i = 0; i < n && !attn_stops(i); i++)
            best = x[i] > best || isnan(x[i]) ? x[i] : best;
        ((double *)step->y[0].data)[p] = best;
    }
    return ATTNRUN_OK;
}

static attn_status lp_infer(attnrun_step *step)
{
    const struct global_pool_args *args = step->args;
    if (args->p < 1 && !(args->p_float > 0.0f))
        return op_fail(step, ATTNRUN_E_ATTR, "attribute p is %g, expected more than 0",
                       args->p_float != 0 ? (double)args->p_float : (double)args->p);
    return global_pool_infer(step);
}

static attn_status lp_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct global_pool_args *args = step->args;
    double power = args->p > 0 ? (double)args->p : (double)args->p_float;
    int64_t n = ((const struct global_pool_state *)step->state)->plane;
    for (int64_t p = work->begin; p < work->end && !OP_CANCELLED(work); p++) {
        double sum = 0.0;
        for (int64_t i = p * n; i < (p + 1) * n && !attn_stops(i); i++) {
            double v = step->x[0].dtype == ATTNRUN_F32
                           ? (double)((const float *)step->x[0].data)[i]
                           : ((const double *)step->x[0].data)[i];
            sum += power == 2.0 ? v * v : pow(fabs(v), power);
        }
        sum = pow(sum, 1.0 / power);
        if (step->x[0].dtype == ATTNRUN_F32)
            ((float *)step->y[0].data)[p] = (float)sum;
        else
            ((double *)step->y[0].data)[p] = sum;
    }
    return ATTNRUN_OK;
}

#define GLOBAL_POOL(row, name_, since_, attrs_, infer_, run_)                            \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = name_,                                                                   \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct global_pool_args),                                   \
        .state_bytes = sizeof(struct global_pool_state),                                 \
        .inputs = "X:T",                                                                 \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64",                                                            \
        .attrs = attrs_,                                                                 \
        .infer = infer_,                                                                 \
        .run = run_,                                                                     \
    }
GLOBAL_POOL(op_global_average_pool_1, "GlobalAveragePool", 1, NULL, global_pool_infer,
            average_run);
GLOBAL_POOL(op_global_max_pool_1, "GlobalMaxPool", 1, NULL, global_pool_infer, max_run);
GLOBAL_POOL(op_global_lp_pool_1, "GlobalLpPool", 1, lp_1_attrs, lp_infer, lp_run);
GLOBAL_POOL(op_global_lp_pool_2, "GlobalLpPool", 2, lp_attrs, lp_infer, lp_run);
