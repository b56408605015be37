/* conv_bytes.c - convolution of 8-bit integers as Y = W columns(X). The columns of a tile
 * of pixels are collected in scratch, a byte an element, packed, and multiplied by
 * gemm_i8, in blocks of MAX_ROWS rows of the weights. Padding counts as x's zero point.
 *
 * In: X, W and zero points. Out: sums modulo 2^32, or what finish() makes of them. Tiles
 * depend on shapes only. Tasks: batch x group x block of rows x block of pixels. Cost: 2
 * taps channels integer operations for each sum. Scratch: the columns twice, at most
 * about 512 KiB where K is not longer than 8,192. */
#include "conv_bytes.h"

enum { MAX_ROWS = 128, PIXELS = 256, COLUMN_BYTES = 1 << 18 };
enum { MIN_ROWS = 64, ENOUGH_TASKS = 8, LINE_BYTES = 64 };

static bool is_direct(const struct window *w)
{
    for (int a = 0; a < WINDOW_AXES; a++)
        if (w->kernel[a] != 1 || w->stride[a] != 1 || w->before[a] != 0 ||
            w->after[a] != 0)
            return false;
    return true;
}

/* Places the slots of scratch; false where they overflow. */
static bool place_scratch(struct conv_bytes *c)
{
    const int64_t rows = min64(c->block_rows, MAX_ROWS), pixels = c->block_pixels;
    int64_t columns;
    if (!ck_mul(round_up(c->shape.k, 4), pixels, &columns) || columns > INT64_MAX / 4)
        return false;
    c->columns_at = round_up(
        (int64_t)attn_gemm_i8_scratch((size_t)rows, (size_t)pixels) * 4, LINE_BYTES);
    c->panels_at = c->columns_at + columns;
    c->column_sums_at = c->panels_at + columns;
    c->zeros_at = c->column_sums_at + pixels * 4;
    c->sums_at = round_up(c->zeros_at + (rows + pixels) * 4, LINE_BYTES);
    c->scratch_bytes = c->sums_at + (c->summed ? (rows + 1) * pixels * 4 : 0);
    return true;
}

attn_status attn_conv_bytes_plan(attnrun_step *step, int phase, bool summed,
                                 struct conv_bytes *c)
{
    const struct conv_shape *s = &c->shape;
    c->summed = summed;
    c->direct = is_direct(&s->w);
    if (s->batch == 0) {
        op_tasks(step, phase, 0, 0);
        return ATTNRUN_OK;
    }
    c->block_pixels = min64(op_whole_panels(s->pixels), PIXELS);
    while (c->block_pixels > OP_PANEL && s->k > COLUMN_BYTES / c->block_pixels)
        c->block_pixels = op_whole_panels(c->block_pixels / 2);
    c->pixel_blocks = ceil_div(s->pixels, c->block_pixels);
    c->block_rows = s->rows;
    const double tiles = (double)s->batch * (double)s->groups * (double)c->pixel_blocks;
    while (c->block_rows > MIN_ROWS &&
           tiles * (double)ceil_div(s->rows, c->block_rows) < ENOUGH_TASKS)
        c->block_rows = round_up(c->block_rows / 2, 8);
    c->row_blocks = ceil_div(s->rows, c->block_rows);
    if (!place_scratch(c) || !ck_mul(s->batch, s->groups, &c->n_tasks) ||
        !ck_mul(c->n_tasks, c->row_blocks, &c->n_tasks) ||
        !ck_mul(c->n_tasks, c->pixel_blocks, &c->n_tasks))
        return op_fail_scratch(step);
    const double columns = (double)s->k * (double)c->block_pixels;
    c->task_cost = window_cost(columns * ((double)c->block_rows / 250.0 + 0.4) + 200.0);
    op_tasks(step, phase, c->n_tasks, c->task_cost);
    step->scratch_bytes = c->scratch_bytes;
    return ATTNRUN_OK;
}

/* ---- columns ---- */

struct tap {
    int64_t shift[2];       /* along depth and height */
    int64_t column;         /* shift along the width */
    int64_t from, to;       /* output columns that see the input */
    const uint8_t *channel; /* plane of X */
};

static void find_tap(const struct conv_shape *s, const uint8_t *x, int64_t k,
                     struct tap *tap)
{
    const struct window *w = &s->w;
    const int64_t at = k % s->taps, kw = at % w->kernel[2],
                  kh = at / w->kernel[2] % w->kernel[1],
                  kd = at / w->kernel[2] / w->kernel[1];
    tap->shift[0] = kd * w->dilation[0] - w->before[0];
    tap->shift[1] = kh * w->dilation[1] - w->before[1];
    tap->column = kw * w->dilation[2] - w->before[2];
    tap->channel = x + k / s->taps * s->inputs;
    window_valid(w, 2, kw * w->dilation[2], &tap->from, &tap->to);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Copies n output columns from `column` on of the input row at `x`. */
static void put_segment(const struct window *w, const struct tap *tap, uint8_t *to,
                        const uint8_t *x, int64_t column, int64_t n, uint8_t padding)
{
    const int64_t begin = clamp(tap->from - column, 0, n),
                  end = clamp(tap->to - column, begin, n), stride = w->stride[2];
    memset(to, padding, (size_t)begin);
    if (end > begin && stride == 1)
        memcpy(to + begin, x + column + begin + tap->column, (size_t)(end - begin));
    else
        for (int64_t i = begin; i < end; i++)
            to[i] = x[(column + i) * stride + tap->column];
    memset(to + end, padding, (size_t)(n - end));
}

/* Copies what one tap sees of pixels `pixel` … pixel + n - 1. */
static void put_line(const struct conv_shape *s, const struct tap *tap, uint8_t *to,
                     int64_t pixel, int64_t n, uint8_t padding)
{
    const struct window *w = &s->w;
    int64_t column = pixel % w->out[2], oh = pixel / w->out[2] % w->out[1],
            od = pixel / w->out[2] / w->out[1];
    while (n > 0) {
        const int64_t count = min64(w->out[2] - column, n),
                      d = od * w->stride[0] + tap->shift[0],
                      h = oh * w->stride[1] + tap->shift[1];
        if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1])
            memset(to, padding, (size_t)count);
        else
            put_segment(w, tap, to, tap->channel + (d * w->in[1] + h) * w->in[2], column,
                        count, padding);
        to += count;
        n -= count;
        column = 0;
        if (++oh == w->out[1]) {
            oh = 0;
            od++;
        }
    }
}

/* Packs the columns of n pixels as panels; their rows are filled up to whole panels
 * first. */
static void pack_columns(const attnrun_step *step, const struct conv_bytes *c,
                         const struct conv_bytes_operands *o, const uint8_t *x,
                         int64_t pixel, int64_t n, uint8_t *scratch)
{
    const struct conv_shape *s = &c->shape;
    const bool in_place = c->direct && n % OP_PANEL == 0;
    const int64_t wide = op_whole_panels(n);
    uint8_t *columns = scratch + c->columns_at;
    for (int64_t k = 0; !in_place && k < s->k; k++) {
        struct tap tap;
        find_tap(s, x, k, &tap);
        put_line(s, &tap, columns + k * wide, pixel, n, (uint8_t)o->x_zero);
        memset(columns + k * wide + n, 0, (size_t)(wide - n));
    }
    step->kernels->gemm_pack_i8(
        scratch + c->panels_at, (uint32_t *)(void *)(scratch + c->column_sums_at),
        in_place ? x + pixel : columns, in_place ? s->inputs : wide, 1, (size_t)s->k,
        (size_t)wide, o->x->dtype == ATTNRUN_I8);
}

/* ---- a task ---- */

static int32_t number(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I8 ? ((const int8_t *)x->data)[i]
                                  : ((const uint8_t *)x->data)[i];
}

static void multiply_rows(const attnrun_step *step, const struct conv_bytes *c,
                          const struct conv_bytes_operands *o,
                          struct conv_bytes_block *block, uint8_t *scratch)
{
    int32_t *w_zero = (int32_t *)(void *)(scratch + c->zeros_at),
            *x_zero = w_zero + block->m;
    uint32_t *sums = (uint32_t *)(void *)(scratch + c->sums_at);
    const int64_t max = min64(c->block_rows, MAX_ROWS);
    for (int64_t i = 0; o->w_zero != NULL && i < block->m; i++)
        w_zero[i] =
            number(o->w_zero, tensor_count(o->w_zero) == 1 ? 0 : block->channel + i);
    for (int64_t j = 0; j < block->n; j++)
        x_zero[j] = o->x_zero;
    block->sums = c->summed ? sums : o->y + block->y;
    block->row = c->summed ? c->block_pixels : c->shape.pixels;
    const struct attn_gemm_i8 g = {
        .a = (const uint8_t *)o->w->data + block->channel * c->shape.k,
        .a_row = c->shape.k,
        .a_signed = o->w->dtype == ATTNRUN_I8,
        .a_zero = o->w_zero != NULL ? w_zero : NULL,
        .b = scratch + c->panels_at,
        .sums = (const uint32_t *)(const void *)(scratch + c->column_sums_at),
        .b_signed = o->x->dtype == ATTNRUN_I8,
        .b_zero = x_zero,
        .c = block->sums,
        .c_row = block->row,
        .m = (size_t)block->m,
        .n = (size_t)block->n,
        .k = (size_t)c->shape.k,
        .scratch = (uint32_t *)(void *)scratch
    };
    step->kernels->gemm_i8(&g);
    if (c->summed)
        o->finish(step, block, (float *)(void *)(sums + max * c->block_pixels));
}

static attn_status conv_bytes_run_tile(const attnrun_step *step, const attnrun_work *work,
                                       const struct conv_bytes *c,
                                       const struct conv_bytes_operands *o, int64_t task)
{
    const struct conv_shape *s = &c->shape;
    const int64_t pixel = op_take(&task, c->pixel_blocks) * c->block_pixels;
    const int64_t first = op_take(&task, c->row_blocks) * c->block_rows;
    const int64_t plane = task, group = op_take(&task, s->groups);
    const int64_t rows = min64(s->rows - first, c->block_rows);
    const int64_t n = min64(s->pixels - pixel, c->block_pixels);
    pack_columns(step, c, o,
                 (const uint8_t *)o->x->data + plane * s->channels * s->inputs, pixel, n,
                 work->scratch);
    for (int64_t row = 0; row < rows; row += MAX_ROWS) {
        struct conv_bytes_block block = { .channel = group * s->rows + first + row,
                                          .m = min64(rows - row, MAX_ROWS),
                                          .n = n,
                                          .target = o->target };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        block.y = (plane * s->rows + first + row) * s->pixels + pixel;
        multiply_rows(step, c, o, &block, work->scratch);
    }
    return ATTNRUN_OK;
}

attn_status attn_conv_bytes_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_bytes *c,
                                const struct conv_bytes_operands *o)
{
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(conv_bytes_run_tile(step, work, c, o, task));
    return ATTNRUN_OK;
}
