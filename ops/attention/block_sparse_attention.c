/* block_sparse_attention.c - attention under a layout of blocks: block a of the queries
 * sees the blocks col_idx[l, row_ptr[l, a]] … col_idx[l, row_ptr[l, a + 1] - 1] of the
 * keys, l = head mod layouts. A list may name a block several times, then its keys count
 * that often; entries of -1 are skipped. Then is_causal and key_mask, key by key.
 *
 * Q, K, V     see heads.h; fewer key heads than query heads are shared by groups
 * row_ptr     i32 or i64 (layouts, ceil(q_len / block_size) + 1), rising
 * col_idx     i32 or i64 (layouts, entries)
 * key_mask    bool (batch, kv_len), optional: false hides a key
 * block_size  8, 16, 32, 64 or 128
 * A query that sees no key gives zeros. is_causal is bottom-right: j <= i + kv_len -
 * q_len; the blocks of queries are counted from query 0 all the same.
 * Cost: 2 block_size^2 (dim + v_dim) FLOPs for each different entry.
 * Source: sparse attention of GPT-3 style block layouts (Child 2019, arXiv:1904.10509,
 * 5); compared with com.microsoft SparseAttention of onnxruntime 1.31.1, and with scaled
 * dot product attention under the expanded mask (torch 2.13.0). */
#include "blocks.h"

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
    int64_t layouts, rows, entries; /* row_ptr is (layouts, rows + 1) */
};

static int64_t index_at(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I64 ? ((const int64_t *)x->data)[i]
                                   : ((const int32_t *)x->data)[i];
}

static attn_status check_args(const attnrun_step *step)
{
    const struct block_sparse_args *args = step->args;
    const int64_t block = args->block_size;
    if (block != 8 && block != 16 && block != 32 && block != 64 && block != 128)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected 8, 16, 32, 64 or 128",
                       (long long)block);
    return ATTNRUN_OK;
}

static attn_status check_row_ptr(const attnrun_step *step, int64_t layout)
{
    const struct block_sparse_state *s = step->state;
    int64_t last = 0;
    for (int64_t a = 0; a <= s->rows; a++) {
        int64_t next = index_at(&step->x[ROW_PTR], layout * (s->rows + 1) + a);
        if (next < last || next > s->entries)
            return op_fail_input(step, ROW_PTR, ATTNRUN_E_RANGE,
                                 "holds %lld at [%lld,%lld], expected %lld to %lld",
                                 (long long)next, (long long)layout, (long long)a,
                                 (long long)last, (long long)s->entries);
        last = next;
    }
    return ATTNRUN_OK;
}

static attn_status check_layout(const attnrun_step *step)
{
    const struct block_sparse_state *s = step->state;
    const int64_t blocks = s->core.sizes.kv_len / s->core.block +
                           (s->core.sizes.kv_len % s->core.block != 0);
    for (int64_t layout = 0; layout < s->layouts; layout++)
        TRY(check_row_ptr(step, layout));
    for (int64_t i = 0; i < s->layouts * s->entries; i++) {
        int64_t block = index_at(&step->x[COL_IDX], i);
        if (block < -1 || block >= blocks)
            return op_fail_input(step, COL_IDX, ATTNRUN_E_RANGE,
                                 "holds %lld, expected -1 to %lld", (long long)block,
                                 (long long)blocks - 1);
    }
    return ATTNRUN_OK;
}

static attn_status plan(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct block_sparse_args *args = step->args;
    struct block_sparse_state *s = step->state;
    struct attn_sizes *sizes = &s->core.sizes;
    const int64_t block = args->block_size;
    TRY(attn_qkv_sizes(step, &args->heads, shape, sizes));
    s->layouts = step->in[ROW_PTR].dims[0].value;
    s->entries = step->in[COL_IDX].dims[1].value;
    s->rows = sizes->q_len / block + (sizes->q_len % block != 0);
    TRY(op_need_dim(step, ROW_PTR, 1, dim_of(s->rows + 1), "blocks of queries + 1"));
    TRY(op_need_dim(step, COL_IDX, 0, dim_of(s->layouts), "the layouts of row_ptr"));
    if (s->layouts < 1 || sizes->q_heads % s->layouts != 0)
        return op_fail_input(step, ROW_PTR, ATTNRUN_E_SHAPE,
                             "its %lld layouts do not divide %lld heads",
                             (long long)s->layouts, (long long)sizes->q_heads);
    s->core.block = block;
    s->core.density = 1;
    if (sizes->kv_len > 0 && s->rows > 0)
        s->core.density =
            (double)s->entries * (double)block / (double)s->rows / (double)sizes->kv_len;
    TRY(attn_blocks_plan(step, &s->core));
    if (op_known(step, ROW_PTR) && op_known(step, COL_IDX))
        TRY(check_layout(step));
    op_tasks(step, 0, 1, s->layouts * (s->entries + s->rows));
    op_tasks(step, 1, s->core.n_tasks, s->core.task_cost);
    step->scratch_bytes = s->core.scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status block_sparse_infer(attnrun_step *step)
{
    const struct block_sparse_args *args = step->args;
    struct attn_qkv shape;
    TRY(check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(op_need_rank(step, ROW_PTR, 2));
    TRY(op_need_rank(step, COL_IDX, 2));
    TRY(attn_qkv_output(step, &shape, 0));
    return step->concrete ? plan(step, &shape) : ATTNRUN_OK;
}

static void fill(const void *arg, int64_t sample, int64_t head, int64_t block,
                 float *counts)
{
    const attnrun_step *step = arg;
    const struct block_sparse_state *s = step->state;
    const int64_t layout = head % s->layouts, row = layout * (s->rows + 1) + block;
    const int64_t end = index_at(&step->x[ROW_PTR], row + 1);
    (void)sample;
    for (int64_t i = index_at(&step->x[ROW_PTR], row); i < end; i++) {
        int64_t key_block = index_at(&step->x[COL_IDX], layout * s->entries + i);
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
        .key_mask = op_has_in(step, KEY_MASK) ? step->x[KEY_MASK].data : NULL,
        .y = step->y[0].data,
        .fill = fill,
        .arg = step,
        .position = s->core.sizes.offset,
        .kv_len = s->core.sizes.kv_len,
    };
    if (work->phase == 0)
        return work->begin < work->end ? check_layout(step) : ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(attn_blocks_run(&s->core, step->kernels, &o, task, work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_block_sparse_attention_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun",
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
