/* fused_block_attention.c - FusedBlockAttention: softmax attention where each block of
 * queries sees a segment of blocks of keys, under any mask, which may depend on data.
 *
 *   Y_w = softmax(scale Q_w K_w' + mask) V_w,  K_w: blocks w … w + window - 1 of K
 *
 * Q        f32 (batch, heads, blocks, tokens, dim), or without heads; by_token: (batch,
 *          blocks, tokens, heads, dim)
 * K, V     the same with blocks + window - 1 blocks, so the blocks that a Pad puts before
 *          and behind are part of them
 * leaf     of the mask program (code, mask, axes), see mask_program.h
 * Y        as Q, with the dim of V
 * sums     the log of the sum of exponentials of each query's scores: as Q, with a dim of
 *          1
 *
 * A query that sees no key gives NaN, as a plain Softmax does.
 * Domain attnrun.fused: rewrite passes write it for attention in blocks; exporters never
 * do. Cost: O(n window tokens dim) a head, where n is the number of queries; scratch is
 * O(tile). */
#include <math.h>

#include "../core/masked.h"

struct block_args {
    int64_t window, by_token;
    float scale;
    attnrun_ints code, mask, axes;
};
static const attnrun_attr_def block_attrs[] = {
    ATTR_INT(struct block_args, window, 1),
    ATTR_FLAG(struct block_args, by_token, 0),
    ATTR_FLOAT(struct block_args, scale, 1.0f),
    ATTR_INTS(struct block_args, code),
    ATTR_INTS(struct block_args, mask),
    ATTR_INTS(struct block_args, axes),
    ATTR_END,
};

enum { Q, K, V, LEAVES, Y = 0, SUMS, MAX_WINDOW = 4096 };
/* Axes of an operand. */
struct places {
    int heads, blocks, tokens, dim; /* heads -1: there is one */
};

static struct places places_of(const struct block_args *args, int rank)
{
    if (args->by_token)
        return (struct places){ 3, 1, 2, 4 };
    return (struct places){ rank == 5 ? 1 : -1, rank - 3, rank - 2, rank - 1 };
}

static attn_status check_keys(const attnrun_step *step, int in, const struct places *p)
{
    const struct block_args *args = step->args;
    const attnrun_type *q = &step->in[Q];
    const attnrun_dim blocks =
        attnrun_dim_add(step, q->dims[p->blocks], dim_of(args->window - 1));
    TRY(op_need_rank(step, in, q->rank));
    TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
    if (p->heads >= 0)
        TRY(op_need_dim(step, in, p->heads, q->dims[p->heads], "the heads"));
    if (!dim_is(q->dims[p->blocks], 0)) /* nothing is beside no block */
        TRY(op_need_dim(step, in, p->blocks, blocks, "the blocks and those beside them"));
    TRY(op_need_dim(step, in, p->tokens, q->dims[p->tokens], "the tokens of a block"));
    return in == K ? op_need_dim(step, in, p->dim, q->dims[p->dim], "the dim of a head")
                   : ATTNRUN_OK;
}

/* The elements from one sample, head and token to the next; *window: from one block to
 * the next. */
static struct attn_heads strides_of(const attnrun_type *t, const struct places *p,
                                    int64_t dim, int64_t *window)
{
    int64_t strides[5], stride = dim;
    strides[t->rank - 1] = 1;
    for (int a = t->rank - 2; a >= 0; a--) {
        strides[a] = stride;
        stride *= t->dims[a].value;
    }
    *window = strides[p->blocks];
    return (struct attn_heads){ strides[0], p->heads < 0 ? 0 : strides[p->heads],
                                strides[p->tokens] };
}

static attn_status plan_fused_block(attnrun_step *step, const struct places *p)
{
    const struct block_args *args = step->args;
    const attnrun_type *q = &step->in[Q];
    const int64_t batch = q->dims[0].value, windows = q->dims[p->blocks].value,
                  heads = p->heads < 0 ? 1 : q->dims[p->heads].value,
                  tokens = q->dims[p->tokens].value, dim = q->dims[p->dim].value,
                  v_dim = step->in[V].dims[p->dim].value;
    struct attn_masked *m = step->state;
    struct attn_sdpa *s = &m->s;
    int64_t keys, blocks;
    if (!ck_mul(tokens, args->window, &keys) || !ck_mul(batch, windows, &blocks))
        return op_fail_size(step,
                            "the number of keys of a window, or of windows of the batch,",
                            "2^63 - 1");
    TRY(attn_sdpa_fits(step, blocks, heads, tokens, keys, dim + v_dim));
    *m = (struct attn_masked){ .windows = windows > 0 ? windows : 1 };
    *s = (struct attn_sdpa){ .batch = blocks,
                             .q_heads = heads,
                             .kv_heads = heads,
                             .q_len = tokens,
                             .kv_len = keys,
                             .head_dim = dim,
                             .v_dim = v_dim,
                             .scale = args->scale,
                             .nan_rows = true };
    s->q = strides_of(q, p, dim, &m->q_window);
    s->k = strides_of(&step->in[K], p, dim, &m->k_window);
    s->v = strides_of(&step->in[V], p, v_dim, &m->v_window);
    s->y = strides_of(q, p, v_dim, &m->y_window);
    m->sums = strides_of(q, p, 1, &m->sums_window);
    const int64_t sizes[MASK_AXES] = { windows, batch, heads, tokens, keys };
    TRY(attn_mask_plan(step, LEAVES, args->code, args->mask, args->axes, sizes,
                       &m->program));
    return attn_masked_plan(step, m);
}

static attn_status block_infer(attnrun_step *step)
{
    const struct block_args *args = step->args;
    const attnrun_type *q = &step->in[Q];
    if (args->window < 1 || args->window > MAX_WINDOW)
        return op_fail(step, ATTNRUN_E_ATTR, "window is %lld, expected 1 to %d",
                       (long long)args->window, MAX_WINDOW);
    if (!op_rank_known(step, Q) || !op_rank_known(step, K) || !op_rank_known(step, V)) {
        if (op_has_out(step, SUMS))
            TRY(op_out(step, SUMS, q->dtype, -1, NULL));
        return op_out(step, Y, q->dtype, -1, NULL);
    }
    TRY(op_need_rank_between(step, Q, args->by_token ? 5 : 4, 5));
    const struct places p = places_of(args, q->rank);
    TRY(check_keys(step, K, &p));
    TRY(check_keys(step, V, &p));
    attnrun_dim y[5];
    memcpy(y, q->dims, (size_t)q->rank * sizeof *y);
    y[p.dim] = step->in[V].dims[p.dim];
    TRY(op_out(step, Y, q->dtype, q->rank, y));
    y[p.dim] = dim_of(1);
    if (op_has_out(step, SUMS))
        TRY(op_out(step, SUMS, q->dtype, q->rank, y));
    return step->concrete ? plan_fused_block(step, &p) : ATTNRUN_OK;
}

static attn_status block_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_masked_operands o = { .q = step->x[Q].data,
                                            .k = step->x[K].data,
                                            .v = step->x[V].data,
                                            .y = step->y[Y].data,
                                            .log_sums = op_has_out(step, SUMS)
                                                            ? step->y[SUMS].data
                                                            : NULL,
                                            .leaves = step->x + LEAVES };
    return attn_masked_run(step, step->state, &o, work);
}

const attnrun_op_def op_fused_block_attention_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedBlockAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T leaf:L*!",
    .outputs = "Y:T sums:T?",
    .types = "T=f32 L=f32,b8,i32,i64",
    .args_bytes = sizeof(struct block_args),
    .state_bytes = sizeof(struct attn_masked),
    .attrs = block_attrs,
    .infer = block_infer,
    .run = block_run,
    .cost = "O(n window tokens d), scratch O(tile)",
};
