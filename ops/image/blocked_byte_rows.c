/* blocked_byte_rows.c - depthwise convolution of blocked maps of u8. A task is some lines
 * of one block of 16 channels.
 *
 * In: X and the weights of blocked_byte_pack.c. Out: lines of Y. A task reads a copy of
 * the pixels that it needs, which has the zero point of x around it and some more pixels
 * at the end of each line. Cost: 2 taps integer operations an element. Scratch: the copy.
 */
#include "blocked_bytes.h"

enum { TASK_NS = 15000, MIN_LINES = 4 };

attn_status attn_blocked_byte_rows_plan(const attnrun_step *step, struct blocked_plan *p)
{
    const struct blocked_shape *s = &p->shape;
    const struct window *w = &s->w;
    int64_t strip;
    for (int a = 1; a < WINDOW_AXES; a++)
        if (w->dilation[a] != 1 || w->stride[a] > w->kernel[a])
            return op_fail(
                step, ATTNRUN_E_UNSUPPORTED,
                "dilations is %lld and strides %lld along axis %d, expected 1 and "
                "at most the kernel, %lld, where each channel is a group",
                (long long)w->dilation[a], (long long)w->stride[a], a + 1,
                (long long)w->kernel[a]);
    const int64_t groups = blocked_pair_groups(w->kernel[2], w->stride[2]);
    const double line =
        (double)w->out[2] * ((double)w->kernel[1] * (double)groups * 0.8 + 3.0) + 20.0;
    const double lines = TASK_NS / line;
    p->block_h = lines < MIN_LINES ? MIN_LINES : lines > 1e6 ? 1000000 : (int64_t)lines;
    p->h_blocks = ceil_div(w->out[1], p->block_h);
    p->block_h = ceil_div(w->out[1], p->h_blocks);
    p->h_blocks = ceil_div(w->out[1], p->block_h);
    p->block_w = w->out[2];
    p->w_blocks = 1;
    p->inputs = ATTN_BLOCK;
    p->strip_h = (p->block_h - 1) * w->stride[1] + w->kernel[1];
    p->strip_w = (ceil_div(w->out[2], 2) - 1) * 2 * w->stride[2] + groups * 4;
    if (!ck_mul(p->strip_h, p->strip_w * ATTN_BLOCK, &strip) || strip > INT32_MAX)
        return op_fail_size(step, "a strip of the image", "2^31 - 1 bytes");
    p->n_tasks = s->batch * blocked_count(s->rows) * p->h_blocks;
    p->task_cost = window_cost(line * (double)p->block_h);
    p->scratch_bytes = strip;
    p->shared_bytes = 0;
    return ATTNRUN_OK;
}

attn_status attn_blocked_byte_rows_run(const attnrun_step *step, const attnrun_work *work,
                                       const struct blocked_plan *p,
                                       const struct attn_requantize *to)
{
    const struct blocked_bytes_args *args = step->args;
    const struct window *w = &p->shape.w;
    const int64_t blocks = blocked_count(p->shape.rows);
    const struct blocked_byte_packed packed =
        attn_blocked_byte_packed_at(step->node->packed, blocks * ATTN_BLOCK, 0);
    struct attn_blocked_byte_rows d = {
        .parts = packed.parts,
        .kernel_rows = w->kernel[1],
        .groups = blocked_pair_groups(w->kernel[2], w->stride[2]),
        .row_step = w->stride[1] * p->strip_w * ATTN_BLOCK,
        .tap_step = p->strip_w * ATTN_BLOCK,
        .column_step = w->stride[2] * ATTN_BLOCK,
        .to = *to,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t plane = task;
        const int64_t h = op_take(&plane, p->h_blocks) * p->block_h;
        const int64_t block = plane % blocks;
        const struct blocked_part part = { .group = plane, .h = h };
        const int64_t at = (plane * w->out[1] + part.h) * w->out[2] * ATTN_BLOCK;
        d.rows = min64(w->out[1] - part.h, p->block_h);
        const uint8_t *const x = attn_blocked_find_x(
            p, &part, step->x[0].data, work->scratch, (int)args->x_zero, false);
        d.w = packed.w + block * d.parts * d.kernel_rows * d.groups * 8 * ATTN_BLOCK;
        d.begin = packed.begin + block * ATTN_BLOCK;
        d.w_sum = packed.w_sum + block * ATTN_BLOCK;
        d.to.factor = packed.factor + block * ATTN_BLOCK;
        for (int64_t from = 0; from < w->out[2]; from += d.columns) {
            d.columns = attn_blocked_columns(w, d.rows, from);
            d.x = x + from * d.column_step;
            d.to.z = to->z != NULL ? to->z + at + from * ATTN_BLOCK : NULL;
            d.y = (uint8_t *)step->y[0].data + at + from * ATTN_BLOCK;
            step->kernels->blocked_depthwise_u8(&d);
            if (attn_poll() != ATTNRUN_OK)
                return ATTNRUN_E_CANCELLED;
        }
    }
    return ATTNRUN_OK;
}
