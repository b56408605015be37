/* ms_sparse_attention.c - com.microsoft SparseAttention: causal attention under a layout
 * of blocks, over keys and values in a cache.
 *
 * query   f32 (batch, q, num_heads * dim), or with key and value behind it in the last
 *         dim
 * key, value             (batch, q, kv_num_heads * dim), or absent
 * past_key, past_value   (batch, kv_num_heads, capacity, dim); present_ have their shape
 * block_row_indices, block_col_indices  i32 (layouts, blocks + 1), (layouts, entries):
 *                        head h sees the blocks of layout h mod layouts; block a of the
 *                        queries counts from the first token of the cache
 * total_sequence_length  i32, one: equal to q for a prompt, whose tokens begin the cache
 * key_total_sequence_lengths  i32 (batch): otherwise the new tokens of a sample end there
 * cos_cache, sin_cache   (positions, r/2) for do_rotary
 * output                 f32 (batch, q, num_heads * dim)
 * scale                  0: 1 / sqrt(dim)
 *
 * A block that a list names twice counts once. A query that sees no key gives zeros,
 * where ONNX Runtime 1.31.1 gives the mean of all values before it; no layout in use has
 * such rows.
 * Cost: 2 block^2 (dim + v_dim) FLOPs for each entry of a head, and one pass over the
 * cache. Source: ONNX Runtime contrib operators. */
#include <math.h>

#include "../core/block_lists.h"
#include "../core/kv_cache.h"
#include "../core/block_layout.h"
#include "../core/rotary.h"
#include "../../tile.h"

struct sparse_args {
    int64_t num_heads, kv_num_heads, sparse_block_size, do_rotary, rotary_interleaved;
    float scale;
};
static const attnrun_attr_def sparse_attrs[] = {
    ATTR_INT_REQUIRED(struct sparse_args, num_heads),
    ATTR_INT_REQUIRED(struct sparse_args, kv_num_heads),
    ATTR_INT_REQUIRED(struct sparse_args, sparse_block_size),
    ATTR_FLAG(struct sparse_args, do_rotary, 0),
    ATTR_FLAG(struct sparse_args, rotary_interleaved, 0),
    ATTR_FLOAT(struct sparse_args, scale, 0.0f),
    ATTR_END,
};

enum { Q, K, V, PAST_K, PAST_V, ROWS, COLUMNS, TOTAL, LENGTHS, COS, SIN };
enum { Y, PRESENT_K, PRESENT_V, MAX_HEADS = 1 << 16 };

struct sparse_state {
    struct attn_blocks core; /* over the cache */
    struct attn_layout layout;
    int64_t q_row, k_row, k_offset,
        v_offset;            /* floats per token; where packed ones are */
    int64_t half, positions; /* of cos_cache */
    int64_t k_at, v_at;      /* floats into the shared memory, behind rotated queries */
};

/* ---- infer ---- */

static attn_status ms_sparse_check_args(const attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, MAX_HEADS));
    TRY(attn_need_int(step, "kv_num_heads", args->kv_num_heads, 1, args->num_heads));
    TRY(attn_need_int(step, "sparse_block_size", args->sparse_block_size, 1, INT32_MAX));
    TRY(attn_need_int(step, "do_rotary", args->do_rotary, 0, 1));
    TRY(attn_need_finite(step, "scale", args->scale, false));
    if (args->num_heads % args->kv_num_heads != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "num_heads is %lld, expected a multiple of kv_num_heads, %lld",
                       (long long)args->num_heads, (long long)args->kv_num_heads);
    if (op_has_in(step, K) != op_has_in(step, V))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "only %s is given, expected key and value, or none of them",
                       op_has_in(step, K) ? "key" : "value");
    if (args->do_rotary != 0 && (!op_has_in(step, COS) || !op_has_in(step, SIN)))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "do_rotary is 1, but cos_cache or sin_cache is absent");
    return ATTNRUN_OK;
}

static attn_status check_ranks(const attnrun_step *step)
{
    TRY(op_need_rank(step, Q, 3));
    for (int in = K; in <= V && op_has_in(step, K); in++)
        TRY(op_need_rank(step, in, 3));
    for (int in = PAST_K; in <= PAST_V; in++)
        TRY(op_need_rank(step, in, 4));
    TRY(op_need_rank(step, ROWS, 2));
    TRY(op_need_rank(step, COLUMNS, 2));
    TRY(op_need_rank_between(step, TOTAL, 0, 1));
    return op_need_rank(step, LENGTHS, 1);
}

static attn_status ms_sparse_find_sizes(const attnrun_step *step, struct sparse_state *s)
{
    const struct sparse_args *args = step->args;
    const attnrun_type *q = &step->in[Q], *past = &step->in[PAST_K];
    const bool packed = !op_has_in(step, K);
    const int64_t all = args->num_heads + (packed ? 2 * args->kv_num_heads : 0);
    struct attn_sizes *z = &s->core.sizes;
    if (q->dims[2].value % all != 0 || q->dims[2].value == 0)
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "expected a multiple of %s over 0 in dim 2",
                             attn_plural(all, "head"));
    *z = (struct attn_sizes){ .batch = q->dims[0].value,
                              .q_len = q->dims[1].value,
                              .kv_len = past->dims[2].value,
                              .q_heads = args->num_heads,
                              .kv_heads = args->kv_num_heads,
                              .group = args->num_heads / args->kv_num_heads,
                              .dim = q->dims[2].value / all,
                              .scale = args->scale,
                              .causal = true };
    z->v_dim = z->dim;
    if (args->scale == 0.0f)
        z->scale = (float)(1.0 / sqrt((double)z->dim));
    s->q_row = q->dims[2].value;
    s->k_row = packed ? s->q_row : args->kv_num_heads * z->dim;
    s->k_offset = packed ? args->num_heads * z->dim : 0;
    s->v_offset = packed ? (args->num_heads + args->kv_num_heads) * z->dim : 0;
    for (int in = K; !packed && in <= V; in++) {
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, q->dims[1], "the tokens"));
        TRY(op_need_dim(step, in, 2, dim_of(s->k_row), "kv_num_heads * dim"));
    }
    for (int in = PAST_K; in <= PAST_V; in++) {
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, dim_of(args->kv_num_heads), "kv_num_heads"));
        TRY(op_need_dim(step, in, 2, past->dims[2], "past_key's capacity"));
        TRY(op_need_dim(step, in, 3, dim_of(z->dim), "the dim of a head"));
    }
    return op_need_dim(step, LENGTHS, 0, q->dims[0], "the batch");
}

static attn_status find_rotary(const attnrun_step *step, struct sparse_state *s)
{
    const struct sparse_args *args = step->args;
    s->half = 0;
    if (args->do_rotary == 0)
        return ATTNRUN_OK;
    return attn_rotary_caches(step, COS, s->core.sizes.dim, &s->half, &s->positions);
}

static attn_status plan_sparse(attnrun_step *step, struct sparse_state *s)
{
    const struct sparse_args *args = step->args;
    struct attn_sizes *z = &s->core.sizes;
    TRY(ms_sparse_find_sizes(step, s));
    TRY(find_rotary(step, s));
    TRY(attn_sdpa_fits(step, z->batch, z->q_heads, z->q_len, z->kv_len, 2 * z->dim));
    s->layout = (struct attn_layout){ .row_ptr = ROWS, .col_idx = COLUMNS };
    TRY(layout_sizes(step, &s->layout, z->q_heads));
    s->core.block = args->sparse_block_size;
    s->core.density = 0.25;
    TRY(attn_blocks_plan(step, &s->core));
    const bool rotated = s->half > 0;
    z->q = (struct attn_heads){ z->q_len * s->q_row, z->dim, s->q_row };
    z->y = (struct attn_heads){ z->q_len * z->q_heads * z->dim, z->dim,
                                z->q_heads * z->dim };
    if (rotated)
        z->q = z->y;
    z->k = z->v = (struct attn_heads){ z->kv_heads * z->kv_len * z->dim,
                                       z->kv_len * z->dim, z->dim };
    const int64_t cache = z->batch * z->k.batch;
    s->k_at = rotated ? z->batch * z->q.batch : 0;
    s->v_at = s->k_at + (op_has_out(step, PRESENT_K) ? 0 : cache);
    step->shared_bytes =
        (s->v_at + (op_has_out(step, PRESENT_V) ? 0 : cache)) * (int64_t)sizeof(float);
    op_tasks(step, 0, 1, s->layout.layouts * s->layout.entries);
    op_tasks(step, 1, z->batch * z->kv_heads, z->kv_len * z->dim);
    op_tasks(step, 2, op_has_out(step, Y) ? s->core.n_tasks : 0, s->core.task_cost);
    step->scratch_bytes = s->core.scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status sparse_infer(attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    const attnrun_type *q = &step->in[Q];
    TRY(ms_sparse_check_args(step));
    TRY(check_ranks(step));
    attnrun_dim y[3] = { q->dims[0], q->dims[1], attnrun_dim_unknown(step) };
    if (q->rank == 3) {
        attnrun_dim all =
            dim_of(args->num_heads + (op_has_in(step, K) ? 0 : 2 * args->kv_num_heads));
        y[2] = attnrun_dim_mul(step, attnrun_dim_div(step, q->dims[2], all),
                               dim_of(args->num_heads));
    }
    TRY(op_out(step, Y, ATTNRUN_F32, q->rank, y));
    for (int i = 0; i < 2; i++) {
        TRY(op_out_like(step, PRESENT_K + i, PAST_K + i));
        attnrun_step_inplace(step, PRESENT_K + i, PAST_K + i);
    }
    return step->concrete ? plan_sparse(step, step->state) : ATTNRUN_OK;
}

/* ---- run ---- */

/* The number of tokens of sample b in the cache before the new ones. */
static int64_t past_of(const attnrun_step *step, int64_t b)
{
    const struct sparse_state *s = step->state;
    const int64_t total = ((const int32_t *)step->x[TOTAL].data)[0];
    const int64_t len = ((const int32_t *)step->x[LENGTHS].data)[b];
    return total == s->core.sizes.q_len ? 0 : len - s->core.sizes.q_len;
}

static attn_status check_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->core.sizes;
    if (op_count(&step->in[TOTAL], 0, step->in[TOTAL].rank) != 1)
        return op_fail_input(step, TOTAL, ATTNRUN_E_SHAPE, "expected one element");
    for (int64_t b = 0; b < z->batch; b++) {
        const int64_t past = past_of(step, b), end = past + z->q_len;
        if (past < 0 || end > z->kv_len)
            return op_fail_input(step, LENGTHS, ATTNRUN_E_RANGE,
                                 "tokens %lld to %lld of sample %lld are not in a cache "
                                 "of %lld",
                                 (long long)past, (long long)end - 1, (long long)b,
                                 (long long)z->kv_len);
        if (s->half > 0 && end > s->positions)
            return op_fail_input(step, COS, ATTNRUN_E_RANGE,
                                 "expected a row for position %lld", (long long)end - 1);
        if (end > 0 && z->q_len > 0 && (end - 1) / s->core.block >= s->layout.rows)
            return op_fail_input(step, ROWS, ATTNRUN_E_RANGE,
                                 "it covers %s of %s, which end before token %lld",
                                 attn_plural(s->layout.rows, "block"),
                                 attn_plural(s->core.block, "token"), (long long)end - 1);
    }
    return layout_check(step, &s->layout, 0, s->layout.rows, work);
}

static float *cache_of(const attnrun_step *step, int out, const attnrun_work *work)
{
    const struct sparse_state *s = step->state;
    if (op_has_out(step, out))
        return step->y[out].data;
    return (float *)work->shared + (out == PRESENT_K ? s->k_at : s->v_at);
}

static void put_token(const attnrun_step *step, float *to, const float *from,
                      int64_t position, bool rotate)
{
    const struct sparse_args *args = step->args;
    const struct sparse_state *s = step->state;
    const int64_t dim = s->core.sizes.dim;
    if (!rotate || s->half == 0) {
        memcpy(to, from, (size_t)dim * sizeof *to);
        return;
    }
    attn_rotary_rotate(to, from, (const float *)step->x[COS].data + position * s->half,
                       (const float *)step->x[SIN].data + position * s->half, s->half,
                       dim, args->rotary_interleaved != 0);
}

/* Copies past and new tokens of a head; what lies behind them is copied from the past. */
static void fill_cache(const attnrun_step *step, const attnrun_work *work, int out,
                       int64_t task)
{
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->core.sizes;
    int64_t b = task, h = op_take(&b, z->kv_heads);
    const bool key = out == PRESENT_K;
    const int in = op_has_in(step, K) ? (key ? K : V) : Q,
              past_in = key ? PAST_K : PAST_V;
    const int64_t past = past_of(step, b);
    float *to = cache_of(step, out, work) + task * z->k.head;
    const float *old = (const float *)step->x[past_in].data + task * z->k.head;
    if (to != old)
        (void)attn_poll_copy(to, old, z->k.head * (int64_t)sizeof *to);
    const float *from = (const float *)step->x[in].data + b * z->q_len * s->k_row +
                        (key ? s->k_offset : s->v_offset) + h * z->dim;
    for (int64_t i = 0; i < z->q_len; i++)
        put_token(step, to + (past + i) * z->dim, from + i * s->k_row, past + i, key);
}

/* Rotates the queries of the heads that share key head h. */
static void fill_queries(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct sparse_state *s = step->state;
    const struct attn_sizes *z = &s->core.sizes;
    const int64_t head = op_take(&task, z->kv_heads) * z->group, b = task;
    for (int64_t i = 0; i < z->q_len && s->half > 0; i++)
        for (int64_t h = head; h < head + z->group; h++)
            put_token(step,
                      (float *)work->shared + b * z->q.batch + i * z->q.row + h * z->dim,
                      (const float *)step->x[Q].data + (b * z->q_len + i) * s->q_row +
                          h * z->dim,
                      past_of(step, b) + i, true);
}

static void ms_sparse_fill(const void *arg, int64_t sample, int64_t head, int64_t block,
                           float *counts)
{
    const attnrun_step *step = arg;
    const struct sparse_state *s = step->state;
    const struct attn_layout *l = &s->layout;
    const int64_t layout = head % l->layouts, row = layout * (l->rows + 1) + block;
    const int64_t end = layout_index(&step->x[ROWS], row + 1);
    (void)sample;
    for (int64_t i = layout_index(&step->x[ROWS], row); i < end; i++) {
        const int64_t key = layout_index(&step->x[COLUMNS], layout * l->entries + i);
        if (key < s->core.key_blocks)
            counts[key] = 1.0f;
    }
}

static attn_status sparse_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct sparse_state *s = step->state;
    struct attn_blocks_operands o = {
        .q = s->half > 0 ? work->shared : step->x[Q].data,
        .y = step->y[Y].data,
        .fill = ms_sparse_fill,
        .arg = step,
    };
    if (work->phase == 0)
        return work->begin < work->end ? check_run(step, work) : ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 1) {
            fill_queries(step, work, task);
            fill_cache(step, work, PRESENT_K, task);
            fill_cache(step, work, PRESENT_V, task);
            continue;
        }
        o.k = cache_of(step, PRESENT_K, work);
        o.v = cache_of(step, PRESENT_V, work);
        o.first = o.position = past_of(step, attn_blocks_sample(&s->core, task));
        o.kv_len = o.position + s->core.sizes.q_len;
        TRY(attn_blocks_run(&s->core, step->kernels, &o, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ms_sparse_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "SparseAttention",
    .since = 1,
    .inputs = "query:T key:T? value:T? past_key:T past_value:T block_row_indices:i32 "
              "block_col_indices:i32 total_sequence_length:i32 "
              "key_total_sequence_lengths:i32 cos_cache:T? sin_cache:T?",
    .outputs = "output:T present_key:T present_value:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct sparse_args),
    .state_bytes = sizeof(struct sparse_state),
    .attrs = sparse_attrs,
    .infer = sparse_infer,
    .run = sparse_run,
    .cost = "O(entries block_size^2 d), scratch O(block of queries)",
    .source = "ONNX Runtime contrib operators",
};
