/* group_normalization.c - GroupNormalization: each group of channels of a sample gets
 * mean 0 and variance 1, then a scale and a shift. InstanceNormalization has a group per
 * channel.
 *
 * X, Y   f32 or f64 (N,C,…);  scale, bias  (C), or (num_groups) in GroupNormalization-18
 *
 * epsilon is 1e-5 by default. Cost: two reads and one write of X. Source: ONNX
 * GroupNormalization-21, InstanceNormalization-6. */
#include <math.h>

#include "planes.h"

struct group_normalization_args {
    float epsilon;
    int64_t num_groups, stash_type; /* sums are doubles, whatever that is */
};
static const attnrun_attr_def group_normalization_attrs[] = {
    ATTR_FLOAT(struct group_normalization_args, epsilon, 1e-5f),
    ATTR_INT_REQUIRED(struct group_normalization_args, num_groups),
    ATTR_CHOICE(struct group_normalization_args, stash_type, OP_REAL_DTYPES, 1),
    ATTR_END,
};
static const attnrun_attr_def instance_normalization_attrs[] = {
    ATTR_FLOAT(struct group_normalization_args, epsilon, 1e-5f),
    ATTR_IGNORED("consumed_inputs"),
    ATTR_END,
};

struct group_normalization_state {
    struct planes planes;
    int64_t groups;
    bool per_group; /* scale and bias */
};

static attn_status plan_groups(attnrun_step *step, int64_t groups)
{
    struct group_normalization_state *state = step->state;
    struct planes *p = &state->planes;
    TRY(attn_planes_of(step, &step->in[0], p));
    state->groups = groups;
    op_tasks(step, 0, p->batch * groups, p->channels / groups * p->positions / 2 + 50);
    return ATTNRUN_OK;
}

static attn_status instance_normalization_infer(attnrun_step *step)
{
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    TRY(attn_planes_check_vectors(step, 1, 2));
    if (!step->concrete || step->in[0].dims[1].value == 0)
        return ATTNRUN_OK;
    return plan_groups(step, step->in[0].dims[1].value);
}

static attn_status infer_groups(attnrun_step *step, bool per_group)
{
    const struct group_normalization_args *args = step->args;
    struct group_normalization_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (args->num_groups < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "num_groups is %lld, expected at least 1",
                       (long long)args->num_groups);
    state->per_group = per_group;
    for (int in = 1; per_group && in <= 2; in++) {
        TRY(op_need_vector(step, in, dim_of(args->num_groups), "num_groups"));
    }
    if (!per_group)
        TRY(attn_planes_check_vectors(step, 1, 2));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (x->dims[1].value % args->num_groups != 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "the channels are not a multiple of num_groups %lld",
                             (long long)args->num_groups);
    return plan_groups(step, args->num_groups);
}

static attn_status group_normalization_infer_18(attnrun_step *step)
{
    return infer_groups(step, true);
}
static attn_status group_normalization_infer_21(attnrun_step *step)
{
    return infer_groups(step, false);
}

static attn_status group_normalization_run(const attnrun_step *step,
                                           const attnrun_work *work)
{
    const struct group_normalization_args *args = step->args;
    const struct group_normalization_state *state = step->state;
    const struct planes *p = &state->planes;
    const int64_t channels = p->channels / state->groups;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t group = task % state->groups, from = task * channels * p->positions;
        double stats[2];
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        attn_planes_stats(step, &step->x[0], from, channels * p->positions, stats);
        double inverse = 1 / sqrt(stats[1] + (double)args->epsilon);
        for (int64_t c = 0; c < channels; c++) {
            int64_t at = state->per_group ? group : group * channels + c;
            attn_planes_affine(
                step, &step->y[0], &step->x[0], from + c * p->positions, p->positions,
                stats[0], inverse * real_get(&step->x[1], at), real_get(&step->x[2], at));
        }
    }
    return ATTNRUN_OK;
}

#define GROUP_ROW(row, onnx_name, version, attributes, infers)                           \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = onnx_name,                                                               \
        .since = version,                                                                \
        .inputs = "X:T scale:T bias:T",                                                  \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64",                                                            \
        .args_bytes = sizeof(struct group_normalization_args),                           \
        .state_bytes = sizeof(struct group_normalization_state),                         \
        .attrs = attributes,                                                             \
        .infer = infers,                                                                 \
        .run = group_normalization_run,                                                  \
        .cost = "O(n)",                                                                  \
    }
GROUP_ROW(op_group_normalization_18, "GroupNormalization", 18, group_normalization_attrs,
          group_normalization_infer_18);
GROUP_ROW(op_group_normalization_21, "GroupNormalization", 21, group_normalization_attrs,
          group_normalization_infer_21);
GROUP_ROW(op_instance_normalization_1, "InstanceNormalization", 1,
          instance_normalization_attrs, instance_normalization_infer);
