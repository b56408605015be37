/* blocked_norm.c - BlockedNorm: layer normalization of a blocked map, each pixel over all
 * its channels:
 *
 *   Y = (X - mean) / sqrt(variance + epsilon) * scale + bias
 *
 * X, Y         f32 [N, ceil(C / 16), H, W, 16], see blocked.h; with to_bf16 = 1 Y is bf16
 * scale, bias  f32 [C]
 *
 * A task is some pixels of an image. Y may share the memory of X. Cost: O(elements), one
 * read and one write of the map. Source: the pass blocked_layout writes it for
 * LayerNormalization over channels. */
#include "blocked.h"

enum { TASK_BYTES = 1 << 15, STEP = 8, MAX_PIXELS = 256 };

struct norm_args {
    float epsilon;
    int64_t to_bf16;
};
static const attnrun_attr_def norm_attrs[] = {
    ATTR_FLOAT(struct norm_args, epsilon, 1e-5f),
    ATTR_FLAG(struct norm_args, to_bf16, 0),
    ATTR_END,
};
struct norm_state {
    int64_t channels, blocks, pixels, of_task, tasks;
};

static attn_status check_vectors(const attnrun_step *step)
{
    TRY(op_need_rank(step, 1, 1));
    const attnrun_dim channels = step->in[1].dims[0];
    if (!dim_is_const(channels) || channels.value < 1)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE,
                             "expected a constant dim of 1 or more");
    TRY(op_need_dim(step, 0, 1, dim_of(blocked_count(channels.value)),
                    "blocks of channels"));
    if (!op_has_in(step, 2))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, 2, 1));
    return op_need_dim(step, 2, 0, channels, "channels");
}

static attn_status blocked_norm_infer(attnrun_step *step)
{
    const struct norm_args *args = step->args;
    struct norm_state *s = step->state;
    const int32_t dtype = args->to_bf16 != 0 ? ATTNRUN_BF16 : ATTNRUN_F32;
    if (!op_rank_known(step, 0) || !op_rank_known(step, 1))
        return op_out(step, 0, dtype, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    TRY(check_vectors(step));
    TRY(op_out(step, 0, dtype, 5, step->in[0].dims));
    if (dtype == ATTNRUN_F32)
        attnrun_step_inplace(step, 0, 0);
    if (!step->concrete)
        return ATTNRUN_OK;
    const int64_t images = step->in[0].dims[0].value;
    s->channels = step->in[1].dims[0].value;
    s->blocks = blocked_count(s->channels);
    s->pixels = op_count(&step->in[0], 2, 4);
    if (s->pixels < 0 || op_count(&step->in[0], 0, 5) > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the image", "2^46");
    const int64_t fit = TASK_BYTES / (s->blocks * ATTN_BLOCK * 4) / STEP * STEP;
    s->of_task = min64(max64(fit, STEP), MAX_PIXELS);
    s->tasks = ceil_div(s->pixels, s->of_task);
    if (dtype == ATTNRUN_BF16)
        step->scratch_bytes = s->of_task * s->blocks * ATTN_BLOCK * 4;
    op_tasks(step, 0, images * s->tasks,
             window_cost((double)s->of_task * (double)s->blocks * 4.0));
    return ATTNRUN_OK;
}

/* Rounds pixels that were normalized in scratch to bf16. */
static void round_pixels(const attnrun_step *step, const struct norm_state *s,
                         const float *from, uint16_t *to, int64_t n)
{
    for (int64_t b = 0; b < s->blocks; b++)
        step->kernels->words_bf16((uint32_t *)(void *)(to + b * s->pixels * ATTN_BLOCK),
                                  from + b * s->of_task * ATTN_BLOCK,
                                  (size_t)(n * ATTN_BLOCK / 2));
}

static attn_status blocked_norm_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct norm_args *args = step->args;
    const struct norm_state *s = step->state;
    const bool rounds = args->to_bf16 != 0;
    struct attn_blocked_norm d = {
        .scale = step->x[1].data,
        .bias = op_in_data(step, 2),
        .channels = s->channels,
        .x_block = s->pixels * ATTN_BLOCK,
        .y_block = (rounds ? s->of_task : s->pixels) * ATTN_BLOCK,
        .epsilon = args->epsilon,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t image = task;
        const int64_t pixel = op_take(&image, s->tasks) * s->of_task;
        const int64_t at = (image * s->blocks * s->pixels + pixel) * ATTN_BLOCK;
        d.n = min64(s->pixels - pixel, s->of_task);
        d.x = (const float *)step->x[0].data + at;
        d.y = rounds ? work->scratch : (float *)step->y[0].data + at;
        step->kernels->blocked_norm_f32(&d);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (rounds)
            round_pixels(step, s, d.y, (uint16_t *)step->y[0].data + at, d.n);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_norm_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedNorm",
    .since = 1,
    .args_bytes = sizeof(struct norm_args),
    .state_bytes = sizeof(struct norm_state),
    .attrs = norm_attrs,
    .inputs = "X:T scale:T bias:T?",
    .outputs = "Y:V",
    .types = "T=f32 V=f32,bf16",
    .infer = blocked_norm_infer,
    .run = blocked_norm_run,
    .cost = "O(n)",
    .source = "Ba 2016, arXiv:1607.06450",
};
