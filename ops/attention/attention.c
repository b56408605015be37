/* attention.c - Attention: Y = softmax(scale Q K' + bias) V, by the streaming core.
 *
 * Q, K, V   f32 (batch, heads, tokens, dim), or (batch, tokens, heads * dim) with
 * q_num_heads and kv_num_heads; fewer key heads than query heads are shared by groups of
 * those attn_mask b8 (true: seen) or f32 (added), broadcast to (batch, heads, q, total);
 * a shorter last dim hides the rest past_key, past_value  (batch, kv_heads, past, dim);
 * present_ = past and new ones nonpad_kv_seqlen      i64 (batch): keys that exist in each
 * sample Causal (and the windows of version 25): query i is at position past + i, or
 * nonpad - q_len + i. A query that sees no key gives zeros. softmax_precision is at least
 * f32 here. Source: ONNX Attention-25. */
#include <math.h>

#include "sdpa.h"

struct attention_args {
    int64_t is_causal, kv_num_heads, q_num_heads, qk_matmul_output_mode;
    int64_t left_window_size, right_window_size, nan_rows;
    float scale, softcap;
};
static const attnrun_attr_def attention_attrs[] = {
    ATTR_INT(struct attention_args, is_causal, 0),
    ATTR_INT(struct attention_args, kv_num_heads, 0),
    ATTR_INT(struct attention_args, q_num_heads, 0),
    ATTR_INT(struct attention_args, qk_matmul_output_mode, 0),
    ATTR_INT(struct attention_args, left_window_size, -1),
    ATTR_INT(struct attention_args, right_window_size, -1),
    ATTR_FLOAT(struct attention_args, scale, 0.0f), /* 0: 1 / sqrt(head dim) */
    ATTR_FLOAT(struct attention_args, softcap, 0.0f),
    ATTR_IGNORED("softmax_precision"),
    ATTR_END,
};

enum { Q, K, V, MASK, PAST_K, PAST_V, LENS };
enum { Y, PRESENT_K, PRESENT_V, SCORES };

/* The logical dims of an operand. */
struct operand {
    attnrun_dim batch, heads, tokens, dim;
};

static attn_status split_operand(const attnrun_step *step, int in, int64_t heads,
                                 struct operand *o)
{
    const attnrun_type *t = &step->in[in];
    TRY(op_need_rank_between(step, in, 3, 4));
    o->batch = t->dims[0];
    if (t->rank == 4) {
        o->heads = t->dims[1];
        o->tokens = t->dims[2];
        o->dim = t->dims[3];
        return ATTNRUN_OK;
    }
    if (heads < 1)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "q_num_heads and kv_num_heads must be at least 1 with inputs of rank 3");
    if (dim_is_const(t->dims[2]) && t->dims[2].value % heads != 0)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "dim 2 is no multiple of %lld heads", (long long)heads);
    o->heads = dim_of(heads);
    o->tokens = t->dims[1];
    o->dim = attnrun_dim_div(step, t->dims[2], dim_of(heads));
    return ATTNRUN_OK;
}

static attn_status agree(const attnrun_step *step, int in, attnrun_dim a, attnrun_dim b,
                         const char *what)
{
    if (dim_may_equal(a, b))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "its %s is %lld, expected %lld", what,
                         (long long)a.value, (long long)b.value);
}

/* past_key or past_value beside the new ones `o`; adds its length to *total. */
static attn_status add_past(const attnrun_step *step, int in, const struct operand *o,
                            attnrun_dim *total)
{
    const attnrun_type *t = &step->in[in];
    *total = o->tokens;
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 4));
    if (t->rank < 0) {
        *total = attnrun_dim_unknown(step);
        return ATTNRUN_OK;
    }
    TRY(op_need_dim(step, in, 0, o->batch, "the batch"));
    TRY(op_need_dim(step, in, 1, o->heads, "the key heads"));
    TRY(op_need_dim(step, in, 3, o->dim, "the dim of a head"));
    *total = attnrun_dim_add(step, t->dims[2], o->tokens);
    return ATTNRUN_OK;
}

static attn_status check_operands(const attnrun_step *step, const struct operand *q,
                                  const struct operand *k, const struct operand *v,
                                  attnrun_dim total_k, attnrun_dim total_v)
{
    TRY(agree(step, K, k->batch, q->batch, "batch"));
    TRY(agree(step, V, v->batch, q->batch, "batch"));
    TRY(agree(step, V, v->heads, k->heads, "number of heads"));
    TRY(agree(step, K, k->dim, q->dim, "head dim"));
    TRY(agree(step, V, total_v, total_k, "number of keys with the past"));
    if (dim_is_const(q->heads) && dim_is_const(k->heads) &&
        (k->heads.value < 1 || q->heads.value % k->heads.value != 0))
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "its %lld heads are no multiple of %lld key heads",
                             (long long)q->heads.value, (long long)k->heads.value);
    if (op_has_in(step, PAST_K) != op_has_in(step, PAST_V))
        return op_fail(step, ATTNRUN_E_INPUT, "past_key and past_value go together");
    if (op_has_in(step, LENS)) {
        TRY(op_need_rank(step, LENS, 1));
        TRY(op_need_dim(step, LENS, 0, q->batch, "the batch"));
        if (op_has_in(step, PAST_K))
            return op_fail_input(step, LENS, ATTNRUN_E_INPUT,
                                 "not together with past_key");
    }
    return ATTNRUN_OK;
}

static attn_status outputs(attnrun_step *step, const struct operand *q,
                           const struct operand *k, const struct operand *v,
                           attnrun_dim total)
{
    const bool flat = step->in[Q].rank == 3;
    attnrun_dim wide = attnrun_dim_mul(step, q->heads, v->dim);
    attnrun_dim y3[3] = { q->batch, q->tokens, wide };
    attnrun_dim y4[4] = { q->batch, q->heads, q->tokens, v->dim };
    attnrun_dim key[4] = { q->batch, k->heads, total, k->dim };
    attnrun_dim value[4] = { q->batch, v->heads, total, v->dim };
    attnrun_dim scores[4] = { q->batch, q->heads, q->tokens, total };
    TRY(op_out(step, Y, step->in[Q].dtype, flat ? 3 : 4, flat ? y3 : y4));
    TRY(op_out(step, PRESENT_K, step->in[K].dtype, 4, key));
    TRY(op_out(step, PRESENT_V, step->in[V].dtype, 4, value));
    return op_out(step, SCORES, step->in[Q].dtype, 4, scores);
}

/* Strides of a dense operand. */
static struct attn_heads strides_of(int rank, int64_t heads, int64_t tokens, int64_t dim)
{
    if (rank == 3)
        return (struct attn_heads){ tokens * heads * dim, dim, heads * dim };
    return (struct attn_heads){ heads * tokens * dim, tokens * dim, dim };
}

static attn_status plan_mask(const attnrun_step *step, struct attn_sdpa *s)
{
    if (!op_has_in(step, MASK))
        return ATTNRUN_OK;
    const attnrun_type *t = &step->in[MASK];
    TRY(op_need_rank_between(step, MASK, 1, 4));
    const int64_t want[3] = { s->batch, s->q_heads, s->q_len };
    int64_t strides[3] = { 0, 0, 0 }, stride = t->dims[t->rank - 1].value;
    s->mask_len = stride;
    for (int i = 2, at = t->rank - 2; at >= 0; i--, at--) {
        int64_t dim = t->dims[at].value;
        if (dim != 1 && dim != want[i])
            return op_fail_input(step, MASK, ATTNRUN_E_SHAPE,
                                 "dim %d cannot be broadcast to %lld", at,
                                 (long long)want[i]);
        strides[i] = dim == 1 ? 0 : stride;
        if (dim > 0) /* an empty mask is not read */
            stride *= dim;
    }
    if (s->mask_len > s->kv_len)
        return op_fail_input(step, MASK, ATTNRUN_E_SHAPE, "expected at most %lld keys",
                             (long long)s->kv_len);
    s->mask = (struct attn_heads){ strides[0], strides[1], strides[2] };
    s->mask_kind = t->dtype == ATTNRUN_BOOL ? ATTN_MASK_KEEP : ATTN_MASK_ADD;
    return ATTNRUN_OK;
}

static attn_status plan(attnrun_step *step, const struct operand *q,
                        const struct operand *k, const struct operand *v, int64_t total)
{
    const struct attention_args *args = step->args;
    struct attn_sdpa *s = step->state;
    TRY(attn_sdpa_fits(step, q->batch.value, q->heads.value, q->tokens.value, total,
                       q->dim.value + v->dim.value));
    *s = (struct attn_sdpa){ .batch = q->batch.value,
                             .q_heads = q->heads.value,
                             .kv_heads = k->heads.value,
                             .q_len = q->tokens.value,
                             .kv_len = total,
                             .past_len = total - k->tokens.value,
                             .head_dim = q->dim.value,
                             .v_dim = v->dim.value,
                             .softcap = args->softcap,
                             .causal = args->is_causal != 0,
                             .nan_rows = args->nan_rows != 0,
                             .left = args->left_window_size,
                             .right = args->right_window_size,
                             .scores_mode = (int32_t)args->qk_matmul_output_mode };
    s->scale = args->scale;
    if (step->node->domain[0] == 0 && args->scale == 0.0f && s->head_dim > 0)
        s->scale = (float)(1.0 / sqrt((double)s->head_dim));
    s->q = strides_of(step->in[Q].rank, s->q_heads, s->q_len, s->head_dim);
    s->k = strides_of(step->in[K].rank, s->kv_heads, k->tokens.value, s->head_dim);
    s->v = strides_of(step->in[V].rank, s->kv_heads, v->tokens.value, s->v_dim);
    s->past_k = strides_of(4, s->kv_heads, s->past_len, s->head_dim);
    s->past_v = strides_of(4, s->kv_heads, s->past_len, s->v_dim);
    s->y = strides_of(step->in[Q].rank, s->q_heads, s->q_len, s->v_dim);
    TRY(plan_mask(step, s));
    TRY(attn_sdpa_plan(step, s));
    op_tasks(step, 0, s->n_tasks, s->task_cost);
    if (op_has_out(step, PRESENT_K) || op_has_out(step, PRESENT_V))
        op_tasks(step, 1, s->batch * s->kv_heads, total * (s->head_dim + s->v_dim) / 4);
    step->scratch_bytes = s->scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status check_args(const attnrun_step *step)
{
    const struct attention_args *args = step->args;
    if (args->qk_matmul_output_mode < 0 || args->qk_matmul_output_mode > 3)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "qk_matmul_output_mode is %lld, expected 0 to 3",
                       (long long)args->qk_matmul_output_mode);
    if (args->left_window_size < -1 || args->right_window_size < -1)
        return op_fail(step, ATTNRUN_E_ATTR, "a window size is below -1");
    if (op_has_in(step, MASK) && step->in[MASK].dtype != ATTNRUN_BOOL &&
        step->in[MASK].dtype != ATTNRUN_F32)
        return op_fail_input(step, MASK, ATTNRUN_E_DTYPE, "expected b8 or the type of Q");
    return ATTNRUN_OK;
}

static attn_status attention_infer(attnrun_step *step)
{
    const struct attention_args *args = step->args;
    struct operand q, k, v;
    attnrun_dim total_k, total_v;
    TRY(check_args(step));
    if (!op_rank_known(step, Q) || !op_rank_known(step, K) || !op_rank_known(step, V)) {
        for (int out = 0; out < step->n_out; out++)
            TRY(op_out(step, out, step->in[out == PRESENT_V ? V : Q].dtype, -1, NULL));
        return ATTNRUN_OK;
    }
    TRY(split_operand(step, Q, args->q_num_heads, &q));
    TRY(split_operand(step, K, args->kv_num_heads, &k));
    TRY(split_operand(step, V, args->kv_num_heads, &v));
    TRY(add_past(step, PAST_K, &k, &total_k));
    TRY(add_past(step, PAST_V, &v, &total_v));
    TRY(check_operands(step, &q, &k, &v, total_k, total_v));
    TRY(outputs(step, &q, &k, &v, total_k));
    return step->concrete ? plan(step, &q, &k, &v, total_k.value) : ATTNRUN_OK;
}

/* present = past, then the new tokens, for one head of one sample. */
static void copy_present(const attnrun_step *step, int out, int past, int in,
                         int64_t task)
{
    const struct attn_sdpa *s = step->state;
    if (!op_has_out(step, out) || step->y[out].data == NULL)
        return;
    const bool key = out == PRESENT_K;
    const int64_t b = task / s->kv_heads, h = task % s->kv_heads;
    const int64_t dim = key ? s->head_dim : s->v_dim;
    const struct attn_heads *at = key ? &s->k : &s->v;
    float *to = (float *)step->y[out].data + task * s->kv_len * dim;
    const float *from = (const float *)step->x[in].data + b * at->batch + h * at->head;
    if (s->past_len > 0)
        memcpy(to, (const float *)step->x[past].data + task * s->past_len * dim,
               (size_t)(s->past_len * dim) * sizeof *to);
    to += s->past_len * dim;
    for (int64_t i = 0; i < s->kv_len - s->past_len; i++)
        memcpy(to + i * dim, from + i * at->row, (size_t)dim * sizeof *to);
}

static const void *data_of(const attnrun_step *step, int in)
{
    return op_has_in(step, in) ? step->x[in].data : NULL;
}

static attn_status attention_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_sdpa *s = step->state;
    const struct attn_sdpa_operands o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .past_k = data_of(step, PAST_K),
        .past_v = data_of(step, PAST_V),
        .mask = data_of(step, MASK),
        .lens = op_has_in(step, LENS) ? &step->x[LENS] : NULL,
        .lens_position = true,
        .y = step->y[Y].data,
        .scores = op_has_out(step, SCORES) ? step->y[SCORES].data : NULL,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 0) {
            TRY(attn_sdpa_run(s, step->kernels, &o, task, work));
            continue;
        }
        copy_present(step, PRESENT_K, PAST_K, K, task);
        copy_present(step, PRESENT_V, PAST_V, V, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_attention_23 = {
    OP_ROW,
    .name = "Attention",
    .since = 23,
    .inputs =
        "Q:T1 K:T1 V:T2 attn_mask:U? past_key:T1? past_value:T2? nonpad_kv_seqlen:i64?",
    .outputs = "Y:T1 present_key:T1? present_value:T2? qk_matmul_output:T1?",
    .types = "T1=f32 T2=f32 U=f32,b8",
    .args_bytes = sizeof(struct attention_args),
    .state_bytes = sizeof(struct attn_sdpa),
    .attrs = attention_attrs,
    .infer = attention_infer,
    .run = attention_run,
    .cost = "O(n^2 d), scratch O(tile)",
    .source = "Vaswani 2017, arXiv:1706.03762",
};

/* What rewrite passes make of decomposed attention: `scale` as it is, and nan_rows. */
static const attnrun_attr_def fused_attention_attrs[] = {
    ATTR_INT(struct attention_args, is_causal, 0),
    ATTR_INT(struct attention_args, kv_num_heads, 0),
    ATTR_INT(struct attention_args, q_num_heads, 0),
    ATTR_INT(struct attention_args, left_window_size, -1),
    ATTR_INT(struct attention_args, right_window_size, -1),
    ATTR_INT(struct attention_args, nan_rows, 0),
    ATTR_FLOAT(struct attention_args, scale, 1.0f),
    ATTR_END,
};

const attnrun_op_def op_fused_attention_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun.fused",
    .name = "FusedAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T attn_mask:U?",
    .outputs = "Y:T",
    .types = "T=f32 U=f32,b8",
    .args_bytes = sizeof(struct attention_args),
    .state_bytes = sizeof(struct attn_sdpa),
    .attrs = fused_attention_attrs,
    .infer = attention_infer,
    .run = attention_run,
    .cost = "O(n^2 d), scratch O(tile)",
};
