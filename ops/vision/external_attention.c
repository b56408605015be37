/* external_attention.c - ExternalAttention: tokens attend to S learned slots instead of
 * to one another. Each slot takes a softmax over the tokens, and then each token divides
 * by its sum over the slots.
 *
 *   l[i,s] = mk_s . x_i          e[i,s] = exp(l[i,s] - max_i l[.,s]) / sum_i exp(…)
 *   a[i,s] = e[i,s] / (epsilon + sum_s e[i,.])      y_i = sum_s a[i,s] mv[:,s] + bv
 *
 * x         f32 (batch, n, C), or (batch, C, h, w) with n = h w
 * mk        f32 (S, C / num_heads) for all heads, or (num_heads, S, C / num_heads)
 * mv        f32 (Co, S) or (num_heads, Co, S); bv (Co) or (num_heads, Co), optional
 * identity, Y  f32 (batch, n, num_heads Co), or (batch, num_heads Co, h, w); Y = act(y +
 *              identity), identity is optional
 *
 * The defaults are num_heads 1, epsilon 0, nan_rows 0 and post_activation none (or relu).
 *
 * A head of a sample is cut into tiles of 128 tokens. Phase 0 computes the logits of a
 * tile, and their largest and their sum for each slot. The logits stay as exp(l - largest
 * of the tile), so each exponential is computed once. Phase 1 computes the factor of a
 * tile's terms of a slot, exp(its largest - that of all) / sum. Phase 2 multiplies by it,
 * sums over the slots, and multiplies by mv, with the rest in the epilogue of that
 * product. Where there are many samples and heads, a task is one of them, and its logits
 * are in the worker's scratch. Logits are slots x tokens in both layouts.
 *
 * A token whose e are all 0 with epsilon 0 has a = 0, where 0 / 0 is NaN upstream; with
 * nan_rows 1 it is NaN here, too. A NaN in a token makes all of its sample NaN.
 * Refused: other ranks, sizes that disagree, C no multiple of num_heads, S, C or n 0,
 * epsilon < 0. Cost: 2 n S (C + num_heads Co) FLOPs and num_heads n S exponentials a
 * sample. Memory: S n floats for each head and sample, or for each worker. Source: Guo
 * 2021, arXiv:2105.02358. Compared with fightingcv-attention 1.0.0 ExternalAttention and
 * MenghaoGuo/EANet 59c03cb External_attention (its convolutions folded into mk, mv, bv),
 * which are the same but for 0 / 0. */
#include "../attention/core/heads.h"
#include "external.h"
#include "../tile.h"

static const attnrun_attr_def external_attrs[] = {
    ATTR_INT(struct attn_external_args, num_heads, 1),
    ATTR_FLOAT(struct attn_external_args, epsilon, 0.0f),
    ATTR_INT(struct attn_external_args, nan_rows, 0),
    ATTR_ENUM(struct attn_external_args, post_activation, "none|relu", 0),
    ATTR_END,
};

enum { ENOUGH_GROUPS = 16 }; /* samples times heads, to make a task of each */

/* ---- infer ---- */

static attn_status external_check_args(const attnrun_step *step)
{
    const struct attn_external_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    TRY(attn_need_int(step, "nan_rows", args->nan_rows, 0, 1));
    return attn_need_not_negative(step, "epsilon", args->epsilon);
}

/* Dim `from_last` (1: the last one) of an input, where its rank is known. */
static attnrun_dim dim_at(const attnrun_step *step, int in, int from_last)
{
    const attnrun_type *type = &step->in[in];
    return op_has_in(step, in) && type->rank >= from_last
               ? type->dims[type->rank - from_last]
               : attnrun_dim_unknown(step);
}

static attn_status external_check_map(const attnrun_step *step)
{
    const struct attn_external_args *args = step->args;
    const attnrun_type *x = &step->in[X];
    TRY(op_need_rank_between(step, X, 3, 4));
    for (int i = 1; i < x->rank; i++)
        if (dim_is(x->dims[i], 0))
            return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                                 "dim %d is 0, expected 1 or more", i);
    const attnrun_dim c = dim_at(step, X, x->rank == 4 ? 3 : 1);
    if (dim_is_const(c) && c.value % args->num_heads != 0)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "its number of channels, %lld, is not a multiple of %s",
                             (long long)c.value, attn_plural(args->num_heads, "head"));
    return ATTNRUN_OK;
}

/* Checks a matrix (or vector) for all heads, or one for each head. */
static attn_status check_by_head(const attnrun_step *step, int in, int rank)
{
    const struct attn_external_args *args = step->args;
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, rank, rank + 1));
    return step->in[in].rank == rank + 1
               ? op_need_dim(step, in, 0, dim_of(args->num_heads), "num_heads")
               : ATTNRUN_OK;
}

static attn_status external_check_weights(const attnrun_step *step)
{
    const struct attn_external_args *args = step->args;
    const attnrun_dim c = dim_at(step, X, step->in[X].rank == 4 ? 3 : 1);
    const attnrun_dim slots = dim_at(step, MK, 2);
    TRY(check_by_head(step, MK, 2));
    TRY(check_by_head(step, MV, 2));
    TRY(check_by_head(step, BV, 1));
    if (step->in[MK].rank > 0 && dim_is_const(c))
        TRY(op_need_dim(step, MK, step->in[MK].rank - 1,
                        dim_of(c.value / args->num_heads),
                        "the channels of a head of x"));
    if (dim_is(slots, 0))
        return op_fail_input(step, MK, ATTNRUN_E_SHAPE, "expected at least 1 slot");
    if (step->in[MV].rank > 0)
        TRY(op_need_dim(step, MV, step->in[MV].rank - 1, slots, "the slots of mk"));
    if (op_has_in(step, BV) && step->in[BV].rank > 0)
        TRY(op_need_dim(step, BV, step->in[BV].rank - 1, dim_at(step, MV, 2),
                        "the rows of mv"));
    return ATTNRUN_OK;
}

/* States Y: x's dims, with num_heads Co channels. */
static attn_status set_output(attnrun_step *step)
{
    const struct attn_external_args *args = step->args;
    const bool given = op_has_in(step, IDENTITY);
    const attnrun_type *like = &step->in[given && step->in[X].rank < 0 ? IDENTITY : X];
    attnrun_dim y[4];
    const int rank = step->in[X].rank;
    if (given)
        TRY(op_need_rank_between(step, IDENTITY, rank < 0 ? 3 : rank,
                                 rank < 0 ? 4 : rank));
    if (like->rank < 0)
        return op_out(step, 0, step->in[X].dtype, -1, NULL);
    for (int i = 0; i < like->rank; i++)
        y[i] = like->dims[i];
    y[like->rank == 4 ? 1 : 2] =
        attnrun_dim_mul(step, dim_at(step, MV, 2), dim_of(args->num_heads));
    for (int i = 0; given && i < like->rank; i++)
        TRY(op_need_dim(step, IDENTITY, i, y[i], "that of Y"));
    return op_out(step, 0, step->in[X].dtype, like->rank, y);
}

static int64_t external_gemm_floats(const struct attn_external *s)
{
    const size_t slots = (size_t)s->slots, co = (size_t)s->co, ch = (size_t)s->ch;
    const size_t width = (size_t)s->width, rows = ROWS;
    const size_t first = s->tokens
                             ? attn_gemm_scratch(width, slots, ch)
                             : attn_gemm_scratch(slots < rows ? slots : rows, width, ch);
    const size_t last = s->tokens
                            ? attn_gemm_scratch(width, co, slots)
                            : attn_gemm_scratch(co < rows ? co : rows, width, slots);
    return round_up((int64_t)(first > last ? first : last), 16);
}

/* The floats of panels of the right operand, where it is not packed at load. */
static int64_t panel_floats(const attnrun_step *step, const struct attn_external *s)
{
    int64_t floats = 0;
    if (s->tokens && !op_is_replaced(step, MK))
        floats = op_packed_elements(step->kernels, s->ch, s->slots);
    if (s->tokens && !op_is_replaced(step, MV)) {
        const int64_t mv = op_packed_elements(step->kernels, s->slots, s->co);
        floats = mv > floats ? mv : floats;
    }
    return round_up(floats, 16);
}

/* States the tasks and their memory, where sizes are known. */
static attn_status external_tasks(attnrun_step *step, struct attn_external *s)
{
    int64_t floats, tasks;
    s->tiles = ceil_div(s->n, TILE);
    s->width = min64(TILE, round_up(s->n, 16));
    s->alone = s->groups >= ENOUGH_GROUPS;
    s->transposed_floats = s->tokens ? round_up(s->width * s->slots, 16) : 0;
    s->panel_floats = panel_floats(step, s);
    s->gemm_floats = external_gemm_floats(s);
    if (!ck_mul(s->tiles, s->slots * (s->width + 2), &s->group_floats) ||
        s->group_floats > INT64_MAX / 64 || !ck_mul(s->groups, s->tiles, &tasks) ||
        !ck_mul(s->groups, s->group_floats = round_up(s->group_floats, 16), &floats) ||
        floats > INT64_MAX / 64)
        return op_fail_size(step, "the number of logits", "2^57");
    if (!s->alone)
        step->shared_bytes = floats * (int64_t)sizeof(float);
    step->scratch_bytes =
        ((s->alone ? s->group_floats : 0) + round_up(s->slots, 16) * 4 + TILE +
         s->transposed_floats + s->panel_floats + s->gemm_floats) *
        (int64_t)sizeof(float);
    const double slots = (double)s->slots * (double)s->width;
    const double logits = slots * (2.0 * (double)s->ch / 150.0 + 0.3) + 200;
    const double values = slots * (2.0 * (double)s->co / 150.0 + 0.1) + 200;
    const double both = (logits + values) * (double)s->tiles;
    if (s->alone) {
        op_tasks(step, 0, s->groups, op_ns(both));
        return ATTNRUN_OK;
    }
    op_tasks(step, LOGITS, tasks, (int64_t)logits);
    op_tasks(step, WORTH, s->groups, (int64_t)min64(s->tiles, 1 << 20) * s->slots);
    op_tasks(step, VALUES, tasks, (int64_t)values);
    return ATTNRUN_OK;
}

static attn_status external_plan(attnrun_step *step)
{
    const struct attn_external_args *args = step->args;
    const attnrun_type *x = &step->in[X];
    struct attn_external *s = step->state;
    const bool tokens = x->rank == 3;
    *s = (struct attn_external){ .batch = x->dims[0].value,
                                 .heads = args->num_heads,
                                 .tokens = tokens,
                                 .ch = dim_at(step, MK, 1).value,
                                 .slots = dim_at(step, MK, 2).value,
                                 .co = dim_at(step, MV, 2).value };
    s->n = tokens ? x->dims[1].value : op_count(x, 2, 4);
    if (s->batch == 0 || s->co == 0)
        return ATTNRUN_OK;
    if (s->n < 0 || s->n > ATTN_MAX_ELEMENTS || s->slots > INT64_MAX >> 24 ||
        !ck_mul(s->batch, s->heads, &s->groups))
        return op_fail_size(step, "the number of tokens would be over 2^46, or of slots",
                            "2^39");
    if (op_has_in(step, IDENTITY))
        attnrun_step_inplace(step, 0, IDENTITY);
    /* A group has read all of its part of x before it writes the same part of Y. */
    if (s->co == s->ch)
        attnrun_step_inplace(step, 0, X);
    return external_tasks(step, s);
}

static attn_status external_infer(attnrun_step *step)
{
    TRY(external_check_args(step));
    TRY(external_check_map(step));
    TRY(external_check_weights(step));
    TRY(set_output(step));
    return step->concrete ? external_plan(step) : ATTNRUN_OK;
}

/* ---- pack: of tokens x channels mk' and mv' are right operands ---- */

static int64_t heads_of(const attnrun_tensor *w) { return w->rank == 3 ? w->dims[0] : 1; }

/* Packs (heads, n, k) constants as panels of their transposes; 0 bytes where that is not
 * possible. */
static int64_t pack_heads(attnrun_pack *pack, int in, float *to)
{
    const attnrun_tensor *w = &pack->x[in];
    if (w->data == NULL || w->dtype != ATTNRUN_F32 || w->rank < 2 || w->rank > 3 ||
        attnrun_tensor_bytes(w) <= 0 || attnrun_tensor_bytes(w) > INT64_MAX / 128)
        return 0;
    const int64_t n = w->dims[w->rank - 2], k = w->dims[w->rank - 1];
    const int64_t floats = op_packed_elements(pack->kernels, k, n);
    for (int64_t h = 0; to != NULL && h < heads_of(w); h++)
        pack->kernels->gemm_pack_f32(to + h * floats, (const float *)w->data + h * n * k,
                                     1, k, (size_t)k, (size_t)n);
    pack->replaces |= UINT32_C(1) << in;
    return floats * heads_of(w) * (int64_t)sizeof(float);
}

static attn_status external_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct attn_external_packed sizes = { 0 };
    *bytes = 0;
    if (pack->in[X].rank != 3)
        return ATTNRUN_OK;
    sizes.mk_bytes = pack_heads(pack, MK, NULL);
    sizes.mv_bytes = pack_heads(pack, MV, NULL);
    if (sizes.mk_bytes + sizes.mv_bytes > 0)
        *bytes = (int64_t)sizeof sizes + sizes.mk_bytes + sizes.mv_bytes;
    if (packed == NULL || *bytes == 0)
        return ATTNRUN_OK;
    float *to = (float *)((struct attn_external_packed *)packed + 1);
    *(struct attn_external_packed *)packed = sizes;
    pack_heads(pack, MK, to);
    pack_heads(pack, MV, to + sizes.mk_bytes / (int64_t)sizeof(float));
    return ATTNRUN_OK;
}

static attn_status external_check_packed(const attnrun_pack *pack, int64_t bytes,
                                         const void *packed)
{
    attnrun_pack asked = *pack;
    const struct attn_external_packed sizes = { .mk_bytes = pack_heads(&asked, MK, NULL),
                                                .mv_bytes =
                                                    pack_heads(&asked, MV, NULL) };
    if (bytes == (int64_t)sizeof sizes + sizes.mk_bytes + sizes.mv_bytes &&
        memcmp(packed, &sizes, sizeof sizes) == 0)
        return ATTNRUN_OK;
    return attn_fail_node(ATTNRUN_E_MODEL, pack->node,
                          "its packed memories are not of the sizes of its operands");
}

const attnrun_op_def op_external_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "ExternalAttention",
    .since = 1,
    .inputs = "x:T mk:T mv:T bv:T? identity:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct attn_external_args),
    .state_bytes = sizeof(struct attn_external),
    .attrs = external_attrs,
    .infer = external_infer,
    .pack = external_pack,
    .check_packed = external_check_packed,
    .run = attn_external_run,
    .cost = "O(n S (C + heads Co))",
    .source = "Guo 2021, arXiv:2105.02358",
};
