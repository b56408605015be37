/* chunked_local_attention.c - ChunkedLocalAttention: a query sees the keys of its own
 * chunk and of neighbouring chunks.
 *
 *   y_i = sum over j of softmax(scale q_i k_j) v_j
 *
 * The sum is over the keys of the chunks a - chunks_before … a + chunks_after, where a =
 * floor(i / c) and c = chunk_size. Three rules remove keys from this set: key_mask keeps
 * only keys that are true, is_causal keeps only j <= i, and exact_window keeps only
 * -chunks_before c <= j - i <= chunks_after c. The last chunk may be short.
 *
 * Q            f32 (batch, n, q_heads * dim)    or (batch, q_heads, n, dim)
 * K, V         f32 (batch, n, kv_heads * dim)   or (batch, kv_heads, n, dim)
 * key_mask     b8 (batch, n), optional
 * Y            as Q, with v_dim
 * edge         "pad": chunks outside do not exist. "wrap": they are those of the other
 *              end (n % chunk_size == 0, or one short chunk), and the keys of a chunk
 *              that comes twice count twice; a single chunk has no neighbours
 * shared_qk    the keys are q_j / max(|q_j|, 1e-12), and K is not read. The score of a
 *              query with its own token is -5e4, so it sees itself only where nothing
 *              else is left. A masked token is not its own key either. A query without
 *              any key gives zeros
 *
 * By default chunks_before is 1, and chunks_after is 1, or 0 where is_causal.
 * Refused: chunk_size < 1, is_causal with chunks_after > 0, lengths that differ, wrap of
 * a longer length that is no multiple of the chunk or whose window holds it more than 64
 * times, shared_qk with fewer key heads.
 *
 * Cost: O(n chunk_size (1 + before + after) dim) for each head; scratch is O(tile).
 * Source: local-attention 1.11.2 LocalAttention (pad); transformers 5.23.0
 * modeling_reformer LocalSelfAttention (wrap); Kitaev 2020, arXiv:2001.04451. */
#include "../core/window.h"

struct chunked_args {
    struct attn_heads_args heads;
    int64_t chunk_size, chunks_before, chunks_after, exact_window, shared_qk;
    int32_t edge;
};
static const attnrun_attr_def chunked_attrs[] = {
    ATTN_HEADS_ATTRS(struct chunked_args),
    ATTR_INT_REQUIRED(struct chunked_args, chunk_size),
    ATTR_INT(struct chunked_args, chunks_before, 1),
    ATTR_INT(struct chunked_args, chunks_after, OP_INT_ABSENT),
    ATTR_FLAG(struct chunked_args, exact_window, 0),
    ATTR_FLAG(struct chunked_args, shared_qk, 0),
    ATTR_ENUM(struct chunked_args, edge, "pad|wrap", 0),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK };
enum { MAX_TURNS = 64 }; /* of a window that goes round and round the sequence */
enum { Y };

struct chunked_state {
    struct attn_window window;
    int64_t before, after; /* what window.left and window.right point to */
};

static attn_status chunked_local_check_args(const attnrun_step *step)
{
    const struct chunked_args *args = step->args;
    TRY(attn_need_int(step, "chunk_size", args->chunk_size, 1, INT64_MAX));
    TRY(attn_need_int(step, "chunks_before", args->chunks_before, 0, INT32_MAX));
    TRY(attn_need_int(step, "exact_window", args->exact_window, 0, 1));
    TRY(attn_need_int(step, "shared_qk", args->shared_qk, 0, 1));
    if (args->chunks_after == OP_INT_ABSENT)
        return ATTNRUN_OK;
    TRY(attn_need_int(step, "chunks_after", args->chunks_after, 0, INT32_MAX));
    if (args->heads.is_causal && args->chunks_after > 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "chunks_after is %lld, expected 0 where is_causal is 1",
                       (long long)args->chunks_after);
    return ATTNRUN_OK;
}

static attn_status plan_chunked_local(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct chunked_args *args = step->args;
    struct chunked_state *state = step->state;
    struct attn_window *w = &state->window;
    *w = (struct attn_window){ .chunk = args->chunk_size,
                               .wrap = args->edge == 1,
                               .exact = args->exact_window != 0,
                               .shared = args->shared_qk != 0 };
    TRY(attn_qkv_sizes(step, &args->heads, shape, &w->s));
    if (w->wrap && w->s.kv_len > w->chunk && w->s.kv_len % w->chunk != 0)
        return op_fail_input(
            step, K, ATTNRUN_E_SHAPE,
            "its length, %lld, is not a multiple of chunk_size %lld, as edge \"wrap\" "
            "needs: pad it, and mask the padding by key_mask",
            (long long)w->s.kv_len, (long long)w->chunk);
    state->before = args->chunks_before;
    state->after =
        args->chunks_after == OP_INT_ABSENT ? !w->s.causal : args->chunks_after;
    if (w->s.kv_len <= w->chunk) { /* one chunk is not its own neighbour */
        w->chunk = w->s.kv_len > 0 ? w->s.kv_len : 1;
        w->wrap = false;
    }
    const int64_t chunks = w->wrap ? w->s.kv_len / w->chunk : 0;
    if (w->wrap && state->before + state->after + 1 > MAX_TURNS * chunks)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "chunks_before and chunks_after are %lld and %lld, expected a sum of "
            "at most %lld with %s",
            (long long)state->before, (long long)state->after,
            (long long)(MAX_TURNS * chunks - 1), attn_plural(chunks, "chunk"));
    w->left = (attnrun_ints){ &state->before, 1 };
    w->right = (attnrun_ints){ &state->after, 1 };
    TRY(attn_window_plan(step, w));
    step->scratch_bytes = w->scratch_bytes;
    op_tasks(step, 0, w->n_tasks, w->task_cost);
    return ATTNRUN_OK;
}

static attn_status chunked_infer(attnrun_step *step)
{
    const struct chunked_args *args = step->args;
    struct attn_qkv shape;
    const unsigned flags = ATTN_SAME_LENGTH | (args->shared_qk ? ATTN_SAME_HEADS : 0);
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, flags, &shape));
    TRY(chunked_local_check_args(step));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_qkv_output(step, &shape, Y));
    return step->concrete ? plan_chunked_local(step, &shape) : ATTNRUN_OK;
}

static attn_status chunked_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct chunked_state *state = step->state;
    struct attn_window w = state->window;
    const struct attn_window_operands o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .y = step->y[Y].data,
        .key_mask = op_in_data(step, KEY_MASK),
    };
    w.left.v = &state->before;
    w.right.v = &state->after;
    for (int64_t task = work->begin; task < work->end && o.y != NULL; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(attn_window_run(&w, step->kernels, &o, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_chunked_local_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "ChunkedLocalAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct chunked_args),
    .state_bytes = sizeof(struct chunked_state),
    .attrs = chunked_attrs,
    .infer = chunked_infer,
    .run = chunked_run,
    .cost = "O(n chunk (1 + before + after) d), scratch O(tile)",
    .source = "Kitaev 2020, arXiv:2001.04451; Roy 2020, arXiv:2003.05997",
};
