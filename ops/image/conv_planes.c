/* conv_planes.c - convolution with few channels per group, without columns and without a
 * copy of the input. It needs strides of 1 and rows of the output as long as those of the
 * input, so that the pixels of all rows are one row (conv_planes_f32, and with one
 * channel conv_depthwise_f32). Taps outside of the image are left out by masks, which are
 * made once.
 *
 * In: X, W, bias, Z. Out: blocks of pixels of Y. Tasks: batch x group (or a few of them,
 * where they have one channel) x block of pixels. Cost: see conv.h. Shared memory: the
 * masks. */
#include "conv.h"

enum { BLOCK = 240, MIN_TASKS = 8, MIN_NS = 20000, MAX_NS = 500000, TOGETHER = 4 };

static bool is_depthwise(const struct conv_shape *s)
{
    return s->channels == 1 && s->rows == 1;
}

/* Planes that lie a multiple of 2 KiB apart share a few lines of L1. */
static bool is_best(const struct conv_shape *s)
{
    const struct window *w = &s->w;
    for (int a = 1; a < WINDOW_AXES; a++)
        if (w->dilation[a] > 4096 || w->before[a] > 65536)
            return false;
    return s->batch > 0 && w->kernel[0] == 1 && w->in[0] == 1 && w->out[0] == 1 &&
           w->before[0] == 0 && w->stride[1] == 1 && w->stride[2] == 1 &&
           w->in[2] == w->out[2] && s->rows <= 64 && s->k <= 1024 && s->taps > 1 &&
           (s->channels >= 4 || is_depthwise(s)) &&
           (s->channels <= 8 || s->inputs % 512 != 0) && w->in[2] <= 4096 &&
           w->kernel[2] <= 64;
}

void attn_conv_planes_plan(struct conv_plan *plan, bool *fits)
{
    const struct conv_shape *s = &plan->shape;
    struct conv_planes *p = &plan->planes;
    *fits = is_best(s);
    if (!*fits)
        return;
    const double pixel_ns = (double)s->rows * (double)s->k * (s->k < 64 ? 0.03 : 0.01);
    const double plane_ns = pixel_ns * (double)s->pixels + 30;
    const int64_t planes = s->batch * s->groups;
    p->groups = 1;
    if (is_depthwise(s) && plane_ns < MIN_NS)
        p->groups = ceil_div((int64_t)(MIN_NS / plane_ns), TOGETHER) * TOGETHER;
    else if (is_depthwise(s))
        p->groups = TOGETHER;
    const double max = MAX_NS / pixel_ns / (double)p->groups;
    p->block = max < 1e9 ? (int64_t)max : s->pixels;
    if (planes < MIN_TASKS)
        p->block = min64(p->block, ceil_div(s->pixels, ceil_div(MIN_TASKS, planes)));
    p->block = ceil_div(p->block > 0 ? p->block : 1, BLOCK) * BLOCK;
    p->blocks = ceil_div(s->pixels, p->block);
    p->group_blocks = ceil_div(s->groups, p->groups);
    plan->n_tasks = s->batch * p->group_blocks * p->blocks;
    plan->task_cost = window_cost(
        (double)p->groups * pixel_ns * (double)min64(p->block, s->pixels) + 100);
    plan->scratch_bytes = 0;
    attn_conv_add_room(plan, min64(p->groups, s->groups) * s->rows * s->k);
    plan->shared_bytes = s->w.kernel[2] * (s->w.in[2] + ATTN_CONV_EDGES) * 2;
}

/* Lanes of a vector from column `column` of the output on that see one of the input. */
static uint16_t find_edge(const struct window *w, int64_t kernel_column, int64_t column,
                          int64_t lanes)
{
    const int64_t shift = kernel_column * w->dilation[2] - w->before[2];
    uint32_t bits = 0;
    for (int64_t l = 0; l < lanes; l++) {
        if (column + shift >= 0 && column + shift < w->in[2])
            bits |= 1u << l;
        if (++column == w->in[2])
            column = 0;
    }
    return (uint16_t)bits;
}

void attn_conv_planes_prepare(const attnrun_step *step, const struct conv_plan *plan,
                              uint16_t *edges)
{
    const struct window *w = &plan->shape.w;
    const int64_t lanes = op_lanes(step->kernels);
    for (int64_t j = 0; j < w->kernel[2]; j++)
        for (int64_t i = 0; i < w->in[2] + ATTN_CONV_EDGES; i++)
            *edges++ = find_edge(w, j, i * lanes % w->in[2], lanes);
}

/* `group`: of all images. */
static void run_block(const attnrun_step *step, const attnrun_work *work,
                      const struct conv_plan *plan, const struct conv_operands *o,
                      struct attn_conv_planes *p, int64_t group)
{
    const struct conv_shape *s = &plan->shape;
    const int64_t channel = group % s->groups * s->rows;
    const int64_t at = group * s->rows * s->pixels;
    const bool clipped = attn_conv_limits(o, &p->min, &p->max);
    p->x = o->x + group * s->channels * s->inputs;
    p->w = attn_conv_weights(step, work, plan, o, channel, p->m, 0, s->k, &p->w_row);
    p->y = o->y + at;
    p->z = o->z != NULL ? o->z + at : NULL;
    p->bias = o->bias != NULL ? o->bias + channel : NULL;
    if (is_depthwise(s))
        step->kernels->conv_depthwise_f32(p);
    else
        step->kernels->conv_planes_f32(p);
    for (int64_t i = 0; !clipped && i < p->m; i++)
        attn_conv_apply(step->kernels, o->activation, o->n_activation,
                        p->y + i * s->pixels + p->from, p->to - p->from);
}

attn_status attn_conv_planes_run(const attnrun_step *step, const attnrun_work *work,
                                 const struct conv_plan *plan,
                                 const struct conv_operands *o)
{
    const struct conv_shape *s = &plan->shape;
    const struct conv_planes *tiles = &plan->planes;
    const struct window *w = &s->w;
    struct attn_conv_planes p = { .edges = work->shared,
                                  .channels = s->channels,
                                  .plane = s->inputs,
                                  .w_row = s->k,
                                  .height = w->in[1],
                                  .width = w->in[2],
                                  .kernel = { w->kernel[1], w->kernel[2] },
                                  .dilation = { w->dilation[1], w->dilation[2] },
                                  .before = { w->before[1], w->before[2] },
                                  .y_channel = s->pixels };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t image = task;
        p.from = op_take(&image, tiles->blocks) * tiles->block;
        const int64_t group = op_take(&image, tiles->group_blocks) * tiles->groups;
        p.to = min64(p.from + tiles->block, s->pixels);
        p.m = s->rows * min64(s->groups - group, tiles->groups);
        run_block(step, work, plan, o, &p, image * s->groups + group);
    }
    return ATTNRUN_OK;
}
