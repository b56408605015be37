/* local_attention.c - LocalAttention: softmax attention over a window of keys around each
 * query.
 *
 *   y_i = sum over j in S_i of softmax(scale q_i k_j) v_j,  p = i + kv_len - q_len
 *   S_i = { p + d t : -left <= t <= right } and the global tokens; all keys where token p
 *         is global itself; without the keys that key_mask or is_causal (j <= p) masks
 *
 * Q            f32 (batch, q_len, q_heads * dim)    or (batch, q_heads, q_len, dim)
 * K, V         f32 (batch, kv_len, kv_heads * dim)  or (batch, kv_heads, kv_len, dim)
 * key_mask     b8 (batch, kv_len): false masks a key
 * global_mask  b8 (batch, kv_len): global tokens, besides the first num_global positions
 * Y            as Q, with v_dim
 * left_window, right_window, dilation  one element, or one a query head; -1: no bound.
 *              right_window is left_window by default, or 0 where is_causal
 *
 * S_i is a set: a global key within the window counts once. A masked global query still
 * sees all keys that are not masked. A query without any key gives zeros.
 * Refused: dilation < 1, windows < -1, lists of another length, global_mask where q_len
 * and kv_len differ.
 * Cost: O(n (left + right + 1 + globals) dim) a head; scratch is O(tile).
 * Bound: products. +-256 at 4,096 tokens, 8 heads of 64, on a Zen 4 core: 35.3 ms at the peak for
 * the pairs that are seen, 39.9 for those of tiles (64 queries and 577 keys for scores, 32 and 545
 * for values), 5.1 for exponentials; measured 47.7.
 * Source: Luong 2015, Child 2019, Beltagy 2020 (arXiv:2004.05150); equals
 * torch.nn.functional.scaled_dot_product_attention (2.13.0) under the mask above. */
#include "../core/window.h"

struct local_args {
    struct attn_heads_args heads;
    attnrun_ints left_window, right_window, dilation;
    int64_t num_global;
};
static const attnrun_attr_def local_attrs[] = {
    ATTN_HEADS_ATTRS(struct local_args),
    ATTR_INTS_REQUIRED(struct local_args, left_window),
    ATTR_INTS(struct local_args, right_window),
    ATTR_INTS(struct local_args, dilation),
    ATTR_INT(struct local_args, num_global, 0),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK, GLOBAL_MASK };
enum { Y };

struct local_state {
    struct attn_window window;
};

static attn_status local_check_args(const attnrun_step *step, attnrun_dim heads)
{
    const struct local_args *args = step->args;
    TRY(attn_window_need_ints(step, "left_window", args->left_window, heads, -1));
    TRY(attn_window_need_ints(step, "right_window", args->right_window, heads, -1));
    TRY(attn_window_need_ints(step, "dilation", args->dilation, heads, 1));
    return attn_need_int(step, "num_global", args->num_global, 0, INT64_MAX);
}

static attn_status plan_local(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct local_args *args = step->args;
    struct local_state *state = step->state;
    struct attn_window *w = &state->window;
    *w = (struct attn_window){ .left = args->left_window,
                               .right = args->right_window,
                               .dilation = args->dilation,
                               .chunk = 1 };
    if (w->right.v == NULL)
        w->right = w->left;
    TRY(attn_qkv_sizes(step, &args->heads, shape, &w->s));
    w->max_globals = op_has_in(step, GLOBAL_MASK) || args->num_global > w->s.kv_len
                         ? w->s.kv_len
                         : args->num_global;
    w->globals = w->max_globals > 0;
    return attn_window_plan_step(step, w);
}

static attn_status local_infer(attnrun_step *step)
{
    const struct local_args *args = step->args;
    struct attn_qkv shape;
    const unsigned flags = op_has_in(step, GLOBAL_MASK) ? ATTN_SAME_LENGTH : 0;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, flags, &shape));
    TRY(local_check_args(step, shape.q_heads));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_key_mask_check(step, GLOBAL_MASK, shape.batch, shape.kv_len));
    TRY(attn_qkv_output(step, &shape, Y));
    return step->concrete ? plan_local(step, &shape) : ATTNRUN_OK;
}

static attn_status local_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct local_args *args = step->args;
    const struct local_state *state = step->state;
    const struct attn_window_operands o = { .q = step->x[Q].data,
                                            .k = step->x[K].data,
                                            .v = step->x[V].data,
                                            .y = step->y[Y].data,
                                            .key_mask = op_in_data(step, KEY_MASK) };
    const struct attn_window_globals globals = { .mask = op_in_data(step, GLOBAL_MASK),
                                                 .first = args->num_global };
    return attn_window_run_step(step, &state->window, &o, &globals, work, NULL);
}

const attnrun_op_def op_local_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LocalAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8? global_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct local_args),
    .state_bytes = sizeof(struct local_state),
    .attrs = local_attrs,
    .infer = local_infer,
    .run = local_run,
    .cost = "O(n (left + right + 1 + globals) d), scratch O(tile)",
    .source = "Luong 2015, arXiv:1508.04025; Beltagy 2020, arXiv:2004.05150",
};
