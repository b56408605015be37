/* sk_select.c - SKSelect: a weighted sum of several maps (branches). The weights are a
 * softmax across the branches for each channel, computed from the mean of all branches.
 *
 *   S_c = sum over m of mean_p f_m[c,p]   Z = act(w1 S + b1)   l_m = wsel_m Z + bsel_m
 *   Y[c,p] = post(sum over m of softmax_m(l)[c] f_m[c,p] + identity[c,p])
 *
 * w1, b1           (d, C), (d);  wsel, bsel (M, C, d), (M, C); b1, bsel optional
 * f, identity, Y   f32 (batch, C, h, w): f_0 … f_M-1, 2 <= M <= 8; identity is optional
 * activation       none | relu;  post_activation  none | relu
 *
 * Up to three images are computed one by one, each with the phases pool (blocks of
 * channels), select (the small products) and sum (blocks of channels). With more images
 * an image is a task. A pixel of all branches and identity is read before it is written,
 * so Y may share the memory of any of them, and one map may be given twice.
 *
 * Refused: fewer than 2 or more than 8 maps, sizes that disagree, d = 0.
 * Cost: reads each map twice and writes one. Memory: C + d + M C floats an image. Neither
 * the stack of the branches nor their sum exists.
 * Source: Li 2019, arXiv:1903.06586. Compared with fightingcv-attention 1.0.0 SKAttention
 * and timm 1.0.28 SelectiveKernelAttn. */
#include <math.h>

#include "gated_maps.h"

enum { W1, B1, WSEL, BSEL, IDENTITY, F };
enum { POOL, SELECT, SUM, STAGES };
enum { FEW_IMAGES = 3, MIN_MAPS = 2, MAX_MAPS = 8, PIXELS = 32768 };

struct sk_args {
    int32_t activation, post_activation;
};
static const attnrun_attr_def sk_attrs[] = {
    ATTR_ENUM(struct sk_args, activation, "none|relu", 0),
    ATTR_ENUM(struct sk_args, post_activation, ATTN_MAP_TAILS, 0),
    ATTR_END,
};

struct sk_state {
    struct attn_map map;
    int64_t maps, hidden;  /* M, d */
    int64_t block, blocks; /* channels of a task; of an image */
    int64_t floats;        /* of an image: S, Z, then the weights (M, C) */
};

/* ---- infer ---- */

static attn_status check_maps(const attnrun_step *step, int maps)
{
    if (maps < MIN_MAPS || maps > MAX_MAPS)
        return op_fail(step, ATTNRUN_E_INPUT, "it has %s, expected %d to %d",
                       attn_plural(maps < 0 ? 0 : maps, "map"), MIN_MAPS, MAX_MAPS);
    for (int in = F; in < F + maps; in++) {
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT, "map f_%d is missing", in - F);
        TRY(attn_map_check(step, in));
        for (int i = 0; op_rank_known(step, F) && in > F && i < 4; i++)
            TRY(op_need_dim(step, in, i, step->in[F].dims[i], "that of f_0"));
    }
    return attn_map_check_identity(step, IDENTITY, F);
}

static attn_status sk_select_check_weights(const attnrun_step *step, int maps)
{
    const attnrun_dim channels = attn_map_channels(step, F);
    attnrun_dim hidden = attnrun_dim_unknown(step);
    TRY(op_need_rank(step, W1, 2));
    TRY(op_need_dim(step, W1, 1, channels, "the channels"));
    if (op_rank_known(step, W1))
        hidden = step->in[W1].dims[0];
    if (dim_is_const(hidden) && hidden.value == 0)
        return op_fail_input(step, W1, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    TRY(op_need_vector(step, B1, hidden, "the rows of w1"));
    TRY(op_need_rank(step, WSEL, 3));
    TRY(op_need_dim(step, WSEL, 0, dim_of(maps), "the number of maps"));
    TRY(op_need_dim(step, WSEL, 1, channels, "the channels"));
    TRY(op_need_dim(step, WSEL, 2, hidden, "the rows of w1"));
    return op_has_in(step, BSEL) ? attn_map_check_matrix(step, BSEL, dim_of(maps),
                                                         channels, "maps by channels")
                                 : ATTNRUN_OK;
}

static attn_status plan_sk_select(attnrun_step *step, int maps)
{
    struct sk_state *s = step->state;
    const struct attn_map *map = &s->map;
    *s = (struct sk_state){ .maps = maps, .hidden = step->in[W1].dims[0].value };
    TRY(attn_map_sizes(step, F, &s->map));
    int64_t bytes, images = map->batch;
    if (!ck_mul(map->channels, maps + 1, &s->floats) ||
        !ck_add(s->floats, s->hidden, &s->floats) || !ck_mul(s->floats, 4, &bytes))
        return op_fail_size(step, "the memory of the pooled vectors", "2^63 - 1 bytes");
    if (images == 0)
        return ATTNRUN_OK;
    s->block = PIXELS / map->pixels;
    s->block = s->block < 1 ? 1 : s->block < map->channels ? s->block : map->channels;
    s->blocks = ceil_div(map->channels, s->block);
    const int64_t elements = s->block * map->pixels * maps,
                  product = map->channels * s->hidden * (1 + maps) / 8;
    if (images > FEW_IMAGES) {
        op_tasks(step, 0, images, s->blocks * elements / 6 + product);
        step->scratch_bytes = bytes;
        return ATTNRUN_OK;
    }
    step->shared_bytes = bytes; /* images go one after the other */
    for (int64_t b = 0; b < images; b++) {
        op_tasks(step, (int)b * STAGES + POOL, s->blocks, elements / 16 + 20);
        op_tasks(step, (int)b * STAGES + SELECT, 1, product + 20);
        op_tasks(step, (int)b * STAGES + SUM, s->blocks, elements / 8 + 20);
    }
    return ATTNRUN_OK;
}

static attn_status sk_infer(attnrun_step *step)
{
    const int maps = step->n_in - F;
    TRY(check_maps(step, maps));
    TRY(sk_select_check_weights(step, maps));
    TRY(op_out_like(step, 0, F));
    for (int in = IDENTITY; in < F + maps; in++)
        attnrun_step_inplace(step, 0, in);
    return step->concrete ? plan_sk_select(step, maps) : ATTNRUN_OK;
}

/* ---- run ---- */

static const float *planes(const attnrun_step *step, int64_t m, int64_t plane)
{
    const struct sk_state *s = step->state;
    return (const float *)step->x[F + m].data + plane * s->map.pixels;
}

/* Computes S of channels first … first + n - 1 of an image. */
static attn_status pool(const attnrun_step *step, const attnrun_work *work, int64_t image,
                        int64_t first, int64_t n, float *floats)
{
    static const struct attn_map_pools mean = { 1, { ATTN_POOL_AVG } };
    enum { AT_ONCE = 64 };
    const struct sk_state *s = step->state;
    float numbers[AT_ONCE];
    for (int64_t c = first; c < first + n; c += AT_ONCE) {
        const int64_t some = first + n - c < AT_ONCE ? first + n - c : AT_ONCE;
        for (int64_t m = 0; m < s->maps; m++) {
            float *sum = floats + c;
            TRY(attn_map_pool(step, work, &mean,
                              planes(step, m, image * s->map.channels + c), some,
                              s->map.pixels, numbers, some));
            for (int64_t i = 0; i < some; i++)
                sum[i] = m == 0 ? numbers[i] : sum[i] + numbers[i];
        }
    }
    return ATTNRUN_OK;
}

/* Computes the softmax across M rows of n logits, in place. */
static void sk_select_softmax(float *logits, int64_t maps, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        float max = logits[c], sum = 0.0f;
        for (int64_t m = 1; m < maps; m++)
            max = fmaxf(max, logits[m * n + c]);
        for (int64_t m = 0; m < maps; m++) {
            logits[m * n + c] = expf(logits[m * n + c] - max);
            sum += logits[m * n + c];
        }
        for (int64_t m = 0; m < maps; m++)
            logits[m * n + c] /= sum;
    }
}

static void sk_find_weights(const attnrun_step *step, float *floats)
{
    const struct sk_args *args = step->args;
    const struct sk_state *s = step->state;
    const int64_t channels = s->map.channels;
    float *hidden = floats + channels, *logits = hidden + s->hidden;
    struct attn_dense dense = attn_map_dense(step, W1, B1, 0, s->hidden);
    dense.z = floats;
    dense.y = hidden;
    dense.m = 1;
    step->kernels->dense_rows_f32(&dense);
    attn_map_activate(step, args->activation, hidden, s->hidden);
    dense = (struct attn_dense){ .w = step->x[WSEL].data,
                                 .z = hidden,
                                 .bias = op_in_data(step, BSEL),
                                 .y = logits,
                                 .w_row = s->hidden,
                                 .m = 1,
                                 .rows = (size_t)(s->maps * channels),
                                 .k = (size_t)s->hidden,
                                 .bias_factor = 1.0f };
    step->kernels->dense_rows_f32(&dense);
    sk_select_softmax(logits, s->maps, channels);
}

/* Computes Y of channel c of an image, a part of the plane after the other. */
static attn_status sum_plane(const attnrun_step *step, const attnrun_work *work,
                             int64_t image, int64_t c, const float *weights)
{
    enum { AT_ONCE = 65536 };
    const struct sk_args *args = step->args;
    const struct sk_state *s = step->state;
    const int64_t n = s->map.pixels, plane = image * s->map.channels + c;
    const float *identity = op_in_data(step, IDENTITY);
    struct attn_sum_planes sum = { .maps = (int32_t)s->maps,
                                   .relu = args->post_activation };
    for (int64_t p = 0; p < n; p += AT_ONCE) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t m = 0; m < s->maps; m++) {
            sum.x[m] = planes(step, m, plane) + p;
            sum.weight[m] = weights[m * s->map.channels + c];
        }
        sum.identity = identity != NULL ? identity + plane * n + p : NULL;
        sum.y = (float *)step->y[0].data + plane * n + p;
        sum.n = (size_t)(n - p < AT_ONCE ? n - p : AT_ONCE);
        step->kernels->sum_planes_f32(&sum);
    }
    return ATTNRUN_OK;
}

static attn_status sum_channels(const attnrun_step *step, const attnrun_work *work,
                                int64_t image, int64_t first, int64_t n, float *floats)
{
    const struct sk_state *s = step->state;
    for (int64_t c = first + n - 1; c >= first; c--)
        TRY(sum_plane(step, work, image, c, floats + s->map.channels + s->hidden));
    return ATTNRUN_OK;
}

static attn_status run_stage(const attnrun_step *step, const attnrun_work *work,
                             int64_t task)
{
    const struct sk_state *s = step->state;
    const int stage = work->phase % STAGES;
    const int64_t image = work->phase / STAGES, channels = s->map.channels;
    if (stage == SELECT) {
        sk_find_weights(step, work->shared);
        return ATTNRUN_OK;
    }
    /* The maps are read backwards in this stage, because what was pooled last may still
     * be in a cache. */
    const int64_t first = (stage == SUM ? s->blocks - 1 - task : task) * s->block;
    const int64_t n = channels - first < s->block ? channels - first : s->block;
    return (stage == POOL ? pool : sum_channels)(step, work, image, first, n,
                                                 work->shared);
}

static attn_status sk_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct sk_state *s = step->state;
    for (int64_t task = work->begin; s->map.batch > 0 && task < work->end; task++) {
        if (s->map.batch <= FEW_IMAGES) {
            TRY(run_stage(step, work, task));
            continue;
        }
        TRY(pool(step, work, task, 0, s->map.channels, work->scratch));
        sk_find_weights(step, work->scratch);
        TRY(sum_channels(step, work, task, 0, s->map.channels, work->scratch));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_sk_select_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SKSelect",
    .since = 1,
    .inputs = "w1:T b1:T? wsel:T bsel:T? identity:T? f:T*",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct sk_args),
    .state_bytes = sizeof(struct sk_state),
    .attrs = sk_attrs,
    .infer = sk_infer,
    .run = sk_run,
    .cost = "O(M C n + M C d), scratch O(M C)",
    .source = "Li 2019, arXiv:1903.06586",
};
