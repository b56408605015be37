/* blocked_dense.c - convolution of blocked maps by the kernels blocked_conv_f32 and _u8: how it
 * is cut into tasks, the tables that all tasks share, and a task of floats.
 *
 * A task is some lines of the output (of one line, some columns) and some panels of output
 * channels. Without padding it reads X where it lies; else a copy of what it sees, with zeros
 * around, which stays in L2 for all panels and for the following tasks of the same lines. A plain
 * X in f16 or bf16 is always copied, as floats; so is one that becomes words of bf16, with all
 * channels of a pixel side by side. What tiles (AMX) read is a copy, too: a pixel has up to 64
 * bytes of its channels side by side there, which are a row of a tile. A window of 1 makes one
 * line of all pixels. Tasks depend on shapes only. */
#include "blocked_strip.h"

enum {
    STRIP_BYTES = 1 << 18,  /* of X that one task sees */
    WEIGHT_BYTES = 1 << 18, /* more are read as seldom as can be */
    TASKS = 32,             /* that a long step has; a short one those of TASK_NS */
    TASK_NS = 6000,
    TILE_TASK_NS = 12000, /* by tiles, which are short beside their copy */
    MIN_PIXELS = 14,      /* the largest tile of the kernels */
    FEW_PIXELS = 56,      /* for which the weights of a panel are read once */
    MAX_PIXELS = 784,     /* the offsets of which are in L1 */
    NEAR_PIXELS = 140,    /* whose results stay in L1 until more is done to them */
    MAX_FLOAT_ROWS =
        4608,      /* of a panel of weights of 16 bits whose floats are kept, 576 KiB */
    TILE_ROWS = 16 /* pixels, and words of inputs, of a tile */
};

static bool padded(const struct window *w)
{
    for (int a = 1; a < WINDOW_AXES; a++)
        if (w->before[a] > 0 ||
            (w->out[a] - 1) * w->stride[a] + (w->kernel[a] - 1) * w->dilation[a] + 1 >
                w->in[a])
            return true;
    return false;
}

static void flatten(struct window *w)
{
    for (int a = 1; a < WINDOW_AXES; a++)
        if (w->kernel[a] != 1 || w->stride[a] != 1 || w->before[a] != 0 ||
            w->out[a] != w->in[a])
            return;
    w->in[2] = w->out[2] = w->in[1] * w->in[2];
    w->in[1] = w->out[1] = 1;
}

static bool spreads(const struct blocked_shape *s)
{
    return s->spread[0] * s->spread[1] > 1;
}

/* Rows of weights of a pixel's inputs from channel c of a group on. */
static int64_t rows_from(const struct blocked_plan *p, int64_t c)
{
    return blocked_rows_from(p->kernels, p->shape.channels / p->shape.groups, p->inputs,
                             c, p->shape.w.kernel[2], p->shape.bytes, p->words);
}

/* Sums by tiles take less time than what becomes of them where they are short. */
static double task_ns(const struct blocked_plan *p, double pixels, int64_t columns)
{
    if (p->tiles)
        return pixels * (double)columns * (0.002 * (double)p->weight_rows + 0.1);
    return 2.0 * pixels * (double)columns * (double)p->weight_rows / 110.0;
}

/* How many tasks the step is worth. */
static int64_t tasks_worth(const struct blocked_plan *p)
{
    const struct window *w = &p->shape.w;
    const double pixels = (double)w->out[1] * (double)w->out[2];
    const double n = task_ns(p, pixels, p->columns) * (double)p->shape.batch *
                     (double)p->shape.groups / (p->tiles ? TILE_TASK_NS : TASK_NS);
    return n < 1.0 ? 1 : n > TASKS ? TASKS : (int64_t)n;
}

static void set_lines(struct blocked_plan *p, int64_t lines, int64_t columns)
{
    const struct window *w = &p->shape.w;
    p->h_blocks = ceil_div(w->out[1], lines);
    p->block_h = ceil_div(w->out[1], p->h_blocks);
    p->w_blocks = ceil_div(w->out[2], columns);
    p->block_w = ceil_div(w->out[2], p->w_blocks);
    if (p->w_blocks > 1) /* whole tiles */
        p->block_w = round_up(p->block_w, p->tiles ? TILE_ROWS : MIN_PIXELS);
    p->h_blocks = ceil_div(w->out[1], p->block_h);
    p->w_blocks = ceil_div(w->out[2], p->block_w);
}

/* Lines and columns of the output in one task: those whose inputs stay in L2, and no more
 * than leave `parts` of an image and a group. */
static void cut_pixels(struct blocked_plan *p, int64_t parts)
{
    const struct window *w = &p->shape.w;
    const int64_t pixel = strip_planes_in(p) * strip_unit(p) * strip_element(p);
    const double weights = (double)p->weight_rows * (double)p->columns * 4.0;
    const int64_t bytes = weights > 8.0 * STRIP_BYTES ? 2 * STRIP_BYTES : STRIP_BYTES;
    const int64_t room = max64(bytes / pixel, 1), line = w->out[2];
    const double share = (double)w->out[1] * (double)line / (double)parts;
    const int64_t max_pixels = share < FEW_PIXELS   ? FEW_PIXELS
                               : share > MAX_PIXELS ? MAX_PIXELS
                                                    : (int64_t)share;
    int64_t h = 1, columns = line;
    while (h < w->out[1] && (h + 1) * line <= max_pixels &&
           strip_copied(w, 1, h + 1) * strip_copied(w, 2, line) <= room)
        h++;
    if (h == 1)
        columns = max64(min64(line, max_pixels), MIN_PIXELS);
    while (columns > MIN_PIXELS &&
           strip_copied(w, 1, h) * strip_copied(w, 2, columns) > room)
        columns = max64(columns * 3 / 4, MIN_PIXELS);
    set_lines(p, h, columns);
}

/* Parts of the columns, where those of the pixels are too few; panels are whole on every
 * ISA. */
static void cut_columns(struct blocked_plan *p, int64_t tasks)
{
    const int64_t panel = 2 * ATTN_BLOCK;
    const int64_t strips = p->shape.batch * p->shape.groups * p->h_blocks * p->w_blocks;
    const int64_t n = ceil_div(tasks, max64(strips, 1));
    p->block_columns = round_up(ceil_div(p->columns, n), panel);
    p->column_blocks = ceil_div(p->columns, p->block_columns);
}

/* A part of the pixels reads all weights, a part of the columns all inputs, which it copies
 * where they are padded. */
static void cut(struct blocked_plan *p)
{
    const int64_t tasks = tasks_worth(p), panels = ceil_div(p->columns, 2 * ATTN_BLOCK);
    const int64_t maps = max64(p->shape.batch * p->shape.groups, 1);
    const bool heavy = (double)p->weight_rows * (double)p->columns * 4.0 > WEIGHT_BYTES;
    cut_pixels(p, ceil_div(tasks, heavy ? maps * panels : maps));
    cut_columns(p, tasks);
}

/* Where a tap or a pixel lies in X or its copy. */
static void dense_lay_out(struct blocked_plan *p)
{
    const struct window *w = &p->shape.w;
    int64_t rows = w->in[1], columns = w->in[2];
    p->strip_h = p->strip_w = 0;
    if (padded(w) || (p->words && !p->shape.x_bf16) || p->shape.plain_type != 0 ||
        p->tiles) {
        rows = p->strip_h = strip_copied(w, 1, p->block_h);
        columns = p->strip_w = strip_copied(w, 2, p->block_w);
    }
    p->x_row = columns * strip_unit(p);
    p->x_plane = rows * p->x_row;
}

/* Rows of weights of a tap, all alike: as many as a tile takes of those of a line of the kernel, or
 * of a pixel (blocked_inputs), in equal parts. */
static int64_t tile_rows(const struct blocked_plan *p)
{
    const int64_t all = rows_from(p, 0) * (p->whole_rows ? p->shape.w.kernel[2] : 1);
    int64_t rows = min64(all, TILE_ROWS);
    while (all % rows != 0)
        rows--;
    return rows;
}

/* Elements from a pixel of the output to the next, where the kernel finds them. */
static int64_t across(const struct blocked_plan *p)
{
    const struct window *w = &p->shape.w;
    return strip_line_of(w, 2, p->block_w, p->strip_h > 0, 1, 0) * strip_unit(p);
}

struct attn_pixel_grid attn_blocked_grid(const struct blocked_plan *p,
                                         const struct blocked_part *part)
{
    if (p->tap_rows == 0)
        return (struct attn_pixel_grid){ 0 };
    return (struct attn_pixel_grid){
        .lines = part->rows,
        .columns = part->columns,
        .line_step = strip_line_of(&p->shape.w, 1, p->block_h, true, 1, 0) * p->x_row,
        .column_step = across(p),
    };
}

attn_status attn_blocked_dense_plan(const attnrun_step *step, struct blocked_plan *p)
{
    struct blocked_shape *s = &p->shape;
    flatten(&s->w);
    const int64_t of_group = s->channels / s->groups;
    p->kernels = step->kernels;
    p->words =
        !s->bytes && blocked_has_words(step->kernels, of_group, s->plain, s->by_itself);
    p->tiles = blocked_by_tiles(step->kernels, s->bytes, p->words);
    p->inputs = blocked_inputs(step->kernels, of_group, s->plain, s->bytes, p->words);
    const int64_t planes = strip_planes_in(p), last = (planes - 1) * p->inputs;
    p->weight_rows = s->w.kernel[1] * s->w.kernel[2] *
                     ((planes - 1) * rows_from(p, 0) + rows_from(p, last));
    p->columns = blocked_count(s->rows / s->groups) * ATTN_BLOCK;
    cut(p);
    dense_lay_out(p);
    /* Rows of weights of a line of the kernel meet inputs that lie side by side. */
    const bool full = s->plain || of_group % ATTN_BLOCK == 0;
    p->whole_rows = (s->bytes || p->words || full) && s->w.dilation[2] == 1 &&
                    (p->strip_h == 0 || !strip_by_taps(&s->w, 2, p->block_w));
    p->tap_rows = p->tiles ? tile_rows(p) : 0;
    p->taps = p->tap_rows > 0
                  ? p->weight_rows / p->tap_rows
                  : s->w.kernel[1] * (p->whole_rows ? 1 : s->w.kernel[2]) * planes;
    int64_t pixels = 0, lines, span, strip = 0;
    bool fits = ck_mul(p->block_h, p->block_w, &pixels) &&
                ck_mul(p->x_row, p->block_h * s->w.stride[1], &lines) &&
                ck_mul(s->w.stride[2], p->block_w * p->inputs, &span) &&
                lines < INT32_MAX / 2 && span < INT32_MAX / 2 && pixels < INT32_MAX &&
                (p->strip_h == 0 || ck_mul(p->x_plane, planes, &strip)) &&
                strip < INT32_MAX && p->taps < INT32_MAX &&
                ck_mul(s->batch * s->groups, p->h_blocks * p->w_blocks, &p->n_tasks) &&
                ck_mul(p->n_tasks, p->column_blocks, &p->n_tasks);
    if (!fits)
        return op_fail_size(step,
                            "a block of the image or of the kernel would have more than "
                            "2^30 elements, or the number of tasks",
                            "2^63 - 1");
    /* Tiles read pixels behind the last one. */
    strip += ATTN_BLOCK + (p->tap_rows > 0 ? (TILE_ROWS + 1) * across(p) : 0);
    p->sums_at = round_up(strip * strip_element(p), 64);
    p->scratch_bytes = p->sums_at;
    if (s->y_bf16 || spreads(s))
        p->scratch_bytes += min64(pixels, NEAR_PIXELS) * 2 * ATTN_BLOCK * 4;
    p->floats_at = 0;
    if (p->w_type != ATTN_B_F32 && pixels > MIN_PIXELS &&
        p->weight_rows <= MAX_FLOAT_ROWS) {
        p->floats_at = round_up(p->scratch_bytes, 64);
        p->scratch_bytes =
            p->floats_at + p->weight_rows * blocked_widest_panel(p->kernels, p->columns) *
                               (int64_t)sizeof(float);
    }
    p->shared_bytes = p->taps * (int64_t)sizeof(struct attn_blocked_tap) + pixels * 4;
    p->task_cost = window_cost(
        task_ns(p, (double)p->block_h * (double)p->block_w, p->block_columns) + 200.0);
    return ATTNRUN_OK;
}

void attn_blocked_dense_prepare(const struct blocked_plan *p, void *shared)
{
    const struct blocked_shape *s = &p->shape;
    const struct window *w = &s->w;
    struct attn_blocked_tap *tap = shared;
    int32_t *pixel = (int32_t *)(void *)(tap + p->taps);
    const int64_t of_group = s->channels / s->groups;
    const bool copy = p->strip_h > 0;
    const int64_t columns = p->whole_rows ? 1 : w->kernel[2];
    const int64_t of_row = s->bytes ? 4 : 1; /* elements of a row of weights */
    for (int64_t c = 0; c < of_group; c += p->inputs)
        for (int64_t i = 0; i < w->kernel[1]; i++)
            for (int64_t j = 0; j < columns; j++) {
                const int64_t offset =
                    c / p->inputs * p->x_plane +
                    strip_line_of(w, 1, p->block_h, copy, 0, i) * p->x_row +
                    strip_line_of(w, 2, p->block_w, copy, 0, j) * strip_unit(p);
                const int64_t rows = rows_from(p, c) * (w->kernel[2] / columns);
                const int64_t part = p->tap_rows > 0 ? p->tap_rows : rows;
                for (int64_t row = 0; row < rows; row += part)
                    *tap++ = (struct attn_blocked_tap){
                        .offset = offset + row * of_row,
                        .inputs = part,
                    };
            }
    const int32_t step = (int32_t)across(p);
    for (int64_t i = 0; i < p->block_h; i++) {
        int32_t at = (int32_t)(strip_line_of(w, 1, p->block_h, copy, i, 0) * p->x_row);
        for (int64_t j = 0; j < p->block_w; j++, at += step)
            *pixel++ = at;
    }
}

/* ---- a task ---- */

struct blocked_task attn_blocked_task_at(const struct blocked_plan *p, int64_t task)
{
    const struct window *w = &p->shape.w;
    struct blocked_task at;
    struct blocked_part *part = &at.part;
    const int64_t first = op_take(&task, p->column_blocks) * p->block_columns;
    at.strip = task;
    part->w = op_take(&task, p->w_blocks) * p->block_w;
    part->h = op_take(&task, p->h_blocks) * p->block_h;
    part->group = op_take(&task, p->shape.groups);
    part->image = task;
    part->rows = min64(w->out[1] - part->h, p->block_h);
    part->columns = min64(w->out[2] - part->w, p->block_w);
    at.column = part->group * p->columns + first;
    at.columns = min64(p->columns - first, p->block_columns);
    at.y = (part->image * blocked_all_columns(p) + at.column) / ATTN_BLOCK *
               blocked_y_block(p) +
           (part->h * w->out[2] + part->w) * ATTN_BLOCK;
    return at;
}

int64_t attn_blocked_first_column(const struct blocked_plan *p, int64_t task)
{
    const int64_t first = op_take(&task, p->column_blocks) * p->block_columns;
    op_take(&task, p->h_blocks * p->w_blocks);
    return op_take(&task, p->shape.groups) * p->columns + first;
}

/* Where results in scratch belong: `column` and `pixel` of an image, the first of them. */
struct near {
    float *sums, *y;
    int64_t column, pixel;
};

/* n pixels of the block of columns from `column` on go to those of Y that they become. */
static void spread_pixels(const struct blocked_shape *s, const struct near *near,
                          int64_t column, const float *from, int64_t n)
{
    const int64_t across = s->spread[1], blocks = s->rows / ATTN_BLOCK;
    const int64_t of_tap = blocks / (s->spread[0] * across);
    const int64_t tap = column / ATTN_BLOCK / of_tap,
                  block = column / ATTN_BLOCK % of_tap;
    const int64_t pixels = s->w.out[1] * s->w.out[2] * s->spread[0] * across;
    float *const y = near->y + block * pixels * ATTN_BLOCK;
    int64_t h = near->pixel / s->line, w = near->pixel % s->line;
    for (int64_t i = 0; i < n; i++, from += ATTN_BLOCK) {
        const int64_t row = h * s->spread[0] + tap / across;
        memcpy(y + (row * s->line * across + w * across + tap % across) * ATTN_BLOCK,
               from, ATTN_BLOCK * sizeof *from);
        if (++w == s->line) {
            w = 0;
            h++;
        }
    }
}

/* Results go through scratch before they are rounded, or spread. */
static bool in_scratch(const struct blocked_plan *p, const struct blocked_operands *o)
{
    return spreads(&p->shape) || (p->shape.y_bf16 && !o->clipped);
}

/* Element i of a map of floats or bf16. */
static float *element_of(const float *map, bool bf16, int64_t i)
{
    return (float *)(uintptr_t)((const char *)map + i * (bf16 ? 2 : 4));
}

/* n pixels of a panel from `pixel` on: what the kernel does not apply itself is applied near. */
static void run_near(const attnrun_step *step, const struct blocked_plan *p,
                     const struct blocked_operands *o, struct attn_blocked_conv c,
                     const struct near *near, int64_t pixel, int64_t n)
{
    const int64_t y_block = c.y_block;
    uint16_t *const words = (uint16_t *)(void *)c.y + pixel * ATTN_BLOCK;
    const bool scratch = in_scratch(p, o);
    c.n_pixels = n;
    c.pixels += pixel;
    c.y = element_of(c.y, c.y_bf16, pixel * ATTN_BLOCK);
    c.z = c.z != NULL ? element_of(c.z, c.z_bf16, pixel * ATTN_BLOCK) : NULL;
    if (c.grid.columns > n)
        c.grid.columns = n;
    c.grid.lines = c.grid.columns > 0 ? n / c.grid.columns : 0;
    if (scratch) {
        c.y = near->sums;
        c.y_block = n * ATTN_BLOCK;
        c.y_bf16 = false;
    }
    if (p->words)
        step->kernels->blocked_conv_bf16(&c);
    else
        step->kernels->blocked_conv_f32(&c);
    for (int64_t b = 0; b < c.columns / ATTN_BLOCK; b++) {
        float *const y = c.y + b * c.y_block;
        if (!o->clipped)
            attn_conv_apply(step->kernels, o->activation, o->n_activation, y,
                            n * ATTN_BLOCK);
        if (spreads(&p->shape))
            spread_pixels(&p->shape, near, near->column + b * ATTN_BLOCK, y, n);
        else if (scratch)
            step->kernels->words_bf16((uint32_t *)(void *)(words + b * y_block), y,
                                      (size_t)(n * ATTN_BLOCK / 2));
    }
}

/* How many pixels from pixel i on are computed near: of a grid whole lines, or a part of one. */
static int64_t near_pixels(const struct attn_blocked_conv *c, int64_t i)
{
    const int64_t line = c->grid.columns;
    int64_t max_pixels = NEAR_PIXELS;
    if (line > NEAR_PIXELS)
        max_pixels = min64(max_pixels, line - i % line);
    else if (line > 0)
        max_pixels = NEAR_PIXELS / line * line;
    return min64(c->n_pixels - i, max_pixels);
}

static void run_panel(const attnrun_step *step, const struct blocked_plan *p,
                      const struct blocked_operands *o, const struct attn_blocked_conv *c,
                      struct near near)
{
    const int64_t first = near.pixel;
    struct attn_blocked_conv part = *c;
    for (int64_t i = 0, n; i < c->n_pixels; i += n) {
        n = near_pixels(c, i);
        near.pixel = first + i;
        part.next = i + n < c->n_pixels ? NULL : c->next;
        run_near(step, p, o, part, &near, i, n);
    }
}

/* One panel after the other, or all at once. */
static attn_status run_columns(const attnrun_step *step, const struct blocked_plan *p,
                               const struct blocked_operands *o,
                               struct attn_blocked_conv *c, int64_t columns,
                               struct near place)
{
    const int64_t panel = blocked_panel(step->kernels);
    const bool near = !o->clipped || spreads(&p->shape);
    const void *const next = c->next;
    for (int64_t done = 0; done < columns; done += c->columns) {
        c->columns = min64(columns - done, near ? panel : columns);
        const void *const following =
            blocked_weights_at(p, c->w, c->columns * p->weight_rows);
        c->next = done + c->columns < columns ? following : next;
        if (near)
            run_panel(step, p, o, c, place);
        else if (p->words)
            step->kernels->blocked_conv_bf16(c);
        else
            step->kernels->blocked_conv_f32(c);
        if (attn_poll() != ATTNRUN_OK)
            return ATTNRUN_E_CANCELLED;
        const int64_t put = c->columns / ATTN_BLOCK * c->y_block;
        place.column += c->columns;
        c->w = following;
        c->bias += c->columns;
        c->scale += c->scale != NULL ? c->columns : 0;
        c->y = element_of(c->y, c->y_bf16, put);
        if (c->z != NULL)
            c->z = element_of(c->z, c->z_bf16, put);
    }
    return ATTNRUN_OK;
}

attn_status attn_blocked_dense_floats(const attnrun_step *step,
                                      const struct blocked_operands *o,
                                      struct attn_blocked_conv *c, int64_t columns)
{
    const struct blocked_plan p = { .weight_rows = c->rows,
                                    .w_type = c->w_type,
                                    .shape.spread = { 1, 1 } };
    return run_columns(step, &p, o, c, columns, (struct near){ 0 });
}

attn_status attn_blocked_dense_run(const attnrun_step *step, const attnrun_work *work,
                                   const struct blocked_plan *p,
                                   const struct blocked_operands *o)
{
    const struct blocked_shape *s = &p->shape;
    const struct attn_blocked_tap *taps = work->shared;
    const int64_t y_block = blocked_y_block(p);
    int64_t last = attn_blocked_kept(p, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct blocked_task at = attn_blocked_task_at(p, task);
        const struct blocked_part *part = &at.part;
        const float *x =
            attn_blocked_find_x(p, part, o->x, work->scratch, 0, at.strip == last);
        last = at.strip;
        struct attn_blocked_conv c = {
            .x = x,
            .w = blocked_weights_at(p, o->w, at.column * p->weight_rows),
            .w_type = p->w_type,
            .floats =
                p->floats_at > 0 ? op_slot_floats(work->scratch, p->floats_at) : NULL,
            .bias = o->bias + at.column,
            .scale = o->scale != NULL ? o->scale + at.column : NULL,
            .z = o->z != NULL ? element_of(o->z, s->z_bf16, at.y) : NULL,
            .z_bf16 = s->z_bf16,
            .y_bf16 = s->y_bf16,
            .pixels = (const int32_t *)(const void *)(taps + p->taps),
            .taps = taps,
            .y = element_of(o->y, s->y_bf16, at.y),
            .n_taps = p->taps,
            .rows = p->weight_rows,
            .n_pixels = part->rows * part->columns,
            .y_block = y_block,
            .min = o->min,
            .max = o->max,
            .grid = attn_blocked_grid(p, part),
            .next = task + 1 < work->end
                        ? blocked_weights_at(p, o->w,
                                             attn_blocked_first_column(p, task + 1) *
                                                 p->weight_rows)
                        : NULL,
        };
        const struct near place = {
            .sums = op_slot_floats(work->scratch, p->sums_at),
            .y = o->y + part->image * blocked_all_columns(p) / ATTN_BLOCK * y_block,
            .column = at.column,
            .pixel = part->h * s->w.out[2] + part->w,
        };
        TRY(run_columns(step, p, o, &c, at.columns, place));
    }
    attn_blocked_keep(p, work, last);
    return ATTNRUN_OK;
}
