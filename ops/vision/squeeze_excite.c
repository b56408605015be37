/* squeeze_excite.c - SqueezeExcite: each channel is multiplied by a number that is
 * computed from all channels.
 *
 *   z_c = pool(x[c])   u = act(w1 z + b1)   g = gate(w2 u + b2)
 *   Y[c,p] = post(x[c,p] g_c + identity[c,p])
 *
 * x, identity, Y   f32 (batch, C, h, w); identity is optional, and may be x
 * w1, b1           (R, C), (R);  w2, b2 (C, R), (C);  b1, b2 optional
 *                  without w2 (effective squeeze-excite): g = gate(w1 z + b1), R = C
 * activation       relu by default; none | relu | silu | gelu | hardswish; without w2:
 *                  none
 * gate             sigmoid by default; hard_sigmoid: clip(x / 6 + 1/2, 0, 1)
 * pool             avg: the mean; max: NaN where any pixel is; avg_max: half of each
 * post_activation  none | relu
 *
 * Small batches are cut into up to three groups of images, each with the phases pool,
 * hidden (u) and scale, whose tasks are blocks of channels of all images of the group. A
 * task of the last phase computes its own gates. Channels are scaled in the reverse order
 * of pooling, because the last ones are still in a cache. From 8 images on an image is a
 * task, unless its weights are larger than it.
 *
 * Refused: sizes that disagree, R = 0; b2 without w2; an inner activation without w2.
 * Cost: reads the map twice, from a cache where an image fits, and writes it once.
 * Memory: C + R floats an image of a group; a worker holds 2 C + R floats, or those of
 * its block.
 * Source: Hu 2018, arXiv:1709.01507; Lee 2020 (effective), arXiv:1911.06667. Compared
 * with timm 1.0.28 SEModule, EffectiveSEModule and fightingcv-attention 1.0.0
 * SEAttention. */
#include "gated_maps.h"
#include "../tile.h"

enum { X, W1, B1, W2, B2, IDENTITY };
enum { POOL, HIDDEN, SCALE, STAGES };
enum { MAX_GROUPS = ATTNRUN_MAX_PHASES / STAGES, ROWS = 16, MANY_ROWS = 256 };
enum { AVG_MAX = 2 }; /* word of `pool` behind those of enum attn_map_pool_word */

struct se_args {
    int32_t activation, gate, pool, post_activation;
};
static const attnrun_attr_def se_attrs[] = {
    ATTR_ENUM(struct se_args, activation, ATTN_MAP_ACTIVATIONS, ATTN_ACT_RELU),
    ATTR_ENUM(struct se_args, gate, ATTN_MAP_GATES, ATTN_GATE_SIGMOID),
    ATTR_ENUM(struct se_args, pool, "avg|max|avg_max", ATTN_POOL_AVG),
    ATTR_ENUM(struct se_args, post_activation, ATTN_MAP_TAILS, 0),
    ATTR_END,
};

struct se_state {
    struct attn_map map;
    struct attn_map_cut cut;
    int64_t hidden; /* R; 0 without w2 */
};

/* ---- infer ---- */

static attn_status squeeze_excite_check_weights(const attnrun_step *step)
{
    const struct se_args *args = step->args;
    const attnrun_dim channels = attn_map_channels(step, X);
    TRY(attn_map_check_mlp(step, W1, channels));
    if (op_has_in(step, W2))
        return ATTNRUN_OK;
    if (op_has_in(step, B2))
        return op_fail_input(step, B2, ATTNRUN_E_INPUT, "it also needs w2");
    if (args->activation != ATTN_ACT_NONE)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "activation is not \"none\", but there is no w2 behind it");
    if (op_rank_known(step, W1))
        TRY(op_need_dim(step, W1, 0, step->in[W1].dims[1], "dim 1, without w2"));
    return op_need_dim(step, W1, 0, channels, "the channels, without w2");
}

static attn_status plan_groups(attnrun_step *step, const struct se_state *s)
{
    const struct attn_map *map = &s->map;
    const struct attn_map_cut *cut = &s->cut;
    const double elements = (double)cut->block * (double)(map->pixels * cut->images);
    const double weights = ROWS * (double)map->channels * (double)cut->images;
    for (int64_t g = 0; g * cut->images < map->batch; g++) {
        op_tasks(step, (int)g * STAGES + POOL, cut->blocks, op_ns(20 + elements / 16));
        op_tasks(step, (int)g * STAGES + HIDDEN, ceil_div(s->hidden, ROWS),
                 op_ns(20 + weights / 16));
        op_tasks(step, (int)g * STAGES + SCALE, cut->blocks, op_ns(20 + elements / 8));
    }
    int64_t floats;
    if (!ck_mul(map->channels + s->hidden, cut->images, &floats) ||
        !ck_mul(floats, 4, &step->shared_bytes) ||
        !ck_mul(cut->block, cut->images > 2 ? cut->images : 2, &floats) ||
        !ck_mul(floats, 4, &step->scratch_bytes))
        return op_fail_size(step, "the memory of the pooled vectors", "2^63 - 1 bytes");
    return ATTNRUN_OK;
}

static attn_status plan_squeeze_excite(attnrun_step *step, struct se_state *s)
{
    const struct attn_map *map = &s->map;
    int64_t weights;
    *s = (struct se_state){ 0 };
    TRY(attn_map_sizes(step, X, &s->map));
    if (op_has_in(step, W2))
        s->hidden = step->in[W1].dims[0].value;
    if (!ck_mul(s->hidden > 0 ? 2 * s->hidden : map->channels, map->channels, &weights))
        return op_fail_size(step, "the number of elements of w1 and w2", "2^63 - 1");
    s->cut = attn_map_cut(map, weights, MAX_GROUPS);
    if (s->cut.images > 0)
        return plan_groups(step, s);
    op_tasks(
        step, 0, map->batch,
        op_ns(20 + (double)(map->channels * map->pixels) / 5 + (double)weights / 16));
    if (!ck_mul(2 * map->channels + s->hidden, 4, &step->scratch_bytes))
        return op_fail_size(step, "the memory of the pooled vectors", "2^63 - 1 bytes");
    return ATTNRUN_OK;
}

static attn_status se_infer(attnrun_step *step)
{
    TRY(attn_map_check_gated(step, X));
    TRY(squeeze_excite_check_weights(step));
    TRY(attn_map_check_identity(step, IDENTITY, X));
    TRY(op_out_like(step, 0, X));
    attnrun_step_inplace(step, 0, X);
    attnrun_step_inplace(step, 0, IDENTITY);
    return attn_map_runs(step, X) ? plan_squeeze_excite(step, step->state) : ATTNRUN_OK;
}

/* ---- run ---- */

/* A part of the work: some images, and their intermediate results. */
struct squeeze_excite_part {
    const attnrun_step *step;
    const attnrun_work *work;
    int64_t image, images;
    float *z, *u; /* (images, C), (images, R) */
};

/* Computes z of channels first … first + n - 1; `numbers`: 2 n floats. */
static attn_status pool_channels(const struct squeeze_excite_part *part, int64_t first,
                                 int64_t n, float *numbers)
{
    const attnrun_step *step = part->step;
    const struct se_args *args = step->args;
    const struct attn_map *map = &((const struct se_state *)step->state)->map;
    const bool both = args->pool == AVG_MAX;
    const struct attn_map_pools pools = {
        both ? 2 : 1, { both ? ATTN_POOL_AVG : args->pool, ATTN_POOL_MAX }
    };
    for (int64_t i = 0; i < part->images; i++) {
        const int64_t plane = (part->image + i) * map->channels + first;
        float *z = part->z + i * map->channels + first;
        TRY(attn_map_pool(step, part->work, &pools,
                          (const float *)step->x[X].data + plane * map->pixels, n,
                          map->pixels, numbers, n));
        for (int64_t c = 0; c < n; c++)
            z[c] = both ? 0.5f * numbers[c] + 0.5f * numbers[n + c] : numbers[c];
    }
    return ATTNRUN_OK;
}

/* Computes u of rows first … first + n - 1. */
static void find_hidden(const struct squeeze_excite_part *part, int64_t first, int64_t n)
{
    const attnrun_step *step = part->step;
    const struct se_args *args = step->args;
    const struct se_state *s = step->state;
    struct attn_dense dense = attn_map_dense(step, W1, B1, first, n);
    dense.z = part->z;
    dense.z_row = s->map.channels;
    dense.y = part->u + first;
    dense.y_row = s->hidden;
    dense.m = (size_t)part->images;
    step->kernels->dense_rows_f32(&dense);
    for (int64_t i = 0; i < part->images; i++)
        attn_map_activate(step, args->activation, part->u + i * s->hidden + first, n);
}

/* Computes Y of channels first … first + n - 1; `gates`: images times n floats. */
static attn_status scale_channels(const struct squeeze_excite_part *part, int64_t first,
                                  int64_t n, float *gates)
{
    const attnrun_step *step = part->step;
    const struct se_args *args = step->args;
    const struct se_state *s = step->state;
    const struct attn_map *map = &s->map;
    const bool deep = s->hidden > 0;
    struct attn_dense dense =
        attn_map_dense(step, deep ? W2 : W1, deep ? B2 : B1, first, n);
    dense.z = deep ? part->u : part->z;
    dense.z_row = (ptrdiff_t)dense.k;
    dense.y = gates;
    dense.y_row = n;
    dense.m = (size_t)part->images;
    step->kernels->dense_rows_f32(&dense);
    attn_map_gate(step, args->gate, gates, part->images * n);
    for (int64_t i = part->images - 1; i >= 0; i--) {
        const int64_t plane = (part->image + i) * map->channels + first;
        struct attn_gate gate = attn_residual_relu(
            step, X, IDENTITY, args->post_activation, plane * map->pixels, map->pixels);
        gate.gate = gates + i * n;
        gate.planes = (size_t)n;
        gate.n = (size_t)map->pixels;
        TRY(attn_map_scale(step, part->work, &gate));
    }
    return ATTNRUN_OK;
}

static attn_status run_image(struct squeeze_excite_part *part, int64_t image)
{
    const struct se_state *s = part->step->state;
    const int64_t channels = s->map.channels;
    float *gates = part->work->scratch;
    part->image = image;
    part->images = 1;
    part->z = gates;
    part->u = gates + 2 * channels;
    TRY(pool_channels(part, 0, channels, gates));
    for (int64_t first = 0; first < s->hidden; first += MANY_ROWS) {
        if (OP_CANCELLED(part->work))
            return ATTNRUN_E_CANCELLED;
        find_hidden(part, first,
                    s->hidden - first < MANY_ROWS ? s->hidden - first : MANY_ROWS);
    }
    return scale_channels(part, 0, channels, gates + channels);
}

static attn_status run_task(struct squeeze_excite_part *part, int stage, int64_t task)
{
    const struct se_state *s = part->step->state;
    const int64_t length = stage == HIDDEN ? s->hidden : s->map.channels;
    const int64_t block = stage == HIDDEN ? ROWS : s->cut.block;
    const int64_t first = (stage == SCALE ? s->cut.blocks - 1 - task : task) * block;
    const int64_t n = length - first < block ? length - first : block;
    if (stage == POOL)
        return pool_channels(part, first, n, part->work->scratch);
    if (stage == SCALE)
        return scale_channels(part, first, n, part->work->scratch);
    find_hidden(part, first, n);
    return ATTNRUN_OK;
}

static attn_status se_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct se_state *s = step->state;
    struct squeeze_excite_part part = { .step = step, .work = work };
    if (s->cut.images > 0) {
        part.image = work->phase / STAGES * s->cut.images;
        const int64_t left = s->map.batch - part.image;
        part.images = left < s->cut.images ? left : s->cut.images;
        part.z = work->shared;
        part.u = part.z + s->cut.images * s->map.channels;
    }
    for (int64_t task = work->begin; s->map.batch > 0 && task < work->end; task++)
        TRY(s->cut.images > 0 ? run_task(&part, work->phase % STAGES, task)
                              : run_image(&part, task));
    return ATTNRUN_OK;
}

const attnrun_op_def op_squeeze_excite_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SqueezeExcite",
    .since = 1,
    .inputs = "x:T w1:T b1:T? w2:T? b2:T? identity:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct se_args),
    .state_bytes = sizeof(struct se_state),
    .attrs = se_attrs,
    .infer = se_infer,
    .run = se_run,
    .cost = "O(C n + C R), scratch O(C + R)",
    .source = "Hu 2018, arXiv:1709.01507",
};
