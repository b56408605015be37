/* single_head_attention.c - SingleHeadAttention: attention over a memory whose rows are
 * both keys and values, each multiplied by a gate.
 *
 *   y_i = v_gate * sum over j of softmax(scale (q_gate * k_gate * q_i) m_j) m_j
 *
 * Q        f32 (batch, q_len, width)
 * memory   f32 (batch, kv_len, width)
 * q_gate, k_gate, v_gate   (width), ones by default. The gates of keys and values are
 *                          applied to the query and to the result, so the memory is read
 *                          in place and not copied
 * key_mask     b8 (batch, kv_len): false masks a key
 * Y            as Q; zeros where a query sees no key
 * q_num_heads  1 by default; cuts width into heads
 * is_causal    1 by default: query i sees the memory up to i + kv_len - q_len
 * scale        1 / sqrt(width / q_num_heads) by default
 *
 * Refused: ranks other than 3, a width that heads do not divide, lengths of gates.
 * Cost: O(q_len kv_len width), scratch O(tile).
 * Source: Merity 2019, arXiv:1911.11423; sha-rnn model.py Attention (218d748) with its
 * sigmoids folded into the gates. */
#include "../core/window.h"

struct single_args {
    struct attn_heads_args heads;
};
static const attnrun_attr_def single_attrs[] = {
    ATTN_HEADS_ATTR(struct single_args, q_num_heads, 1),
    ATTN_HEADS_ATTR(struct single_args, is_causal, 1),
    ATTN_HEADS_SCALE(struct single_args, ATTN_SCALE_ABSENT),
    ATTR_END,
};

enum { Q, MEMORY, Q_GATE, K_GATE, V_GATE, KEY_MASK };
enum { Y };

struct single_state {
    struct attn_window window;
};

static attn_status check_gates(const attnrun_step *step)
{
    attnrun_dim width = attnrun_dim_unknown(step);
    if (op_rank_known(step, Q))
        width = step->in[Q].dims[2];
    for (int in = Q_GATE; in <= V_GATE; in++)
        TRY(op_need_vector(step, in, width, "the width of Q"));
    return ATTNRUN_OK;
}

static attn_status single_infer(attnrun_step *step)
{
    const struct single_args *args = step->args;
    struct single_state *state = step->state;
    struct attn_heads_args heads = args->heads;
    struct attn_qkv shape;
    heads.kv_num_heads = OP_INT_ABSENT;
    TRY(op_need_rank(step, Q, 3));
    TRY(op_need_rank(step, MEMORY, 3));
    TRY(attn_qkv_infer(step, &heads, Q, MEMORY, MEMORY, ATTN_SAME_HEADS, &shape));
    TRY(check_gates(step));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    if (!op_rank_known(step, Q))
        TRY(op_out(step, Y, ATTNRUN_F32, -1, NULL));
    else
        TRY(op_out_like(step, Y, Q));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->window = (struct attn_window){ .chunk = 1 };
    TRY(attn_qkv_sizes(step, &heads, &shape, &state->window.s));
    TRY(attn_window_plan(step, &state->window));
    step->scratch_bytes = state->window.scratch_bytes;
    op_tasks(step, 0, state->window.n_tasks, state->window.task_cost);
    return ATTNRUN_OK;
}

static attn_status single_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct single_state *state = step->state;
    const struct attn_window_operands o = { .q = step->x[Q].data,
                                            .k = step->x[MEMORY].data,
                                            .v = step->x[MEMORY].data,
                                            .y = step->y[Y].data,
                                            .key_mask = op_in_data(step, KEY_MASK),
                                            .q_gate = op_in_data(step, Q_GATE),
                                            .k_gate = op_in_data(step, K_GATE),
                                            .y_gate = op_in_data(step, V_GATE) };
    for (int64_t task = work->begin; task < work->end && o.y != NULL; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(attn_window_run(&state->window, step->kernels, &o, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_single_head_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SingleHeadAttention",
    .since = 1,
    .inputs = "Q:T memory:T q_gate:T? k_gate:T? v_gate:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct single_args),
    .state_bytes = sizeof(struct single_state),
    .attrs = single_attrs,
    .infer = single_infer,
    .run = single_run,
    .cost = "O(nq nk width), scratch O(tile)",
    .source = "Merity 2019, arXiv:1911.11423",
};
