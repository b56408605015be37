/* blocked_reorder.c - the operators at the borders of a region of blocked maps
 * (blocked.h):
 *
 * ToBlocked    X f32, u8 or i8 [N, C, H, W] -> Y [N, ceil(C / 16), H, W, 16]; the lanes
 *              beyond C are 0
 * FromBlocked  the way back; attribute channels: C
 *
 * Blocked maps of bytes are u8: 128 is added to the bytes of i8, and FromBlocked with
 * is_signed gives i8. ToBlocked with block = 4 makes blocks of 4 channels of them.
 *
 * A task is some pixels of one block of channels, which it transposes. Cost: one copy of
 * the map. */
#include "blocked.h"

enum { CHUNK = 1024 /* pixels of a task */ };

struct reorder_args {
    int64_t channels, is_signed, block;
};
struct reorder_state {
    int64_t channels, blocks, plane, chunks, block;
    uint8_t flip;
};

static const attnrun_attr_def to_blocked_attrs[] = {
    ATTR_INT(struct reorder_args, block, ATTN_BLOCK), ATTR_END
};
static const attnrun_attr_def from_blocked_attrs[] = {
    ATTR_INT_REQUIRED(struct reorder_args, channels),
    ATTR_FLAG(struct reorder_args, is_signed, 0), ATTR_END
};

static attn_status plan_reorder(attnrun_step *step, const attnrun_type *blocked,
                                int64_t channels, int64_t block)
{
    struct reorder_state *s = step->state;
    int64_t images = op_count(blocked, 0, 2), all = op_count(blocked, 0, 5);
    if (images < 0 || all < 0 || all > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the image", "2^46");
    s->channels = channels;
    s->block = block;
    s->blocks = ceil_div(channels, block);
    s->flip =
        step->in[0].dtype == ATTNRUN_I8 || step->out[0].dtype == ATTNRUN_I8 ? 128 : 0;
    s->plane = op_count(blocked, 2, 4);
    s->chunks = all > 0 ? ceil_div(s->plane, CHUNK) : 0;
    op_tasks(step, 0, images * s->chunks, 16 * CHUNK / 4);
    return ATTNRUN_OK;
}

static attn_status to_blocked_infer(attnrun_step *step)
{
    const struct reorder_args *args = step->args;
    const attnrun_dim *x = step->in[0].dims;
    const int64_t block = args->block;
    const int32_t dtype = step->in[0].dtype == ATTNRUN_F32 ? ATTNRUN_F32 : ATTNRUN_U8;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, dtype, -1, NULL);
    if (block != ATTN_BLOCK && (block != 4 || dtype != ATTNRUN_U8))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute block is %lld, expected 16, or 4 for u8",
                       (long long)block);
    TRY(op_need_rank(step, 0, 4));
    const attnrun_dim blocks = attnrun_dim_div(
        step, attnrun_dim_add(step, x[1], dim_of(block - 1)), dim_of(block));
    const attnrun_dim out[5] = { x[0], blocks, x[2], x[3], dim_of(block) };
    TRY(op_out(step, 0, dtype, 5, out));
    return step->concrete ? plan_reorder(step, &step->out[0], x[1].value, block)
                          : ATTNRUN_OK;
}

static attn_status from_blocked_infer(attnrun_step *step)
{
    const struct reorder_args *args = step->args;
    const attnrun_dim *x = step->in[0].dims;
    const int32_t from = step->in[0].dtype,
                  dtype = from == ATTNRUN_U8 && args->is_signed != 0 ? ATTNRUN_I8 : from;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, dtype, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    if (args->channels < 0 || args->channels > INT64_MAX - ATTN_BLOCK)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute channels is %lld, expected 0 to 2^63 - 17",
                       (long long)args->channels);
    TRY(op_need_dim(step, 0, 1, dim_of(blocked_count(args->channels)),
                    "blocks of channels"));
    const attnrun_dim out[4] = { x[0], dim_of(args->channels), x[2], x[3] };
    TRY(op_out(step, 0, dtype, 4, out));
    if (from == dtype && args->channels % ATTN_BLOCK == 0 && dim_is(x[2], 1) &&
        dim_is(x[3], 1)) {
        attnrun_step_view(step, 0, 0, 0); /* the same bytes */
        return ATTNRUN_OK;
    }
    return step->concrete ? plan_reorder(step, &step->in[0], args->channels, ATTN_BLOCK)
                          : ATTNRUN_OK;
}

/* The place of a task: its image and block, its first pixel, and its number of pixels. */
struct blocked_reorder_place {
    int64_t image, block, pixel, pixels, channels;
};
static struct blocked_reorder_place find_place(const struct reorder_state *s,
                                               int64_t task)
{
    struct blocked_reorder_place p = { .pixel = op_take(&task, s->chunks) * CHUNK };
    p.block = op_take(&task, s->blocks);
    p.image = task;
    p.pixels = min64(s->plane - p.pixel, CHUNK);
    p.channels = min64(s->channels - p.block * s->block, s->block);
    return p;
}

/* Transposes what a task has: from element `plain` of the plain map on to element `blocked` of the
 * other, or back. */
static void reorder_floats(const attnrun_step *step,
                           const struct blocked_reorder_place *p, bool to, int64_t plain,
                           int64_t blocked)
{
    const struct reorder_state *s = step->state;
    const float *x = (const float *)step->x[0].data + (to ? plain : blocked);
    float *y = (float *)step->y[0].data + (to ? blocked : plain);
    const size_t channels = (size_t)p->channels, pixels = (size_t)p->pixels;
    if (to && p->channels < ATTN_BLOCK)
        memset(y, 0, pixels * ATTN_BLOCK * sizeof *y);
    if (to)
        step->kernels->transpose_f32(y, ATTN_BLOCK, x, s->plane, channels, pixels);
    else
        step->kernels->transpose_f32(y, s->plane, x, ATTN_BLOCK, pixels, channels);
}
static void reorder_bytes(const attnrun_step *step, const struct blocked_reorder_place *p,
                          bool to, int64_t plain, int64_t blocked)
{
    const struct reorder_state *s = step->state;
    const uint8_t *x = (const uint8_t *)step->x[0].data + (to ? plain : blocked);
    uint8_t *y = (uint8_t *)step->y[0].data + (to ? blocked : plain);
    const size_t channels = (size_t)p->channels, pixels = (size_t)p->pixels;
    if (to)
        step->kernels->transpose_u8(y, s->block, x, s->plane, channels, pixels,
                                    (size_t)(s->block - p->channels), s->flip);
    else
        step->kernels->transpose_u8(y, s->plane, x, s->block, pixels, channels, 0,
                                    s->flip);
}

static attn_status reorder(const attnrun_step *step, const attnrun_work *work, bool to)
{
    const struct reorder_state *s = step->state;
    for (int64_t task = work->begin; s->chunks > 0 && task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, 8 * ATTN_BLOCK * CHUNK))
            return ATTNRUN_E_CANCELLED;
        const struct blocked_reorder_place p = find_place(s, task);
        const int64_t plain =
            (p.image * s->channels + p.block * s->block) * s->plane + p.pixel;
        const int64_t blocked =
            ((p.image * s->blocks + p.block) * s->plane + p.pixel) * s->block;
        if (step->in[0].dtype == ATTNRUN_F32)
            reorder_floats(step, &p, to, plain, blocked);
        else
            reorder_bytes(step, &p, to, plain, blocked);
    }
    return ATTNRUN_OK;
}
static attn_status to_blocked_run(const attnrun_step *step, const attnrun_work *work)
{
    return reorder(step, work, true);
}
static attn_status from_blocked_run(const attnrun_step *step, const attnrun_work *work)
{
    return reorder(step, work, false);
}

const attnrun_op_def op_to_blocked_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "ToBlocked",
    .since = 1,
    .args_bytes = sizeof(struct reorder_args),
    .state_bytes = sizeof(struct reorder_state),
    .inputs = "X:T",
    .outputs = "Y:U",
    .types = "T=f32,u8,i8 U=f32,u8",
    .attrs = to_blocked_attrs,
    .infer = to_blocked_infer,
    .run = to_blocked_run,
    .cost = "O(n)",
};

const attnrun_op_def op_from_blocked_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FromBlocked",
    .since = 1,
    .args_bytes = sizeof(struct reorder_args),
    .state_bytes = sizeof(struct reorder_state),
    .inputs = "X:U",
    .outputs = "Y:T",
    .types = "T=f32,u8,i8 U=f32,u8",
    .attrs = from_blocked_attrs,
    .infer = from_blocked_infer,
    .run = from_blocked_run,
    .cost = "O(n)",
};
