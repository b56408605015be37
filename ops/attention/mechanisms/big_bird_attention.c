/* big_bird_attention.c - BigBirdAttention: window, global and random blocks. There are n
 * = ceil(N / block_size) blocks. The queries of the first and of the last block see all
 * keys. Those of block i see the blocks 0, i - 1, i, i + 1 and n - 1 (each once, so fewer
 * for i = 1 and i = n - 2), and then the blocks that rand_blocks names. The keys of a
 * block that is named twice count twice.
 *
 * Q, K, V      see heads.h, of one length N; groups of query heads may share a key head
 * rand_blocks  i32 or i64 (heads or 1, n - 2, r), optional: row i - 1 is for block i
 * key_mask     bool (batch, N), optional: false masks a key; the query of such a token
 *              gives zeros
 * block_size   at least 1; n must be at least 5
 *
 * A query that sees no key gives zeros.
 * Refused: is_causal 1, fewer than 5 blocks, lengths that differ, rand_blocks for other
 * heads or blocks, or with a block that does not exist.
 * Cost: 2 (5 + r) N block_size (dim + v_dim) FLOPs, and 4 block_size N (dim + v_dim) for
 * the two global blocks. A block that is named m times is computed once.
 * Source: Zaheer 2020, arXiv:2007.14062; compared with BigBirdBlockSparseAttention of
 * transformers 5.23.0. Where that class adds -10000, this operator leaves the key out. In
 * evaluation that class names block 0 in all random lists. */
#include "../core/block_lists.h"

struct big_bird_args {
    struct attn_heads_args heads;
    int64_t block_size;
};
static const attnrun_attr_def big_bird_attrs[] = {
    ATTN_HEADS_ATTRS(struct big_bird_args),
    ATTR_INT_REQUIRED(struct big_bird_args, block_size),
    ATTR_END,
};

enum { Q, K, V, RAND_BLOCKS, KEY_MASK };
enum { MIN_BLOCKS = 5, CHECKED = 1 << 16 };

struct big_bird_state {
    struct attn_blocks core;
    int64_t blocks, lists, random; /* rand_blocks is (lists, blocks - 2, random) */
};

static int64_t index_at(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I64 ? ((const int64_t *)x->data)[i]
                                   : ((const int32_t *)x->data)[i];
}

static attn_status check_random(const attnrun_step *step, const attnrun_work *work)
{
    const struct big_bird_state *s = step->state;
    const int64_t n = s->lists * (s->blocks - 2) * s->random;
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = index_at(&step->x[RAND_BLOCKS], i);
        if (work != NULL && i % CHECKED == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (block < 0 || block >= s->blocks)
            return op_fail_input(step, RAND_BLOCKS, ATTNRUN_E_RANGE,
                                 "holds %lld, expected 0 to %lld", (long long)block,
                                 (long long)s->blocks - 1);
    }
    return ATTNRUN_OK;
}

static attn_status plan_random(const attnrun_step *step, struct big_bird_state *s)
{
    s->lists = s->random = 0;
    if (!op_has_in(step, RAND_BLOCKS) || s->blocks == 0)
        return ATTNRUN_OK;
    s->lists = step->in[RAND_BLOCKS].dims[0].value;
    s->random = step->in[RAND_BLOCKS].dims[2].value;
    if (s->lists != 1 && s->lists != s->core.sizes.q_heads)
        return op_fail_input(step, RAND_BLOCKS, ATTNRUN_E_SHAPE,
                             "dim 0 is %lld, expected 1 or %s", (long long)s->lists,
                             attn_plural(s->core.sizes.q_heads, "head"));
    TRY(op_need_dim(step, RAND_BLOCKS, 1, dim_of(s->blocks - 2),
                    "the blocks except for the first and the last"));
    return op_known(step, RAND_BLOCKS) ? check_random(step, NULL) : ATTNRUN_OK;
}

static attn_status plan_big_bird(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct big_bird_args *args = step->args;
    struct big_bird_state *s = step->state;
    struct attn_sizes *sizes = &s->core.sizes;
    TRY(attn_qkv_sizes(step, &args->heads, shape, sizes));
    s->core.block = args->block_size;
    s->blocks = ceil_div(sizes->q_len, args->block_size);
    if (sizes->q_len > 0 && s->blocks < MIN_BLOCKS)
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "it has %s, or %s of %lld, expected at least %d blocks",
                             attn_plural(sizes->q_len, "token"),
                             attn_plural(s->blocks, "block"), (long long)args->block_size,
                             MIN_BLOCKS);
    TRY(plan_random(step, s));
    s->core.density = s->blocks == 0 ? 1 : 8.0 / (double)s->blocks;
    TRY(attn_blocks_plan(step, &s->core));
    op_tasks(step, 0, 1, s->lists * s->random);
    op_tasks(step, 1, s->core.n_tasks, s->core.task_cost);
    step->scratch_bytes = s->core.scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status big_bird_infer(attnrun_step *step)
{
    const struct big_bird_args *args = step->args;
    struct attn_qkv shape;
    TRY(attn_need_int(step, "block_size", args->block_size, 1, INT32_MAX));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_LENGTH, &shape));
    if (args->heads.is_causal != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "is_causal is 1, expected 0: BigBird is never causal");
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    if (op_has_in(step, RAND_BLOCKS))
        TRY(op_need_rank(step, RAND_BLOCKS, 3));
    TRY(attn_qkv_output(step, &shape, 0));
    return step->concrete ? plan_big_bird(step, &shape) : ATTNRUN_OK;
}

static void big_bird_fill(const void *arg, int64_t sample, int64_t head, int64_t block,
                          float *counts)
{
    const attnrun_step *step = arg;
    const struct big_bird_state *s = step->state;
    const bool all = block == 0 || block == s->blocks - 1;
    (void)sample;
    for (int64_t i = 0; all && i < s->blocks; i++)
        counts[i] = 1.0f;
    counts[0] = counts[s->blocks - 1] = 1.0f;
    for (int64_t i = block - 1; !all && i <= block + 1; i++)
        counts[i] = 1.0f;
    const int64_t list = (s->lists == 1 ? 0 : head) * (s->blocks - 2) + block - 1;
    for (int64_t i = 0; !all && i < s->random; i++)
        counts[index_at(&step->x[RAND_BLOCKS], list * s->random + i)] += 1.0f;
}

static attn_status big_bird_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct big_bird_state *s = step->state;
    const void *mask = op_in_data(step, KEY_MASK);
    const struct attn_blocks_operands o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .key_mask = mask,
        .query_mask = mask,
        .y = step->y[0].data,
        .fill = big_bird_fill,
        .arg = step,
        .kv_len = s->core.sizes.kv_len,
    };
    if (work->phase == 0)
        return work->begin < work->end ? check_random(step, work) : ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(attn_blocks_run(&s->core, step->kernels, &o, task, work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_big_bird_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "BigBirdAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T rand_blocks:I? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32 I=i32,i64",
    .args_bytes = sizeof(struct big_bird_args),
    .state_bytes = sizeof(struct big_bird_state),
    .attrs = big_bird_attrs,
    .infer = big_bird_infer,
    .run = big_bird_run,
    .cost = "O(n block_size (5 + r) d)",
    .source = "Zaheer 2020, arXiv:2007.14062",
};
