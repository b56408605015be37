/* gated_maps.c - checks, pooling, small products and the last pass of gates over maps.
 * gated_maps.h describes the operands. */
#include "gated_maps.h"

#include <math.h>

/* ---- infer ---- */

static attn_status need_some(const attnrun_step *step, int in, int axes)
{
    static const char *const what[] = { "", "channels", "height", "width" };
    for (int i = 1; op_rank_known(step, in) && i < axes; i++) {
        const attnrun_dim dim = step->in[in].dims[i];
        if (dim_is_const(dim) && dim.value == 0)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "dim %d is 0, but the %s must be 1 or more", i, what[i]);
    }
    return ATTNRUN_OK;
}

attn_status attn_map_check(const attnrun_step *step, int in)
{
    TRY(op_need_rank(step, in, 4));
    return need_some(step, in, 4);
}

attn_status attn_map_check_gated(const attnrun_step *step, int in)
{
    TRY(op_need_rank(step, in, 4));
    return need_some(step, in, 2);
}

attn_status attn_map_check_blocks(const attnrun_step *step, int in, int64_t channels)
{
    TRY(op_need_rank(step, in, 5));
    TRY(op_need_dim(step, in, 1, dim_of(ceil_div(channels, ATTN_BLOCK)),
                    "blocks of channels"));
    TRY(op_need_dim(step, in, 4, dim_of(ATTN_BLOCK), "channels of a block"));
    return need_some(step, in, 4);
}

attn_status attn_map_check_identity(const attnrun_step *step, int identity, int map)
{
    if (!op_has_in(step, identity))
        return ATTNRUN_OK;
    if (!op_rank_known(step, map))
        return op_need_rank(step, identity, 4);
    TRY(op_need_rank(step, identity, step->in[map].rank));
    for (int i = 0; i < step->in[map].rank; i++)
        TRY(op_need_dim(step, identity, i, step->in[map].dims[i], "that of the output"));
    return ATTNRUN_OK;
}

attn_status attn_map_check_matrix(const attnrun_step *step, int in, attnrun_dim rows,
                                  attnrun_dim columns, const char *what)
{
    TRY(op_need_rank(step, in, 2));
    TRY(op_need_dim(step, in, 0, rows, what));
    return op_need_dim(step, in, 1, columns, what);
}

attn_status attn_map_check_mlp(const attnrun_step *step, int w1, attnrun_dim channels)
{
    const int b1 = w1 + 1, w2 = w1 + 2, b2 = w1 + 3;
    TRY(op_need_rank(step, w1, 2));
    TRY(op_need_dim(step, w1, 1, channels, "the channels"));
    const attnrun_dim hidden =
        op_rank_known(step, w1) ? step->in[w1].dims[0] : attnrun_dim_unknown(step);
    if (dim_is_const(hidden) && hidden.value == 0)
        return op_fail_input(step, w1, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    TRY(op_need_vector(step, b1, hidden, "the rows of the first matrix"));
    if (op_has_in(step, w2)) {
        TRY(op_need_rank(step, w2, 2));
        TRY(op_need_dim(step, w2, 0, channels, "the channels"));
        TRY(op_need_dim(step, w2, 1, hidden, "the rows of the first matrix"));
    }
    return op_need_vector(step, b2, channels, "the channels");
}

attnrun_dim attn_map_channels(const attnrun_step *step, int in)
{
    return op_rank_known(step, in) ? step->in[in].dims[1] : attnrun_dim_unknown(step);
}

static attn_status count_map(const attnrun_step *step, int in, struct attn_map *map)
{
    int64_t plane, bytes;
    if (!ck_mul(map->height, map->width, &map->pixels) ||
        !ck_mul(map->stored, map->pixels, &plane) || !ck_mul(plane, 4, &bytes) ||
        !ck_mul(bytes, map->batch, &bytes))
        return op_fail_input(step, in, ATTNRUN_E_LIMIT,
                             "expected at most 2^63 - 1 bytes");
    return ATTNRUN_OK;
}

attn_status attn_map_sizes(const attnrun_step *step, int in, struct attn_map *map)
{
    const attnrun_dim *dims = step->in[in].dims;
    *map = (struct attn_map){ .batch = dims[0].value,
                              .channels = dims[1].value,
                              .height = dims[2].value,
                              .width = dims[3].value,
                              .stored = dims[1].value,
                              .lanes = 1 };
    return count_map(step, in, map);
}

attn_status attn_map_block_sizes(const attnrun_step *step, int in, int64_t channels,
                                 struct attn_map *map)
{
    const attnrun_dim *dims = step->in[in].dims;
    *map = (struct attn_map){ .batch = dims[0].value,
                              .channels = channels,
                              .height = dims[2].value,
                              .width = dims[3].value,
                              .stored = round_up(channels, ATTN_BLOCK),
                              .lanes = ATTN_BLOCK };
    return count_map(step, in, map);
}

struct attn_map_cut attn_map_cut(const struct attn_map *map, int64_t weights, int max)
{
    enum { MANY_IMAGES = 8, PIXELS = 32768, ROWS = 16 };
    struct attn_map_cut cut = { 0 };
    if (map->batch == 0 ||
        (map->batch >= MANY_IMAGES && weights <= map->channels * map->pixels))
        return cut;
    cut.images = ceil_div(map->batch, max);
    cut.block = PIXELS / map->pixels / cut.images;
    if (cut.block < ROWS && cut.images * map->pixels <= PIXELS)
        cut.block = ROWS; /* worth a product */
    cut.block = cut.block < 1 ? 1 : cut.block < map->channels ? cut.block : map->channels;
    if (cut.block > ROWS)
        cut.block -= cut.block % ROWS;
    cut.block = cut.block < map->lanes ? map->lanes : cut.block;
    cut.blocks = ceil_div(map->channels, cut.block);
    return cut;
}

/* ---- run ---- */

static int stats_wanted(const struct attn_map_pools *pools)
{
    static const int stats[ATTN_POOL_WORDS] = { ATTN_STAT_SUM, ATTN_STAT_MAX,
                                                ATTN_STAT_SQUARES, ATTN_STAT_EXP };
    int what = 0;
    for (int32_t t = 0; t < pools->n; t++)
        what |= stats[pools->words[t]];
    return what;
}

static float pooled(const struct attn_plane_stats *s, int32_t word, int64_t n)
{
    switch (word) {
    case ATTN_POOL_AVG:
        return (float)(s->sum / (double)n);
    case ATTN_POOL_MAX:
        return s->max;
    case ATTN_POOL_LP:
        return sqrtf((float)s->squares);
    default: /* x - max is NaN where max is infinite */
        return isinf(s->max) ? NAN : s->max + logf((float)s->exp_sum);
    }
}

/* Computes means and maxima of planes of one block; each may be absent. */
static void pool_small(const attnrun_step *step, const struct attn_map_pools *pools,
                       const float *x, int64_t planes, int64_t n, float *z, int64_t z_row)
{
    float *rows[2] = { NULL, NULL };
    for (int32_t t = 0; t < pools->n; t++)
        rows[pools->words[t]] = z + t * z_row;
    step->kernels->small_planes_f32(rows[ATTN_POOL_AVG], rows[ATTN_POOL_MAX], x,
                                    (size_t)n, (size_t)planes);
    for (int64_t c = 0; rows[ATTN_POOL_AVG] != NULL && c < planes; c++)
        rows[ATTN_POOL_AVG][c] /= (float)n;
}

attn_status attn_map_pool(const attnrun_step *step, const attnrun_work *work,
                          const struct attn_map_pools *pools, const float *x,
                          int64_t planes, int64_t n, float *z, int64_t z_row)
{
    enum { AT_ONCE = 1 << 18 };
    const int what = stats_wanted(pools);
    const bool small = n <= ATTN_SMALL_PLANE && what < ATTN_STAT_SQUARES;
    for (int64_t c = 0, some; small && c < planes; c += some) {
        some = planes - c < AT_ONCE / n ? planes - c : AT_ONCE / n;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        pool_small(step, pools, x + c * n, some, n, z + c, z_row);
    }
    for (int64_t c = small ? planes : 0; c < planes; c++, x += n) {
        struct attn_plane_stats s = ATTN_PLANE_STATS;
        for (int64_t at = 0; at < n; at += AT_ONCE) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            step->kernels->plane_stats_f32(
                x + at, (size_t)(n - at < AT_ONCE ? n - at : AT_ONCE), what, &s);
        }
        for (int32_t t = 0; t < pools->n; t++)
            z[t * z_row + c] = pooled(&s, pools->words[t], n);
    }
    return ATTNRUN_OK;
}

attn_status attn_map_pool_blocks(const attnrun_step *step, const attnrun_work *work,
                                 const struct attn_map_pools *pools, const float *x,
                                 int64_t planes, int64_t n, float *z, int64_t z_row)
{
    for (int64_t c = 0; c < planes; c += ATTN_BLOCK) {
        float mean[ATTN_BLOCK], max[ATTN_BLOCK];
        const int64_t some = min64(planes - c, ATTN_BLOCK);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        step->kernels->blocked_stats_f32(mean, max, x + c * n, (size_t)n);
        for (int32_t t = 0; t < pools->n; t++)
            memcpy(z + t * z_row + c, pools->words[t] == ATTN_POOL_AVG ? mean : max,
                   (size_t)some * sizeof *z);
    }
    return ATTNRUN_OK;
}

struct attn_dense attn_map_dense(const attnrun_step *step, int w, int b, int64_t first,
                                 int64_t rows)
{
    const int64_t k = step->x[w].dims[1];
    return (struct attn_dense){
        .w = (const float *)step->x[w].data + first * k,
        .w_row = k,
        .k = (size_t)k,
        .rows = (size_t)rows,
        .bias =
            b >= 0 && op_has_in(step, b) ? (const float *)step->x[b].data + first : NULL,
        .bias_factor = 1.0f,
    };
}

void attn_map_activate(const attnrun_step *step, int32_t activation, float *v, int64_t n)
{
    static const float none[2] = { 1.0f, 0.0f };
    const size_t size = (size_t)n;
    if (activation == ATTN_ACT_RELU)
        step->kernels->relu_f32(v, v, size, none);
    else if (activation == ATTN_ACT_SILU)
        step->kernels->swish_f32(v, v, size, none);
    else if (activation == ATTN_ACT_GELU)
        step->kernels->gelu_f32(v, v, size, none);
    else if (activation == ATTN_ACT_HARDSWISH)
        step->kernels->hard_swish_f32(v, v, size, none);
}

void attn_map_gate(const attnrun_step *step, int32_t gate, float *v, int64_t n)
{
    static const float hard[2] = { 1.0f / 6.0f, 0.5f };
    if (gate == ATTN_GATE_HARD_SIGMOID)
        step->kernels->hard_sigmoid_f32(v, v, (size_t)n, hard);
    else
        step->kernels->sigmoid_f32(v, v, (size_t)n, hard);
}

struct attn_gate attn_residual_relu(const attnrun_step *step, int x, int identity,
                                    int32_t tail, int64_t at, int64_t row)
{
    return (struct attn_gate){
        .x = (const float *)step->x[x].data + at,
        .y = (float *)step->y[0].data + at,
        .identity =
            op_has_in(step, identity) ? (const float *)step->x[identity].data + at : NULL,
        .row = row,
        .relu = tail,
    };
}

attn_status attn_map_scale(const attnrun_step *step, const attnrun_work *work,
                           const struct attn_gate *gate)
{
    const size_t lanes = gate->blocks ? ATTN_BLOCK : 1;
    const size_t few = (1 << 13) / lanes, many = (1 << 18) / lanes;
    const size_t at_once = gate->n < few ? few / gate->n : 1;
    for (size_t end = gate->planes, first; end > 0; end = first) {
        first = end > at_once ? end - at_once : 0;
        for (size_t p = 0; p < gate->n; p += many) {
            const ptrdiff_t at = (ptrdiff_t)first * gate->row + (ptrdiff_t)(p * lanes);
            struct attn_gate part = *gate;
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            part.x += at;
            part.y += at;
            part.identity = gate->identity != NULL ? gate->identity + at : NULL;
            part.gate = gate->gate != NULL ? gate->gate + first * lanes : NULL;
            part.pixels = gate->pixels != NULL ? gate->pixels + p : NULL;
            part.planes = end - first;
            part.n = gate->n - p < many ? gate->n - p : many;
            if (gate->blocks)
                step->kernels->blocked_gates_f32(&part);
            else
                step->kernels->gate_planes_f32(&part);
        }
    }
    return ATTNRUN_OK;
}

void attn_map_product(const struct attn_kernels *kernels, struct attn_gemm_f32 g,
                      const float *bias, const struct attn_epilogue *last)
{
    enum { ROWS = OP_PRODUCT_ROWS };
    struct attn_epilogue steps[2];
    const size_t rows = g.m;
    for (size_t i = 0; i < rows; i += ROWS) {
        g.n_epilogue = 0;
        if (bias != NULL)
            steps[g.n_epilogue++] = (struct attn_epilogue){
                .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = 1, .data = bias + i
            };
        if (last != NULL)
            steps[g.n_epilogue++] = *last;
        g.epilogue = steps;
        g.m = rows - i < ROWS ? rows - i : ROWS;
        kernels->gemm_f32(&g);
        g.a += ROWS * g.a_row;
        g.c += ROWS * g.c_row;
    }
}
