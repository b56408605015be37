/* blocked_bytes.c - BlockedQLinearConv: QLinearConv of blocked maps of u8, with what may
 * follow it:
 *
 *   sum = conv(x - x_zero, W - w_zero) + B                modulo 2^32
 *   q   = clamp(round(sum * factor) + y_zero, low, high)  halves to even
 *   y   = q, or with Z  saturate(round((q - y_zero) * ratio + (Z - z_zero) * z_ratio
 *         + sum_zero)); with table  table[y]
 *
 * X       u8 [N, ceil(C / 16), H, W, 16], or with plain = 1 [N, 1, H, W, 4]
 * W       u8 or i8 [M, C / group, height, width]; B i32 [M]; factor f32 [M]; w_zero of
 *         W's type, one or [M]; table u8 [256]: constants
 * Y, Z    u8 [N, ceil(M / 16), H', W', 16], see blocked.h; padding counts as x_zero
 *
 * group is as in BlockedConv. A depthwise convolution has no dilations, and its strides
 * are at most the kernel. The pass blocked_layout writes this operator. Cost: 2 N M C /
 * group pixels taps integer operations. Source: QLinearConv and com.microsoft's
 * QLinearAdd in this order, to the bit. */
#include "blocked_bytes.h"

enum { X, W, B, Z, FACTOR, W_ZERO, TABLE };

static const attnrun_attr_def blocked_bytes_attrs[] = {
    BLOCKED_CONV_ATTRS,
    ATTR_INT(struct blocked_bytes_args, x_zero, 0),
    ATTR_INT(struct blocked_bytes_args, y_zero, 0),
    ATTR_INT(struct blocked_bytes_args, z_zero, 0),
    ATTR_INT(struct blocked_bytes_args, sum_zero, 0),
    ATTR_INT(struct blocked_bytes_args, low, 0),
    ATTR_INT(struct blocked_bytes_args, high, 255),
    ATTR_FLOAT(struct blocked_bytes_args, ratio, 1.0f),
    ATTR_FLOAT(struct blocked_bytes_args, z_ratio, 1.0f),
    ATTR_END
};

static attn_status check_bytes(const attnrun_step *step)
{
    const struct blocked_bytes_args *args = step->args;
    const int64_t bytes[] = { args->x_zero,   args->y_zero, args->z_zero,
                              args->sum_zero, args->low,    args->high };
    static const char *const names[] = { "x_zero",   "y_zero", "z_zero",
                                         "sum_zero", "low",    "high" };
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        TRY(attn_blocked_check_byte(step, names[i], bytes[i]));
    if (!op_rank_known(step, W)) /* no constant */
        return ATTNRUN_OK;
    TRY(op_need_rank(step, FACTOR, 1));
    TRY(op_need_dim(step, FACTOR, 0, step->in[W].dims[0], "output channels"));
    TRY(op_need_rank_between(step, W_ZERO, 0, 1));
    if (step->in[W_ZERO].rank == 1 && !dim_is(step->in[W_ZERO].dims[0], 1))
        TRY(op_need_dim(step, W_ZERO, 0, step->in[W].dims[0], "output channels"));
    if (!op_has_in(step, TABLE))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, TABLE, 1));
    return op_need_dim(step, TABLE, 0, dim_of(256), "bytes");
}

static attn_status blocked_bytes_infer(attnrun_step *step)
{
    const struct blocked_bytes_args *args = step->args;
    struct blocked_plan *plan = step->state;
    bool empty;
    TRY(attn_blocked_conv_shape(step, &args->conv, plan, &empty));
    TRY(check_bytes(step));
    if (step->out[0].rank < 0)
        return ATTNRUN_OK;
    if (args->conv.plain != 0 && args->conv.channels > 4)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "channels is %lld, expected at most 4 with plain 1",
                       (long long)args->conv.channels);
    if (empty)
        return ATTNRUN_OK;
    if (plan->shape.by_itself) {
        TRY(attn_blocked_byte_rows_plan(step, plan));
    } else {
        TRY(attn_blocked_dense_plan(step, plan));
        plan->sums_at = round_up(plan->scratch_bytes, 64);
        plan->scratch_bytes = plan->sums_at + plan->block_h * plan->block_w * 4;
    }
    attn_blocked_conv_tasks(step, plan);
    return ATTNRUN_OK;
}

static attn_status blocked_bytes_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct blocked_bytes_args *args = pack->args;
    const attnrun_tensor *w = &pack->x[W];
    const bool has_bias = pack->in[B].kind != ATTNRUN_ABSENT;
    *bytes = 0;
    if (w->data == NULL || w->rank != 4 || pack->x[FACTOR].data == NULL ||
        pack->x[W_ZERO].data == NULL || (has_bias && pack->x[B].data == NULL))
        return ATTNRUN_OK;
    const struct blocked_byte_weights weights = {
        .w = w,
        .w_zero = &pack->x[W_ZERO],
        .bias = has_bias ? pack->x[B].data : NULL,
        .factor = pack->x[FACTOR].data,
        .groups = args->conv.group,
        .x_zero = (int32_t)args->x_zero,
        .plain = args->conv.plain != 0,
        .by_itself = blocked_by_itself(&args->conv, w->dims[0]),
        .stride = window_attr(args->conv.window.strides, 1, 1),
        .panel = blocked_panel(pack->kernels),
        .kernels = pack->kernels,
    };
    const int64_t size = attn_blocked_byte_packed(&weights);
    if (size < 0)
        return ATTNRUN_OK;
    *bytes = size;
    pack->replaces |= 1u << W | 1u << FACTOR | 1u << W_ZERO | (has_bias ? 1u << B : 0);
    if (packed != NULL)
        attn_blocked_byte_pack(packed, &weights);
    return ATTNRUN_OK;
}

/* What depends on the shapes has places of its own; the number of parts is in the head. */
static attn_status blocked_bytes_check_packed(const attnrun_pack *pack, int64_t bytes,
                                              const void *packed)
{
    const struct blocked_byte_packed at = attn_blocked_byte_packed_at(packed, 0, 0);
    (void)bytes;
    if (at.parts >= 1 && at.parts <= 3)
        return ATTNRUN_OK;
    return attn_fail_node(ATTNRUN_E_MODEL, pack->node,
                          "its packed weights are of %s, expected 1 to 3",
                          attn_plural(at.parts, "part"));
}

/* Computes strips and panels, as attn_blocked_dense_run() does. */
static attn_status run_dense(const attnrun_step *step, const attnrun_work *work,
                             const struct blocked_plan *p, struct attn_blocked_bytes *c)
{
    const struct blocked_bytes_args *args = step->args;
    const struct attn_blocked_tap *taps = work->shared;
    const struct blocked_byte_packed packed = attn_blocked_byte_packed_at(
        step->node->packed, blocked_all_columns(p), p->weight_rows);
    const uint8_t *z = c->to.z;
    int64_t last = attn_blocked_kept(p, work);
    c->taps = taps;
    c->pixels = (const int32_t *)(const void *)(taps + p->taps);
    c->n_taps = p->taps;
    c->rows = p->weight_rows;
    c->y_block = blocked_y_block(p);
    c->ones = packed.ones;
    c->x_sums = op_slot_at(work->scratch, p->sums_at);
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct blocked_task at = attn_blocked_task_at(p, task);
        const int64_t column = at.column;
        c->summed = at.strip == last;
        c->x = attn_blocked_find_x(p, &at.part, step->x[X].data, work->scratch,
                                   (int)args->x_zero, c->summed);
        c->grid = attn_blocked_grid(p, &at.part);
        last = at.strip;
        c->w = packed.w + 4 * column * p->weight_rows;
        c->next =
            task + 1 < work->end
                ? packed.w + 4 * attn_blocked_first_column(p, task + 1) * p->weight_rows
                : NULL;
        c->begin = packed.begin + column;
        c->w_sum = packed.w_sum + column;
        c->w_zero = packed.any_zero ? packed.w_zero + column : NULL;
        c->to.factor = packed.factor + column;
        c->to.z = z != NULL ? z + at.y : NULL;
        c->y = (uint8_t *)step->y[0].data + at.y;
        c->n_pixels = at.part.rows * at.part.columns;
        c->columns = at.columns;
        step->kernels->blocked_conv_u8(c);
        if (attn_poll() != ATTNRUN_OK)
            return ATTNRUN_E_CANCELLED;
    }
    attn_blocked_keep(p, work, last);
    return ATTNRUN_OK;
}

static attn_status blocked_bytes_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct blocked_bytes_args *args = step->args;
    const struct blocked_plan *plan = step->state;
    if (step->node->packed == NULL)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "input 1 (W) is not a constant");
    if (work->phase == 0) {
        attn_blocked_dense_prepare(plan, work->shared);
        return ATTNRUN_OK;
    }
    const bool two = op_has_in(step, Z);
    struct attn_blocked_bytes c = {
        .to = { .low = (float)(args->low - args->y_zero),
                .high = (float)(args->high - args->y_zero),
                .z = op_in_data(step, Z),
                .ratio = args->ratio,
                .z_ratio = args->z_ratio,
                .z_zero = (uint32_t)args->z_zero,
                .sum_zero = (float)args->sum_zero,
                .zero = (uint32_t)(two ? 0 : args->y_zero),
                .table = op_in_data(step, TABLE) },
    };
    if (plan->shape.by_itself)
        return attn_blocked_byte_rows_run(step, work, plan, &c.to);
    return run_dense(step, work, plan, &c);
}

const attnrun_op_def op_blocked_qlinear_conv_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedQLinearConv",
    .since = 1,
    .args_bytes = sizeof(struct blocked_bytes_args),
    .state_bytes = sizeof(struct blocked_plan),
    .inputs = "X:u8 W:T B:i32? Z:u8? factor:f32 w_zero:T table:u8?",
    .outputs = "Y:u8",
    .types = "T=u8,i8",
    .attrs = blocked_bytes_attrs,
    .infer = blocked_bytes_infer,
    .pack = blocked_bytes_pack,
    .check_packed = blocked_bytes_check_packed,
    .run = blocked_bytes_run,
    .cost = "O(N M C/g out kernel)",
};
