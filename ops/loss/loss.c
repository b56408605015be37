/* loss.c - what the losses share; see loss.h. */
#include "loss.h"

const attnrun_attr_def op_loss_attrs[] = {
    ATTR_INT(struct loss_args, ignore_index, OP_INT_ABSENT),
    ATTR_ENUM(struct loss_args, reduction, "none|sum|mean", LOSS_MEAN), ATTR_END
};

static attn_status check_dims(const attnrun_step *step, const attnrun_type *scores,
                              const attnrun_type *target)
{
    if (target->rank >= 0 && scores->rank >= 0) {
        if (target->rank != scores->rank - 1)
            return op_fail_input(step, LOSS_TARGET, ATTNRUN_E_SHAPE,
                                 "expected rank %d, one below the scores",
                                 scores->rank - 1);
        TRY(op_need_dim(step, LOSS_TARGET, 0, scores->dims[0], "the batch"));
        for (int i = 1; i < target->rank; i++)
            TRY(op_need_dim(step, LOSS_TARGET, i, scores->dims[i + 1],
                            "the dim of the scores"));
    }
    if (op_has_in(step, LOSS_WEIGHT) && op_rank_known(step, LOSS_WEIGHT) &&
        scores->rank >= 0)
        TRY(op_need_dim(step, LOSS_WEIGHT, 0, scores->dims[1], "the number of classes"));
    return ATTNRUN_OK;
}

attn_status op_loss_infer(attnrun_step *step)
{
    const struct loss_args *args = step->args;
    const attnrun_type *scores = &step->in[LOSS_SCORES];
    const attnrun_type *target = &step->in[LOSS_TARGET];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(op_need_rank_between(step, LOSS_SCORES, 2, ATTNRUN_MAX_RANK));
    TRY(op_need_rank_between(step, LOSS_TARGET, 1, ATTNRUN_MAX_RANK - 1));
    if (op_has_in(step, LOSS_WEIGHT))
        TRY(op_need_rank(step, LOSS_WEIGHT, 1));
    TRY(check_dims(step, scores, target));
    if (args->reduction != LOSS_NONE)
        return op_out(step, 0, scores->dtype, 0, NULL);
    if (target->rank >= 0)
        return op_out(step, 0, scores->dtype, target->rank, target->dims);
    for (int i = 0; i + 1 < scores->rank; i++)
        dims[i] = scores->dims[i == 0 ? 0 : i + 1];
    return op_out(step, 0, scores->dtype, scores->rank < 0 ? -1 : scores->rank - 1, dims);
}

attn_status op_loss_plan(attnrun_step *step, int64_t n)
{
    const struct loss_args *args = step->args;
    if (args->reduction == LOSS_NONE)
        return ATTNRUN_OK;
    if (!ck_mul(n, (int64_t)sizeof(struct loss_sum), &step->shared_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "%lld parts are too many", (long long)n);
    op_tasks(step, 1, 1, n);
    return ATTNRUN_OK;
}

static double real_at(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_F64 ? ((const double *)x->data)[i]
                                   : (double)((const float *)x->data)[i];
}

attn_status op_loss_class(const attnrun_step *step, int64_t i, int64_t *class_index)
{
    const struct loss_args *args = step->args;
    const attnrun_tensor *target = &step->x[LOSS_TARGET];
    int64_t n_classes = step->x[LOSS_SCORES].dims[1];
    int64_t c = target->dtype == ATTNRUN_I64 ? ((const int64_t *)target->data)[i]
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

void op_loss_add(const attnrun_step *step, int64_t i, int64_t class_index, double log_p,
                 struct loss_sum *sum)
{
    const struct loss_args *args = step->args;
    double weight = class_index < 0 ? 0 : 1;
    if (class_index >= 0 && op_has_in(step, LOSS_WEIGHT))
        weight = real_at(&step->x[LOSS_WEIGHT], class_index);
    double loss = class_index < 0 ? 0 : -log_p * weight;
    if (args->reduction != LOSS_NONE) {
        sum->loss += loss;
        sum->weight += weight;
    } else if (step->y[0].data == NULL) {
        return;
    } else if (step->y[0].dtype == ATTNRUN_F64) {
        ((double *)step->y[0].data)[i] = loss;
    } else {
        ((float *)step->y[0].data)[i] = (float)loss;
    }
}

void op_loss_finish(const attnrun_step *step, const attnrun_work *work)
{
    const struct loss_args *args = step->args;
    const struct loss_sum *parts = work->shared;
    struct loss_sum sum = { 0 };
    for (int64_t k = 0; k < step->phases[0].n_tasks; k++) {
        sum.loss += parts[k].loss;
        sum.weight += parts[k].weight;
    }
    double loss = args->reduction == LOSS_MEAN ? sum.loss / sum.weight : sum.loss;
    if (step->y[0].data == NULL)
        return;
    if (step->y[0].dtype == ATTNRUN_F64)
        *(double *)step->y[0].data = loss;
    else
        *(float *)step->y[0].data = (float)loss;
}
