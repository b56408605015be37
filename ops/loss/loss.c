/* loss.c - NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. The latter first takes
 * the logarithm of the softmax along axis 1 of its scores:
 *
 *   loss = -log_prob[n, target[n, d], d] times the weight of that class
 *
 * scores, target, weight  f32 or f64 (N, C, d…); i32 or i64 (N, d…); (C), ones by default
 * ignore_index   samples of this class have loss 0 and weight 0
 * reduction      none: (N, d…); sum; mean (default): sum of losses / sum of weights
 * log_prob       as scores; the loss is taken from it, and not as the difference of two
 *                large numbers, also where it is not wanted
 *
 * The rows are formulas over PickClass. Cost: O(N d) for the first, O(N C d) for the
 * second. Source: ONNX NegativeLogLikelihoodLoss-12, 13, 22, SoftmaxCrossEntropyLoss-12,
 * 13. */
#include "loss.h"

enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN };

struct loss_args {
    int64_t ignore_index; /* OP_INT_ABSENT: no class is ignored */
    int32_t reduction;
};
static const attnrun_attr_def loss_attrs[] = {
    ATTR_INT(struct loss_args, ignore_index, OP_INT_ABSENT),
    ATTR_ENUM(struct loss_args, reduction, "none|sum|mean", LOSS_MEAN), ATTR_END
};

/* ---- checks ---- */

/* The dims of the target fit those of the scores. */
static attn_status check_target(const attnrun_step *step)
{
    const attnrun_type *scores = &step->in[LOSS_SCORES], *target = &step->in[LOSS_TARGET];
    if (target->rank < 0 || scores->rank < 0)
        return ATTNRUN_OK;
    if (target->rank != scores->rank - 1)
        return op_fail_input(step, LOSS_TARGET, ATTNRUN_E_SHAPE,
                             "expected rank %d, one below the scores", scores->rank - 1);
    TRY(op_need_dim(step, LOSS_TARGET, 0, scores->dims[0], "the batch"));
    for (int i = 1; i < target->rank; i++)
        TRY(op_need_dim(step, LOSS_TARGET, i, scores->dims[i + 1],
                        "the dim of the scores"));
    return ATTNRUN_OK;
}

attn_status op_loss_check(const attnrun_step *step)
{
    const attnrun_type *scores = &step->in[LOSS_SCORES];
    TRY(op_need_rank_between(step, LOSS_SCORES, 2, ATTNRUN_MAX_RANK));
    TRY(op_need_rank_between(step, LOSS_TARGET, 1, ATTNRUN_MAX_RANK - 1));
    TRY(check_target(step));
    if (!op_has_in(step, LOSS_WEIGHT))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, LOSS_WEIGHT, 1));
    if (!op_rank_known(step, LOSS_WEIGHT) || scores->rank < 0)
        return ATTNRUN_OK;
    return op_need_dim(step, LOSS_WEIGHT, 0, scores->dims[1], "the number of classes");
}

attn_status op_loss_out_samples(attnrun_step *step, int out)
{
    const attnrun_type *scores = &step->in[LOSS_SCORES];
    const attnrun_type *target = &step->in[LOSS_TARGET];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (target->rank >= 0)
        return op_out(step, out, scores->dtype, target->rank, target->dims);
    for (int i = 0; i + 1 < scores->rank; i++)
        dims[i] = scores->dims[i == 0 ? 0 : i + 1];
    return op_out(step, out, scores->dtype, scores->rank < 0 ? -1 : scores->rank - 1,
                  dims);
}

static attn_status loss_infer(attnrun_step *step)
{
    const struct loss_args *args = step->args;
    TRY(op_loss_check(step));
    if (args->reduction == LOSS_NONE)
        return op_loss_out_samples(step, 0);
    return op_out(step, 0, step->in[LOSS_SCORES].dtype, 0, NULL);
}

static attn_status cross_entropy_infer(attnrun_step *step)
{
    TRY(loss_infer(step));
    return op_has_out(step, 1) ? op_out_like(step, 1, LOSS_SCORES) : ATTNRUN_OK;
}

/* ---- formulas ---- */

/* From `log_p` and `factor` of each sample; log_p is 0 where a sample is ignored. 0 - x: a loss
 * of 0 is no -0. */
static attn_status reduce(const attnrun_step *step, attnrun_body *body)
{
    const struct loss_args *args = step->args;
    const bool ones = !op_has_in(step, LOSS_WEIGHT); /* or 0 where ignored */
    attnrun_body_output(body, "loss", 0);
    if (!ones)
        TRY(attnrun_body_add(body, "log_p = log_p * factor"));
    if (args->reduction == LOSS_NONE)
        return attnrun_body_add(body, "loss = 0 - log_p");
    if (args->reduction == LOSS_SUM)
        return attnrun_body_add(body, "loss = 0 - ReduceSum<keepdims=0>(log_p)");
    if (ones && args->ignore_index == OP_INT_ABSENT)
        return attnrun_body_add(body, "loss = 0 - ReduceMean<keepdims=0>(log_p)");
    return attnrun_body_add(body, "loss = (0 - ReduceSum<keepdims=0>(log_p)) / "
                                  "ReduceSum<keepdims=0>(factor)");
}

static attn_status likelihood_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct loss_args *args = step->args;
    attnrun_body_ints(body, "ignored", 1, &args->ignore_index);
    TRY(attnrun_body_add(body, "log_p, factor = attnrun.fused.PickClass"
                               "<ignore_index=ignored>(input, target, weight)"));
    return reduce(step, body);
}

static attn_status cross_entropy_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct loss_args *args = step->args;
    attnrun_body_ints(body, "ignored", 1, &args->ignore_index);
    TRY(attnrun_body_add(body, "log_prob = LogSoftmax<axis=1>(scores);"
                               "log_p, factor = attnrun.fused.PickClass"
                               "<ignore_index=ignored>(log_prob, labels, weights)"));
    return reduce(step, body);
}

const attnrun_op_def op_negative_log_likelihood_loss_12 = {
    OP_ROW,
    .name = "NegativeLogLikelihoodLoss",
    .since = 12,
    .inputs = "input:T target:I weight:T?",
    .outputs = "loss:T",
    .types = "T=f32,f64 I=i32,i64",
    .args_bytes = sizeof(struct loss_args),
    .attrs = loss_attrs,
    .infer = loss_infer,
    .expand = likelihood_expand,
    .cost = "O(samples)",
};

const attnrun_op_def op_softmax_cross_entropy_loss_12 = {
    OP_ROW,
    .name = "SoftmaxCrossEntropyLoss",
    .since = 12,
    .inputs = "scores:T labels:I weights:T?",
    .outputs = "output:T log_prob:T?",
    .types = "T=f32,f64 I=i32,i64",
    .args_bytes = sizeof(struct loss_args),
    .attrs = loss_attrs,
    .infer = cross_entropy_infer,
    .expand = cross_entropy_expand,
    .cost = "O(n)",
};
