/* blocked_conv.c - BlockedConv: Conv of blocked maps, with what may follow it:
 *
 *   y = activation(S conv(x, W) + B + Z)
 *
 * X     [N, ceil(C / 16), H, W, 16], or with plain = 1 [N, C, H, W], which may be f16 or bf16:
 *       the copy of what a task sees has its floats
 * W     [M, C / group, height, width], B [M]: constants; with transposed = 1 W is [C, M, 1, 1].
 *       W may be f16 or bf16, and is packed as that: floats of a panel are made in scratch, by
 *       the first tile that reads it, or, of Winograd's tiles, by a transform
 * S     [16 ceil(M / 16)], a constant
 * Y, Z  [N, ceil(M / 16), H', W', 16], see blocked.h; the sizes are in sliding_window.c
 *
 * With spread_h, spread_w a pixel becomes as many pixels of Y, those of column j of line i from
 * rows (i spread_w + j) M / (spread_h spread_w) on: a ConvTranspose whose strides are its kernel.
 *
 * With winograd = 1 3 x 3 taps are computed by tiles of 2 x 2 outputs (blocked_winograd.c).
 * group is 1, or C and M (each channel by itself), or divides both into multiples of 16.
 * With products of bf16 X may be bf16, if C is a multiple of 16, and so may Z; with to_bf16 = 1 Y
 * is, with a Z only if the activation clips. Sums are floats, and are rounded once.
 * Written by the pass blocked_layout. Cost: 2 N M C / group pixels taps FLOPs. */
#include <math.h>

#include "blocked.h"

static const attnrun_attr_def blocked_conv_attrs[] = {
    BLOCKED_CONV_ATTRS,
    ATTR_FLAG(struct blocked_conv_args, winograd, 0),
    ATTR_FLAG(struct blocked_conv_args, transposed, 0),
    ATTR_FLAG(struct blocked_conv_args, to_bf16, 0),
    ATTR_INT(struct blocked_conv_args, spread_h, 1),
    ATTR_INT(struct blocked_conv_args, spread_w, 1),
    ATTR_ENUM(struct blocked_conv_args, activation, CONV_ACTIVATIONS, 0),
    ATTR_FLOAT(struct blocked_conv_args, alpha, 0.0f),
    ATTR_FLOAT(struct blocked_conv_args, beta, 0.0f),
    ATTR_END
};

attn_status attn_blocked_check(const attnrun_step *step, int in)
{
    TRY(op_need_rank(step, in, 5));
    return op_need_dim(step, in, 4, dim_of(ATTN_BLOCK), "channels of a block");
}

attn_status attn_blocked_check_byte(const attnrun_step *step, const char *name,
                                    int64_t byte)
{
    if (byte < 0 || byte > 255)
        return op_fail(step, ATTNRUN_E_ATTR, "%s is %lld, expected 0 to 255", name,
                       (long long)byte);
    return ATTNRUN_OK;
}

attn_status attn_blocked_out(attnrun_step *step, attnrun_dim batch, attnrun_dim blocks,
                             attnrun_dim height, attnrun_dim width)
{
    const attnrun_dim dims[5] = { batch, blocks, height, width, dim_of(ATTN_BLOCK) };
    return op_out(step, 0, step->in[0].dtype, 5, dims);
}

static attn_status check_winograd(const attnrun_step *step,
                                  const struct blocked_conv_args *args)
{
    const attnrun_dim *w = step->in[1].dims;
    bool fits = args->plain == 0 && !blocked_by_itself(args, w[0].value) &&
                w[2].value == 3 && w[3].value == 3;
    for (int i = 0; i < 2; i++)
        fits = fits && window_attr(args->window.strides, i, 1) == 1;
    if (args->winograd != 0 && !fits)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "winograd is 1, expected 0 unless W is 3 x 3, strides are 1, "
                       "plain is 0 and a "
                       "group has several channels");
    return ATTNRUN_OK;
}

static int64_t rows_of(const attnrun_step *step, const struct blocked_conv_args *args)
{
    return step->in[1].dims[args->transposed != 0 ? 1 : 0].value;
}

static int64_t spread_of(const struct blocked_conv_args *args)
{
    return max64(args->spread_h, 1) * max64(args->spread_w, 1);
}

/* Pixels are spread from transposed weights, in whole blocks of each. */
static attn_status check_spread(const attnrun_step *step,
                                const struct blocked_conv_args *args)
{
    enum { MAX_SPREAD = 64 };
    if (args->spread_h == 1 && args->spread_w == 1)
        return ATTNRUN_OK;
    if (args->spread_h < 1 || args->spread_w < 1 || args->spread_h > MAX_SPREAD ||
        args->spread_w > MAX_SPREAD || args->transposed == 0 || args->to_bf16 != 0 ||
        op_has_in(step, 3) || rows_of(step, args) % (spread_of(args) * ATTN_BLOCK) != 0)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "spread_h is %lld and spread_w %lld, expected 1, or up to %d with "
            "transposed 1, whole blocks of 16 channels, and neither Z nor to_bf16",
            (long long)args->spread_h, (long long)args->spread_w, MAX_SPREAD);
    return ATTNRUN_OK;
}

/* The kernel applies the activation itself. */
static bool clips(const struct blocked_conv_args *args)
{
    struct attn_epilogue steps[3];
    struct blocked_operands o;
    attn_blocked_set_activation(&o, steps, args->activation, &args->alpha, &args->beta);
    return o.clipped;
}

/* What only dense convolutions by no tiles take. */
static attn_status check_dense(const attnrun_step *step,
                               const struct blocked_conv_args *args)
{
    const attnrun_dim *w = step->in[1].dims;
    const int64_t rows = rows_of(step, args);
    const int32_t x_type = step->in[0].dtype;
    const bool dense = args->winograd == 0 && !blocked_by_itself(args, rows);
    if (args->transposed != 0 && (!dense || args->group != 1 || args->plain != 0 ||
                                  w[2].value != 1 || w[3].value != 1))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "transposed is 1, expected 0 unless W is 1 x 1 in one group, and "
                       "plain and winograd are 0");
    if ((x_type == ATTNRUN_BF16 || args->to_bf16 != 0) && !dense)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "bf16 is not supported with winograd or where each channel is a "
                       "group");
    if (x_type == ATTNRUN_F16 && args->plain == 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "X is f16, expected f32 where plain is 0");
    if (x_type == ATTNRUN_BF16 && args->plain == 0 && args->channels % ATTN_BLOCK != 0)
        return op_fail(
            step, ATTNRUN_E_UNSUPPORTED,
            "X is bf16, expected f32: there are %lld channels, which is not a multiple "
            "of 16",
            (long long)args->channels);
    if (op_has_in(step, 3) && !dense && step->in[3].dtype == ATTNRUN_BF16)
        return op_fail_input(step, 3, ATTNRUN_E_UNSUPPORTED,
                             "expected f32 with winograd or where each channel is a "
                             "group");
    if (args->to_bf16 != 0 && op_has_in(step, 3) && !clips(args))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "input 3 (Z) is given, expected none with to_bf16 1 and an "
                       "activation other than relu and clip");
    TRY(check_spread(step, args));
    if (!op_has_in(step, 4))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, 4, 1));
    return op_need_dim(step, 4, 0, dim_of(blocked_count(rows) * ATTN_BLOCK),
                       "output channels");
}

/* W and the attributes fit each other: all that packing needs to know. */
static attn_status check_weights(const attnrun_step *step,
                                 const struct blocked_conv_args *args)
{
    const attnrun_type *w = &step->in[1];
    TRY(op_need_rank(step, 1, 4));
    for (int i = 0; i < 4; i++)
        if (!dim_is_const(w->dims[i]) || w->dims[i].value < 1)
            return op_fail_input(step, 1, ATTNRUN_E_SHAPE,
                                 "expected constant dims of 1 or more");
    const int64_t rows = rows_of(step, args), group = args->group;
    const int64_t inputs = w->dims[args->transposed != 0 ? 0 : 1].value;
    if (group < 1 || rows % group != 0 || args->channels % group != 0 ||
        args->channels / group != inputs)
        return op_fail(
            step, ATTNRUN_E_SHAPE,
            "channels is %lld and group %lld, expected a group that divides the "
            "%s of W, and channels of group times %lld",
            (long long)args->channels, (long long)group, attn_plural(rows, "row"),
            (long long)inputs);
    const bool whole =
        rows / group % ATTN_BLOCK == 0 && inputs % ATTN_BLOCK == 0 && args->plain == 0;
    if (group > 1 && !whole && (!blocked_by_itself(args, rows) || args->plain != 0))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "group is %lld, expected 1 where a group of %lld input and %s is "
                       "not a multiple of 16",
                       (long long)group, (long long)inputs,
                       attn_plural(rows / group, "output channel"));
    TRY(check_winograd(step, args));
    if (step->in[0].dtype != ATTNRUN_U8) /* BlockedQLinearConv has other inputs there */
        TRY(check_dense(step, args));
    if (!op_has_in(step, 2))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, 2, 1));
    return op_need_dim(step, 2, 0, dim_of(rows), "output channels");
}

static attn_status check_x(const attnrun_step *step, const struct blocked_conv_args *args)
{
    if (args->plain != 0 && step->in[0].dtype == ATTNRUN_U8) {
        TRY(op_need_rank(step, 0, 5));
        TRY(op_need_dim(step, 0, 4, dim_of(4), "channels of a block"));
        return op_need_dim(step, 0, 1, dim_of(ceil_div(args->channels, 4)),
                           "blocks of channels");
    }
    if (args->plain == 0) {
        TRY(attn_blocked_check(step, 0));
        return op_need_dim(step, 0, 1, dim_of(blocked_count(args->channels)),
                           "blocks of channels");
    }
    TRY(op_need_rank(step, 0, 4));
    return op_need_dim(step, 0, 1, dim_of(args->channels), "channels");
}

static attn_status check_sizes(attnrun_step *step, const struct blocked_conv_args *args,
                               struct blocked_plan *plan, bool *empty)
{
    struct blocked_shape *s = &plan->shape;
    const struct window *w = &s->w;
    int64_t in, out, blocks;
    s->batch = step->in[0].dims[0].value;
    s->channels = args->channels;
    s->rows = rows_of(step, args);
    s->groups = args->group;
    s->plain = args->plain != 0;
    s->by_itself = blocked_by_itself(args, s->rows);
    s->winograd = args->winograd != 0;
    s->bytes = step->in[0].dtype == ATTNRUN_U8;
    s->x_bf16 = step->in[0].dtype == ATTNRUN_BF16 && !s->plain;
    s->plain_type =
        s->plain && attn_stored_narrow(step->in[0].dtype) ? step->in[0].dtype : 0;
    s->y_bf16 = args->to_bf16 != 0;
    s->z_bf16 = op_has_in(step, 3) && step->in[3].dtype == ATTNRUN_BF16;
    s->spread[0] = max64(args->spread_h, 1);
    s->spread[1] = max64(args->spread_w, 1);
    s->line = w->out[2];
    in = op_count(&step->in[0], 0, step->in[0].rank);
    out = op_count(&step->out[0], 0, 5);
    if (in < 0 || out < 0 || in > ATTN_MAX_ELEMENTS || out > ATTN_MAX_ELEMENTS ||
        !ck_mul(w->kernel[1] * w->kernel[2], s->rows, &blocks) ||
        !ck_mul(blocks, s->channels / s->groups, &blocks) || blocks > ATTN_MAX_ELEMENTS)
        return op_fail_size(
            step, "the number of elements of the image, of the result or of the kernel",
            "2^46");
    *empty = out == 0;
    op_flops(step, 2.0 * (double)s->batch * (double)blocks * (double)w->out[1] *
                       (double)w->out[2]);
    if (*empty) {
        op_tasks(step, 0, 0, 0);
        op_tasks(step, 1, 0, 0);
    }
    return ATTNRUN_OK;
}

attn_status attn_blocked_window(const attnrun_step *step,
                                const struct window_attrs *window, attnrun_dim out[2])
{
    const attnrun_dim *x = step->in[0].dims, *w = step->in[1].dims;
    for (int i = 0; i < 2; i++) {
        if (window->kernel_shape.v != NULL && window->kernel_shape.v[i] != w[i + 2].value)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "kernel_shape holds %lld at %d, expected %lld as W has",
                           (long long)window->kernel_shape.v[i], i,
                           (long long)w[i + 2].value);
        TRY(attn_window_out(step, window, 2, i, x[i + 2], w[i + 2], false, &out[i]));
    }
    return ATTNRUN_OK;
}

attn_status attn_blocked_check_like_out(const attnrun_step *step, int in)
{
    TRY(op_need_rank(step, in, 5));
    for (int i = 0; i < 5; i++)
        TRY(op_need_dim(step, in, i, step->out[0].dims[i], "the output"));
    return ATTNRUN_OK;
}

attn_status attn_blocked_conv_shape(attnrun_step *step,
                                    const struct blocked_conv_args *args,
                                    struct blocked_plan *plan, bool *empty)
{
    const int32_t dtype = step->in[0].dtype == ATTNRUN_U8 ? ATTNRUN_U8
                          : args->to_bf16 != 0            ? ATTNRUN_BF16
                                                          : ATTNRUN_F32;
    *empty = true;
    if (!op_rank_known(step, 1))
        return op_out(step, 0, dtype, -1, NULL);
    TRY(check_weights(step, args)); /* all that packing reads, before X is known */
    TRY(attn_window_check(step, &args->window, 2));
    if (!op_rank_known(step, 0))
        return op_out(step, 0, dtype, -1, NULL);
    TRY(check_x(step, args));
    const attnrun_dim *x = step->in[0].dims, *w = step->in[1].dims;
    attnrun_dim out[2];
    TRY(attn_blocked_window(step, &args->window, out));
    const attnrun_dim y[5] = {
        x[0], dim_of(blocked_count(rows_of(step, args)) / spread_of(args)),
        attnrun_dim_mul(step, out[0], dim_of(max64(args->spread_h, 1))),
        attnrun_dim_mul(step, out[1], dim_of(max64(args->spread_w, 1))),
        dim_of(ATTN_BLOCK)
    };
    TRY(op_out(step, 0, dtype, 5, y));
    if (op_has_in(step, 3))
        TRY(attn_blocked_check_like_out(step, 3));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_window_resolve(step, &args->window, 2, x + 2, w + 2, false, &plan->shape.w));
    return check_sizes(step, args, plan, empty);
}

void attn_blocked_conv_tasks(attnrun_step *step, struct blocked_plan *plan)
{
    plan->kept_at = 0;
    if (plan->scratch_bytes > 0 && !plan->shape.by_itself) {
        plan->kept_at = round_up(plan->scratch_bytes, 64);
        plan->scratch_bytes = plan->kept_at + (int64_t)sizeof(int64_t);
    }
    step->scratch_bytes = plan->scratch_bytes;
    step->shared_bytes = plan->shared_bytes;
    op_tasks(step, 0, plan->shared_bytes > 0, plan->shared_bytes);
    op_tasks(step, 1, plan->n_tasks, plan->task_cost);
}

static attn_status blocked_conv_infer(attnrun_step *step)
{
    struct blocked_plan *plan = step->state;
    bool empty;
    TRY(attn_blocked_conv_shape(step, step->args, plan, &empty));
    if (empty)
        return ATTNRUN_OK;
    const bool words =
        blocked_has_words(step->kernels, plan->shape.channels / plan->shape.groups,
                          plan->shape.plain, plan->shape.by_itself);
    plan->w_type = blocked_w_type(step->in[1].dtype, words);
    if (plan->shape.by_itself)
        attn_blocked_rows_plan(plan);
    else if (plan->shape.winograd)
        TRY(attn_blocked_winograd_plan(step, plan));
    else
        TRY(attn_blocked_dense_plan(step, plan));
    attn_blocked_conv_tasks(step, plan);
    return ATTNRUN_OK;
}

/* Forms of packed weights: blocked, plain, each channel by itself, for Winograd, transposed. */
static const char packed_forms[5];

static attn_status blocked_conv_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct blocked_conv_args *args = pack->args;
    const attnrun_tensor *w = &pack->x[1];
    const bool has_bias = pack->n_in > 2 && pack->in[2].kind != ATTNRUN_ABSENT;
    const bool has_scale = pack->n_in > 4 && pack->in[4].kind != ATTNRUN_ABSENT;
    *bytes = 0;
    if (w->data == NULL || (w->dtype != ATTNRUN_F32 && !attn_stored_narrow(w->dtype)) ||
        w->rank != 4 || (has_bias && pack->x[2].data == NULL) ||
        (has_scale && pack->x[4].data == NULL))
        return ATTNRUN_OK;
    const struct blocked_weights weights = {
        .w = w,
        .bias = has_bias ? pack->x[2].data : NULL,
        .groups = args->group,
        .plain = args->plain != 0,
        .by_itself = args->transposed == 0 && blocked_by_itself(args, w->dims[0]),
        .winograd = args->winograd != 0,
        .transposed = args->transposed != 0,
        .scale = has_scale ? pack->x[4].data : NULL,
        .kernels = pack->kernels,
    };
    const int64_t all = attn_blocked_packed_bytes(&weights);
    if (all < 0)
        return ATTNRUN_OK;
    *bytes = all;
    pack->sources = (has_bias ? 6u : 2u) | (has_scale ? 16u : 0u);
    if (weights.by_itself || args->group == 1)
        pack->form = &packed_forms[weights.by_itself    ? 2
                                   : weights.winograd   ? 3
                                   : weights.transposed ? 4
                                                        : weights.plain];
    pack->replaces |= pack->sources;
    if (packed != NULL)
        attn_blocked_pack(packed, &weights);
    return ATTNRUN_OK;
}

void attn_blocked_set_activation(struct blocked_operands *o, struct attn_epilogue *steps,
                                 int32_t kind, const float *alpha, const float *beta)
{
    o->activation = steps;
    o->n_activation = attn_conv_activation(kind, alpha, beta, steps);
    const struct conv_operands c = { .activation = steps,
                                     .n_activation = o->n_activation };
    o->clipped = attn_conv_limits(&c, &o->min, &o->max);
}

void attn_blocked_set_packed(struct blocked_operands *o, const void *packed, int64_t rows,
                             bool scaled)
{
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    o->bias = packed;
    o->scale = scaled ? o->bias + columns : NULL;
    o->w = o->bias + (scaled ? 2 : 1) * columns;
}

static attn_status blocked_conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct blocked_conv_args *args = step->args;
    const struct blocked_plan *plan = step->state;
    struct attn_epilogue steps[3];
    if (step->node->packed == NULL)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "input 1 (W) is computed, expected a constant");
    if ((plan->shape.x_bf16 || plan->shape.z_bf16 || plan->shape.y_bf16) && !plan->words)
        /* infer at load knows no products of bf16 */
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "X, Y or Z is bf16, expected f32 where products are not of bf16");
    if (work->phase == 0) {
        if (plan->shape.winograd)
            attn_blocked_winograd_prepare(plan, work->shared);
        else
            attn_blocked_dense_prepare(plan, work->shared);
        return ATTNRUN_OK;
    }
    struct blocked_operands o = {
        .x = step->x[0].data,
        .z = op_in_data(step, 3),
        .y = step->y[0].data,
    };
    attn_blocked_set_packed(&o, step->node->packed, plan->shape.rows,
                            plan->w_type != ATTN_B_F32 && op_has_in(step, 4));
    attn_blocked_set_activation(&o, steps, args->activation, &args->alpha, &args->beta);
    if (plan->shape.by_itself)
        return attn_blocked_rows_run(step, work, plan, &o);
    if (plan->shape.winograd)
        return attn_blocked_winograd_run(step, work, plan, &o);
    return attn_blocked_dense_run(step, work, plan, &o);
}

const attnrun_op_def op_blocked_conv_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedConv",
    .since = 1,
    .args_bytes = sizeof(struct blocked_conv_args),
    .state_bytes = sizeof(struct blocked_plan),
    .inputs = "X:V W:W B:T? Z:Z? S:T?",
    .outputs = "Y:U",
    .types = "T=f32 V=f32,f16,bf16 U=f32,bf16 Z=f32,bf16 W=f32,f16,bf16",
    .attrs = blocked_conv_attrs,
    .infer = blocked_conv_infer,
    .pack = blocked_conv_pack,
    .check_packed = op_packed_is_data,
    .run = blocked_conv_run,
    .cost = "O(N M C/g out kernel)",
};
