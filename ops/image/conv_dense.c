/* conv_dense.c - convolution whose window is the whole image, as those of squeeze-excite and of
 * the heads of networks, which see one pixel: Y = W X, where rows of W and of X are as long.
 *
 * Nothing is packed: each row of W is read once, at the speed of memory. Tasks: batch x group x
 * block of rows, whose weights have about BLOCK_FLOATS floats. Cost: see conv.h. */
#include "conv.h"

enum { BLOCK_FLOATS = 1 << 14, ROWS = 16 /* that the kernel reads together */ };
enum { MAX_K = 1 << 20 };

static bool sees_all(const struct conv_shape *s)
{
    const struct window *w = &s->w;
    for (int a = 0; a < WINDOW_AXES; a++)
        if (w->kernel[a] != w->in[a] || w->out[a] != 1 || w->before[a] != 0 ||
            (w->kernel[a] > 1 && w->dilation[a] != 1))
            return false;
    return s->batch > 0 && s->k <= MAX_K;
}

void attn_conv_dense_plan(struct conv_plan *plan, bool *fits)
{
    const struct conv_shape *s = &plan->shape;
    *fits = sees_all(s);
    if (!*fits)
        return;
    const int64_t rows = round_up(max64(BLOCK_FLOATS / s->k, 1), ROWS);
    plan->dense.rows = min64(rows, s->rows);
    plan->dense.blocks = ceil_div(s->rows, plan->dense.rows);
    plan->n_tasks = s->batch * s->groups * plan->dense.blocks;
    plan->task_cost = window_cost((double)plan->dense.rows * (double)s->k * 0.2 + 50.0);
    plan->scratch_bytes = 0;
    attn_conv_add_room(plan, plan->dense.rows * s->k);
}

static void dense_task(const attnrun_step *step, const attnrun_work *work,
                       const struct conv_plan *plan, const struct conv_operands *o,
                       int64_t task)
{
    const struct conv_shape *s = &plan->shape;
    const struct attn_kernels *k = step->kernels;
    const int64_t block = op_take(&task, plan->dense.blocks);
    const int64_t group = op_take(&task, s->groups), image = task;
    const int64_t from = block * plan->dense.rows;
    const int64_t rows = min64(s->rows - from, plan->dense.rows);
    const int64_t row = group * s->rows + from;
    const int64_t at = image * s->groups * s->rows + row;
    int64_t stride;
    struct attn_dense d = {
        .z = o->x + (image * s->groups + group) * s->k,
        .bias = o->bias != NULL ? o->bias + row : NULL,
        .y = o->y + at,
        .m = 1,
        .rows = (size_t)rows,
        .k = (size_t)s->k,
        .bias_factor = 1.0f,
    };
    d.w = attn_conv_weights(step, work, plan, o, row, rows, 0, s->k, &stride);
    d.w_row = stride;
    k->dense_rows_f32(&d);
    if (o->z != NULL)
        k->add_f32(d.y, d.y, 1, o->z + at, 1, d.rows);
    attn_conv_apply(k, o->activation, o->n_activation, d.y, rows);
}

attn_status attn_conv_dense_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_plan *plan,
                                const struct conv_operands *operands)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        dense_task(step, work, plan, operands, task);
    }
    return ATTNRUN_OK;
}
