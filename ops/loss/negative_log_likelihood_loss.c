/* negative_log_likelihood_loss.c - NegativeLogLikelihoodLoss: -x[n, target[n, d], d]
 * times the weight of that class.
 *
 * x, target, weight  f32 or f64 (N, C, d…); i32 or i64 (N, d…); (C), ones by default
 * ignore_index       samples of this class have loss 0 and weight 0
 * reduction          none: (N, d…); sum; mean (default): sum of losses / sum of weights
 * Source: ONNX NegativeLogLikelihoodLoss-12, 13, 22. */
#include "loss.h"

enum { TASK_SAMPLES = 4096 };

struct nll_state {
    int64_t n, inner; /* samples; product of d… */
};

static attn_status nll_infer(attnrun_step *step)
{
    struct nll_state *state = step->state;
    TRY(op_loss_infer(step));
    if (!step->concrete)
        return ATTNRUN_OK;
    const attnrun_type *target = &step->in[LOSS_TARGET];
    state->n = op_count(target, 0, target->rank);
    state->inner = op_count(target, 1, target->rank);
    if (state->n < 0)
        return op_fail(step, ATTNRUN_E_LIMIT, "the tensor is too large");
    int64_t n_tasks = state->n / TASK_SAMPLES + (state->n % TASK_SAMPLES != 0);
    op_tasks(step, 0, n_tasks, TASK_SAMPLES * 8);
    return op_loss_plan(step, n_tasks);
}

static attn_status nll_task(const attnrun_step *step, int64_t task, struct loss_sum *sum)
{
    const struct nll_state *state = step->state;
    const attnrun_tensor *x = &step->x[LOSS_SCORES];
    int64_t end = (task + 1) * TASK_SAMPLES, c;
    for (int64_t i = task * TASK_SAMPLES; i < end && i < state->n; i++) {
        double log_p = 0;
        TRY(op_loss_class(step, i, &c));
        if (c >= 0) {
            int64_t at = (i / state->inner * x->dims[1] + c) * state->inner;
            at += i % state->inner;
            log_p = x->dtype == ATTNRUN_F64 ? ((const double *)x->data)[at]
                                            : (double)((const float *)x->data)[at];
        }
        op_loss_add(step, i, c, log_p, sum);
    }
    return ATTNRUN_OK;
}

static attn_status nll_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct loss_args *args = step->args;
    if (work->phase == 1) {
        op_loss_finish(step, work);
        return ATTNRUN_OK;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        struct loss_sum sum = { 0 };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(nll_task(step, task, &sum));
        if (args->reduction != LOSS_NONE)
            ((struct loss_sum *)work->shared)[task] = sum;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_negative_log_likelihood_loss_12 = {
    OP_ROW,
    .name = "NegativeLogLikelihoodLoss",
    .since = 12,
    .inputs = "input:T target:I weight:T?",
    .outputs = "loss:T",
    .types = "T=f32,f64 I=i32,i64",
    .args_bytes = sizeof(struct loss_args),
    .state_bytes = sizeof(struct nll_state),
    .attrs = op_loss_attrs,
    .infer = nll_infer,
    .run = nll_run,
    .cost = "O(samples)",
};
