/* blocked_reorder.c - the borders of what runs on blocked maps (blocked.h):
 *
 * ToBlocked    X [N, C, H, W] -> Y [N, ceil(C / 16), H, W, 16]; what fills up is 0
 * FromBlocked  the way back; attribute channels: C
 *
 * A task is some pixels of one block of channels, which are transposed. Cost: a copy. */
#include "blocked.h"

enum { CHUNK = 1024 /* pixels of a task */ };

struct reorder_args {
    int64_t channels;
};
struct reorder_state {
    int64_t channels, blocks, plane, chunks;
};

static const attnrun_attr_def from_blocked_attrs[] = {
    ATTR_INT_REQUIRED(struct reorder_args, channels), ATTR_END
};

static attn_status plan_reorder(attnrun_step *step, const attnrun_type *blocked,
                                int64_t channels)
{
    struct reorder_state *s = step->state;
    int64_t images = op_count(blocked, 0, 2), all = op_count(blocked, 0, 5);
    if (images < 0 || all < 0 || all > ATTN_MAX_ELEMENTS)
        return op_fail(step, ATTNRUN_E_LIMIT, "the image is too large");
    s->channels = channels;
    s->blocks = blocked_count(channels);
    s->plane = op_count(blocked, 2, 4);
    s->chunks = all > 0 ? s->plane / CHUNK + (s->plane % CHUNK != 0) : 0;
    op_tasks(step, 0, images * s->chunks, 16 * CHUNK / 4);
    return ATTNRUN_OK;
}

static attn_status to_blocked_infer(attnrun_step *step)
{
    const attnrun_dim *x = step->in[0].dims;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    TRY(op_need_rank(step, 0, 4));
    const attnrun_dim blocks = attnrun_dim_div(
        step, attnrun_dim_add(step, x[1], dim_of(ATTN_BLOCK - 1)), dim_of(ATTN_BLOCK));
    TRY(attn_blocked_out(step, x[0], blocks, x[2], x[3]));
    return step->concrete ? plan_reorder(step, &step->out[0], x[1].value) : ATTNRUN_OK;
}

static attn_status from_blocked_infer(attnrun_step *step)
{
    const struct reorder_args *args = step->args;
    const attnrun_dim *x = step->in[0].dims;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    if (args->channels < 0 || args->channels > INT64_MAX - ATTN_BLOCK)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute channels is %lld",
                       (long long)args->channels);
    TRY(op_need_dim(step, 0, 1, dim_of(blocked_count(args->channels)),
                    "blocks of channels"));
    const attnrun_dim out[4] = { x[0], dim_of(args->channels), x[2], x[3] };
    TRY(op_out(step, 0, ATTNRUN_F32, 4, out));
    if (args->channels % ATTN_BLOCK == 0 && dim_is(x[2], 1) && dim_is(x[3], 1)) {
        attnrun_step_view(step, 0, 0, 0); /* the same bytes */
        return ATTNRUN_OK;
    }
    return step->concrete ? plan_reorder(step, &step->in[0], args->channels) : ATTNRUN_OK;
}

/* Where a task is: its image and block, its first pixel, and how much there is. */
struct place {
    int64_t image, block, pixel, pixels, channels;
};
static struct place find_place(const struct reorder_state *s, int64_t task)
{
    const int64_t plane = task / s->chunks;
    struct place p = { .image = plane / s->blocks, .block = plane % s->blocks };
    p.pixel = task % s->chunks * CHUNK;
    p.pixels = s->plane - p.pixel < CHUNK ? s->plane - p.pixel : CHUNK;
    p.channels = s->channels - p.block * ATTN_BLOCK;
    if (p.channels > ATTN_BLOCK)
        p.channels = ATTN_BLOCK;
    return p;
}

static attn_status to_blocked_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct reorder_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, 8 * ATTN_BLOCK * CHUNK))
            return ATTNRUN_E_CANCELLED;
        const struct place p = find_place(s, task);
        const float *x = (const float *)step->x[0].data + p.pixel +
                         (p.image * s->channels + p.block * ATTN_BLOCK) * s->plane;
        float *y = (float *)step->y[0].data +
                   ((p.image * s->blocks + p.block) * s->plane + p.pixel) * ATTN_BLOCK;
        if (p.channels < ATTN_BLOCK)
            memset(y, 0, (size_t)(p.pixels * ATTN_BLOCK) * sizeof(float));
        step->kernels->transpose_f32(y, ATTN_BLOCK, x, s->plane, (size_t)p.channels,
                                     (size_t)p.pixels);
    }
    return ATTNRUN_OK;
}

static attn_status from_blocked_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct reorder_state *s = step->state;
    for (int64_t task = work->begin; s->chunks > 0 && task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, 8 * ATTN_BLOCK * CHUNK))
            return ATTNRUN_E_CANCELLED;
        const struct place p = find_place(s, task);
        float *y = (float *)step->y[0].data + p.pixel +
                   (p.image * s->channels + p.block * ATTN_BLOCK) * s->plane;
        const float *x =
            (const float *)step->x[0].data +
            ((p.image * s->blocks + p.block) * s->plane + p.pixel) * ATTN_BLOCK;
        step->kernels->transpose_f32(y, s->plane, x, ATTN_BLOCK, (size_t)p.pixels,
                                     (size_t)p.channels);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_to_blocked_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun.fused",
    .name = "ToBlocked",
    .since = 1,
    .state_bytes = sizeof(struct reorder_state),
    .inputs = "X:f32",
    .outputs = "Y:f32",
    .infer = to_blocked_infer,
    .run = to_blocked_run,
    .cost = "O(n)",
};

const attnrun_op_def op_from_blocked_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun.fused",
    .name = "FromBlocked",
    .since = 1,
    .args_bytes = sizeof(struct reorder_args),
    .state_bytes = sizeof(struct reorder_state),
    .inputs = "X:f32",
    .outputs = "Y:f32",
    .attrs = from_blocked_attrs,
    .infer = from_blocked_infer,
    .run = from_blocked_run,
    .cost = "O(n)",
};
