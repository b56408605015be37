/* pick_class.c - PickClass: the value of each sample's class, from which the losses are
 * made.
 *
 * x       f32 or f64 (N, C, d…);  target  i32 or i64 (N, d…), classes 0 to C - 1
 * weight  as x, (C): ones by default
 * value   (N, d…): x[n, target[n, d], d]
 * factor  (N, d…): weight[target[n, d]]
 * ignore_index   samples of this class have value 0 and factor 0
 *
 * Domain attnrun.fused: exporters never write it; loss.c does. Cost: O(N d). */
#include "../real.h"
#include "loss.h"

enum { TASK_SAMPLES = 4096 };
enum { VALUE, FACTOR }; /* outputs */

struct pick_args {
    int64_t ignore_index; /* OP_INT_ABSENT: no class is ignored */
};
static const attnrun_attr_def pick_attrs[] = {
    ATTR_INT(struct pick_args, ignore_index, OP_INT_ABSENT), ATTR_END
};

struct pick_state {
    int64_t n, inner; /* samples; product of d… */
};

static attn_status pick_infer(attnrun_step *step)
{
    struct pick_state *state = step->state;
    const attnrun_type *target = &step->in[LOSS_TARGET];
    TRY(op_loss_check(step));
    TRY(op_loss_out_samples(step, VALUE));
    if (op_has_out(step, FACTOR))
        TRY(op_loss_out_samples(step, FACTOR));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->n = op_count(target, 0, target->rank);
    state->inner = op_count(target, 1, target->rank);
    if (state->n < 0)
        return op_fail_size(step, "the number of targets", "2^63 - 1");
    op_tasks(step, 0, ceil_div(state->n, TASK_SAMPLES), TASK_SAMPLES * 8);
    return ATTNRUN_OK;
}

/* The class of sample i, -1 where it is ignored. */
static attn_status class_of(const attnrun_step *step, int64_t i, int64_t *class_index)
{
    const struct pick_args *args = step->args;
    const int64_t n_classes = step->x[LOSS_SCORES].dims[1];
    const attnrun_tensor *target = &step->x[LOSS_TARGET];
    const int64_t c = target->dtype == ATTNRUN_I64 ? ((const int64_t *)target->data)[i]
                                                   : ((const int32_t *)target->data)[i];
    *class_index = -1;
    if (args->ignore_index != OP_INT_ABSENT && c == args->ignore_index)
        return ATTNRUN_OK;
    if (c < 0 || c >= n_classes)
        return op_fail_input(step, LOSS_TARGET, ATTNRUN_E_RANGE,
                             "its element %lld is %lld, expected 0 to %lld", (long long)i,
                             (long long)c, (long long)n_classes - 1);
    *class_index = c;
    return ATTNRUN_OK;
}

static attn_status pick_task(const attnrun_step *step, int64_t task)
{
    const struct pick_state *state = step->state;
    const attnrun_tensor *x = step->x;
    const int64_t inner = state->inner, sample = x[LOSS_SCORES].dims[1] * inner;
    const int64_t begin = task * TASK_SAMPLES, end = begin + TASK_SAMPLES;
    int64_t first = begin / inner * sample, at = begin % inner, c;
    for (int64_t i = begin; i < end && i < state->n; i++) {
        double value = 0, factor = 0;
        TRY(class_of(step, i, &c));
        if (c >= 0) {
            value = real_get(&x[LOSS_SCORES], first + c * inner + at);
            factor = op_has_in(step, LOSS_WEIGHT) ? real_get(&x[LOSS_WEIGHT], c) : 1;
        }
        real_put_out(step, VALUE, i, value);
        real_put_out(step, FACTOR, i, factor);
        if (++at == inner) {
            at = 0;
            first += sample;
        }
    }
    return ATTNRUN_OK;
}

static attn_status pick_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(pick_task(step, task));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_pick_class_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "PickClass",
    .since = 1,
    .inputs = "x:T target:I weight:T?",
    .outputs = "value:T factor:T?",
    .types = "T=f32,f64 I=i32,i64",
    .args_bytes = sizeof(struct pick_args),
    .state_bytes = sizeof(struct pick_state),
    .attrs = pick_attrs,
    .infer = pick_infer,
    .run = pick_run,
    .cost = "O(samples)",
};
