/* softmax_cross_entropy_loss.c - SoftmaxCrossEntropyLoss:
 *
 *   log_prob = log(softmax(scores)) along axis 1
 *   loss     = -log_prob[n, labels[n, d], d] times the weight of that class
 *
 * scores        f32 or f64 (N, C, d…)
 * labels        i32 or i64 (N, d…)
 * weights       as scores, (C); ones by default
 * ignore_index  samples of this class have loss 0 and weight 0
 * reduction     none: (N, d…); sum; mean (default): sum / sum of weights
 * log_prob      as scores, where wanted; else only a line of it exists
 * Source: ONNX SoftmaxCrossEntropyLoss-12, 13. */
#include <math.h>

#include "../nn/lines.h"
#include "loss.h"

enum { COLUMNS = 256 }; /* neighbouring lines that are read together */

struct sce_state {
    struct lines lines;
};

static attn_status sce_infer(attnrun_step *step)
{
    struct sce_state *state = step->state;
    TRY(op_loss_infer(step));
    if (op_has_out(step, 1))
        TRY(op_out_like(step, 1, LOSS_SCORES));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (dim_is(step->in[LOSS_SCORES].dims[1], 0))
        return op_fail_input(step, LOSS_SCORES, ATTNRUN_E_SHAPE,
                             "expected at least one class");
    TRY(attn_lines_plan(step, &state->lines, &step->in[LOSS_SCORES], 1, 2, 1.5));
    if (state->lines.inner == 1 && step->in[LOSS_SCORES].dtype == ATTNRUN_F32 &&
        !ck_mul(state->lines.length, (int64_t)sizeof(float), &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "the tensor is too large");
    return op_loss_plan(step, state->lines.n_tasks);
}

/* Lines next to each other in memory: line `index` at element `first`. */
static attn_status rows_f32(const attnrun_step *step, const struct lines_of_task *t,
                            float *scratch, struct loss_sum *sum)
{
    const struct lines *lines = &((const struct sce_state *)step->state)->lines;
    const float *x = step->x[LOSS_SCORES].data;
    float *log_p = op_has_out(step, 1) ? step->y[1].data : NULL;
    for (int64_t l = 0; l < t->n; l++) {
        int64_t c, first = t->first + l * t->step;
        float *line = log_p != NULL ? log_p + first : scratch;
        TRY(op_loss_class(step, t->index + l, &c));
        if (c >= 0 || log_p != NULL)
            step->kernels->softmax_f32(line, x + first, (size_t)lines->length, 1);
        op_loss_add(step, t->index + l, c, c < 0 ? 0 : (double)line[c], sum);
    }
    return ATTNRUN_OK;
}

/* shift[j] = max + log(sum of exp(x - max)) down n columns. */
static void column_shifts_f32(const attnrun_step *step, const float *x, int64_t n,
                              float *shift)
{
    const struct lines *lines = &((const struct sce_state *)step->state)->lines;
    static const float unused[2] = { 0 };
    float max[COLUMNS], sum[COLUMNS], e[COLUMNS];
    for (int64_t j = 0; j < n; j++) {
        max[j] = x[j];
        sum[j] = 0;
    }
    for (int64_t c = 1; c < lines->length; c++)
        for (int64_t j = 0; j < n; j++)
            max[j] = x[c * lines->inner + j] > max[j] ? x[c * lines->inner + j] : max[j];
    for (int64_t c = 0; c < lines->length; c++) {
        for (int64_t j = 0; j < n; j++)
            e[j] = x[c * lines->inner + j] - max[j];
        step->kernels->exp_f32(e, e, (size_t)n, unused);
        for (int64_t j = 0; j < n; j++)
            sum[j] += e[j];
    }
    for (int64_t j = 0; j < n; j++)
        shift[j] = max[j] + logf(sum[j]);
}

static attn_status columns_f32(const attnrun_step *step, const struct lines_of_task *t,
                               struct loss_sum *sum)
{
    const struct lines *lines = &((const struct sce_state *)step->state)->lines;
    const float *scores = step->x[LOSS_SCORES].data;
    float *log_p = op_has_out(step, 1) ? step->y[1].data : NULL, shift[COLUMNS];
    for (int64_t begin = 0; begin < t->n; begin += COLUMNS) {
        int64_t n = t->n - begin < COLUMNS ? t->n - begin : COLUMNS, k;
        const float *x = scores + t->first + begin;
        column_shifts_f32(step, x, n, shift);
        for (int64_t j = 0; j < n; j++) {
            int64_t i = t->index + begin + j;
            TRY(op_loss_class(step, i, &k));
            double value = k < 0 ? 0 : (double)(x[k * lines->inner + j] - shift[j]);
            op_loss_add(step, i, k, value, sum);
        }
        for (int64_t c = 0; log_p != NULL && c < lines->length; c++) {
            int64_t row = t->first + begin + c * lines->inner;
            for (int64_t j = 0; j < n; j++)
                log_p[row + j] = scores[row + j] - shift[j];
        }
    }
    return ATTNRUN_OK;
}

static attn_status lines_f64(const attnrun_step *step, const struct lines_of_task *t,
                             struct loss_sum *sum)
{
    const struct lines *lines = &((const struct sce_state *)step->state)->lines;
    double *log_p = op_has_out(step, 1) ? step->y[1].data : NULL;
    for (int64_t l = 0; l < t->n; l++) {
        int64_t first = t->first + l * t->step, k;
        const double *x = (const double *)step->x[LOSS_SCORES].data + first;
        double max = x[0], total = 0;
        for (int64_t c = 1; c < lines->length; c++)
            max = x[c * lines->inner] > max ? x[c * lines->inner] : max;
        for (int64_t c = 0; c < lines->length; c++)
            total += exp(x[c * lines->inner] - max);
        double shift = max + log(total);
        TRY(op_loss_class(step, t->index + l, &k));
        op_loss_add(step, t->index + l, k, k < 0 ? 0 : x[k * lines->inner] - shift, sum);
        for (int64_t c = 0; log_p != NULL && c < lines->length; c++)
            log_p[first + c * lines->inner] = x[c * lines->inner] - shift;
    }
    return ATTNRUN_OK;
}

static attn_status sce_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct loss_args *args = step->args;
    const struct lines *lines = &((const struct sce_state *)step->state)->lines;
    if (work->phase == 1) {
        op_loss_finish(step, work);
        return ATTNRUN_OK;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(lines, task);
        struct loss_sum sum = { 0 };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (step->x[LOSS_SCORES].dtype == ATTNRUN_F64)
            TRY(lines_f64(step, &t, &sum));
        else if (lines->inner == 1)
            TRY(rows_f32(step, &t, work->scratch, &sum));
        else
            TRY(columns_f32(step, &t, &sum));
        if (args->reduction != LOSS_NONE)
            ((struct loss_sum *)work->shared)[task] = sum;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_softmax_cross_entropy_loss_12 = {
    OP_ROW,
    .name = "SoftmaxCrossEntropyLoss",
    .since = 12,
    .inputs = "scores:T labels:I weights:T?",
    .outputs = "output:T log_prob:T?",
    .types = "T=f32,f64 I=i32,i64",
    .args_bytes = sizeof(struct loss_args),
    .state_bytes = sizeof(struct sce_state),
    .attrs = op_loss_attrs,
    .infer = sce_infer,
    .run = sce_run,
    .cost = "O(n)",
};
