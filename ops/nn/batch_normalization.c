/* batch_normalization.c - BatchNormalization, channel by channel:
 *
 *   Y = (X - mean) / sqrt(var + epsilon) * scale + B
 *
 * X                    f32 or f64 (N, C, …); Y has the same dims
 * scale, B, mean, var  f32 or f64 (C); with spatial = 0 (up to version 7) one value per
 *                      element of a sample
 * training_mode        (from 14; before, is_test = 0 with more than one output): mean and
 *                      variance are those of X over all axes but the channel, and running
 *                      = input * momentum + them * (1 - momentum); with is_test = 1 there
 *                      is one output
 *
 * The defaults are epsilon 1e-5 and momentum 0.9. Cost: one read and one write of X; two
 * more reads in training. Source: ONNX BatchNormalization-15. */
#include <math.h>

#include "planes.h"

struct batch_normalization_args {
    float epsilon, momentum;
    int64_t training_mode, is_test, spatial;
};
static const attnrun_attr_def batch_normalization_attrs_1[] = {
    ATTR_FLOAT(struct batch_normalization_args, epsilon, 1e-5f),
    ATTR_FLOAT(struct batch_normalization_args, momentum, 0.9f),
    ATTR_FLAG(struct batch_normalization_args, is_test, 0),
    ATTR_FLAG(struct batch_normalization_args, spatial, 1),
    ATTR_IGNORED("consumed_inputs"),
    ATTR_END,
};
static const attnrun_attr_def batch_normalization_attrs_14[] = {
    ATTR_FLOAT(struct batch_normalization_args, epsilon, 1e-5f),
    ATTR_FLOAT(struct batch_normalization_args, momentum, 0.9f),
    ATTR_FLAG(struct batch_normalization_args, training_mode, 0),
    ATTR_END,
};

struct batch_normalization_state {
    struct planes planes;
    bool training, per_element;
};

/* Before version 14 they say that a model is trained, also where nobody reads them. */
static bool has_more_outputs(const attnrun_step *step)
{
    for (int out = 1; out < step->n_out; out++)
        if (step->node->opset < 14 || op_has_out(step, out))
            return true;
    return false;
}

static bool is_training(const attnrun_step *step)
{
    const struct batch_normalization_args *args = step->args;
    return args->training_mode != 0 || (args->is_test == 0 && has_more_outputs(step));
}

/* spatial = 0: scale, B, mean and var have the shape of a sample. */
static attn_status check_elements(const attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    if (is_training(step))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "training with spatial = 0 is not supported");
    for (int in = 1; in <= 4; in++) {
        const attnrun_type *w = &step->in[in];
        if (x->rank < 0 || w->rank < 0)
            continue;
        TRY(op_need_rank(step, in, x->rank - 1));
        for (int i = 0; i < w->rank; i++)
            TRY(op_need_dim(step, in, i, x->dims[i + 1], "the sample's dim"));
    }
    return ATTNRUN_OK;
}

static attn_status batch_normalization_infer(attnrun_step *step)
{
    const struct batch_normalization_args *args = step->args;
    struct batch_normalization_state *state = step->state;
    struct planes *p = &state->planes;
    state->training = is_training(step);
    state->per_element = args->spatial == 0 && step->node->opset < 9;
    if (args->is_test != 0 && has_more_outputs(step))
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "is_test is %lld, but outputs after the first exist only in training",
            (long long)args->is_test);
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    for (int out = 1; out < step->n_out; out++)
        TRY(op_out_like(step, out, out < 3 ? out + 2 : out));
    if (state->per_element)
        TRY(check_elements(step));
    else
        TRY(attn_planes_check_vectors(step, 1, 4));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_planes_of(step, &step->in[0], p));
    if (state->per_element) {
        p->channels = op_count(&step->in[0], 1, step->in[0].rank);
        p->positions = 1;
    }
    if (state->training) {
        op_tasks(step, 0, p->channels, p->batch * p->positions + 50);
        step->shared_bytes = p->channels * 2 * (int64_t)sizeof(double);
    }
    op_tasks(step, state->training ? 1 : 0, p->batch * p->channels,
             p->positions / 4 + 20);
    return ATTNRUN_OK;
}

/* Mean and variance of a channel over the batch: of the planes', combined in order. */
static void channel_stats(const attnrun_step *step, int64_t channel, double *stats)
{
    const struct planes *p =
        &((const struct batch_normalization_state *)step->state)->planes;
    double plane[2], mean = 0, square = 0;
    for (int64_t n = 0; n < p->batch; n++) {
        attn_planes_stats(step, &step->x[0], (n * p->channels + channel) * p->positions,
                          p->positions, plane);
        mean += plane[0] / (double)p->batch;
    }
    for (int64_t n = 0; n < p->batch; n++) {
        attn_planes_stats(step, &step->x[0], (n * p->channels + channel) * p->positions,
                          p->positions, plane);
        square += (plane[1] + (plane[0] - mean) * (plane[0] - mean)) / (double)p->batch;
    }
    stats[0] = p->batch > 0 ? mean : (double)NAN;
    stats[1] = p->batch > 0 ? square : (double)NAN;
}

static void train_channel(const attnrun_step *step, int64_t channel, double *stats)
{
    const struct batch_normalization_args *args = step->args;
    const double momentum = (double)args->momentum;
    channel_stats(step, channel, stats + 2 * channel);
    for (int k = 0; k < 2; k++) {
        double old = real_get(&step->x[3 + k], channel), now = stats[2 * channel + k];
        real_put_out(step, 1 + k, channel, old * momentum + now * (1 - momentum));
        real_put_out(step, 3 + k, channel, now);
    }
}

static attn_status batch_normalization_run(const attnrun_step *step,
                                           const attnrun_work *work)
{
    const struct batch_normalization_args *args = step->args;
    const struct batch_normalization_state *state = step->state;
    const struct planes *p = &state->planes;
    const bool normalize = !state->training || work->phase == 1;
    double *stats = work->shared;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!normalize) {
            train_channel(step, task, stats);
            continue;
        }
        int64_t c = task % p->channels;
        double mean = state->training ? stats[2 * c] : real_get(&step->x[3], c);
        double variance = state->training ? stats[2 * c + 1] : real_get(&step->x[4], c);
        double scale = real_get(&step->x[1], c) / sqrt(variance + (double)args->epsilon);
        attn_planes_affine(step, &step->y[0], &step->x[0], task * p->positions,
                           p->positions, mean, scale, real_get(&step->x[2], c));
    }
    return ATTNRUN_OK;
}

#define BATCH_NORMALIZATION_ROW                                                          \
    .args_bytes = sizeof(struct batch_normalization_args),                               \
    .state_bytes = sizeof(struct batch_normalization_state),                             \
    .infer = batch_normalization_infer, .run = batch_normalization_run, .cost = "O(n)",  \
    .source = "Ioffe 2015, arXiv:1502.03167"
const attnrun_op_def op_batch_normalization_1 = {
    OP_ROW,
    .name = "BatchNormalization",
    .since = 1,
    .inputs = "X:T scale:T B:T mean:T var:T",
    .outputs = "Y:T mean:T? var:T? saved_mean:T? saved_var:T?",
    .types = "T=f32,f64",
    .attrs = batch_normalization_attrs_1,
    BATCH_NORMALIZATION_ROW,
};

const attnrun_op_def op_batch_normalization_14 = {
    OP_ROW,
    .name = "BatchNormalization",
    .since = 14,
    .inputs = "X:T scale:T1 B:T1 input_mean:T2 input_var:T2",
    .outputs = "Y:T running_mean:T2? running_var:T2?",
    .types = "T=f32,f64 T1=f32,f64 T2=f32,f64",
    .attrs = batch_normalization_attrs_14,
    BATCH_NORMALIZATION_ROW,
};
