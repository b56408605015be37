/* blocked_pool.c - pooling of blocked maps (blocked.h), by a window or of the whole map:
 *
 * BlockedPool  X f32 or u8 [N, blocks, H, W, 16] -> Y [N, blocks, H', W', 16]; kind max
 *              as MaxPool, where NaN wins, or average as AveragePool
 * BlockedMean  Y [N, blocks, 1, 1, 16], as GlobalAveragePool; of bytes as
 *              QLinearGlobalAveragePool
 *
 * A task is some lines of one block of channels, or a whole block. Cost: one term for
 * each tap of a window. Source: the operators of plain maps in max_pool.c, average_pool.c
 * and global_pool.c. */
#include <math.h>

#include "../quant/qlinear.h"
#include "blocked.h"
#include "pool.h"

enum { TASK_NS = 10000, SUMMED = 1 << 24 /* bytes that 32 bits hold */ };

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
    int64_t planes = op_count(&step->out[0], 0, 2);
    if (in < 0 || out < 0 || in > ATTN_MAX_ELEMENTS || out > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the image or of the result",
                            "2^46");
    const double taps = (double)min64(w->kernel[1], w->in[1]) *
                        (double)min64(w->kernel[2], w->in[2]); /* that see the map */
    const double line = (double)w->out[2] * taps + 20.0;
    const double lines = TASK_NS / line;
    s->planes = out > 0 ? planes : 0;
    s->lines = lines < 1.0 ? 1 : lines > 1e6 ? 1000000 : (int64_t)lines;
    s->line_blocks = ceil_div(w->out[1], s->lines);
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
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    if (attrs->kernel_shape.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute kernel_shape is missing");
    TRY(attn_blocked_check(step, 0));
    TRY(attn_window_check(step, attrs, 2));
    if (args->kind == 1 && step->in[0].dtype == ATTNRUN_U8)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "input 0 (X) is u8, expected f32 for averages");
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

/* Computes some lines of the maximum of bytes, a tap at a time; 0 is below every byte
 * that a window sees. */
static void max_of_bytes(const attnrun_step *step, const struct window *w,
                         const uint8_t *x, uint8_t *y, int64_t row)
{
    int64_t i, rows, first, columns;
    attn_pool_taps(w, 1, row, row, &i, &rows);
    attn_pool_taps(w, 2, 0, w->out[2] - 1, &first, &columns);
    memset(y, 0, (size_t)(w->out[2] * ATTN_BLOCK));
    for (; i < rows; i++) {
        const int64_t line = row * w->stride[1] - w->before[1] + i * w->dilation[1];
        if (attn_poll_work((columns - first) * w->out[2] * ATTN_BLOCK) != ATTNRUN_OK)
            return;
        for (int64_t j = first; j < columns; j++) {
            int64_t from, to;
            window_valid(w, 2, j * w->dilation[2], &from, &to);
            const int64_t column =
                from * w->stride[2] - w->before[2] + j * w->dilation[2];
            if (from >= to)
                j = attn_pool_skip(w, j);
            else
                step->kernels->max_u8(
                    y + from * ATTN_BLOCK, x + (line * w->in[2] + column) * ATTN_BLOCK,
                    (size_t)(w->stride[2] * ATTN_BLOCK), (size_t)(to - from));
        }
    }
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
        int64_t plane = task;
        d.row = op_take(&plane, s->line_blocks) * s->lines;
        d.rows = min64(w->out[1] - d.row, s->lines);
        for (int64_t i = d.row; step->in[0].dtype == ATTNRUN_U8 && i < d.row + d.rows;
             i++)
            max_of_bytes(step, w,
                         (const uint8_t *)step->x[0].data +
                             plane * w->in[1] * w->in[2] * ATTN_BLOCK,
                         (uint8_t *)step->y[0].data +
                             (plane * w->out[1] + i) * w->out[2] * ATTN_BLOCK,
                         i);
        if (step->in[0].dtype == ATTNRUN_U8)
            continue;
        d.x = (const float *)step->x[0].data + plane * w->in[1] * w->in[2] * ATTN_BLOCK;
        const float *const shares = d.column_share;
        for (int64_t from = 0; from < w->out[2]; from += d.columns) {
            d.columns = attn_blocked_columns(w, d.rows, from);
            d.before[1] = w->before[2] - from * w->stride[2];
            d.y = (float *)step->y[0].data +
                  ((plane * w->out[1] + d.row) * w->out[2] + from) * ATTN_BLOCK;
            d.column_share = shares != NULL ? shares + from : NULL;
            step->kernels->blocked_pool_f32(&d);
        }
        d.column_share = shares;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_pool_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedPool",
    .since = 1,
    .args_bytes = sizeof(struct blocked_pool_args),
    .state_bytes = sizeof(struct blocked_pool_state),
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,u8",
    .attrs = blocked_pool_attrs,
    .infer = blocked_pool_infer,
    .run = blocked_pool_run,
    .cost = "O(n kernel)",
};

/* ---- the whole map ---- */

struct mean_args {
    int64_t x_zero, y_zero;
    float x_scale, y_scale;
};
static const attnrun_attr_def mean_attrs[] = {
    ATTR_INT(struct mean_args, x_zero, 0), ATTR_INT(struct mean_args, y_zero, 0),
    ATTR_FLOAT(struct mean_args, x_scale, 1.0f),
    ATTR_FLOAT(struct mean_args, y_scale, 1.0f), ATTR_END
};

static attn_status blocked_mean_infer(attnrun_step *step)
{
    const struct mean_args *args = step->args;
    const attnrun_dim *x = step->in[0].dims;
    if (!op_rank_known(step, 0))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    TRY(attn_blocked_check_byte(step, "x_zero", args->x_zero));
    TRY(attn_blocked_check_byte(step, "y_zero", args->y_zero));
    TRY(attn_blocked_out(step, x[0], x[1], dim_of(1), dim_of(1)));
    if (!step->concrete)
        return ATTNRUN_OK;
    const int64_t planes = op_count(&step->in[0], 0, 2);
    const int64_t pixels = op_count(&step->in[0], 2, 4);
    if (planes < 0 || pixels < 0)
        return op_fail_size(step, "the number of planes, or of pixels of a plane,",
                            "2^63 - 1");
    if (pixels == 0 && planes > 0 && step->in[0].dtype == ATTNRUN_U8)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected at least 1 pixel");
    op_tasks(step, 0, planes, pixels + 20);
    return ATTNRUN_OK;
}

static void mean_of_bytes(const attnrun_step *step, int64_t plane, int64_t pixels)
{
    const struct mean_args *args = step->args;
    uint8_t *y = (uint8_t *)step->y[0].data + plane * ATTN_BLOCK;
    const uint8_t *x = (const uint8_t *)step->x[0].data + plane * pixels * ATTN_BLOCK;
    int64_t sums[ATTN_BLOCK] = { 0 };
    for (int64_t done = 0; done < pixels; done += SUMMED) {
        uint32_t some[ATTN_BLOCK];
        step->kernels->sum_u8(some, x + done * ATTN_BLOCK,
                              (size_t)min64(pixels - done, SUMMED));
        for (int i = 0; i < ATTN_BLOCK; i++)
            sums[i] += some[i];
    }
    for (int i = 0; i < ATTN_BLOCK; i++)
        y[i] = op_qlinear_mean(false, sums[i], pixels,
                               (struct op_qlinear){ args->x_scale, (float)args->x_zero },
                               (struct op_qlinear){ args->y_scale, (float)args->y_zero });
}

static attn_status blocked_mean_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t *dims = step->x[0].dims, pixels = dims[2] * dims[3];
    for (int64_t plane = work->begin; plane < work->end; plane++) {
        if (OP_CANCELLED_AFTER(work, 4 * ATTN_BLOCK))
            return ATTNRUN_E_CANCELLED;
        if (step->in[0].dtype == ATTNRUN_U8) {
            mean_of_bytes(step, plane, pixels);
            continue;
        }
        step->kernels->blocked_mean_f32(
            (float *)step->y[0].data + plane * ATTN_BLOCK,
            (const float *)step->x[0].data + plane * pixels * ATTN_BLOCK, (size_t)pixels);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_mean_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedMean",
    .since = 1,
    .args_bytes = sizeof(struct mean_args),
    .attrs = mean_attrs,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,u8",
    .infer = blocked_mean_infer,
    .run = blocked_mean_run,
    .cost = "O(n)",
};
