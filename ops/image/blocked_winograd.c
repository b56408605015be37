/* blocked_winograd.c - convolution of blocked maps with 3 x 3 taps by tiles of 2 x 2 outputs. A
 * tile needs 16 multiplications where the direct method needs 36 (kernels/winograd_f32.c).
 *
 *   x     f32 [N, C / 16, H, W, 16]
 *   w     f32 16 x [C][M], or f16 or bf16 [C][9][M], in panels of blocked_pack.c; of G groups one
 *         after the other, with C / G and M / G channels
 *   y, z  f32 [N, M / 16, H', W', 16]; z is added before the activation, and may be absent
 *
 * A tile of a dilated convolution has outputs, and sees pixels, as far apart as the taps.
 *
 * A task is some tiles of a group of an image and some panels of its output channels. It
 * transforms the inputs of its tiles once, into scratch memory that stays in L2. For each panel it
 * then computes 16 products with blocked_conv_f32 and transforms their sums. Tasks depend on
 * shapes only.
 *
 * The error is about that of the direct method. An infinite input makes all outputs of its tiles
 * NaN. If products multiply bf16, the transformed inputs are rounded a block of channels at a
 * time, for blocked_conv_bf16.
 *
 * Weights of f16 and bf16 take 18 bytes for 3 x 3 taps; the 16 floats of their places would take
 * 64. A task computes the places of up to 128 channels of a panel at a time, in scratch memory, and
 * adds their products to the sums so far. If these are all weights of the layer, they stay there
 * for the following tasks, and the sums of a place take the room of the inputs of the place before,
 * which are not read again: the places of the weights then need no more scratch than is saved.
 * Cost: 32 C M / G FLOPs a tile, and the transforms; 18 or 64 bytes of weights for each C and M. */
#include <math.h>

#include "blocked.h"

enum {
    PLACES = ATTN_WINOGRAD_PLACES,
    TAPS = 9,
    HALF_CHANNELS = 128, /* whose weights of 16 bits become places at a time */
    HALF_TILES = 32,     /* of a task with such weights, where the map has so many */
    APART = 16, /* floats between two places: 2^n bytes apart, their lines would share
                            a few sets of a cache */
    TILE = 2,
    SCRATCH_FLOATS = 7 << 14,            /* of transformed inputs */
    MIN_TILES = 48,                      /* the weights are read once for so many, */
    MAX_SCRATCH = (2 << 20) - (1 << 16), /* but no more scratch than this, in bytes */
    MAX_TILES = 112,
    TASKS = 8,
    MIN_TASKS = 4 /* two for each of two threads, even where a task has few tiles */
};

/* Input channels of a group. */
static int64_t group_channels(const struct blocked_plan *p)
{
    return p->shape.channels / p->shape.groups;
}

/* Floats, or words of two bf16, of a tile's place in a block of channels. */
static int64_t unit(const struct blocked_plan *p)
{
    return p->words ? ATTN_BLOCK / 2 : ATTN_BLOCK;
}

/* Columns of the largest panel. */
static int64_t panel_columns(const struct blocked_plan *p)
{
    return blocked_widest_panel(p->kernels, p->columns);
}

/* Weights of 16 bits become places once for all tasks of a worker: they are one panel of as many
 * channels as are transformed at a time. */
static bool keeps_weights(const struct blocked_plan *p)
{
    return p->w_type != ATTN_B_F32 && p->shape.groups == 1 &&
           p->columns == panel_columns(p) && p->weight_rows <= HALF_CHANNELS;
}

/* ---- scratch memory, in floats: inputs, sums of a panel, places of weights of 16 bits ---- */

/* From a place of the inputs to the next, and from a block of their channels to the next. Sums that
 * take the room of inputs are [place][block], like these, and one place before them. */
static int64_t place_step(const struct blocked_plan *p)
{
    const int64_t channels = max64(p->taps * ATTN_BLOCK, p->columns);
    return p->block_w * (keeps_weights(p) ? channels : unit(p));
}
static int64_t block_step(const struct blocked_plan *p)
{
    return p->block_w * unit(p) * (keeps_weights(p) ? 1 : PLACES);
}
static int64_t sums_step(const struct blocked_plan *p, int64_t columns)
{
    return keeps_weights(p) ? place_step(p) : p->block_w * columns;
}
static int64_t inputs_at(const struct blocked_plan *p)
{
    return keeps_weights(p) ? place_step(p) : 0;
}
/* The room of the sums also holds the floats of one block of inputs while they become words. */
static int64_t sums_at(const struct blocked_plan *p)
{
    return keeps_weights(p) ? 0 : p->taps * block_step(p);
}
static int64_t weights_at(const struct blocked_plan *p)
{
    return keeps_weights(p) ? (PLACES + 1) * place_step(p)
                            : sums_at(p) + PLACES * p->block_w * panel_columns(p);
}
static int64_t weights_step(int64_t channels, int64_t columns)
{
    return channels * columns + APART;
}
static int64_t scratch_size(const struct blocked_plan *p)
{
    const int64_t channels = min64(p->weight_rows, HALF_CHANNELS);
    const int64_t places = p->w_type == ATTN_B_F32 ? 0 : PLACES;
    return weights_at(p) + places * weights_step(channels, panel_columns(p));
}

/* The smallest number of tasks into which the tiles of a map are cut, beside `parts` other cuts.
 * Few tiles do not pay for a transform of the weights in each task. */
static int64_t min_blocks(const struct blocked_plan *p, int64_t tiles, int64_t parts)
{
    const int64_t blocks = ceil_div(MIN_TASKS, max64(parts, 1));
    if (p->w_type == ATTN_B_F32 || keeps_weights(p))
        return blocks;
    return min64(blocks, max64(tiles / HALF_TILES, 1));
}

/* A dilated convolution is an ordinary one for each phase of the rows and of the columns: for the
 * pixels of the output that are as far apart as the taps. */
static int64_t phases(const struct window *w, int axis)
{
    return min64(w->dilation[axis + 1], w->out[axis + 1]);
}

/* Tiles of the longest phase of an axis; others have as many, of which the last may be empty. */
static int64_t phase_tiles(const struct window *w, int axis)
{
    return ceil_div(ceil_div(w->out[axis + 1], w->dilation[axis + 1]), TILE);
}

/* block_w: tiles of a task, of w_blocks tasks an image and group; block_h: lines of tiles. */
attn_status attn_blocked_winograd_plan(const attnrun_step *step, struct blocked_plan *p)
{
    const struct blocked_shape *s = &p->shape;
    const int64_t of_group = group_channels(p);
    const int64_t channels = blocked_count(of_group) * ATTN_BLOCK;
    const int64_t maps = s->batch * s->groups;
    int64_t tiles = 0, floats;
    p->kernels = step->kernels;
    p->words = step->kernels->dots_bf16;
    p->inputs = ATTN_BLOCK;
    p->taps = blocked_count(of_group);
    p->weight_rows = p->words ? (of_group + 1) / 2 : of_group;
    p->columns = blocked_count(s->rows / s->groups) * ATTN_BLOCK;
    p->h_blocks = 1;
    bool fits =
        ck_mul(phases(&s->w, 0) * phases(&s->w, 1), phase_tiles(&s->w, 0), &p->block_h) &&
        ck_mul(p->block_h, phase_tiles(&s->w, 1), &tiles);
    const int64_t of_tile = PLACES * (p->taps * unit(p) + 2 * ATTN_BLOCK) * 4;
    const int64_t max = min64(max64(SCRATCH_FLOATS / (PLACES * channels), MIN_TILES),
                              max64(MAX_SCRATCH / of_tile, 1));
    const int64_t parts = maps * ceil_div(p->columns, 2 * ATTN_BLOCK);
    p->w_blocks =
        max64(ceil_div(tiles, min64(max, MAX_TILES)), min_blocks(p, tiles, parts));
    p->block_w = ceil_div(tiles, p->w_blocks);
    p->w_blocks = ceil_div(tiles, p->block_w);
    int64_t n = ceil_div(TASKS, max64(p->w_blocks * maps, 1));
    p->block_columns = round_up(ceil_div(p->columns, n), 2 * ATTN_BLOCK);
    p->column_blocks = ceil_div(p->columns, p->block_columns);
    fits = fits && ck_mul(p->w_blocks, maps, &p->n_tasks) &&
           ck_mul(p->n_tasks, p->column_blocks, &p->n_tasks) &&
           ck_mul(PLACES * p->block_w, channels + 2 * ATTN_BLOCK, &floats) &&
           floats < INT32_MAX;
    if (!fits)
        return op_fail_size(step,
                            "a transformed tile would have more than 2^31 - 1 floats, or "
                            "the number of tasks",
                            "2^63 - 1");
    p->scratch_bytes = scratch_size(p) * (int64_t)sizeof(float);
    p->shared_bytes = p->taps * (int64_t)sizeof(struct attn_blocked_tap) + p->block_w * 4;
    p->task_cost = window_cost(2.0 * PLACES * (double)p->block_w *
                                   (double)p->block_columns * (double)channels / 100.0 +
                               100.0 * (double)p->block_w);
    return ATTNRUN_OK;
}

/* Channels of a group from block c on. */
static int64_t left_from(const struct blocked_plan *p, int64_t c)
{
    return group_channels(p) - c * ATTN_BLOCK;
}

void attn_blocked_winograd_prepare(const struct blocked_plan *p, void *shared)
{
    struct attn_blocked_tap *tap = shared;
    int32_t *pixel = (int32_t *)(void *)(tap + p->taps);
    for (int64_t c = 0; c < p->taps; c++)
        *tap++ = (struct attn_blocked_tap){
            .offset = c * block_step(p),
            .inputs =
                min64(p->words ? (left_from(p, c) + 1) / 2 : left_from(p, c), unit(p)),
        };
    for (int64_t i = 0; i < p->block_w; i++)
        *pixel++ = (int32_t)(i * unit(p));
}

/* Words of the places of a block. */
static void round_places(const attnrun_step *step, const struct blocked_plan *p,
                         const struct attn_winograd *t, int64_t block, float *to)
{
    const int64_t left = left_from(p, block), n = unit(p);
    uint32_t *words = (uint32_t *)(void *)to;
    for (int64_t i = 0; i < PLACES; i++, words += p->block_w * n) {
        step->kernels->words_bf16(words, t->places + i * t->plane, (size_t)(t->n * n));
        if (left < ATTN_BLOCK)
            blocked_clear_words(words, t->n, n, left);
    }
}

/* The places of all blocks of channels of what the tiles see: [block][place][tile][unit]. */
static void transform_inputs(const attnrun_step *step, const struct blocked_plan *p,
                             struct attn_winograd t, const float *x, float *scratch)
{
    t.plane = p->words ? p->block_w * ATTN_BLOCK : place_step(p);
    for (int64_t block = 0; block < p->taps; block++) {
        float *const to = scratch + inputs_at(p) + block * block_step(p);
        t.x = x + block * t.in[0] * t.in[1] * ATTN_BLOCK;
        t.places = p->words ? scratch + sums_at(p) : to;
        step->kernels->winograd_input_f32(&t);
        if (p->words)
            round_places(step, p, &t, block, to);
    }
}

/* What the kernel does not apply itself, on a row of `n` tiles' outputs from (row, column) on. */
static void activate_row(const attnrun_step *step, const struct blocked_operands *o,
                         const struct attn_winograd *t, int64_t row, int64_t column,
                         int64_t n)
{
    const int64_t apart = t->dilation[1];
    const int64_t end = min64(t->out[1], column + n * TILE * apart);
    float *const y = t->y + row * t->out[1] * ATTN_BLOCK;
    if (apart == 1)
        attn_conv_apply(step->kernels, o->activation, o->n_activation,
                        y + column * ATTN_BLOCK, (end - column) * ATTN_BLOCK);
    else
        for (; column < end; column += apart)
            attn_conv_apply(step->kernels, o->activation, o->n_activation,
                            y + column * ATTN_BLOCK, ATTN_BLOCK);
}

/* The same on the parts of lines that the tiles are. */
static void activate(const attnrun_step *step, const struct blocked_operands *o,
                     const struct attn_winograd *t)
{
    for (int64_t tile = t->first, n; tile < t->first + t->n; tile += n) {
        const int64_t from = tile % t->tile_columns;
        int64_t row, column;
        attn_winograd_line(t, tile / t->tile_columns, &row, &column);
        n = min64(t->tile_columns - from, t->first + t->n - tile);
        for (int i = 0; i < TILE; i++, row += t->dilation[0])
            if (row < t->out[0])
                activate_row(step, o, t, row, column + from * TILE * t->dilation[1], n);
    }
}

/* The places of some channels of a panel of weights of 16 bits. */
static void transform_weights(const attnrun_step *step, const struct blocked_plan *p,
                              const void *w, int64_t channels, int64_t columns,
                              float *scratch)
{
    const struct attn_winograd_weights weights = {
        .w = w,
        .y = scratch + weights_at(p),
        .place = weights_step(channels, columns),
        .channels = channels,
        .width = columns,
        .w_type = p->w_type,
    };
    step->kernels->winograd_weights_f32(&weights);
}

/* The products of a panel of floats, or of words: sums are [place][block][tile][16]. */
static void winograd_multiply(const attnrun_step *step, const struct blocked_plan *p,
                              struct attn_blocked_conv c, float *sums)
{
    const int64_t inputs = place_step(p), plane = sums_step(p, c.columns);
    const float *w = c.w;
    const void *const next = c.next;
    for (int64_t i = 0; i < PLACES; i++, c.x += inputs, sums += plane) {
        c.w = w;
        c.y = sums;
        w += p->columns * p->weight_rows;
        c.next = i + 1 < PLACES ? w : next;
        if (p->words)
            step->kernels->blocked_conv_bf16(&c);
        else
            step->kernels->blocked_conv_f32(&c);
    }
}

/* The same of weights of 16 bits, some channels after the others. The first products prefetch the
 * next panel, each as many bytes as its own weights have. */
static void multiply_half(const attnrun_step *step, const struct blocked_plan *p,
                          struct attn_blocked_conv c, float *scratch)
{
    const int64_t inputs = place_step(p), plane = sums_step(p, c.columns);
    const int64_t panel = TAPS * p->weight_rows * c.columns * (int64_t)sizeof(uint16_t);
    const float *const x = c.x;
    const uint16_t *w = c.w;
    const char *const next = c.next;
    int64_t fetched = 0;
    c.w_type = ATTN_B_F32;
    for (int64_t first = 0; first < p->weight_rows; first += c.rows) {
        c.rows = min64(p->weight_rows - first, HALF_CHANNELS);
        c.n_taps = ceil_div(c.rows, ATTN_BLOCK);
        if (!keeps_weights(p))
            transform_weights(step, p, w, c.rows, c.columns, scratch);
        for (int64_t i = 0; i < PLACES; i++) {
            c.x = x + i * inputs;
            c.w = scratch + weights_at(p) + i * weights_step(c.rows, c.columns);
            c.y = scratch + sums_at(p) + i * plane;
            c.z = first > 0 ? c.y : NULL;
            c.next = next != NULL && fetched < panel ? next + fetched : NULL;
            fetched += c.rows * c.columns * (int64_t)sizeof(float);
            step->kernels->blocked_conv_f32(&c);
        }
        w += TAPS * c.rows * c.columns;
        c.taps += c.n_taps;
    }
}

/* The products of a panel, and what becomes of their sums. */
static void run_panel(const attnrun_step *step, const struct blocked_plan *p,
                      const struct blocked_operands *o, struct attn_blocked_conv c,
                      struct attn_winograd t, float *scratch)
{
    static const float zeros[2 * ATTN_BLOCK];
    const int64_t map = t.out[0] * t.out[1] * ATTN_BLOCK;
    float *const sums = scratch + sums_at(p);
    t.plane = sums_step(p, c.columns);
    c.bias = zeros;
    c.y = sums;
    if (p->w_type == ATTN_B_F32)
        winograd_multiply(step, p, c, sums);
    else
        multiply_half(step, p, c, scratch);
    for (int64_t b = 0; b < c.columns / ATTN_BLOCK; b++) {
        t.places = sums + b * c.y_block;
        step->kernels->winograd_output_f32(&t);
        if (!o->clipped)
            activate(step, o, &t);
        t.bias += ATTN_BLOCK;
        if (t.scale != NULL)
            t.scale += ATTN_BLOCK;
        t.y += map;
        if (t.z != NULL)
            t.z += map;
    }
}

/* Panels of columns first … end - 1 of the tiles of one map: a group of an image. */
static attn_status run_columns(const attnrun_step *step, const struct blocked_plan *p,
                               const struct blocked_operands *o,
                               const struct attn_blocked_conv *conv,
                               struct attn_winograd *t, float *scratch, int64_t map,
                               int64_t first, int64_t end)
{
    const int64_t panel = blocked_panel(step->kernels);
    const int64_t plane = t->out[0] * t->out[1] * ATTN_BLOCK;
    const int64_t group = map % p->shape.groups * p->columns; /* its first column */
    const int64_t of_column = p->weight_rows * (p->w_type == ATTN_B_F32 ? 1 : TAPS);
    const int64_t places = p->w_type == ATTN_B_F32 ? PLACES : 1;
    const void *const w = blocked_weights_at(p, o->w, group * of_column * places);
    for (int64_t column = first; column < end; column += panel) {
        const int64_t at = (map * p->columns + column) / ATTN_BLOCK * plane;
        struct attn_blocked_conv c = *conv;
        c.columns = min64(end - column, panel);
        c.w = blocked_weights_at(p, w, column * of_column);
        c.next = column + panel < end
                     ? blocked_weights_at(p, w, (column + c.columns) * of_column)
                     : NULL;
        t->bias = o->bias + group + column;
        t->y = o->y + at;
        t->z = o->z != NULL ? o->z + at : NULL;
        t->scale = o->scale != NULL ? o->scale + group + column : NULL;
        run_panel(step, p, o, c, *t, scratch);
        if (attn_poll() != ATTNRUN_OK)
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

attn_status attn_blocked_winograd_run(const attnrun_step *step, const attnrun_work *work,
                                      const struct blocked_plan *p,
                                      const struct blocked_operands *o)
{
    const struct window *w = &p->shape.w;
    const struct attn_blocked_tap *taps = work->shared;
    float *const scratch = work->scratch;
    struct attn_blocked_conv c = { .x = scratch + inputs_at(p),
                                   .pixels =
                                       (const int32_t *)(const void *)(taps + p->taps),
                                   .taps = taps,
                                   .n_taps = p->taps,
                                   .rows = p->weight_rows,
                                   .y_block = p->block_w * ATTN_BLOCK,
                                   .min = -INFINITY,
                                   .max = INFINITY };
    struct attn_winograd t = { .tile_columns = phase_tiles(w, 1),
                               .in = { w->in[1], w->in[2] },
                               .out = { w->out[1], w->out[2] },
                               .before = { w->before[1], w->before[2] },
                               .dilation = { w->dilation[1], w->dilation[2] },
                               .phases = { phases(w, 0), phases(w, 1) },
                               .min = o->min,
                               .max = o->max };
    int64_t last = attn_blocked_kept(p, work);
    if (keeps_weights(p) && last < 0)
        transform_weights(step, p, o->w, p->weight_rows, p->columns, scratch);
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t part = task;
        const int64_t first = op_take(&part, p->column_blocks) * p->block_columns;
        int64_t map = part;
        t.first = op_take(&map, p->w_blocks) * p->block_w;
        t.n = min64(p->block_h * t.tile_columns - t.first, p->block_w);
        c.n_pixels = t.n;
        if (part != last)
            transform_inputs(step, p, t,
                             o->x + map * p->taps * w->in[1] * w->in[2] * ATTN_BLOCK,
                             scratch);
        last = part;
        TRY(run_columns(step, p, o, &c, &t, scratch, map, first,
                        min64(p->columns, first + p->block_columns)));
    }
    attn_blocked_keep(p, work, last);
    return ATTNRUN_OK;
}
