/* cbam.c - CBAM: a gate for each channel, then a gate for each pixel.
 *
 *   z^t_c = pool t of x[c]   L = sum over t of w2 act(w1 z^t + b1) + b2   g = gate(L)
 *   v[c,p] = g_c x[c,p]      s = gate(conv(ws, [max_c v; mean_c v]) + bs)
 *   Y[c,p] = post(v[c,p] s_p + identity[c,p])
 *
 * x, identity, Y   f32 (batch, C, h, w); identity is optional, and may be x
 * w1, b1           (R, C), (R);  w2, b2 (C, R), (C): both matrices, or neither: g = 1
 * ws, bs           (1, 2, K, K), (1): K odd, at most 63; ws[0,0] is for the maximum,
 *                  ws[0,1] for the mean; without ws: s = 1
 * pools            of avg, max, lp, lse, each once; avg and max by default. lp: square
 *                  root of the sum of squares; lse: log of the sum of exponentials
 * activation       relu by default; none | relu | silu | gelu | hardswish
 * gate             sigmoid by default; hard_sigmoid: clip(x / 6 + 1/2, 0, 1)
 * post_activation  none | relu
 *
 * Both biases of the channel gate are added once for each pool.
 *
 * All pools share one read of the map. w2 is multiplied with the sum of the hidden
 * vectors. The rest of the work goes row by row, see spatial_gate.h. Small batches are
 * cut into up to two groups of images, each with the phases pool, hidden, gates (blocks
 * of channels or rows of w1) and apply (tiles of rows; without ws blocks of channels).
 * From 8 images on an image is a task, unless its weights are larger than it.
 *
 * Refused: sizes that disagree; one matrix of two, a bias without its weights, neither
 * gate; K even or over 63; pools that are unknown, named twice, or none.
 * Cost: reads the map twice, if (K + 1) rows of all channels stay in a cache (else three
 * times), and writes it once. Memory: C + R floats a pool and image of a group; a worker
 * holds K rows of two planes and a tile, or all of that.
 * Source: Woo 2018, arXiv:1807.06521; Park 2018. Compared with timm 1.0.28 CbamModule,
 * fightingcv-attention 1.0.0 CBAMBlock, and CBAM of Jongchan/attention-module 459efad. */
#include "spatial_gate.h"
#include "../tile.h"

enum { X, W1, B1, W2, B2, WS, BS, IDENTITY };
enum { POOL, HIDDEN, GATES, APPLY, STAGES };
enum {
    MAX_GROUPS = ATTNRUN_MAX_PHASES / STAGES,
    ROWS = 16,
    MANY_ROWS = 256,
    MAX_KERNEL = 63
};

struct cbam_args {
    int64_t channels; /* of a map in blocks of 16; 0: of a plain one */
    attnrun_strings pools;
    int32_t activation, gate, post_activation;
};
#define CBAM_ATTRS                                                                       \
    ATTR_STRINGS(struct cbam_args, pools),                                               \
        ATTR_ENUM(struct cbam_args, activation, ATTN_MAP_ACTIVATIONS, ATTN_ACT_RELU),    \
        ATTR_ENUM(struct cbam_args, gate, ATTN_MAP_GATES, ATTN_GATE_SIGMOID),            \
        ATTR_ENUM(struct cbam_args, post_activation, ATTN_MAP_TAILS, 0), ATTR_END
static const attnrun_attr_def cbam_attrs[] = { CBAM_ATTRS };
static const attnrun_attr_def blocked_cbam_attrs[] = {
    ATTR_INT_REQUIRED(struct cbam_args, channels), CBAM_ATTRS
};

struct cbam_state {
    struct attn_map map;
    struct attn_map_cut cut;
    struct attn_map_pools pools;
    struct attn_spatial spatial;
    int64_t hidden;          /* R; 0 without a channel gate */
    int64_t image_floats;    /* z and u of an image */
    int64_t spatial_scratch; /* bytes before those */
};

/* ---- infer ---- */

static attn_status cbam_check_inputs(const attnrun_step *step)
{
    static const struct {
        int in, with;
        const char *what;
    } together[] = { { W1, W2, "w2" },
                     { W2, W1, "w1" },
                     { B1, W1, "w1" },
                     { B2, W1, "w1" },
                     { BS, WS, "ws" } };
    for (int i = 0; i < 5; i++)
        if (op_has_in(step, together[i].in) && !op_has_in(step, together[i].with))
            return op_fail_input(step, together[i].in, ATTNRUN_E_INPUT,
                                 "it also needs %s", together[i].what);
    if (!op_has_in(step, W1) && !op_has_in(step, WS))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "there is neither w1 nor ws, expected at least one gate");
    return ATTNRUN_OK;
}

static attn_status check_kernel(const attnrun_step *step)
{
    if (!op_has_in(step, WS))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, WS, 4));
    TRY(op_need_dim(step, WS, 0, dim_of(1), "one gate"));
    TRY(op_need_dim(step, WS, 1, dim_of(2), "maximum and mean"));
    for (int i = 2; op_rank_known(step, WS) && i < 4; i++) {
        const attnrun_dim size = step->in[WS].dims[i];
        if (dim_is_const(size) && (size.value % 2 == 0 || size.value > MAX_KERNEL))
            return op_fail_input(step, WS, ATTNRUN_E_SHAPE,
                                 "expected an odd size of at most %d in dim %d",
                                 MAX_KERNEL, i);
    }
    if (op_rank_known(step, WS))
        TRY(op_need_dim(step, WS, 3, step->in[WS].dims[2], "a square"));
    return op_need_vector(step, BS, dim_of(1), "one gate");
}

static int32_t word_of(const attnrun_string *word)
{
    static const char *const words[ATTN_POOL_WORDS] = { "avg", "max", "lp", "lse" };
    int32_t i = 0;
    while (i < ATTN_POOL_WORDS && !op_text_is(*word, words[i]))
        i++;
    return i;
}

static attn_status find_pools(const attnrun_step *step, struct attn_map_pools *pools)
{
    const attnrun_strings *given = &((const struct cbam_args *)step->args)->pools;
    *pools = (struct attn_map_pools){ 2, { ATTN_POOL_AVG, ATTN_POOL_MAX } };
    if (given->v == NULL)
        return ATTNRUN_OK;
    if (given->n == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "pools is empty, expected avg, max, lp, lse");
    pools->n = 0;
    for (int64_t i = 0; i < given->n; i++) {
        const int32_t word = word_of(&given->v[i]);
        if (word == ATTN_POOL_WORDS)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "pools has '%.40s', expected avg, max, lp, lse",
                           given->v[i].data);
        for (int32_t t = 0; t < pools->n; t++)
            if (pools->words[t] == word)
                return op_fail(step, ATTNRUN_E_ATTR, "pools has '%s' twice",
                               given->v[i].data);
        pools->words[pools->n++] = word;
    }
    return ATTNRUN_OK;
}

static bool has_spatial(const attnrun_step *step) { return op_has_in(step, WS); }

/* The pixels that are pooled in a nanosecond. */
static double pool_rate(const struct attn_map_pools *pools)
{
    double rate = 12;
    for (int32_t t = 0; t < pools->n; t++)
        if (pools->words[t] == ATTN_POOL_LSE)
            rate = 2;
    return rate;
}

static void plan_groups(attnrun_step *step, const struct cbam_state *s)
{
    const struct attn_map *map = &s->map;
    const struct attn_map_cut *cut = &s->cut;
    const double elements = (double)cut->block * (double)(map->pixels * cut->images);
    const double images_of = (double)cut->images * (double)s->pools.n;
    const double pixel = (double)map->channels / 5 + (double)s->spatial.taps / 8;
    const bool gates = s->hidden > 0;
    for (int64_t g = 0; g * cut->images < map->batch; g++) {
        const int phase = (int)g * STAGES;
        const int64_t left = map->batch - g * cut->images;
        const int64_t images = left < cut->images ? left : cut->images;
        op_tasks(step, phase + POOL, gates ? cut->blocks : 0,
                 op_ns(20 + elements / pool_rate(&s->pools)));
        op_tasks(step, phase + HIDDEN, ceil_div(s->hidden, ROWS),
                 op_ns(20 + ROWS * (double)map->channels * images_of / 16));
        op_tasks(step, phase + GATES, gates ? cut->blocks : 0,
                 op_ns(20 + (double)cut->block * (double)s->hidden * images_of / 16));
        if (has_spatial(step))
            op_tasks(step, phase + APPLY, images * s->spatial.tiles,
                     op_ns(20 + (double)(s->spatial.tile * map->width) * pixel));
        else
            op_tasks(step, phase + APPLY, cut->blocks, op_ns(20 + elements / 8));
    }
}

static attn_status cbam_plan_memory(attnrun_step *step, struct cbam_state *s)
{
    int64_t bytes;
    if (has_spatial(step) &&
        !attn_spatial_plan(&s->spatial, &s->map, step->in[WS].dims[2].value))
        return op_fail_size(step, "the scratch memory of the spatial gate",
                            "2^63 - 1 bytes");
    if (!ck_align(s->spatial.scratch_bytes, 64, &s->spatial_scratch) ||
        !ck_add(s->map.stored, s->hidden, &s->image_floats) ||
        !ck_mul(s->image_floats, s->hidden > 0 ? s->pools.n : 0, &s->image_floats) ||
        !ck_mul(s->image_floats, 4, &bytes) ||
        !ck_add(s->spatial_scratch, s->cut.images > 0 ? 0 : bytes,
                &step->scratch_bytes) ||
        !ck_mul(bytes, s->cut.images, &step->shared_bytes))
        return op_fail_size(step, "the memory of the pooled vectors", "2^63 - 1 bytes");
    return ATTNRUN_OK;
}

static attn_status plan_cbam(attnrun_step *step, struct cbam_state *s)
{
    const struct cbam_args *args = step->args;
    const struct attn_map *map = &s->map;
    int64_t weights;
    TRY(args->channels > 0 ? attn_map_block_sizes(step, X, args->channels, &s->map)
                           : attn_map_sizes(step, X, &s->map));
    s->hidden = op_has_in(step, W1) ? step->in[W1].dims[0].value : 0;
    if (!ck_mul(s->hidden, map->channels, &weights) || !ck_mul(weights, 2, &weights))
        return op_fail_size(step, "the number of elements of w1 and w2", "2^63 - 1");
    s->cut = attn_map_cut(map, weights, MAX_GROUPS);
    TRY(cbam_plan_memory(step, s));
    if (s->cut.images > 0)
        plan_groups(step, s);
    else
        op_tasks(
            step, 0, map->batch,
            op_ns(20 + (double)(map->channels * map->pixels) / 3 + (double)weights / 8));
    /* Else a worker would compute rows above its own again, after another worker has
     * written over them. */
    if (!has_spatial(step) || s->cut.images == 0 || s->spatial.tiles == 1) {
        attnrun_step_inplace(step, 0, X);
        attnrun_step_inplace(step, 0, IDENTITY);
    }
    return ATTNRUN_OK;
}

static attn_status infer_cbam(attnrun_step *step, attnrun_dim channels)
{
    struct cbam_state *s = step->state;
    *s = (struct cbam_state){ 0 };
    TRY(cbam_check_inputs(step));
    if (op_has_in(step, W1))
        TRY(attn_map_check_mlp(step, W1, channels));
    TRY(check_kernel(step));
    TRY(find_pools(step, &s->pools));
    TRY(op_out_like(step, 0, X));
    return attn_map_runs(step, X) ? plan_cbam(step, s) : ATTNRUN_OK;
}

static attn_status cbam_infer(attnrun_step *step)
{
    TRY(attn_map_check_gated(step, X));
    TRY(attn_map_check_identity(step, IDENTITY, X));
    return infer_cbam(step, attn_map_channels(step, X));
}

static attn_status blocked_cbam_infer(attnrun_step *step)
{
    const struct cbam_args *args = step->args;
    struct attn_map_pools pools;
    if (args->channels < 1 || args->channels > ATTN_MAX_DIM)
        return op_fail(step, ATTNRUN_E_ATTR, "channels is %lld",
                       (long long)args->channels);
    TRY(attn_map_check_blocks(step, X, args->channels));
    if (op_has_in(step, IDENTITY))
        TRY(attn_map_check_blocks(step, IDENTITY, args->channels));
    if (op_rank_known(step, X))
        TRY(attn_map_check_identity(step, IDENTITY, X));
    TRY(find_pools(step, &pools));
    for (int32_t t = 0; t < pools.n; t++)
        if (pools.words[t] != ATTN_POOL_AVG && pools.words[t] != ATTN_POOL_MAX)
            return op_fail(step, ATTNRUN_E_ATTR, "pools of blocks are avg and max");
    return infer_cbam(step, dim_of(args->channels));
}

/* ---- run ---- */

/* A part of the work: some images, and their intermediate results. */
struct cbam_part {
    const attnrun_step *step;
    const attnrun_work *work;
    const struct cbam_state *s;
    int64_t image, images;
    /* z and u of each image and pool. The first z of an image becomes g, and the first u
     * becomes the sum of all u. */
    float *z, *u;
};

static attn_status pool_channels(const struct cbam_part *part, int64_t first, int64_t n)
{
    const struct attn_map *map = &part->s->map;
    const float *x = part->step->x[X].data;
    for (int64_t i = 0; i < part->images; i++)
        TRY((map->lanes > 1 ? attn_map_pool_blocks : attn_map_pool)(
            part->step, part->work, &part->s->pools,
            x + map_place(map, part->image + i, first), n, map->pixels,
            part->z + i * part->s->pools.n * map->stored + first, map->stored));
    return ATTNRUN_OK;
}

static void find_hidden(const struct cbam_part *part, int64_t first, int64_t n)
{
    const attnrun_step *step = part->step;
    const struct cbam_state *s = part->s;
    const struct cbam_args *args = step->args;
    const int64_t vectors = part->images * s->pools.n;
    struct attn_dense dense = attn_map_dense(step, W1, B1, first, n);
    dense.z = part->z;
    dense.z_row = s->map.stored;
    dense.y = part->u + first;
    dense.y_row = s->hidden;
    dense.m = (size_t)vectors;
    step->kernels->dense_rows_f32(&dense);
    for (int64_t i = 0; i < vectors; i++) {
        float *u = part->u + i * s->hidden + first;
        float *sum = u - i % s->pools.n * s->hidden;
        attn_map_activate(step, args->activation, u, n);
        if (sum != u)
            step->kernels->add_f32(sum, sum, 1, u, 1, (size_t)n);
    }
}

/* g of image i of the part; NULL: all 1. */
static float *gates_of(const struct cbam_part *part, int64_t i)
{
    return part->s->hidden > 0 ? part->z + i * part->s->pools.n * part->s->map.stored
                               : NULL;
}

static void find_gates(const struct cbam_part *part, int64_t first, int64_t n)
{
    const attnrun_step *step = part->step;
    const struct cbam_state *s = part->s;
    const struct cbam_args *args = step->args;
    struct attn_dense dense = attn_map_dense(step, W2, B2, first, n);
    dense.z = part->u;
    dense.z_row = s->pools.n * s->hidden;
    dense.y = part->z + first;
    dense.y_row = s->pools.n * s->map.stored;
    dense.m = (size_t)part->images;
    dense.bias_factor = (float)s->pools.n;
    step->kernels->dense_rows_f32(&dense);
    for (int64_t i = 0; i < part->images; i++)
        attn_map_gate(step, args->gate, gates_of(part, i) + first, n);
}

/* Scales channels, without a spatial gate. */
static attn_status scale_channels(const struct cbam_part *part, int64_t first, int64_t n)
{
    const struct cbam_args *args = part->step->args;
    const struct attn_map *map = &part->s->map;
    for (int64_t i = part->images - 1; i >= 0; i--) {
        struct attn_gate gate = attn_residual_relu(
            part->step, X, IDENTITY, args->post_activation,
            map_place(map, part->image + i, first), map->pixels * map->lanes);
        gate.blocks = map->lanes > 1;
        gate.gate = gates_of(part, i) + first;
        gate.planes = (size_t)ceil_div(n, map->lanes);
        gate.n = (size_t)map->pixels;
        TRY(attn_map_scale(part->step, part->work, &gate));
    }
    return ATTNRUN_OK;
}

static struct attn_spatial_gate spatial_of(const struct cbam_part *part)
{
    const struct cbam_args *args = part->step->args;
    return (struct attn_spatial_gate){ .step = part->step,
                                       .work = part->work,
                                       .plan = &part->s->spatial,
                                       .x = X,
                                       .ws = WS,
                                       .bs = BS,
                                       .identity = IDENTITY,
                                       .gate = args->gate,
                                       .tail = args->post_activation };
}

/* Computes tiles begin … end - 1, counted through the images of the part. */
static attn_status run_tiles(const struct cbam_part *part, int64_t begin, int64_t end)
{
    const struct cbam_state *s = part->s;
    const struct attn_spatial_gate gate = spatial_of(part);
    const int64_t tiles = s->spatial.tiles;
    attn_spatial_begin(&gate, part->work->scratch);
    while (begin < end) {
        const int64_t i = begin / tiles;
        const int64_t to = (i + 1) * tiles < end ? (i + 1) * tiles : end;
        TRY(attn_spatial_tiles(&gate, part->work->scratch, part->image + i,
                               begin - i * tiles, to - i * tiles, gates_of(part, i)));
        begin = to;
    }
    return ATTNRUN_OK;
}

static attn_status run_images(struct cbam_part *part, int64_t begin, int64_t end)
{
    const struct cbam_state *s = part->s;
    part->z = op_slot_floats(part->work->scratch, s->spatial_scratch);
    part->u = part->z + s->pools.n * s->map.stored;
    part->images = 1;
    for (part->image = begin; part->image < end; part->image++) {
        if (s->hidden > 0) {
            TRY(pool_channels(part, 0, s->map.channels));
            for (int64_t first = 0; first < s->hidden; first += MANY_ROWS) {
                if (OP_CANCELLED(part->work))
                    return ATTNRUN_E_CANCELLED;
                find_hidden(part, first,
                            s->hidden - first < MANY_ROWS ? s->hidden - first
                                                          : MANY_ROWS);
            }
            find_gates(part, 0, s->map.channels);
        }
        TRY(has_spatial(part->step) ? run_tiles(part, 0, s->spatial.tiles)
                                    : scale_channels(part, 0, s->map.channels));
    }
    return ATTNRUN_OK;
}

static attn_status cbam_run_block(const struct cbam_part *part, int stage, int64_t task)
{
    const struct cbam_state *s = part->s;
    const int64_t length = stage == HIDDEN ? s->hidden : s->map.channels;
    const int64_t block = stage == HIDDEN ? ROWS : s->cut.block;
    const int64_t first = (stage == APPLY ? s->cut.blocks - 1 - task : task) * block;
    const int64_t n = length - first < block ? length - first : block;
    if (stage == POOL)
        return pool_channels(part, first, n);
    if (stage == APPLY)
        return scale_channels(part, first, n);
    if (stage == HIDDEN)
        find_hidden(part, first, n);
    else
        find_gates(part, first, n);
    return ATTNRUN_OK;
}

static attn_status cbam_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct cbam_state *s = step->state;
    struct cbam_part part = { .step = step, .work = work, .s = s, .z = work->shared };
    if (s->map.batch == 0)
        return ATTNRUN_OK;
    if (s->cut.images == 0)
        return run_images(&part, work->begin, work->end);
    part.u = part.z + s->cut.images * s->pools.n * s->map.stored;
    part.image = work->phase / STAGES * s->cut.images;
    part.images = s->map.batch - part.image < s->cut.images ? s->map.batch - part.image
                                                            : s->cut.images;
    const int stage = work->phase % STAGES;
    if (stage == APPLY && has_spatial(step))
        return run_tiles(&part, work->begin, work->end);
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(cbam_run_block(&part, stage, task));
    return ATTNRUN_OK;
}

#define CBAM(row, domain_, name_, attrs_, infer_, source_)                               \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF(domain_),                                                              \
        .name = name_,                                                                   \
        .since = 1,                                                                      \
        .inputs = "x:T w1:T? b1:T? w2:T? b2:T? ws:T? bs:T? identity:T?",                 \
        .outputs = "Y:T",                                                                \
        .types = "T=f32",                                                                \
        .args_bytes = sizeof(struct cbam_args),                                          \
        .state_bytes = sizeof(struct cbam_state),                                        \
        .attrs = attrs_,                                                                 \
        .infer = infer_,                                                                 \
        .run = cbam_run,                                                                 \
        .cost = "O(C n + C R + K^2 n), scratch O(C + K w)",                              \
        .source = source_,                                                               \
    }
CBAM(op_cbam_1, "attnrun", "CBAM", cbam_attrs, cbam_infer, "Woo 2018, arXiv:1807.06521");
CBAM(op_blocked_cbam_1, "attnrun.fused", "BlockedCBAM", blocked_cbam_attrs,
     blocked_cbam_infer, "Woo 2018, arXiv:1807.06521");
