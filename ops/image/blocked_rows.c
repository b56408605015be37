/* blocked_rows.c - depthwise convolution of blocked maps: each channel has a filter of its own.
 *
 *   x     f32 [N, C / 16, H, W, 16]
 *   w     f32, f16 or bf16 [C / 16][height * width][16], packed by blocked_pack.c
 *   y, z  f32 [N, C / 16, H', W', 16]; z is added before the activation, and may be absent
 *
 * A task is some lines of one block of 16 channels. If the weights have 16 bits, a task converts
 * those of a block to floats in scratch memory and multiplies them by their scale, when it begins
 * with the block.
 * Cost: 2 N C H' W' height width FLOPs; scratch memory is height width 16 floats, or none. */
#include "blocked.h"

enum { TASK_NS = 15000 };

int64_t attn_blocked_columns(const struct window *w, int64_t rows, int64_t from)
{
    enum { TAPS = 1 << 19, MIN_COLUMNS = 64 };
    const int64_t part = max64(TAPS / (w->kernel[1] * w->kernel[2]), MIN_COLUMNS);
    return rows == 1 ? min64(w->out[2] - from, part / 2 * 2) : w->out[2];
}

void attn_blocked_rows_plan(struct blocked_plan *p)
{
    const struct blocked_shape *s = &p->shape;
    const double line =
        (double)s->w.out[2] * (double)s->w.kernel[1] * (double)s->w.kernel[2] * 0.35 +
        20.0;
    double lines = TASK_NS / line;
    lines = lines < 1.0 ? 1.0 : lines > 1e6 ? 1e6 : lines;
    p->h_blocks = s->w.out[1] / (int64_t)lines;
    if (p->h_blocks == 0)
        p->h_blocks = 1;
    p->block_h = ceil_div(s->w.out[1], p->h_blocks);
    p->h_blocks = p->block_h > 0 ? ceil_div(s->w.out[1], p->block_h) : 0;
    p->n_tasks = s->batch * blocked_count(s->rows) * p->h_blocks;
    p->task_cost = window_cost(line * (double)p->block_h);
    p->scratch_bytes = p->shared_bytes = 0;
    if (p->w_type != ATTN_B_F32)
        p->scratch_bytes =
            s->w.kernel[1] * s->w.kernel[2] * ATTN_BLOCK * (int64_t)sizeof(float);
}

/* The weights of a block of channels as floats. */
static const float *blocked_rows_weights(const attnrun_step *step,
                                         const struct blocked_plan *p,
                                         const struct blocked_operands *o, int64_t block,
                                         int64_t taps, float *room)
{
    const int64_t n = taps * ATTN_BLOCK;
    const void *w = blocked_weights_at(p, o->w, block * n);
    if (p->w_type == ATTN_B_F32)
        return w;
    attn_stored_to_floats(step->kernels, step->in[1].dtype, room, w, n);
    const float *scale = o->scale != NULL ? o->scale + block * ATTN_BLOCK : NULL;
    for (int64_t i = 0; scale != NULL && i < n; i++)
        room[i] *= scale[i % ATTN_BLOCK];
    return room;
}

attn_status attn_blocked_rows_run(const attnrun_step *step, const attnrun_work *work,
                                  const struct blocked_plan *p,
                                  const struct blocked_operands *o)
{
    const struct blocked_shape *s = &p->shape;
    const struct window *w = &s->w;
    const int64_t blocks = blocked_count(s->rows), taps = w->kernel[1] * w->kernel[2];
    struct attn_blocked_rows d = blocked_rows_of(w);
    d.min = o->min;
    d.max = o->max;
    int64_t shown = -1; /* the block of d.w */
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t plane = task;
        d.row = op_take(&plane, p->h_blocks) * p->block_h;
        d.rows = min64(w->out[1] - d.row, p->block_h);
        const int64_t block = plane % blocks;
        const int64_t at = (plane * w->out[1] + d.row) * w->out[2] * ATTN_BLOCK;
        d.x = o->x + plane * w->in[1] * w->in[2] * ATTN_BLOCK;
        d.bias = o->bias + block * ATTN_BLOCK;
        if (block != shown)
            d.w = blocked_rows_weights(step, p, o, block, taps, work->scratch);
        shown = block;
        for (int64_t from = 0; from < w->out[2]; from += d.columns) {
            d.columns = attn_blocked_columns(w, d.rows, from);
            d.before[1] = w->before[2] - from * w->stride[2];
            d.y = o->y + at + from * ATTN_BLOCK;
            d.z = o->z != NULL ? o->z + at + from * ATTN_BLOCK : NULL;
            step->kernels->blocked_depthwise_f32(&d);
            if (attn_poll_work(d.rows * d.columns * ATTN_BLOCK * 8) != ATTNRUN_OK)
                return ATTNRUN_E_CANCELLED;
        }
        if (!o->clipped)
            attn_conv_apply(step->kernels, o->activation, o->n_activation, o->y + at,
                            d.rows * w->out[2] * ATTN_BLOCK);
    }
    return ATTNRUN_OK;
}
