/* conv_strip.c - convolution with few channels per group, without columns.
 *
 * A task is a block of output pixels of one group. The input rows that it reads are
 * copied into scratch with their padding (conv_strip_f32), cut by the remainders of row
 * and column modulo the strides. Every tap then reads consecutive floats at an offset of
 * its own (conv_direct_f32). Where a block is as wide as the image, the padding right of
 * a row is that left of the next one.
 *
 * In: X, W, bias, Z. Out: blocks of Y. Tasks: batch x group x block of rows x block of
 * columns. Cost: see conv.h. Scratch: the strip. */
#include "conv.h"

enum {
    BLOCK_W = 2048,        /* columns of a block, at most */
    BLOCK_FLOATS = 16384,  /* of input in a strip, about: 64 KiB */
    STRIP_LIMIT = 1 << 17, /* floats of a strip, at most */
    TAPS = 1024,           /* of a group, at most: channels times kernel */
    ROWS = 64,             /* output channels of a group, at most */
    MIN_TASKS = 8,         /* where the image has enough rows */
    PIXELS = 256,          /* of a block, at least, when it gets smaller for that */
    ROOM_FLOATS = 1 << 14, /* weights of 16 bits that are floats at one time … */
    MIN_ROOM_ROWS = 8      /* … but so many rows at least */
};

/* Finds the columns of a row of the strip, without those zeros that it shares with the next
 * row. */
static void find_columns(const struct window *w, struct conv_strip *s)
{
    const int64_t stride = w->stride[2], before = w->before[2];
    const int64_t seen = s->block_w + (w->kernel[2] - 1) * w->dilation[2] / stride;
    s->pitch = seen;
    if (s->block_w == w->out[2]) {
        int64_t left = before / stride,
                right = seen - ceil_div(w->in[2] + before, stride);
        int64_t shared = min64(left, right);
        shared = min64(shared, seen - s->block_w);
        s->pitch -= shared > 0 ? shared : 0;
    }
    s->tail = seen - s->pitch + 2 * OP_PANEL;
}

/* Chooses the rows of a block: about BLOCK_FLOATS of input, but fewer if that gave less than
 * MIN_TASKS tasks. */
static void find_rows(const struct conv_shape *shape, struct conv_strip *s)
{
    const struct window *w = &shape->w;
    const int64_t phases = w->stride[1] * w->stride[2];
    const int64_t halo = (w->kernel[1] - 1) * w->dilation[1] / w->stride[1];
    const int64_t row_floats = shape->channels * phases * s->pitch;
    int64_t rows = BLOCK_FLOATS / row_floats - halo;
    rows = rows < 2 * halo ? 2 * halo : rows;
    const int64_t others = shape->batch * shape->groups * s->w_blocks;
    if (others > 0 && others < MIN_TASKS) {
        int64_t max = ceil_div(w->out[1], ceil_div(MIN_TASKS, others));
        int64_t min = ceil_div(PIXELS, s->block_w);
        rows = min64(rows, max > min ? max : min);
    }
    rows = rows > 0 ? min64(rows, w->out[1]) : 1;
    s->h_blocks = ceil_div(w->out[1], rows);
    s->block_h = ceil_div(w->out[1], s->h_blocks);
    s->rows = s->block_h + halo;
    s->floats = s->rows * row_floats + s->tail;
}

/* Strips are 2-D: rows of all (out 0, out 1) would need 3-D tap offsets. */
static bool is_direct(const struct conv_shape *shape)
{
    const struct window *w = &shape->w;
    const int64_t reach_h = (w->kernel[1] - 1) * w->dilation[1];
    const int64_t reach_w = (w->kernel[2] - 1) * w->dilation[2];
    return w->kernel[0] == 1 && w->in[0] == 1 && w->out[0] == 1 && w->before[0] == 0 &&
           shape->batch > 0 && shape->k > 0 && shape->k <= TAPS && shape->rows <= ROWS &&
           reach_h < 65536 && reach_w < 65536 && w->stride[1] < 4096 &&
           w->stride[2] < 4096;
}

void attn_conv_strip_plan(struct conv_plan *plan, bool *fits)
{
    const struct conv_shape *shape = &plan->shape;
    const struct window *w = &shape->w;
    struct conv_strip *s = &plan->strip;
    *fits = is_direct(shape);
    if (!*fits)
        return;
    s->block_w = min64(w->out[2], BLOCK_W);
    s->w_blocks = ceil_div(w->out[2], s->block_w);
    find_columns(w, s);
    *fits = s->pitch * w->stride[1] * w->stride[2] <= STRIP_LIMIT / shape->channels;
    if (!*fits)
        return;
    find_rows(shape, s);
    *fits = s->floats <= STRIP_LIMIT;
    plan->scratch_bytes = s->floats * 4;
    s->room_rows = shape->rows;
    if (plan->converts)
        s->room_rows =
            op_block_even(shape->rows, max64(min64(shape->rows, ROOM_FLOATS / shape->k),
                                             MIN_ROOM_ROWS));
    attn_conv_add_room(plan, s->room_rows * shape->k);
    plan->shared_bytes = shape->k * (int64_t)sizeof(int64_t);
    plan->n_tasks = shape->batch * shape->groups * s->h_blocks * s->w_blocks;
    const double pixels = (double)s->block_h * (double)s->pitch;
    const double products = pixels * (double)shape->rows * (double)shape->k;
    plan->task_cost = window_cost(products / 60.0 + (double)s->floats / 8 + 100);
}

void attn_conv_strip_prepare(const struct conv_plan *plan, int64_t *offsets)
{
    const struct conv_shape *shape = &plan->shape;
    const struct conv_strip *s = &plan->strip;
    const struct window *w = &shape->w;
    const int64_t plane = s->rows * s->pitch, *stride = w->stride + 1;
    for (int64_t c = 0; c < shape->channels; c++)
        for (int64_t i = 0; i < w->kernel[1]; i++)
            for (int64_t j = 0; j < w->kernel[2]; j++) {
                const int64_t h = i * w->dilation[1], x = j * w->dilation[2];
                const int64_t phase = h % stride[0] * stride[1] + x % stride[1];
                *offsets++ = (c * stride[0] * stride[1] + phase) * plane +
                             h / stride[0] * s->pitch + x / stride[1];
            }
}

/* Where a block of output pixels is. */
struct conv_strip_place {
    int64_t image, group, h, w;
};

static void copy_strip(const attnrun_step *step, const struct conv_shape *shape,
                       const struct conv_strip *s, const struct conv_operands *o,
                       const struct conv_strip_place *p, float *to)
{
    const struct window *w = &shape->w;
    const int64_t plane = shape->channels * shape->inputs;
    step->kernels->conv_strip_f32(&(struct attn_conv_strip){
        .x = o->x + (p->image * shape->groups + p->group) * plane,
        .x_end = o->x + shape->batch * shape->groups * plane,
        .to = to,
        .channels = shape->channels,
        .in = { w->in[1], w->in[2] },
        .stride = { w->stride[1], w->stride[2] },
        .h = p->h * w->stride[1] - w->before[1],
        .w = p->w * w->stride[2] - w->before[2],
        .rows = s->rows,
        .columns = s->pitch,
        .tail = s->tail,
    });
}

/* Applies the activations that the kernel has no form of. */
static void activate(const attnrun_step *step, const struct conv_operands *o,
                     const struct attn_conv_direct *d)
{
    const bool whole = d->columns == d->y_row;
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t r = 0; r < (whole ? 1 : d->rows); r++)
            attn_conv_apply(step->kernels, o->activation, o->n_activation,
                            d->y + i * d->y_channel + r * d->y_row,
                            whole ? d->rows * d->columns : d->columns);
}

static void run_block(const attnrun_step *step, const attnrun_work *work,
                      const struct conv_plan *plan, const struct conv_operands *o,
                      const struct conv_strip_place *p, struct attn_conv_direct *d)
{
    const struct conv_shape *shape = &plan->shape;
    const struct conv_strip *s = &plan->strip;
    const struct window *w = &shape->w;
    const int64_t channel = p->group * shape->rows;
    const int64_t at =
        ((p->image * shape->groups * shape->rows + channel) * w->out[1] + p->h) *
            w->out[2] +
        p->w;
    const bool clipped = attn_conv_limits(o, &d->min, &d->max);
    d->rows = min64(w->out[1] - p->h, s->block_h);
    d->columns = min64(w->out[2] - p->w, s->block_w);
    for (int64_t r = 0; r < shape->rows; r += s->room_rows) {
        const int64_t first = at + r * shape->pixels;
        d->m = min64(shape->rows - r, s->room_rows);
        d->w = attn_conv_weights(step, work, plan, o, channel + r, d->m, 0, shape->k,
                                 &d->w_row);
        d->y = o->y + first;
        d->z = o->z != NULL ? o->z + first : NULL;
        d->bias = o->bias != NULL ? o->bias + channel + r : NULL;
        step->kernels->conv_direct_f32(d);
        if (!clipped)
            activate(step, o, d);
    }
}

attn_status attn_conv_strip_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_plan *plan,
                                const struct conv_operands *o)
{
    const struct conv_shape *shape = &plan->shape;
    const struct conv_strip *s = &plan->strip;
    float *x = work->scratch;
    struct attn_conv_direct d = { .x = x,
                                  .offsets = work->shared,
                                  .taps = shape->k,
                                  .w_row = shape->k,
                                  .m = shape->rows,
                                  .pitch = s->pitch,
                                  .y_channel = shape->pixels,
                                  .y_row = shape->w.out[2] };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t rest = task;
        const int64_t w = op_take(&rest, s->w_blocks), h = op_take(&rest, s->h_blocks);
        const int64_t group = op_take(&rest, shape->groups);
        const struct conv_strip_place p = { rest, group, h * s->block_h, w * s->block_w };
        copy_strip(step, shape, s, o, &p, x);
        run_block(step, work, plan, o, &p, &d);
    }
    return ATTNRUN_OK;
}
