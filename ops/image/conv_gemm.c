/* conv_gemm.c - convolution as a matrix product, Y = W columns(X).
 *
 *   W        [M / group, C / group * taps], read where it is; rows of f16 and bf16 become floats
 *            in scratch memory, some rows at a time
 *   columns  [C / group * taps, pixels]: column p holds all inputs of output pixel p (im2col)
 *   Y        [M / group, pixels]
 *
 * The columns are packed in scratch memory for a tile of pixels at a time and multiplied by
 * gemm_f32; the columns of a whole image never exist. Tiles depend on shapes only. Tasks: batch x
 * group x block of rows x block of pixels. */
#include "conv.h"

enum { PIXELS = 128, PIXELS_LONG_K = 64, LONG_K = 1152, ROWS = 512, MIN_ROWS = 128 };
enum { TILE_K = 8192, TASKS = 8 };
enum { ROOM_FLOATS = 1 << 16, ROOM_ROWS = 28 /* whole tiles of AVX-512 */ };

static bool product(int64_t *result, int64_t a, int64_t b, int64_t c)
{
    return ck_mul(a, b, result) && ck_mul(*result, c, result) &&
           *result <= ATTN_MAX_ELEMENTS;
}

attn_status attn_conv_shape(const attnrun_step *step, int w_in, int64_t groups,
                            bool transposed, struct conv_shape *s)
{
    const struct window *w = &s->w;
    s->batch = step->in[0].dims[0].value;
    s->groups = groups;
    int64_t w0 = step->in[w_in].dims[0].value, w1 = step->in[w_in].dims[1].value;
    s->channels = transposed ? w0 / groups : w1;
    s->rows = transposed ? w1 : w0 / groups;
    int64_t outputs;
    if (!product(&s->taps, w->kernel[0], w->kernel[1], w->kernel[2]) ||
        !product(&s->k, s->channels, s->taps, 1) ||
        !product(&s->pixels, w->out[0], w->out[1], w->out[2]) ||
        !product(&s->inputs, w->in[0], w->in[1], w->in[2]) ||
        !product(&outputs, s->groups, s->rows, s->pixels) ||
        !product(&outputs, outputs, s->batch, 1))
        return op_fail_size(
            step, "the number of elements of the image, of the result or of the kernel",
            "2^46");
    if (outputs == 0)
        s->batch = 0; /* no work, whatever the other sizes are */
    op_flops(step, 2.0 * (double)s->batch * (double)groups * (double)s->rows *
                       (double)s->k * (double)(transposed ? s->inputs : s->pixels));
    return ATTNRUN_OK;
}

static void flatten(struct conv_shape *s)
{
    struct window *w = &s->w;
    for (int a = 0; a < WINDOW_AXES; a++)
        if (w->kernel[a] != 1 || w->stride[a] != 1 || w->before[a] != 0 ||
            w->after[a] != 0)
            return;
    w->in[0] = w->in[1] = w->out[0] = w->out[1] = 1;
    w->in[2] = w->out[2] = s->pixels;
}

static int64_t blocks(int64_t n, int64_t block)
{
    return block > 0 ? ceil_div(n, block) : 0;
}

attn_status attn_conv_gemm_plan(const attnrun_step *step, struct conv_plan *plan)
{
    struct conv_shape *s = &plan->shape;
    struct conv_tiles *t = &plan->tiles;
    flatten(s);
    t->block_pixels = min64(s->pixels, s->k > LONG_K ? PIXELS_LONG_K : PIXELS);
    t->pixel_blocks = blocks(s->pixels, t->block_pixels);
    t->k_blocks = s->k > 0 ? blocks(s->k, TILE_K) : 1;
    t->block_k = blocks(s->k, t->k_blocks);
    t->block_rows = min64(s->rows, ROWS);
    /* Every block of rows packs the columns again: few blocks, but enough tasks. */
    double tiles = (double)s->batch * (double)s->groups * (double)t->pixel_blocks;
    while (t->block_rows > MIN_ROWS &&
           tiles * (double)blocks(s->rows, t->block_rows) < TASKS)
        t->block_rows = round_up(t->block_rows / 2, 8);
    t->row_blocks = blocks(s->rows, t->block_rows);
    t->line_floats = round_up(ATTN_IM2COL_LINES * (t->block_pixels + 3 * OP_PANEL), 16);
    t->panel_floats = round_up((t->block_pixels + OP_PANEL) * t->block_k, 16);
    int64_t floats = t->line_floats + t->panel_floats;
    floats += (int64_t)attn_gemm_scratch((size_t)t->block_rows, (size_t)t->block_pixels,
                                         (size_t)s->k);
    plan->scratch_bytes = floats * 4;
    plan->shared_bytes = 0;
    const int64_t room = ROOM_FLOATS / max64(t->block_k, 1) / ROOM_ROWS * ROOM_ROWS;
    t->room_rows =
        plan->converts ? min64(t->block_rows, max64(room, ROOM_ROWS)) : t->block_rows;
    attn_conv_add_room(plan, t->room_rows * t->block_k);
    if (!product(&plan->n_tasks, s->batch, s->groups, t->row_blocks) ||
        !product(&plan->n_tasks, plan->n_tasks, t->pixel_blocks, 1))
        return op_fail_size(step, "the number of tasks", "2^46");
    double flops = 2.0 * (double)t->block_rows * (double)s->k * (double)t->block_pixels;
    double copies = (double)s->k * (double)t->block_pixels;
    plan->task_cost = window_cost(flops / 150.0 + copies * 0.2 + 200.0);
    return ATTNRUN_OK;
}

static void start_tile(const struct conv_shape *s, struct attn_im2col *c)
{
    for (int a = 0; a < WINDOW_AXES; a++) {
        c->in[a] = s->w.in[a];
        c->out[a] = s->w.out[a];
        c->kernel[a] = s->w.kernel[a];
        c->stride[a] = s->w.stride[a];
        c->dilation[a] = s->w.dilation[a];
        c->before[a] = s->w.before[a];
    }
}

/* Bias, residual and activation of the tile. */
static void finish_tile(const attnrun_step *step, const struct conv_operands *o,
                        const struct attn_gemm_f32 *g, int64_t row, int64_t out)
{
    const struct attn_epilogue *e = o->activation;
    bool simple =
        o->n_activation == 1 && (e->kind == ATTN_EPI_RELU || e->kind == ATTN_EPI_CLIP);
    struct attn_conv_finish f = {
        .y = g->c, .row = g->c_row, .m = (int64_t)g->m, .n = (int64_t)g->n, .step = -1
    };
    f.bias = o->bias != NULL ? o->bias + row : NULL;
    f.z = o->z != NULL ? o->z + out : NULL;
    if (simple) {
        f.step = e->kind;
        f.alpha = e->alpha;
        f.beta = e->beta;
    }
    if (simple || f.bias != NULL || f.z != NULL)
        step->kernels->conv_finish_f32(&f);
    for (int64_t r = 0; !simple && o->n_activation > 0 && r < f.m; r++)
        attn_conv_apply(step->kernels, e, o->n_activation, f.y + r * f.row, f.n);
}

/* The product of a tile: rows from `row` on with the columns that c has packed, some of them at a
 * time where their weights become floats. */
static void multiply(const attnrun_step *step, const attnrun_work *work,
                     const struct conv_plan *plan, const struct conv_operands *o,
                     const struct attn_im2col *c, struct attn_gemm_f32 g, int64_t row)
{
    const int64_t rows = (int64_t)g.m, of_room = plan->tiles.room_rows;
    struct attn_epilogue sum = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = g.c_row, .col = 1
    };
    g.k = (size_t)c->k_count;
    g.epilogue = &sum;
    g.n_epilogue = c->k_from > 0;
    for (int64_t r = 0; r < rows; r += of_room) {
        int64_t stride;
        g.m = (size_t)min64(rows - r, of_room);
        g.a = attn_conv_weights(step, work, plan, o, row + r, (int64_t)g.m, c->k_from,
                                c->k_count, &stride);
        g.a_row = stride;
        sum.data = g.c;
        step->kernels->gemm_f32(&g);
        g.c += of_room * g.c_row;
    }
}

static void run_tile(const attnrun_step *step, const attnrun_work *work,
                     const struct conv_plan *plan, const struct conv_operands *o,
                     int64_t task)
{
    const struct conv_shape *s = &plan->shape;
    const struct conv_tiles *t = &plan->tiles;
    float *const scratch = work->scratch;
    const int64_t pixel = op_take(&task, t->pixel_blocks) * t->block_pixels;
    int64_t row = op_take(&task, t->row_blocks) * t->block_rows;
    const int64_t group = op_take(&task, s->groups), image = task;
    int64_t rows = min64(s->rows - row, t->block_rows);
    int64_t image_floats = s->groups * s->channels * s->inputs;
    struct attn_im2col c = { .line = scratch, .panels = scratch + t->line_floats };
    start_tile(s, &c);
    c.x = o->x + image * image_floats + group * s->channels * s->inputs;
    c.x_end = o->x + s->batch * image_floats;
    c.pixel = pixel;
    c.n = min64(s->pixels - pixel, t->block_pixels);
    row += group * s->rows;
    int64_t out = (image * s->groups * s->rows + row) * s->pixels + pixel;
    struct attn_gemm_f32 g = { .b = c.panels, .packed = 1 };
    g.c = o->y + out;
    g.c_row = s->pixels;
    g.m = (size_t)rows;
    g.n = (size_t)c.n;
    g.scratch = c.panels + t->panel_floats;
    for (int64_t b = 0; b < t->k_blocks; b++) {
        c.k_from = b * t->block_k;
        c.k_count = min64(s->k - c.k_from, t->block_k);
        step->kernels->conv_im2col_f32(&c);
        multiply(step, work, plan, o, &c, g, row);
    }
    finish_tile(step, o, &g, row, out);
}

attn_status attn_conv_gemm_run(const attnrun_step *step, const attnrun_work *work,
                               const struct conv_plan *plan,
                               const struct conv_operands *operands)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        run_tile(step, work, plan, operands, task);
    }
    return ATTNRUN_OK;
}
