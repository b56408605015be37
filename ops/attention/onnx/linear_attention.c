/* linear_attention.c - LinearAttention: attention whose memory is one matrix S per key
 * head.
 *
 *   S = exp(g) S + k (x) u;  o = scale * S' q        with u = v (linear, gated), or
 *   u = beta (v - exp(g) S' k) (delta, gated_delta)  and g = 0 where not gated
 *
 * query        (batch, tokens, q_heads * d_k); key, value (batch, tokens, kv_heads * d)
 * decay        g: (batch, tokens, kv_heads * d_k), or one per head (…, kv_heads)
 * beta         (batch, tokens, kv_heads), or one for all heads (…, 1)
 * past_state   (batch, kv_heads, d_k, d_v), zeros by default; present_state is like it.
 *              com.microsoft, state_window W > 0: W of these. The last is the state; the
 *              others are the states after the W - 1 tokens before it, zeros before the
 *              first token
 *
 * Groups of q_heads / kv_heads query heads read one S. com.microsoft: q_heads may divide
 * kv_heads instead. Then each query head reads kv_heads / q_heads of them, the answers
 * are (batch, tokens, kv_heads * d_v), and the key may have fewer heads than kv_heads,
 * too. f16 and bf16 are converted row by row; S is f32 until it is stored. The columns of
 * S do not depend on each other, so a task is a block of columns, which stays in the
 * first-level cache for all tokens.
 *
 * Chunks of 64 tokens as products of matrices (the WY form of the delta rule) would need
 * 4 to 7 multiply-adds for an element of S and token, where the recurrence needs 2 to 4.
 * The recurrence has no quotients of decays either. With two tokens a pass it is also
 * faster, see recurrence_f32.c.
 * Cost: O(tokens * d_k * d_v) per head. Source: ONNX LinearAttention-27; com.microsoft
 * LinearAttention-1, compared with onnxruntime 1.31.1 (which has no state_window on
 * CPUs); Yang 2024, arXiv:2412.06464 (gated delta rule). */
#include "linear_attention.h"

#include <math.h>

#include "../../tile.h"

enum {
    SMALL_BLOCK = 32,
    FEW_HEADS = 8, /* fewer: blocks are small */
    MAX_WINDOW = 8
};

#define LINEAR_ATTRS                                                                     \
    ATTR_INT_REQUIRED(struct linear_args, q_num_heads),                                  \
        ATTR_INT_REQUIRED(struct linear_args, kv_num_heads),                             \
        ATTR_FLOAT(struct linear_args, scale, 0.0f),                                     \
        ATTR_ENUM(struct linear_args, update_rule, "linear|gated|delta|gated_delta", 3), \
        ATTR_IGNORED("chunk_size")
static const attnrun_attr_def linear_attrs[] = { LINEAR_ATTRS, ATTR_END };
static const attnrun_attr_def ms_linear_attrs[] = {
    LINEAR_ATTRS,
    ATTR_INT(struct linear_args, state_window, 0),
    ATTR_END,
};

static attn_status linear_check_args(const attnrun_step *step)
{
    const struct linear_args *args = step->args;
    const bool shared = step->node->op->domain[0] != 0 && args->q_num_heads > 0 &&
                        args->kv_num_heads % args->q_num_heads == 0;
    if (args->q_num_heads < 1 || args->kv_num_heads < 1 ||
        (args->q_num_heads % args->kv_num_heads != 0 && !shared) ||
        args->q_num_heads > INT32_MAX || args->kv_num_heads > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is %lld, expected a positive multiple of "
                       "kv_num_heads, %lld",
                       (long long)args->q_num_heads, (long long)args->kv_num_heads);
    if (args->state_window < 0 || args->state_window > MAX_WINDOW)
        return op_fail(step, ATTNRUN_E_ATTR, "state_window is %lld, expected 0 to %d",
                       (long long)args->state_window, MAX_WINDOW);
    if (linear_gated(args) != op_has_in(step, LINEAR_DECAY))
        return op_fail(step, ATTNRUN_E_INPUT, "this update rule %s a decay",
                       linear_gated(args) ? "needs" : "does not take");
    if (linear_delta(args) != op_has_in(step, LINEAR_BETA))
        return op_fail(step, ATTNRUN_E_INPUT, "this update rule %s a beta",
                       linear_delta(args) ? "needs" : "does not take");
    return ATTNRUN_OK;
}

/* Checks rank, batch and tokens of input `in`; *dim: last dim / heads. */
static attn_status split_heads(const attnrun_step *step, int in, int64_t heads,
                               attnrun_dim *dim)
{
    const attnrun_type *type = &step->in[in], *q = &step->in[LINEAR_QUERY];
    TRY(op_need_rank(step, in, 3));
    *dim = attnrun_dim_unknown(step);
    if (type->rank < 0)
        return ATTNRUN_OK;
    if (q->rank == 3) {
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, q->dims[1], "the number of tokens"));
    }
    if (dim_is_const(type->dims[2]) && type->dims[2].value % heads != 0)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected a multiple of %s in dim 2",
                             attn_plural(heads, "head"));
    *dim = attnrun_dim_div(step, type->dims[2], dim_of(heads));
    return ATTNRUN_OK;
}

/* Checks that the last dim of decay or beta is `a` or `b`. */
static attn_status check_gate(const attnrun_step *step, int in, attnrun_dim a,
                              attnrun_dim b)
{
    attnrun_dim dim;
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(split_heads(step, in, 1, &dim));
    if (dim_is_const(dim) && !dim_may_equal(dim, a) && !dim_may_equal(dim, b))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected a last dim of %lld or %lld", (long long)a.value,
                             (long long)b.value);
    return ATTNRUN_OK;
}

static attn_status linear_attention_check_past(const attnrun_step *step, attnrun_dim d_k,
                                               attnrun_dim d_v)
{
    const struct linear_args *args = step->args;
    const int window = args->state_window > 0;
    if (!op_has_in(step, LINEAR_PAST))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, LINEAR_PAST, 4 + window));
    if (!op_rank_known(step, LINEAR_PAST))
        return ATTNRUN_OK;
    if (window)
        TRY(op_need_dim(step, LINEAR_PAST, 0, dim_of(args->state_window),
                        "state_window"));
    if (op_rank_known(step, LINEAR_QUERY))
        TRY(op_need_dim(step, LINEAR_PAST, window, step->in[LINEAR_QUERY].dims[0],
                        "the batch"));
    TRY(op_need_dim(step, LINEAR_PAST, window + 1, dim_of(args->kv_num_heads),
                    "the key heads"));
    TRY(op_need_dim(step, LINEAR_PAST, window + 2, d_k, "the dim of a key"));
    return op_need_dim(step, LINEAR_PAST, window + 3, d_v, "the dim of a value");
}

static int64_t answer_heads(const struct linear_args *args)
{
    return args->q_num_heads > args->kv_num_heads ? args->q_num_heads
                                                  : args->kv_num_heads;
}

static attn_status linear_attention_set_outputs(attnrun_step *step, attnrun_dim d_k,
                                                attnrun_dim d_v)
{
    const struct linear_args *args = step->args;
    const attnrun_type *q = &step->in[LINEAR_QUERY];
    bool known = q->rank >= 0;
    int32_t dtype = op_has_in(step, LINEAR_PAST) ? step->in[LINEAR_PAST].dtype : q->dtype;
    attnrun_dim y[3] = { q->dims[0], q->dims[1],
                         attnrun_dim_mul(step, d_v, dim_of(answer_heads(args))) };
    attnrun_dim state[5] = { dim_of(args->state_window), q->dims[0],
                             dim_of(args->kv_num_heads), d_k, d_v };
    const int window = args->state_window > 0;
    TRY(op_out(step, 0, q->dtype, known ? 3 : -1, y));
    if (step->n_out > 1)
        TRY(op_out(step, 1, dtype, known ? 4 + window : -1, state + 1 - window));
    return ATTNRUN_OK;
}

/* Whether S is whole rows of whole vectors, as the kernel takes them. */
static bool in_place(const attnrun_step *step, int32_t dtype, bool there)
{
    const struct linear_state *state = step->state;
    return there && dtype == ATTNRUN_F32 && state->d_v % LINEAR_VECTOR == 0;
}

attn_status attn_linear_plan(attnrun_step *step, int phase,
                             const struct linear_args *args, struct linear_state *state)
{
    const int64_t d_k = state->d_k, d_v = state->d_v;
    int64_t heads, n, floats;
    state->group = args->q_num_heads > args->kv_num_heads
                       ? args->q_num_heads / args->kv_num_heads
                       : 1;
    state->answer_heads = answer_heads(args);
    state->scale = args->scale != 0 ? args->scale : (float)(1 / sqrt((double)d_k));
    if (d_k > INT64_C(1) << 40 || !ck_mul(state->batch, args->kv_num_heads, &heads) ||
        !ck_mul(heads, d_k, &n) || !ck_mul(n, d_v, &state->state_floats))
        return op_fail_size(
            step, "d_k would be over 2^40, or the number of elements of its state",
            "2^63 - 1");
    state->block = heads < FEW_HEADS ? SMALL_BLOCK : LINEAR_BLOCK;
    state->blocks = ceil_div(d_v, state->block);
    if (!ck_mul(heads, state->blocks, &n))
        return op_fail_scratch(step);
    state->together = state->tokens <= LINEAR_CHUNK ? 1
                      : n < LINEAR_TOGETHER         ? n
                                                    : LINEAR_TOGETHER;
    if (!linear_scratch(state, &floats) ||
        !ck_mul(floats, (int64_t)sizeof(float), &floats))
        return op_fail_scratch(step);
    if (step->scratch_bytes < floats)
        step->scratch_bytes = floats;
    double cost = (double)state->tokens * (double)d_k * (double)state->block *
                  (0.05 + 0.02 * (double)state->group);
    op_tasks(step, phase, n, op_ns(cost + 100));
    return ATTNRUN_OK;
}

static attn_status plan_linear(attnrun_step *step, int64_t d_k, int64_t d_v)
{
    const struct linear_args *args = step->args;
    struct linear_state *state = step->state;
    state->batch = step->in[LINEAR_QUERY].dims[0].value;
    state->tokens = step->in[LINEAR_QUERY].dims[1].value;
    state->d_k = d_k;
    state->d_v = d_v;
    state->key_heads = d_k > 0 ? step->in[LINEAR_KEY].dims[2].value / d_k : 1;
    state->slots = args->state_window > 0 ? args->state_window : 1;
    state->per_key = op_has_in(step, LINEAR_DECAY) &&
                     step->in[LINEAR_DECAY].dims[2].value != args->kv_num_heads;
    state->past_in_place =
        in_place(step, op_has_in(step, LINEAR_PAST) ? step->in[LINEAR_PAST].dtype : 0,
                 op_has_in(step, LINEAR_PAST));
    state->present_in_place =
        op_has_out(step, 1) && in_place(step, step->out[1].dtype, true);
    return attn_linear_plan(step, 0, args, state);
}

/* Checks that the key has kv_num_heads heads of d_k, or, with com.microsoft, fewer that
 * divide them. */
static attn_status check_key(const attnrun_step *step, attnrun_dim d_k)
{
    const struct linear_args *args = step->args;
    const attnrun_type *key = &step->in[LINEAR_KEY];
    attnrun_dim dim;
    TRY(split_heads(step, LINEAR_KEY, 1, &dim));
    if (key->rank < 0 || !dim_is_const(dim) || !dim_is_const(d_k))
        return ATTNRUN_OK;
    const int64_t heads = d_k.value > 0 ? dim.value / d_k.value : args->kv_num_heads;
    const bool fewer =
        step->node->op->domain[0] != 0 && heads > 0 && args->kv_num_heads % heads == 0;
    if (heads * d_k.value == dim.value && (heads == args->kv_num_heads || fewer))
        return ATTNRUN_OK;
    return op_fail_input(step, LINEAR_KEY, ATTNRUN_E_SHAPE,
                         "expected %s of %lld as in the query",
                         attn_plural(args->kv_num_heads, "head"), (long long)d_k.value);
}

static attn_status linear_infer(attnrun_step *step)
{
    const struct linear_args *args = step->args;
    attnrun_dim d_k, d_v;
    TRY(linear_check_args(step));
    TRY(split_heads(step, LINEAR_QUERY, args->q_num_heads, &d_k));
    TRY(check_key(step, d_k));
    TRY(split_heads(step, LINEAR_VALUE, args->kv_num_heads, &d_v));
    TRY(check_gate(step, LINEAR_DECAY, dim_of(args->kv_num_heads),
                   attnrun_dim_mul(step, d_k, dim_of(args->kv_num_heads))));
    TRY(check_gate(step, LINEAR_BETA, dim_of(args->kv_num_heads), dim_of(1)));
    TRY(linear_attention_check_past(step, d_k, d_v));
    TRY(linear_attention_set_outputs(step, d_k, d_v));
    return step->concrete ? plan_linear(step, d_k.value, d_v.value) : ATTNRUN_OK;
}

#define LINEAR_ROW                                                                       \
    .struct_size = sizeof(attnrun_op_def), .flags = ATTNRUN_OP_NO_PROMOTION,             \
    .name = "LinearAttention",                                                           \
    .inputs = "query:T key:T value:T past_state:S? decay:T? beta:T?",                    \
    .outputs = "output:T present_state:S?", .types = "T=f32,f16,bf16 S=f32,f16,bf16",    \
    .args_bytes = sizeof(struct linear_args),                                            \
    .state_bytes = sizeof(struct linear_state), .infer = linear_infer,                   \
    .run = attn_linear_run, .cost = "O(tokens d_k d_v) per head"

const attnrun_op_def op_linear_attention_27 = {
    LINEAR_ROW,
    .domain = "",
    .since = 27,
    .attrs = linear_attrs,
    .source = "ONNX LinearAttention-27; arXiv:2412.06464",
};

const attnrun_op_def op_ms_linear_attention_1 = {
    LINEAR_ROW,
    .domain = "com.microsoft",
    .since = 1,
    .attrs = ms_linear_attrs,
    .source = "onnxruntime 1.31.1 contrib operators; arXiv:2412.06464",
};
