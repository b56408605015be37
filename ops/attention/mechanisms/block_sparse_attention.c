/* block_sparse_attention.c - BlockSparseAttention: attention under a layout of blocks.
 * Block a of the queries sees the blocks col_idx[l, row_ptr[l, a]] … col_idx[l,
 * row_ptr[l, a + 1] - 1] of the keys, where l = head mod layouts. If a list names a block
 * several times, its keys count that often. Entries of -1 are skipped, and entries of no
 * row are ignored. Then is_causal and key_mask remove single keys.
 *
 * Q, K, V     see heads.h; groups of query heads may share a key head
 * row_ptr     i32 or i64 (layouts, ceil(q_len / block_size) + 1), rising
 * col_idx     i32 or i64 (layouts, entries)
 * key_mask    bool (batch, kv_len), optional: false masks a key
 * block_size  8, 16, 32, 64 or 128
 *
 * A query that sees no key gives zeros. is_causal is bottom-right: j <= i + kv_len -
 * q_len. Blocks of queries always begin at query 0.
 * Refused: other block sizes, layouts that do not divide the heads, a row_ptr that falls
 * or ends behind col_idx, blocks that do not exist.
 * Cost: 2 block_size^2 (dim + v_dim) FLOPs for each different entry.
 * Source: block layouts as those of GPT-3 (Child 2019, arXiv:1904.10509, section 5);
 * compared with com.microsoft SparseAttention of onnxruntime 1.31.1, and with scaled dot
 * product attention under the expanded mask (torch 2.13.0). */
#include "../core/block_lists.h"
#include "../core/block_layout.h"

struct block_sparse_args {
    struct attn_heads_args heads;
    int64_t block_size;
};
static const attnrun_attr_def block_sparse_attrs[] = {
    ATTN_HEADS_ATTRS(struct block_sparse_args),
    ATTR_INT_REQUIRED(struct block_sparse_args, block_size),
    ATTR_END,
};

enum { Q, K, V, ROW_PTR, COL_IDX, KEY_MASK };

struct block_sparse_state {
    struct attn_blocks core;
    struct attn_layout layout;
};

static attn_status block_sparse_check_args(const attnrun_step *step)
{
    const struct block_sparse_args *args = step->args;
    const int64_t block = args->block_size;
    if (block != 8 && block != 16 && block != 32 && block != 64 && block != 128)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected 8, 16, 32, 64 or 128",
                       (long long)block);
    return ATTNRUN_OK;
}

static attn_status check_layout(const attnrun_step *step, const attnrun_work *work)
{
    const struct block_sparse_state *s = step->state;
    const int64_t keys = s->core.sizes.kv_len, block = s->core.block;
    return layout_check(step, &s->layout, -1, ceil_div(keys, block), work);
}

static attn_status plan_block_sparse(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct block_sparse_args *args = step->args;
    struct block_sparse_state *s = step->state;
    struct attn_sizes *sizes = &s->core.sizes;
    const int64_t block = args->block_size;
    TRY(attn_qkv_sizes(step, &args->heads, shape, sizes));
    s->layout = (struct attn_layout){ .row_ptr = ROW_PTR, .col_idx = COL_IDX };
    TRY(layout_sizes(step, &s->layout, sizes->q_heads));
    const int64_t rows = ceil_div(sizes->q_len, block);
    TRY(op_need_dim(step, ROW_PTR, 1, dim_of(rows + 1), "blocks of queries + 1"));
    s->core.block = block;
    s->core.density = 1;
    if (sizes->kv_len > 0 && rows > 0)
        s->core.density = (double)s->layout.entries * (double)block / (double)rows /
                          (double)sizes->kv_len;
    TRY(attn_blocks_plan(step, &s->core));
    if (op_known(step, ROW_PTR) && op_known(step, COL_IDX))
        TRY(check_layout(step, NULL));
    op_tasks(step, 0, 1, s->layout.layouts * (s->layout.entries + rows));
    op_tasks(step, 1, s->core.n_tasks, s->core.task_cost);
    step->scratch_bytes = s->core.scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status block_sparse_infer(attnrun_step *step)
{
    const struct block_sparse_args *args = step->args;
    struct attn_qkv shape;
    TRY(block_sparse_check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(op_need_rank(step, ROW_PTR, 2));
    TRY(op_need_rank(step, COL_IDX, 2));
    TRY(attn_qkv_output(step, &shape, 0));
    return step->concrete ? plan_block_sparse(step, &shape) : ATTNRUN_OK;
}

static void block_sparse_fill(const void *arg, int64_t sample, int64_t head,
                              int64_t block, float *counts)
{
    const attnrun_step *step = arg;
    const struct attn_layout *l =
        &((const struct block_sparse_state *)step->state)->layout;
    const int64_t layout = head % l->layouts, row = layout * (l->rows + 1) + block;
    const int64_t end = layout_index(&step->x[ROW_PTR], row + 1);
    (void)sample;
    for (int64_t i = layout_index(&step->x[ROW_PTR], row); i < end; i++) {
        const int64_t key_block =
            layout_index(&step->x[COL_IDX], layout * l->entries + i);
        if (key_block >= 0)
            counts[key_block] += 1.0f;
    }
}

static attn_status block_sparse_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct block_sparse_state *s = step->state;
    const struct attn_blocks_operands o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .key_mask = op_in_data(step, KEY_MASK),
        .y = step->y[0].data,
        .fill = block_sparse_fill,
        .arg = step,
        .position = s->core.sizes.offset,
        .kv_len = s->core.sizes.kv_len,
    };
    if (work->phase == 0)
        return work->begin < work->end ? check_layout(step, work) : ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(attn_blocks_run(&s->core, step->kernels, &o, task, work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_block_sparse_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "BlockSparseAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T row_ptr:I col_idx:J key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32 I=i32,i64 J=i32,i64",
    .args_bytes = sizeof(struct block_sparse_args),
    .state_bytes = sizeof(struct block_sparse_state),
    .attrs = block_sparse_attrs,
    .infer = block_sparse_infer,
    .run = block_sparse_run,
    .cost = "O(entries block_size^2 d), scratch O(block of queries)",
    .source = "Child 2019, arXiv:1904.10509",
};
