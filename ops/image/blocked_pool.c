/* blocked_pool.c - pooling of blocked maps (blocked.h), a window or the whole map:
 *
 * BlockedPool  X [N, blocks, H, W, 16] -> Y [N, blocks, H', W', 16]; kind max as MaxPool,
 *              where NaN wins, or average as AveragePool
 * BlockedMean  Y [N, blocks, 1, 1, 16], as GlobalAveragePool
 *
 * A task is some lines of one block of channels, or a whole one. Source: the operators of
 * plain maps in max_pool.c, average_pool.c and global_pool.c. */
#include <math.h>

#include "blocked.h"
#include "pool.h"

enum { TASK_NS = 10000 };

struct blocked_pool_args {
    struct pool_args pool;
    int32_t kind; /* 0: max, 1: average */
};
struct blocked_pool_state {
    struct window w;
    int64_t planes, lines, line_blocks;
};

static const attnrun_attr_def blocked_pool_attrs[] = {
    POOL_ATTR_ROWS, WINDOW_DILATIONS, ATTR_FLAG(struct pool_args, count_include_pad, 0),
    ATTR_ENUM(struct blocked_pool_args, kind, "max|average", 0), ATTR_END
};

static attn_status plan_pool(attnrun_step *step, struct blocked_pool_state *s)
{
    const struct blocked_pool_args *args = step->args;
    const struct window *w = &s->w;
    const int64_t in = op_count(&step->in[0], 0, 5), out = op_count(&step->out[0], 0, 5);
    int64_t planes = op_count(&step->out[0], 0, 2), all;
    if (in < 0 || out < 0 || in > ATTN_MAX_ELEMENTS || out > ATTN_MAX_ELEMENTS ||
        !ck_mul(w->kernel[1], w->kernel[2], &all) || all > ATTN_MAX_ELEMENTS)
        return op_fail(step, ATTNRUN_E_LIMIT, "the image is too large");
    const double line = (double)w->out[2] * (double)all * 1.0 + 20.0;
    const double lines = TASK_NS / line;
    s->planes = out > 0 ? planes : 0;
    s->lines = lines < 1.0 ? 1 : lines > 1e6 ? 1000000 : (int64_t)lines;
    s->line_blocks = w->out[1] / s->lines + (w->out[1] % s->lines != 0);
    if (args->kind == 1)
        step->shared_bytes = (w->out[1] + w->out[2]) * (int64_t)sizeof(float);
    op_tasks(step, 0, args->kind == 1, w->out[1] + w->out[2]);
    op_tasks(step, 1, s->planes * s->line_blocks, window_cost(line * (double)s->lines));
    return ATTNRUN_OK;
}

static attn_status blocked_pool_infer(attnrun_step *step)
{
    const struct blocked_pool_args *args = step->args;
    const struct window_attrs *attrs = &args->pool.window;
    struct blocked_pool_state *s = step->state;
    attnrun_dim out[2], kernel[2];
    if (!op_rank_known(step, 0))
        return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    if (attrs->kernel_shape.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute kernel_shape is empty");
    TRY(attn_blocked_check(step, 0));
    TRY(attn_window_check(step, attrs, 2));
    const attnrun_dim *x = step->in[0].dims;
    const bool ceil_mode = args->pool.ceil_mode != 0;
    for (int i = 0; i < 2; i++) {
        kernel[i] = dim_of(attrs->kernel_shape.v[i]);
        TRY(attn_window_out(step, attrs, 2, i, x[i + 2], kernel[i], ceil_mode, &out[i]));
    }
    TRY(attn_blocked_out(step, x[0], x[1], out[0], out[1]));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_window_resolve(step, attrs, 2, x + 2, kernel, ceil_mode, &s->w));
    return plan_pool(step, s);
}

static void find_shares(const attnrun_step *step, float *shares)
{
    const struct blocked_pool_args *args = step->args;
    const struct blocked_pool_state *s = step->state;
    for (int axis = 1; axis < WINDOW_AXES; axis++)
        for (int64_t i = 0; i < s->w.out[axis]; i++)
            *shares++ =
                (float)attn_pool_share(&s->w, axis, i, args->pool.count_include_pad != 0);
}

static attn_status blocked_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct blocked_pool_args *args = step->args;
    const struct blocked_pool_state *s = step->state;
    const struct window *w = &s->w;
    struct attn_blocked_rows d = blocked_rows_of(w);
    if (work->phase == 0) {
        find_shares(step, work->shared);
        return ATTNRUN_OK;
    }
    if (args->kind == 1) {
        d.row_share = work->shared;
        d.column_share = d.row_share + w->out[1];
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, 4 * s->lines * w->out[2] * ATTN_BLOCK))
            return ATTNRUN_E_CANCELLED;
        const int64_t plane = task / s->line_blocks;
        d.row = task % s->line_blocks * s->lines;
        d.rows = w->out[1] - d.row < s->lines ? w->out[1] - d.row : s->lines;
        d.x = (const float *)step->x[0].data + plane * w->in[1] * w->in[2] * ATTN_BLOCK;
        d.y = (float *)step->y[0].data +
              (plane * w->out[1] + d.row) * w->out[2] * ATTN_BLOCK;
        step->kernels->blocked_pool_f32(&d);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_pool_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun.fused",
    .name = "BlockedPool",
    .since = 1,
    .args_bytes = sizeof(struct blocked_pool_args),
    .state_bytes = sizeof(struct blocked_pool_state),
    .inputs = "X:f32",
    .outputs = "Y:f32",
    .attrs = blocked_pool_attrs,
    .infer = blocked_pool_infer,
    .run = blocked_pool_run,
    .cost = "O(n kernel)",
};

/* ---- the whole map ---- */

static attn_status blocked_mean_infer(attnrun_step *step)
{
    const attnrun_dim *x = step->in[0].dims;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    TRY(attn_blocked_out(step, x[0], x[1], dim_of(1), dim_of(1)));
    if (!step->concrete)
        return ATTNRUN_OK;
    const int64_t planes = op_count(&step->in[0], 0, 2);
    const int64_t pixels = op_count(&step->in[0], 2, 4);
    if (planes < 0 || pixels < 0)
        return op_fail(step, ATTNRUN_E_LIMIT, "the image is too large");
    op_tasks(step, 0, planes, pixels + 20);
    return ATTNRUN_OK;
}

static attn_status blocked_mean_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t *dims = step->x[0].dims, pixels = dims[2] * dims[3];
    for (int64_t plane = work->begin; plane < work->end; plane++) {
        if (OP_CANCELLED_AFTER(work, 4 * ATTN_BLOCK))
            return ATTNRUN_E_CANCELLED;
        step->kernels->blocked_mean_f32(
            (float *)step->y[0].data + plane * ATTN_BLOCK,
            (const float *)step->x[0].data + plane * pixels * ATTN_BLOCK, (size_t)pixels);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_mean_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun.fused",
    .name = "BlockedMean",
    .since = 1,
    .inputs = "X:f32",
    .outputs = "Y:f32",
    .infer = blocked_mean_infer,
    .run = blocked_mean_run,
    .cost = "O(n)",
};
