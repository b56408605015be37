/* involution.c - Involution: each pixel has a K x K kernel of its own for each group of
 * channels, which is computed from the pixel itself.
 *
 *   H = act(w1 x' + b1)     x' = x, or the mean of its stride x stride squares
 *   k = w2 H + b2           row g K^2 + i K + j is tap (i, j) of group g
 *   Y[c, y, z] = sum over i, j < K of k[g(c) K^2 + i K + j, y, z]
 *                * x[c, y stride + i - (K - 1) / 2, z stride + j - (K - 1) / 2]
 *
 * with zeros around x and g(c) = c / (C / groups), rounded down.
 *
 * x             f32 (batch, C, h, w); Y (batch, C, h / stride, w / stride)
 * w1, w2        f32 (R, C), (groups K^2, R); b1, b2 (R), (groups K^2)
 * kernel        f32 (batch, groups K^2, h / stride, w / stride): k itself, instead of w1
 *               and w2
 * kernel_size   K, odd, up to 31; groups divides C; stride divides h and w
 * activation    none, relu (default), silu, gelu by erf, hardswish
 *
 * A task makes the kernels of one group for a tile of up to 128 pixels, uses them for the
 * group's channels, and goes on to the next group. Where there are few tiles, a first
 * phase makes H of all of them, in parts of 32 pixels, and the groups are divided among
 * tasks. Constant w2 and b2 are packed as one matrix, and H gets a row of ones for b2.
 *
 * Refused: even K, stride that does not divide h or w, sizes that disagree, kernel beside
 * w1 or w2, none of them.
 * Cost: 2 (C R + R K^2 groups + K^2 C) FLOPs a pixel. Scratch: the kernels of a group and
 * H for a tile; where there are few tiles, shared memory holds H of all.
 * Source: Li 2021, arXiv:2103.06255. Compared with involution_naive.py of
 * d-li14/involution 21c3158 and fightingcv-attention 1.0.0 Involution, both with
 * BatchNorm folded. involution-pytorch 0.0.2.2 multiplies matrices of whole rows, which
 * is a different operator. */
#include "../attention/core/heads.h"
#include "gated_maps.h"
#include "../tile.h"

struct involution_args {
    int64_t kernel_size, groups, stride;
    int32_t activation;
};
static const attnrun_attr_def involution_attrs[] = {
    ATTR_INT_REQUIRED(struct involution_args, kernel_size),
    ATTR_INT_REQUIRED(struct involution_args, groups),
    ATTR_INT(struct involution_args, stride, 1),
    ATTR_ENUM(struct involution_args, activation, ATTN_MAP_ACTIVATIONS, ATTN_ACT_RELU),
    ATTR_END,
};

enum { X, W1, B1, W2, B2, KERNEL };
enum { HIDDEN, TILES }; /* phases */
enum { PIXELS = 128, COLUMNS = 32, ROWS = OP_PRODUCT_ROWS, ENOUGH_TASKS = 32 };
enum { PART = OP_PANEL }; /* pixels of H */

struct involution_state {
    struct attn_map map;
    int64_t size, stride, groups, channels; /* of a group */
    int64_t hidden, depth;                  /* R; rows of H with those of ones */
    int64_t h, w, pixels;                   /* of Y */
    int64_t tile_h, tile_w, h_blocks, w_blocks, tiles; /* tiles: of all samples */
    int64_t group_blocks, block_groups;
    bool apart;    /* H has a phase of its own */
    int64_t parts; /* of a tile in that phase */
    bool gathers;  /* a tile's x' is not columns of x */
    int64_t panel_floats, gemm_floats;
};

/* ---- infer ---- */

static attn_status involution_check_args(const attnrun_step *step)
{
    const struct involution_args *args = step->args;
    TRY(attn_need_int(step, "kernel_size", args->kernel_size, 1, ATTN_INVOLUTION_SIZE));
    if (args->kernel_size % 2 == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "kernel_size is %lld, expected an odd number",
                       (long long)args->kernel_size);
    TRY(attn_need_int(step, "groups", args->groups, 1, INT32_MAX));
    return attn_need_int(step, "stride", args->stride, 1, 1 << 16);
}

static attn_status involution_check_map(const attnrun_step *step)
{
    static const char *const names[] = { "height", "width" };
    const struct involution_args *args = step->args;
    TRY(attn_map_check(step, X));
    if (!op_rank_known(step, X))
        return ATTNRUN_OK;
    const attnrun_dim *x = step->in[X].dims;
    if (dim_is_const(x[1]) && x[1].value % args->groups != 0)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "expected a number of channels that groups, %lld, divides",
                             (long long)args->groups);
    for (int i = 0; i < 2; i++)
        if (dim_is_const(x[2 + i]) && x[2 + i].value % args->stride != 0)
            return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                                 "expected a %s that stride %lld divides", names[i],
                                 (long long)args->stride);
    return ATTNRUN_OK;
}

static attn_status check_generator(const attnrun_step *step, attnrun_dim channels,
                                   attnrun_dim taps)
{
    TRY(op_need_rank(step, W1, 2));
    const attnrun_dim hidden =
        op_rank_known(step, W1) ? step->in[W1].dims[0] : attnrun_dim_unknown(step);
    if (dim_is_const(hidden) && hidden.value == 0)
        return op_fail_input(step, W1, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    TRY(attn_map_check_matrix(step, W1, hidden, channels, "the channels"));
    TRY(op_need_vector(step, B1, hidden, "the rows of w1"));
    TRY(op_need_rank(step, W2, 2));
    TRY(op_need_dim(step, W2, 0, taps, "groups * kernel_size^2"));
    TRY(op_need_dim(step, W2, 1, hidden, "the rows of w1"));
    return op_need_vector(step, B2, taps, "groups * kernel_size^2");
}

static attn_status involution_check_weights(const attnrun_step *step,
                                            const attnrun_dim *y, attnrun_dim taps)
{
    static const char *const whats[] = { "the batch", "groups * kernel_size^2",
                                         "height / stride", "width / stride" };
    const attnrun_dim kernel[] = { y[0], taps, y[2], y[3] };
    const bool one = op_has_in(step, KERNEL);
    for (int in = W1; in <= B2 && one; in++)
        if (op_has_in(step, in))
            return op_fail_input(step, in, ATTNRUN_E_INPUT,
                                 "expected none beside kernel");
    if (!one && (!op_has_in(step, W1) || !op_has_in(step, W2)))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "inputs w1 and w2 are missing, expected both or kernel");
    if (!one)
        return check_generator(step, y[1], taps);
    TRY(op_need_rank(step, KERNEL, 4));
    for (int i = 0; i < 4; i++)
        TRY(op_need_dim(step, KERNEL, i, kernel[i], whats[i]));
    return ATTNRUN_OK;
}

/* Chooses tiles of rows of up to COLUMNS pixels: a vector of a tap's x serves four of
 * them. */
static void choose_tiles(struct involution_state *s)
{
    const int64_t w_blocks = ceil_div(s->w, COLUMNS);
    s->tile_w = ceil_div(s->w, w_blocks);
    s->tile_h = PIXELS / s->tile_w / 4 * 4;
    if (s->tile_h > s->h)
        s->tile_h = s->h;
    s->w_blocks = ceil_div(s->w, s->tile_w);
    s->h_blocks = ceil_div(s->h, s->tile_h);
}

static bool checked_product(int64_t *to, int64_t a, int64_t b, int64_t c)
{
    return ck_mul(a, b, to) && ck_mul(*to, c, to);
}

/* The floats of a worker: the product's, panels of H, then x' and H, or kernels and
 * strip. */
static bool scratch_floats(struct involution_state *s, int64_t *floats)
{
    const int64_t taps = s->size * s->size, pixels = round_up(s->tile_h * s->tile_w, 16);
    const int64_t rows = max64(min64(s->hidden, ROWS), min64(taps, ROWS));
    const int64_t strip = attn_involution_strip(s->size, s->stride, s->tile_h, s->tile_w);
    int64_t hidden, input = 0;
    s->gemm_floats = 0;
    if (s->hidden > 0) {
        s->gemm_floats = round_up(
            (int64_t)max64(
                (int64_t)attn_gemm_scratch((size_t)rows, PIXELS, (size_t)s->map.channels),
                (int64_t)attn_gemm_scratch((size_t)rows, PIXELS, (size_t)s->depth)),
            16);
    }
    if (!ck_mul(s->depth, pixels, &s->panel_floats) ||
        (s->gathers && !ck_mul(s->map.channels, pixels, &input)) ||
        !ck_add(input, s->panel_floats, &hidden))
        return false;
    *floats = s->gemm_floats;
    return ck_add(*floats, s->panel_floats, floats) &&
           ck_add(*floats, max64(hidden, taps * pixels + 16 + round_up(strip, 16)),
                  floats);
}

/* The nanoseconds of a tile with `work` products a pixel. */
static int64_t task_cost(const struct involution_state *s, int64_t work)
{
    const double ns = (double)work * (double)(s->tile_h * s->tile_w) / 40.0;
    return op_ns(ns + 200);
}

static attn_status involution_plan(attnrun_step *step)
{
    const struct involution_args *args = step->args;
    struct involution_state *s = step->state;
    int64_t floats, work;
    s->size = args->kernel_size;
    s->stride = args->stride;
    s->groups = args->groups;
    TRY(attn_map_sizes(step, X, &s->map));
    s->channels = s->map.channels / s->groups;
    s->hidden = op_has_in(step, W1) ? step->in[W1].dims[0].value : 0;
    s->depth = s->hidden > 0 ? s->hidden + 1 : 0;
    s->h = s->map.height / s->stride;
    s->w = s->map.width / s->stride;
    s->pixels = s->h * s->w;
    choose_tiles(s);
    s->gathers = s->stride > 1 || s->w_blocks > 1;
    const int64_t taps = s->size * s->size;
    bool fits =
        checked_product(&s->tiles, s->map.batch, s->h_blocks, s->w_blocks) &&
        scratch_floats(s, &floats) && ck_mul(floats, 4, &step->scratch_bytes) &&
        checked_product(&work, s->map.channels + taps * s->groups, s->hidden, 1) &&
        ck_add(work, taps * s->map.channels, &work);
    s->group_blocks = 1;
    if (s->tiles > 0 && s->tiles < ENOUGH_TASKS)
        s->group_blocks = min64(s->groups, ceil_div(ENOUGH_TASKS, s->tiles));
    s->block_groups = ceil_div(s->groups, s->group_blocks);
    s->group_blocks = ceil_div(s->groups, s->block_groups);
    s->apart = s->group_blocks > 1 && s->hidden > 0;
    fits = fits && (!s->apart ||
                    checked_product(&step->shared_bytes, s->panel_floats, s->tiles, 4));
    if (!fits)
        return op_fail_size(step, "the memory of the kernels of a tile, or of the image,",
                            "2^63 - 1 bytes");
    const int64_t first = s->apart ? s->map.channels * s->hidden : 0;
    s->parts = ceil_div(s->tile_h * s->tile_w, PART);
    op_tasks(step, HIDDEN, s->apart ? s->tiles * s->parts : 0,
             task_cost(s, first) / max64(1, s->parts));
    op_tasks(step, TILES, s->tiles * s->group_blocks,
             task_cost(s, (work - first) / s->group_blocks));
    return ATTNRUN_OK;
}

static attn_status involution_infer(attnrun_step *step)
{
    const struct involution_args *args = step->args;
    attnrun_dim y[4];
    TRY(involution_check_args(step));
    TRY(involution_check_map(step));
    for (int i = 0; i < 4; i++)
        y[i] = op_rank_known(step, X) ? step->in[X].dims[i] : attnrun_dim_unknown(step);
    for (int i = 2; i < 4 && args->stride > 1; i++)
        y[i] = op_dim_div_exact(step, y[i], dim_of(args->stride));
    const int64_t taps = args->groups * args->kernel_size * args->kernel_size;
    TRY(involution_check_weights(step, y, dim_of(taps)));
    TRY(op_out(step, 0, ATTNRUN_F32, 4, y));
    return step->concrete ? involution_plan(step) : ATTNRUN_OK;
}

/* ---- pack ---- */

/* Packs [w2 | b2], rows of R + 1. */
static attn_status involution_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const attnrun_tensor *w = pack->n_in > B2 ? &pack->x[W2] : NULL;
    *bytes = 0;
    if (w == NULL || w->data == NULL || pack->x[B2].data == NULL)
        return ATTNRUN_OK;
    const int64_t rows = w->dims[0], columns = w->dims[1];
    if (!checked_product(bytes, rows, columns + 1, 4))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed form of w2 would be over 2^63 - 1 bytes");
    float *to = packed;
    for (int64_t i = 0; to != NULL && i < rows; i++, to += columns + 1) {
        memcpy(to, (const float *)w->data + i * columns, (size_t)columns * sizeof *to);
        to[columns] = ((const float *)pack->x[B2].data)[i];
    }
    pack->replaces |= UINT32_C(1) << W2 | UINT32_C(1) << B2;
    return ATTNRUN_OK;
}

/* ---- run ---- */

/* A tile: sample, first pixel, rows and columns of Y, and a worker's scratch. */
struct involution_tile {
    const struct involution_state *state;
    int64_t batch, row, column, rows, columns, pixels;
    float *gemm, *panels, *rest;
};

static struct involution_tile open_tile(const attnrun_step *step,
                                        const attnrun_work *work, int64_t index)
{
    const struct involution_state *s = step->state;
    const struct op_task at = op_task_at(index, s->h_blocks, s->w_blocks);
    struct involution_tile t = { .state = s,
                                 .batch = at.b,
                                 .row = at.head * s->tile_h,
                                 .column = at.block * s->tile_w };
    t.rows = min64(s->h - t.row, s->tile_h);
    t.columns = min64(s->w - t.column, s->tile_w);
    t.pixels = t.rows * t.columns;
    t.gemm = work->scratch;
    t.rest = t.gemm + s->gemm_floats + s->panel_floats;
    t.panels = s->apart ? (float *)work->shared + index * s->panel_floats
                        : t.gemm + s->gemm_floats;
    return t;
}

/* Gathers the tile's pixels from … to - 1 of all channels, or the means of their squares, with the
 * rest of their rows; returns where they begin. */
static const float *involution_gather(const attnrun_step *step,
                                      const struct involution_tile *t, int64_t from,
                                      int64_t to, int64_t *row)
{
    const struct involution_state *s = t->state;
    const int64_t w = s->map.width, stride = s->stride;
    const float *x = (const float *)step->x[X].data +
                     t->batch * s->map.channels * s->map.pixels + t->row * stride * w +
                     t->column * stride;
    *row = s->gathers ? t->pixels : s->map.pixels;
    if (!s->gathers)
        return x + from;
    for (int64_t c = 0; c < s->map.channels; c++, x += s->map.pixels)
        for (int64_t r = from / t->columns; r * t->columns < to; r++)
            step->kernels->square_means_f32(t->rest + c * t->pixels + r * t->columns,
                                            x + r * stride * w, w, stride,
                                            (size_t)t->columns);
    return t->rest + from;
}

/* Computes H and a row of ones for pixels from … to - 1 in t->panels; `from` is the first one of a
 * panel. */
static void run_hidden(const attnrun_step *step, const struct involution_tile *t,
                       int64_t from, int64_t to)
{
    static const int32_t kinds[] = { -1, ATTN_EPI_RELU, ATTN_EPI_SILU, ATTN_EPI_GELU,
                                     ATTN_EPI_HARD_SWISH };
    const struct involution_args *args = step->args;
    const struct involution_state *s = t->state;
    const struct attn_epilogue activation = { .kind = kinds[args->activation] };
    struct attn_gemm_f32 g = { .a = step->x[W1].data,
                               .a_row = s->map.channels,
                               .b_col = 1,
                               .c_row = to - from,
                               .m = (size_t)s->hidden,
                               .n = (size_t)(to - from),
                               .k = (size_t)s->map.channels,
                               .scratch = t->gemm };
    int64_t row;
    g.b = involution_gather(step, t, from, to, &row);
    g.b_row = row;
    float *hidden = t->rest;
    if (s->gathers)
        hidden += s->map.channels * round_up(s->tile_h * s->tile_w, 16);
    g.c = hidden;
    attn_map_product(step->kernels, g, op_in_data(step, B1),
                     args->activation != ATTN_ACT_NONE ? &activation : NULL);
    for (int64_t i = 0; i < to - from; i++)
        hidden[s->hidden * (to - from) + i] = 1.0f;
    step->kernels->gemm_pack_f32(t->panels + from * s->depth, hidden, to - from, 1,
                                 (size_t)s->depth, (size_t)(to - from));
}

/* Computes the kernels of a group in t->rest. */
static void run_kernels(const attnrun_step *step, const struct involution_tile *t,
                        int64_t group)
{
    const struct involution_state *s = t->state;
    const int64_t taps = s->size * s->size;
    const bool packed = step->node->packed != NULL;
    const int64_t row = packed ? s->depth : s->hidden;
    const float *w = packed ? step->node->packed : step->x[W2].data;
    const float *bias = packed ? NULL : op_in_data(step, B2);
    const struct attn_gemm_f32 g = { .a = w + group * taps * row,
                                     .a_row = row,
                                     .b = t->panels,
                                     .packed = 1,
                                     .packed_k = (size_t)s->depth,
                                     .c = t->rest,
                                     .c_row = t->pixels,
                                     .m = (size_t)taps,
                                     .n = (size_t)t->pixels,
                                     .k = (size_t)row,
                                     .scratch = t->gemm };
    attn_map_product(step->kernels, g, bias != NULL ? bias + group * taps : NULL, NULL);
}

/* Finds the kernels: in t->rest, or in input `kernel`. Rows of less than a vector are
 * copied from the input, because the kernel reads past their end. */
static const float *find_kernels(const attnrun_step *step,
                                 const struct involution_tile *t, int64_t group,
                                 int64_t *tap, int64_t *row)
{
    const struct involution_state *s = t->state;
    const int64_t taps = s->size * s->size;
    *tap = t->pixels;
    *row = t->columns;
    if (s->hidden > 0) {
        run_kernels(step, t, group);
        return t->rest;
    }
    const float *given = (const float *)step->x[KERNEL].data +
                         (t->batch * s->groups + group) * taps * s->pixels +
                         t->row * s->w + t->column;
    if (t->columns > ATTN_INVOLUTION_OVER) {
        *tap = s->pixels;
        *row = s->w;
        return given;
    }
    for (int64_t i = 0; i < taps; i++)
        for (int64_t r = 0; r < t->rows; r++)
            memcpy(t->rest + i * t->pixels + r * t->columns,
                   given + i * s->pixels + r * s->w, (size_t)t->columns * sizeof(float));
    return t->rest;
}

static void involution_run_group(const attnrun_step *step,
                                 const struct involution_tile *t, int64_t group)
{
    const struct involution_state *s = t->state;
    const int64_t channel = (t->batch * s->groups + group) * s->channels;
    const int64_t kernels = s->size * s->size * round_up(s->tile_h * s->tile_w, 16) +
                            ATTN_INVOLUTION_OVER + 1;
    struct attn_involution tile = { .strip = t->rest + kernels,
                                    .x_channel = s->map.pixels,
                                    .y_channel = s->pixels,
                                    .y_row = s->w,
                                    .channels = s->channels,
                                    .h = s->map.height,
                                    .w = s->map.width,
                                    .size = s->size,
                                    .stride = s->stride,
                                    .row = t->row,
                                    .column = t->column,
                                    .rows = t->rows,
                                    .columns = t->columns };
    tile.kernel = find_kernels(step, t, group, &tile.kernel_tap, &tile.kernel_row);
    tile.x = (const float *)step->x[X].data + channel * s->map.pixels;
    tile.y = (float *)step->y[0].data + channel * s->pixels + t->row * s->w + t->column;
    step->kernels->involution_f32(&tile);
}

/* Tasks that are neighbours in a tile are one product, which reads w1 once. */
static attn_status involution_run_hidden(const attnrun_step *step,
                                         const attnrun_work *work)
{
    const struct involution_state *s = step->state;
    for (int64_t task = work->begin, end; task < work->end; task = end) {
        int64_t tile = task;
        const int64_t part = op_take(&tile, s->parts), first = task - part;
        const struct involution_tile t = open_tile(step, work, tile);
        end = min64(work->end, first + s->parts);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const int64_t from = part * PART;
        if (from < t.pixels)
            run_hidden(step, &t, from, min64((end - first) * PART, t.pixels));
    }
    return ATTNRUN_OK;
}

static attn_status involution_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct involution_state *s = step->state;
    if (work->phase == HIDDEN)
        return involution_run_hidden(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t tile = task;
        const int64_t from = op_take(&tile, s->group_blocks) * s->block_groups;
        const struct involution_tile t = open_tile(step, work, tile);
        const int64_t to = min64(from + s->block_groups, s->groups);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (s->hidden > 0 && !s->apart)
            run_hidden(step, &t, 0, t.pixels);
        for (int64_t g = from; g < to; g++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            involution_run_group(step, &t, g);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_involution_1 = {
    OP_ROW_OF("attnrun"),
    .name = "Involution",
    .since = 1,
    .inputs = "x:T w1:T? b1:T? w2:T? b2:T? kernel:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct involution_args),
    .state_bytes = sizeof(struct involution_state),
    .attrs = involution_attrs,
    .infer = involution_infer,
    .pack = involution_pack,
    .check_packed = op_packed_is_data,
    .run = involution_run,
    .cost = "O(n (C R + R K^2 groups + K^2 C)), n pixels, R rows of w1",
    .source = "Li 2021, arXiv:2103.06255",
};
