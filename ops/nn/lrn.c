/* lrn.c - LRN, local response normalization:
 *
 *   y = x / (bias + alpha / size * sum of squares of the `size` channels around)^beta
 *
 * X   (N, C, …): channels c - (size-1)/2 rounded down … c + (size-1)/2 rounded up, those
 *     that exist; Y has the same dims
 * Defaults: alpha 1e-4, beta 0.75, bias 1. Source: ONNX LRN-13. */
#include <math.h>

#include "planes.h"

struct lrn_args {
    float alpha, beta, bias;
    int64_t size;
};
static const attnrun_attr_def lrn_attrs[] = {
    ATTR_FLOAT(struct lrn_args, alpha, 1e-4f),
    ATTR_FLOAT(struct lrn_args, beta, 0.75f),
    ATTR_FLOAT(struct lrn_args, bias, 1.0f),
    ATTR_INT_REQUIRED(struct lrn_args, size),
    ATTR_END,
};

static attn_status lrn_infer(attnrun_step *step)
{
    const struct lrn_args *args = step->args;
    struct planes *p = step->state;
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    if (args->size < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "size is %lld, expected at least 1",
                       (long long)args->size);
    TRY(op_out_like(step, 0, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_planes_of(step, &step->in[0], p));
    int64_t size = args->size < p->channels ? args->size : p->channels;
    op_tasks(step, 0, p->batch * p->channels, p->positions * (size + 30) + 20);
    return ATTNRUN_OK;
}

static void lrn_plane(const attnrun_step *step, int64_t task)
{
    const struct lrn_args *args = step->args;
    const struct planes *p = step->state;
    const int64_t channel = task % p->channels, before = (args->size - 1) / 2;
    const int64_t after = args->size - 1 - before;
    const int64_t from = channel > before ? channel - before : 0;
    const int64_t to = after < p->channels - channel ? channel + after + 1 : p->channels;
    const int64_t sample = (task - channel) * p->positions, plane = task * p->positions;
    for (int64_t i = 0; i < p->positions; i++) {
        double sum = 0;
        for (int64_t c = from; c < to; c++) {
            double x = planes_get(&step->x[0], sample + c * p->positions + i);
            sum += x * x;
        }
        double base = (double)args->bias + (double)args->alpha / (double)args->size * sum;
        double y = planes_get(&step->x[0], plane + i) / pow(base, (double)args->beta);
        if (step->y[0].dtype == ATTNRUN_F64)
            ((double *)step->y[0].data)[plane + i] = y;
        else
            ((float *)step->y[0].data)[plane + i] = (float)y;
    }
}

static attn_status lrn_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        lrn_plane(step, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_lrn_1 = {
    OP_ROW,
    .name = "LRN",
    .since = 1,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct lrn_args),
    .state_bytes = sizeof(struct planes),
    .attrs = lrn_attrs,
    .infer = lrn_infer,
    .run = lrn_run,
    .cost = "O(n size)",
    .source = "Krizhevsky 2012, ImageNet classification, 3.3",
};
