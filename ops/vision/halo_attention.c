/* halo_attention.c - HaloAttention: the map is cut into blocks of b x b pixels, and the
 * queries of a block see the r x r window around it, r = b + 2 halo.
 *
 *   Q = wq x + bq, K = wk x + bk, V = wv x + bv for each pixel; outside the map K = V = 0
 *   S = scale Q K_ij + (rel_h[i - X + r - 1] + rel_w[j - Y + r - 1]) Q'
 *   Y = wo (softmax(S) V) + bo, without wo the heads one after the other
 *
 * for query (X, Y) of a block and pixel (i, j) of its window, whose first pixel is halo
 * rows and columns before the block. Q' is scale Q; with rel_scaled 0 it is Q.
 *
 * x              f32 (batch, C, h, w); Y (batch, Co, h / q_stride, w / q_stride)
 * wq, wk         f32 (num_heads dk, C); wv (num_heads dv, C)
 * bq, bk         f32 (num_heads dk); bv (num_heads dv)
 * rel_h, rel_w   f32 (2 r - 1, dk), for all heads; both or none
 * wo             f32 (Co, num_heads dv); bo (Co)
 * num_heads, block_size (b), halo_size
 * scale          1 / sqrt(dk) by default
 * padding        pixels outside the map are left out ("mask", the default), or they take
 *                part with the relative terms as scores ("attend"), or only they take
 *                part ("inverted": a window inside the map gives the mean of its values,
 *                any other 0)
 * q_stride       2: queries are the pixels of even rows and columns, (X, Y) counts them
 * allow_partial  1: h and w need not be multiples of b
 *
 * K and V exist once for each pixel. They exist for all images where they take up to 16
 * MiB; otherwise for the rows that a row of blocks sees, in regions of the image that are
 * tasks. All tensors are stored by channel, as the map is: scores are keys x queries,
 * products take K, V and weights as left operands in place, and the softmax goes down
 * columns.
 *
 * Refused: blocks that do not fit without allow_partial, q_stride 2 with odd b, one of
 * rel_h and rel_w, bo without wo, inverted with allow_partial, sizes that disagree.
 * Cost: 2 (C heads (2 dk + dv) + r^2 heads (dk + dv) + heads dv Co) FLOPs a pixel.
 * Memory: K, V, Q and results of all pixels up to 16 MiB, or those of a region for each
 * worker.
 * Source: Vaswani 2021, arXiv:2103.12731. Compared with timm 1.0.28 HaloAttn ("attend"),
 * halonet-pytorch 0.0.5 HaloAttention ("mask") and fightingcv-attention 1.0.0
 * HaloAttention ("inverted", as halonet-pytorch up to 0.0.4). With "inverted" a pixel
 * that is NaN or infinite gives 0 for a window with padding, where these packages give
 * NaN. */
#include <math.h>

#include "../attention/core/heads.h"
#include "halo.h"

static const attnrun_attr_def halo_attrs[] = {
    ATTR_INT_REQUIRED(struct attn_halo_args, num_heads),
    ATTR_INT_REQUIRED(struct attn_halo_args, block_size),
    ATTR_INT_REQUIRED(struct attn_halo_args, halo_size),
    ATTR_FLOAT(struct attn_halo_args, scale, ATTN_SCALE_ABSENT),
    ATTR_INT(struct attn_halo_args, rel_scaled, 1),
    ATTR_ENUM(struct attn_halo_args, padding, "attend|mask|inverted", ATTN_HALO_MASK),
    ATTR_INT(struct attn_halo_args, q_stride, 1),
    ATTR_INT(struct attn_halo_args, allow_partial, 0),
    ATTR_END,
};

static attn_status halo_check_args(const attnrun_step *step)
{
    enum { MAX = 1 << 15 };
    const struct attn_halo_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    TRY(attn_need_int(step, "block_size", args->block_size, 1, MAX));
    TRY(attn_need_int(step, "halo_size", args->halo_size, 0, MAX));
    TRY(attn_need_int(step, "rel_scaled", args->rel_scaled, 0, 1));
    TRY(attn_need_int(step, "q_stride", args->q_stride, 1, 2));
    TRY(attn_need_int(step, "allow_partial", args->allow_partial, 0, 1));
    if (attn_scale_given(args->scale))
        TRY(attn_need_finite(step, "scale", args->scale, false));
    if (args->q_stride == 2 && args->block_size % 2 != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected an even number with q_stride 2",
                       (long long)args->block_size);
    return args->padding == ATTN_HALO_INVERTED && args->allow_partial == 1
               ? op_fail(step, ATTNRUN_E_ATTR,
                         "padding is \"inverted\", expected another with allow_partial")
               : ATTNRUN_OK;
}

static attn_status halo_check_map(const attnrun_step *step)
{
    static const char *const names[] = { "height", "width" };
    const struct attn_halo_args *args = step->args;
    TRY(attn_map_check(step, X));
    for (int i = 0; i < 2 && op_rank_known(step, X); i++) {
        const attnrun_dim n = step->in[X].dims[2 + i];
        if (args->allow_partial == 0 && dim_is_const(n) &&
            n.value % args->block_size != 0)
            return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                                 "expected a %s that blocks of %lld divide", names[i],
                                 (long long)args->block_size);
    }
    return ATTNRUN_OK;
}

/* Checks a matrix of heads, which has *rows rows, and its bias. */
static attn_status check_heads(const attnrun_step *step, int w, int b,
                               attnrun_dim channels, attnrun_dim *rows)
{
    const struct attn_halo_args *args = step->args;
    TRY(op_need_rank(step, w, 2));
    *rows = op_rank_known(step, w) ? step->in[w].dims[0] : attnrun_dim_unknown(step);
    if (dim_is_const(*rows) && (rows->value == 0 || rows->value % args->num_heads != 0))
        return op_fail_input(step, w, ATTNRUN_E_SHAPE,
                             "expected some rows for each of %s",
                             attn_plural(args->num_heads, "head"));
    TRY(op_need_dim(step, w, 1, channels, "the channels"));
    return op_need_vector(step, b, *rows, "the rows of its matrix");
}

static attn_status check_relative(const attnrun_step *step, attnrun_dim rows)
{
    const struct attn_halo_args *args = step->args;
    const attnrun_dim heads = dim_of(args->num_heads);
    const attnrun_dim n = dim_of(2 * (args->block_size + 2 * args->halo_size) - 1);
    for (int in = REL_H; in <= REL_W; in++) {
        if (op_has_in(step, in) != op_has_in(step, REL_H + REL_W - in))
            return op_fail(
                step, ATTNRUN_E_INPUT,
                "one of inputs rel_h and rel_w is missing, expected both or none");
        if (!op_has_in(step, in))
            continue;
        TRY(op_need_rank(step, in, 2));
        TRY(op_need_dim(step, in, 0, n, "2 (block_size + 2 halo_size) - 1"));
        TRY(op_need_dim(step, in, 1, op_dim_div_exact(step, rows, heads),
                        "the size of a head of wq"));
    }
    return ATTNRUN_OK;
}

/* Checks the weights; *channels: those of Y. */
static attn_status halo_check_weights(const attnrun_step *step, attnrun_dim *channels)
{
    const attnrun_dim c = attn_map_channels(step, X);
    attnrun_dim rows;
    TRY(check_heads(step, WQ, BQ, c, &rows));
    TRY(check_relative(step, rows));
    TRY(op_need_rank(step, WK, 2));
    TRY(op_need_dim(step, WK, 0, rows, "the rows of wq"));
    TRY(check_heads(step, WK, BK, c, &rows));
    TRY(check_heads(step, WV, BV, c, channels));
    if (!op_has_in(step, WO))
        return op_has_in(step, BO)
                   ? op_fail_input(step, BO, ATTNRUN_E_INPUT, "expected none without wo")
                   : ATTNRUN_OK;
    TRY(op_need_rank(step, WO, 2));
    TRY(op_need_dim(step, WO, 1, *channels, "the rows of wv"));
    *channels =
        op_rank_known(step, WO) ? step->in[WO].dims[0] : attnrun_dim_unknown(step);
    if (dim_is_const(*channels) && channels->value == 0)
        return op_fail_input(step, WO, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    return op_need_vector(step, BO, *channels, "the rows of wo");
}

/* Plans what does not depend on the form of the computation. */
static attn_status halo_plan(attnrun_step *step, int64_t out_channels)
{
    const struct attn_halo_args *args = step->args;
    struct attn_halo *s = step->state;
    TRY(attn_map_sizes(step, X, &s->map));
    s->heads = args->num_heads;
    s->dk = step->in[WQ].dims[0].value / s->heads;
    s->dv = step->in[WV].dims[0].value / s->heads;
    s->out_channels = out_channels;
    s->block = args->block_size;
    s->halo = args->halo_size;
    s->window = s->block + 2 * s->halo;
    s->stride = args->q_stride;
    s->side = s->block / s->stride;
    s->rows = ceil_div(s->map.height, s->block);
    s->columns = ceil_div(s->map.width, s->block);
    s->out_h = ceil_div(s->map.height, s->stride);
    s->out_w = ceil_div(s->map.width, s->stride);
    s->relative = op_has_in(step, REL_H);
    s->scale =
        attn_scale_given(args->scale) ? args->scale : (float)(1.0 / sqrt((double)s->dk));
    if (args->padding == ATTN_HALO_INVERTED)
        return attn_halo_mean_plan(step, s);
    return attn_halo_plan(step, s);
}

static attn_status halo_infer(attnrun_step *step)
{
    const struct attn_halo_args *args = step->args;
    attnrun_dim y[4];
    TRY(halo_check_args(step));
    TRY(halo_check_map(step));
    for (int i = 0; i < 4; i++)
        y[i] = op_rank_known(step, X) ? step->in[X].dims[i] : attnrun_dim_unknown(step);
    TRY(halo_check_weights(step, &y[1]));
    for (int i = 2; i < 4 && args->q_stride == 2; i++)
        y[i] =
            args->allow_partial == 1
                ? attnrun_dim_div(step, attnrun_dim_add(step, y[i], dim_of(1)), dim_of(2))
                : op_dim_div_exact(step, y[i], dim_of(2));
    TRY(op_out(step, 0, ATTNRUN_F32, 4, y));
    return step->concrete ? halo_plan(step, y[1].value) : ATTNRUN_OK;
}

static attn_status halo_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_halo_args *args = step->args;
    if (args->padding == ATTN_HALO_INVERTED)
        return attn_halo_mean_run(step, work);
    return attn_halo_run(step, work);
}

const attnrun_op_def op_halo_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "HaloAttention",
    .since = 1,
    .inputs = "x:T wq:T wk:T wv:T rel_h:T? rel_w:T? bq:T? bk:T? bv:T? wo:T? bo:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct attn_halo_args),
    .state_bytes = sizeof(struct attn_halo),
    .attrs = halo_attrs,
    .infer = halo_infer,
    .run = halo_run,
    .cost = "O(n d (C + (block + 2 halo)^2)), n pixels, d rows of wq and wv",
    .source = "Vaswani 2021, arXiv:2103.12731",
};
