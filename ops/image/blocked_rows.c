/* blocked_rows.c - convolution of blocked maps where each channel is by itself: a task is
 * some lines of one block of 16 channels. */
#include "blocked.h"

enum { TASK_NS = 15000 };

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
    p->block_h = s->w.out[1] / p->h_blocks + (s->w.out[1] % p->h_blocks != 0);
    p->h_blocks =
        p->block_h > 0 ? s->w.out[1] / p->block_h + (s->w.out[1] % p->block_h != 0) : 0;
    p->n_tasks = s->batch * blocked_count(s->rows) * p->h_blocks;
    p->task_cost = window_cost(line * (double)p->block_h);
    p->scratch_bytes = p->shared_bytes = 0;
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
    for (int64_t task = work->begin; task < work->end; task++) {
        const int64_t plane = task / p->h_blocks, block = plane % blocks;
        d.row = task % p->h_blocks * p->block_h;
        d.rows = w->out[1] - d.row < p->block_h ? w->out[1] - d.row : p->block_h;
        const int64_t at = (plane * w->out[1] + d.row) * w->out[2] * ATTN_BLOCK;
        d.x = o->x + plane * w->in[1] * w->in[2] * ATTN_BLOCK;
        d.bias = o->packed + block * ATTN_BLOCK;
        d.w = o->packed + (blocks + block * taps) * ATTN_BLOCK;
        d.y = o->y + at;
        d.z = o->z != NULL ? o->z + at : NULL;
        step->kernels->blocked_depthwise_f32(&d);
        if (attn_poll_work(d.rows * w->out[2] * ATTN_BLOCK * 8) != ATTNRUN_OK)
            return ATTNRUN_E_CANCELLED;
        if (!o->clipped)
            attn_conv_apply(step->kernels, o->activation, o->n_activation, d.y,
                            d.rows * w->out[2] * ATTN_BLOCK);
    }
    return ATTNRUN_OK;
}
