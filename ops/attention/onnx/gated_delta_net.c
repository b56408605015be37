/* gated_delta_net.c - com.microsoft GatedDeltaNet: the recurrence of LinearAttention
 * (linear_attention.c) over sequences of any lengths, which lie one behind the other.
 *
 * query, key     (tokens, q_heads, d_k); value (tokens, heads, d_v), heads a multiple of
 *                q_heads; or packed: query only, (tokens, 2 q_heads d_k + heads d_v).
 *                The tokens may also have two dims, (batch, length)
 * cu_seqlens     i32 (batch + 1): where sequences begin; without it all are as long
 * decay          (tokens, heads), or (tokens, heads, d_k): g, or with gate_activation
 *                softplus -exp(a_log) softplus(decay + dt_bias), sigmoid = kda
 *                gate_lower_bound sigmoid(exp(a_log) (decay + dt_bias))
 * beta           (tokens, heads); its sigmoid with beta_activation
 * initial_state, final_state  f32 (batch, heads, d_v, d_k), zeros by default
 * a_log          (heads); dt_bias (heads), or heads * d_k
 * output         (tokens, heads, d_v)
 * state_update   (batch, C (decays + q_heads d_k + heads d_v)) with C = state_update_capacity:
 *                exp(g), keys and beta (v - exp(g) S' k) of the first capture_count tokens of
 *                each sequence, zeros behind them, or all zeros where state_update_active is 0
 * qk_l2_norm     queries and keys are divided by sqrt(sum of squares + 1e-12) first
 *
 * The phases are: the rows in the form that LinearAttention takes, in shared memory; the
 * recurrence; the update. Cost: O(tokens d_k d_v) per head. Source: ONNX Runtime contrib
 * operators; compared with onnxruntime 1.32.0; Yang 2024, arXiv:2412.06464. */
#include <math.h>

#include "linear_attention.h"
#include "../../tile.h"

enum { QUERY, KEY, VALUE, STARTS, DECAY, BETA, INITIAL, A_LOG, DT_BIAS, COUNT, ACTIVE };
enum { OUTPUT, FINAL, UPDATE };
enum { PREPARE, RECUR, CAPTURE };
enum { GATE_NONE, GATE_SOFTPLUS, GATE_QWEN, GATE_SIGMOID, GATE_KDA };
enum { TOKENS = 16 /* of a task that prepares */, MAX_CAPTURED = 8 };

struct delta_args {
    int32_t update_rule, gate_activation, beta_activation;
    int64_t qk_l2_norm, state_update_capacity;
    float scale, gate_lower_bound;
};
static const attnrun_attr_def delta_attrs[] = {
    ATTR_ENUM(struct delta_args, update_rule, "linear|gated|delta|gated_delta", 3),
    ATTR_ENUM(struct delta_args, gate_activation, "none|softplus|qwen|sigmoid|kda", 0),
    ATTR_ENUM(struct delta_args, beta_activation, "none|sigmoid", 0),
    ATTR_FLAG(struct delta_args, qk_l2_norm, 0),
    ATTR_CHOICE(struct delta_args, state_update_capacity, "0..8", 0),
    ATTR_FLOAT(struct delta_args, scale, 0.0f),
    ATTR_FLOAT(struct delta_args, gate_lower_bound, -5.0f),
    ATTR_IGNORED("chunk_size"),
    ATTR_END
};

struct delta_state {
    struct linear_state linear;
    struct linear_args args;
    int64_t tokens, q_heads, heads, d_k, d_v;
    int64_t gate, bias; /* decays of a head; of dt_bias */
    int64_t prepare_tasks;
    int64_t packed_row;                   /* floats of a row of packed QKV, or 0 */
    int64_t update_row;                   /* floats of state_update of a sequence */
    int64_t q_at, k_at, v_at, g_at, b_at; /* bytes into shared memory */
};

/* ---- shapes ---- */

/* The sizes as far as they are known: dims of the tokens in front, heads and their
 * dims. */
struct delta_dims {
    int lead;
    bool packed;
    attnrun_dim batch, q_heads, heads, d_k, d_v;
};

static attn_status check_given(const attnrun_step *step)
{
    const struct delta_args *args = step->args;
    const bool gated =
        args->update_rule == RULE_GATED || args->update_rule == RULE_GATED_DELTA;
    const bool delta = args->update_rule >= RULE_DELTA;
    if (gated != op_has_in(step, DECAY) || delta != op_has_in(step, BETA))
        return op_fail(
            step, ATTNRUN_E_INPUT, "the update rule %s input decay and %s input beta",
            gated ? "needs" : "does not take", delta ? "needs" : "does not take");
    if (op_has_in(step, KEY) != op_has_in(step, VALUE))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "only %s is given, expected both key and value, or neither",
                       op_has_in(step, KEY) ? "key" : "value");
    if (!op_has_in(step, KEY) && !op_has_in(step, INITIAL))
        return op_fail(
            step, ATTNRUN_E_INPUT,
            "initial_state is missing; without key, its shape gives the parts of query");
    if (gated && args->gate_activation != GATE_NONE &&
        (!op_has_in(step, A_LOG) || !op_has_in(step, DT_BIAS)))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "gate_activation is given, but a_log or dt_bias is absent");
    if ((args->state_update_capacity > 0) != op_has_in(step, COUNT))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "state_update_capacity is %lld and capture_count is %s, expected "
                       "both or none",
                       (long long)args->state_update_capacity,
                       op_has_in(step, COUNT) ? "given" : "absent");
    return ATTNRUN_OK;
}

static attnrun_dim batch_of(const attnrun_step *step, const struct delta_dims *d)
{
    if (d->lead == 2)
        return step->in[QUERY].dims[0];
    if (op_has_in(step, STARTS))
        return op_rank_known(step, STARTS)
                   ? attnrun_dim_sub(step, step->in[STARTS].dims[0], dim_of(1))
                   : attnrun_dim_unknown(step);
    return step->in[INITIAL].rank == 4 ? step->in[INITIAL].dims[0]
                                       : attnrun_dim_unknown(step);
}

/* Finds the dims; the ranks of query, value and state are known. */
static attn_status find_dims(const attnrun_step *step, struct delta_dims *d)
{
    const attnrun_type *q = &step->in[QUERY], *v = &step->in[VALUE];
    d->packed = !op_has_in(step, KEY);
    d->lead = q->rank - (d->packed ? 1 : 2);
    if (d->lead == 2 && op_has_in(step, STARTS))
        return op_fail(
            step, ATTNRUN_E_INPUT,
            "query has a batch axis, expected one axis of tokens with cu_seqlens");
    if (d->lead == 1 && !op_has_in(step, STARTS) && !op_has_in(step, INITIAL))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "cu_seqlens and initial_state are absent, expected one of them, "
                       "which gives the number of sequences");
    d->batch = batch_of(step, d);
    if (!d->packed) {
        d->q_heads = q->dims[d->lead];
        d->d_k = q->dims[d->lead + 1];
        d->heads = v->dims[d->lead];
        d->d_v = v->dims[d->lead + 1];
        return ATTNRUN_OK;
    }
    const attnrun_dim *s = step->in[INITIAL].dims;
    d->heads = s[1];
    d->d_v = s[2];
    d->d_k = s[3];
    attnrun_dim rest =
        attnrun_dim_sub(step, q->dims[d->lead], attnrun_dim_mul(step, d->heads, d->d_v));
    attnrun_dim pair = attnrun_dim_mul(step, d->d_k, dim_of(2));
    if (dim_is_const(pair) &&
        (pair.value < 1 || (dim_is_const(rest) && rest.value % pair.value != 0)))
        return op_fail_input(
            step, QUERY, ATTNRUN_E_SHAPE,
            "expected 2 * q_heads * d_k + heads * d_v in the last dim, with "
            "heads, d_v and d_k of initial_state");
    d->q_heads = dim_is_const(pair) ? attnrun_dim_div(step, rest, pair)
                                    : attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

/* Checks that input `in` is (tokens, …) with the n dims behind them. */
static attn_status gated_delta_check_rows(const attnrun_step *step,
                                          const struct delta_dims *d, int in, int n,
                                          const attnrun_dim *dims)
{
    if (!op_has_in(step, in) || !op_rank_known(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, d->lead + n));
    for (int i = 0; i < d->lead; i++)
        TRY(op_need_dim(step, in, i, step->in[QUERY].dims[i], "the tokens"));
    for (int i = 0; i < n; i++)
        TRY(op_need_dim(step, in, d->lead + i, dims[i], "heads and their dims"));
    return ATTNRUN_OK;
}

static attn_status check_vector(const attnrun_step *step, int in, attnrun_dim n)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 1));
    return op_rank_known(step, in) ? op_need_dim(step, in, 0, n, "one number each")
                                   : ATTNRUN_OK;
}

static attn_status gated_delta_check_inputs(const attnrun_step *step,
                                            const struct delta_dims *d)
{
    const attnrun_dim key[] = { d->q_heads, d->d_k }, value[] = { d->heads, d->d_v };
    const attnrun_dim state[] = { d->batch, d->heads, d->d_v, d->d_k };
    const bool by_key = op_has_in(step, DECAY) && step->in[DECAY].rank == d->lead + 2;
    if (!d->packed) {
        TRY(gated_delta_check_rows(step, d, KEY, 2, key));
        TRY(gated_delta_check_rows(step, d, VALUE, 2, value));
    }
    const attnrun_dim gate[] = { d->heads, d->d_k };
    TRY(gated_delta_check_rows(step, d, DECAY, by_key ? 2 : 1, gate));
    TRY(gated_delta_check_rows(step, d, BETA, 1, gate));
    TRY(check_vector(step, A_LOG, d->heads));
    TRY(check_vector(step, COUNT, d->batch));
    TRY(check_vector(step, ACTIVE, dim_of(1)));
    TRY(check_vector(step, STARTS, attnrun_dim_add(step, d->batch, dim_of(1))));
    if (!op_has_in(step, INITIAL) || !op_rank_known(step, INITIAL))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, INITIAL, 4));
    for (int i = 0; i < 4; i++)
        TRY(op_need_dim(step, INITIAL, i, state[i], "batch, heads, d_v, d_k"));
    return ATTNRUN_OK;
}

static attnrun_dim update_row(const attnrun_step *step, const struct delta_dims *d)
{
    const struct delta_args *args = step->args;
    const bool by_key = op_has_in(step, DECAY) && step->in[DECAY].rank == d->lead + 2;
    attnrun_dim n = by_key ? attnrun_dim_mul(step, d->heads, d->d_k) : d->heads;
    n = attnrun_dim_add(step, n, attnrun_dim_mul(step, d->q_heads, d->d_k));
    n = attnrun_dim_add(step, n, attnrun_dim_mul(step, d->heads, d->d_v));
    return attnrun_dim_mul(step, n, dim_of(args->state_update_capacity));
}

static attn_status gated_delta_set_outputs(attnrun_step *step, const struct delta_dims *d)
{
    attnrun_dim y[4] = { step->in[QUERY].dims[0], step->in[QUERY].dims[1] };
    y[d->lead] = d->heads;
    y[d->lead + 1] = d->d_v;
    TRY(op_out(step, OUTPUT, ATTNRUN_F32, d->lead + 2, y));
    if (step->n_out > FINAL)
        TRY(op_out(step, FINAL, ATTNRUN_F32, 4,
                   (attnrun_dim[]){ d->batch, d->heads, d->d_v, d->d_k }));
    if (step->n_out > UPDATE)
        TRY(op_out(step, UPDATE, ATTNRUN_F32, 2,
                   (attnrun_dim[]){ d->batch, update_row(step, d) }));
    return ATTNRUN_OK;
}

static attn_status check_sizes(const attnrun_step *step, const struct delta_dims *d,
                               struct delta_state *s)
{
    if (s->q_heads < 1 || s->heads < 1 || s->heads % s->q_heads != 0 || s->d_k < 1 ||
        s->d_v < 1 || s->heads > INT32_MAX || d->batch.value < 1)
        return op_fail(
            step, ATTNRUN_E_SHAPE,
            "it has %s, %s of %lld and %s of %lld, expected 1 or more of each, and heads "
            "that are a multiple of the query heads",
            attn_plural(d->batch.value, "sequence"),
            attn_plural(s->q_heads, "query head"), (long long)s->d_k,
            attn_plural(s->heads, "head"), (long long)s->d_v);
    if (!op_has_in(step, STARTS) && s->tokens % d->batch.value != 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "%s cannot be divided into %lld equal sequences",
                       attn_plural(s->tokens, "token"), (long long)d->batch.value);
    if (op_has_in(step, DT_BIAS)) {
        s->bias = op_count(&step->in[DT_BIAS], 0, step->in[DT_BIAS].rank);
        if (s->bias != s->heads && (s->gate == 1 || s->bias != s->heads * s->d_k))
            return op_fail_input(step, DT_BIAS, ATTNRUN_E_SHAPE,
                                 "expected %s, one for each head%s",
                                 attn_plural(s->heads, "element"),
                                 s->gate == 1 ? "" : ", or d_k times as many");
    }
    return ATTNRUN_OK;
}

static attn_status plan_gated_delta_net(attnrun_step *step, const struct delta_dims *d)
{
    const struct delta_args *args = step->args;
    struct delta_state *s = step->state;
    const attnrun_type *q = &step->in[QUERY];
    int64_t keys, values, s_floats;
    s->tokens = op_count(q, 0, d->lead);
    s->q_heads = d->q_heads.value;
    s->heads = d->heads.value;
    s->d_k = d->d_k.value;
    s->d_v = d->d_v.value;
    s->gate = op_has_in(step, DECAY) && step->in[DECAY].rank == d->lead + 2 ? s->d_k : 1;
    s->packed_row = d->packed ? q->dims[d->lead].value : 0;
    s->update_row = update_row(step, d).value;
    TRY(check_sizes(step, d, s));
    if (!ck_mul(s->q_heads, s->d_k, &keys) || !ck_mul(s->heads, s->d_v, &values) ||
        !op_slot_rows(&s->q_at, &step->shared_bytes, s->tokens, keys, sizeof(float)) ||
        !op_slot_rows(&s->k_at, &step->shared_bytes, s->tokens, keys, sizeof(float)) ||
        !op_slot_rows(&s->v_at, &step->shared_bytes, s->tokens, d->packed ? values : 0,
                      sizeof(float)) ||
        !op_slot_rows(&s->g_at, &step->shared_bytes, s->tokens, s->heads * s->gate,
                      sizeof(float)) ||
        !op_slot_rows(&s->b_at, &step->shared_bytes, s->tokens, s->heads,
                      sizeof(float)) ||
        !ck_mul(s->d_k, s->d_v, &s_floats))
        return op_fail_scratch(step);
    s->args = (struct linear_args){ .q_num_heads = s->q_heads,
                                    .kv_num_heads = s->heads,
                                    .scale = args->scale,
                                    .update_rule = args->update_rule };
    s->linear = (struct linear_state){ .batch = d->batch.value,
                                       .tokens = s->tokens / d->batch.value,
                                       .d_k = s->d_k,
                                       .d_v = s->d_v,
                                       .key_heads = s->q_heads,
                                       .slots = 1,
                                       .per_key = s->gate != 1,
                                       .v_major = true };
    if (op_has_in(step, STARTS))
        s->linear.tokens = s->tokens; /* at most */
    s->prepare_tasks = ceil_div(s->tokens, TOKENS);
    op_tasks(step, PREPARE, s->prepare_tasks + 1, /* the last one checks */
             TOKENS * (2 * keys + values));
    TRY(attn_linear_plan(step, RECUR, &s->args, &s->linear));
    if (step->n_out <= UPDATE)
        return ATTNRUN_OK;
    if (step->scratch_bytes < s_floats * 4)
        step->scratch_bytes = s_floats * 4;
    op_tasks(step, CAPTURE, s->linear.batch * s->heads, MAX_CAPTURED * 4 * s_floats);
    return ATTNRUN_OK;
}

static attn_status delta_infer(attnrun_step *step)
{
    const bool packed = !op_has_in(step, KEY);
    struct delta_dims d = { 0 };
    TRY(check_given(step));
    TRY(op_need_rank_between(step, QUERY, packed ? 2 : 3, packed ? 3 : 4));
    if (op_has_in(step, INITIAL))
        TRY(op_need_rank(step, INITIAL, 4));
    const attnrun_type *sizes = &step->in[packed ? INITIAL : VALUE];
    if (step->in[QUERY].rank < 0 || sizes->rank < 0) {
        for (int i = 0; i < step->n_out; i++)
            TRY(op_out(step, i, ATTNRUN_F32, -1, NULL));
        return ATTNRUN_OK;
    }
    if (!packed)
        TRY(op_need_rank(step, VALUE, step->in[QUERY].rank));
    TRY(find_dims(step, &d));
    TRY(gated_delta_check_inputs(step, &d));
    TRY(gated_delta_set_outputs(step, &d));
    return step->concrete ? plan_gated_delta_net(step, &d) : ATTNRUN_OK;
}

/* ---- rows as LinearAttention takes them ---- */

static void copy_heads(const attnrun_step *step, float *to, const float *from,
                       int64_t heads)
{
    const struct delta_state *s = step->state;
    const struct delta_args *args = step->args;
    for (int64_t h = 0; h < heads; h++, to += s->d_k, from += s->d_k) {
        float sum = 1e-12f, factor = 1.0f;
        for (int64_t i = 0; args->qk_l2_norm && i < s->d_k; i++)
            sum += from[i] * from[i];
        if (args->qk_l2_norm)
            factor = 1.0f / sqrtf(sum);
        for (int64_t i = 0; i < s->d_k; i++)
            to[i] = from[i] * factor;
    }
}

static float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Computes the decays of a token. */
static void make_gates(const attnrun_step *step, const float *raw, float *g)
{
    const struct delta_state *s = step->state;
    const struct delta_args *args = step->args;
    const float *a_log = op_in_data(step, A_LOG), *bias = op_in_data(step, DT_BIAS);
    for (int64_t i = 0; i < s->heads * s->gate; i++) {
        const int64_t head = i / s->gate;
        if (args->gate_activation == GATE_NONE) {
            g[i] = raw[i];
            continue;
        }
        const float a = expf(a_log[head]),
                    x = raw[i] + bias[s->bias == s->heads ? head : i];
        g[i] = args->gate_activation <= GATE_QWEN
                   ? -a * softplus(x)
                   : args->gate_lower_bound * sigmoid(a * x);
    }
}

static void gated_delta_prepare(const attnrun_step *step, const attnrun_work *work,
                                int64_t token)
{
    const struct delta_state *s = step->state;
    const struct delta_args *args = step->args;
    const int64_t keys = s->q_heads * s->d_k, values = s->heads * s->d_v;
    const float *q = step->x[QUERY].data, *k, *beta = op_in_data(step, BETA);
    if (attn_poll() != ATTNRUN_OK)
        return;
    if (s->packed_row > 0) {
        q += token * s->packed_row;
        k = q + keys;
        memcpy(op_slot_floats(work->shared, s->v_at) + token * values, k + keys,
               (size_t)values * sizeof *q);
    } else {
        q += token * keys;
        k = (const float *)step->x[KEY].data + token * keys;
    }
    copy_heads(step, op_slot_floats(work->shared, s->q_at) + token * keys, q, s->q_heads);
    copy_heads(step, op_slot_floats(work->shared, s->k_at) + token * keys, k, s->q_heads);
    if (op_has_in(step, DECAY))
        make_gates(step, (const float *)step->x[DECAY].data + token * s->heads * s->gate,
                   op_slot_floats(work->shared, s->g_at) + token * s->heads * s->gate);
    for (int64_t h = 0; beta != NULL && h < s->heads; h++) {
        const float x = beta[token * s->heads + h];
        op_slot_floats(work->shared, s->b_at)[token * s->heads + h] =
            args->beta_activation != 0 ? sigmoid(x) : x;
    }
}

static attn_status check_starts(const attnrun_step *step)
{
    const struct delta_state *s = step->state;
    const int32_t *starts = op_in_data(step, STARTS);
    if (starts == NULL)
        return ATTNRUN_OK;
    for (int64_t b = 0; b < s->linear.batch; b++)
        if (starts[0] != 0 || starts[b + 1] < starts[b] || starts[b + 1] > s->tokens)
            return op_fail_input(step, STARTS, ATTNRUN_E_RANGE,
                                 "expected numbers that grow from 0 to %lld",
                                 (long long)s->tokens);
    return starts[s->linear.batch] == s->tokens
               ? ATTNRUN_OK
               : op_fail_input(step, STARTS, ATTNRUN_E_RANGE,
                               "ends with %d, expected %lld", starts[s->linear.batch],
                               (long long)s->tokens);
}

/* ---- the recurrence ---- */

static attn_status recur(const attnrun_step *step, const attnrun_work *work)
{
    const struct delta_state *s = step->state;
    struct linear_state linear = s->linear;
    attnrun_step inner = *step;
    attnrun_type types[LINEAR_BETA + 1] = { 0 };
    attnrun_tensor x[LINEAR_BETA + 1], y[2] = { step->y[OUTPUT] };
    void *data[LINEAR_BETA + 1] = {
        op_slot_floats(work->shared, s->q_at),
        op_slot_floats(work->shared, s->k_at),
        s->packed_row > 0 ? op_slot_floats(work->shared, s->v_at) : step->x[VALUE].data,
        (void *)op_in_data(step, INITIAL),
        op_has_in(step, DECAY) ? op_slot_floats(work->shared, s->g_at) : NULL,
        op_has_in(step, BETA) ? op_slot_floats(work->shared, s->b_at) : NULL,
    };
    for (int in = 0; in <= LINEAR_BETA; in++) {
        types[in].kind = data[in] != NULL ? ATTNRUN_TENSOR : ATTNRUN_ABSENT;
        x[in] = (attnrun_tensor){ .kind = types[in].kind,
                                  .dtype = ATTNRUN_F32,
                                  .rank = 3,
                                  .dims = { 1, s->tokens, s->heads },
                                  .data = data[in] };
    }
    if (step->n_out > FINAL)
        y[1] = step->y[FINAL];
    linear.starts = op_in_data(step, STARTS);
    inner.args = &s->args;
    inner.state = &linear;
    inner.n_in = LINEAR_BETA + 1;
    inner.n_out = step->n_out > FINAL ? 2 : 1;
    inner.in = types;
    inner.x = x;
    inner.y = y;
    return attn_linear_run(&inner, work);
}

/* ---- state_update ---- */

/* Stores what token `t` of a sequence (number `token` of all) of head h does to S (d_k,
 * d_v). */
static void capture_token(const attnrun_step *step, const attnrun_work *work, int64_t h,
                          int64_t token, int64_t t, float *row)
{
    const struct delta_state *s = step->state;
    const struct delta_args *args = step->args;
    const int64_t capacity = args->state_update_capacity, share = s->heads / s->q_heads;
    const int64_t keys = s->q_heads * s->d_k, decays = s->heads * s->gate;
    const int64_t values = s->heads * s->d_v;
    float *memory = work->scratch, *decay = row + t * decays + h * s->gate;
    float *key = row + capacity * decays + t * keys + h / share * s->d_k;
    float *delta = row + capacity * (decays + keys) + t * values + h * s->d_v;
    const float *k =
        op_slot_floats(work->shared, s->k_at) + token * keys + h / share * s->d_k;
    const float *v = (s->packed_row > 0 ? op_slot_floats(work->shared, s->v_at)
                                        : (const float *)step->x[VALUE].data) +
                     token * values + h * s->d_v;
    const float *g = op_slot_floats(work->shared, s->g_at) + token * decays + h * s->gate;
    for (int64_t i = 0; i < s->gate; i++)
        decay[i] = op_has_in(step, DECAY) ? expf(g[i]) : 1.0f;
    for (int64_t i = 0; i < s->d_k; i++)
        for (int64_t j = 0; j < s->d_v; j++)
            memory[i * s->d_v + j] *= decay[s->gate == 1 ? 0 : i];
    for (int64_t j = 0; j < s->d_v && attn_poll_work(8 * s->d_k) == ATTNRUN_OK; j++) {
        float found = 0;
        for (int64_t i = 0; op_has_in(step, BETA) && i < s->d_k; i++)
            found += memory[i * s->d_v + j] * k[i];
        delta[j] = v[j] - found;
        if (op_has_in(step, BETA))
            delta[j] *= op_slot_floats(work->shared, s->b_at)[token * s->heads + h];
        for (int64_t i = 0; i < s->d_k; i++)
            memory[i * s->d_v + j] += k[i] * delta[j];
    }
    if (h % share == 0)
        memcpy(key, k, (size_t)s->d_k * sizeof *k);
}

static void clear_update(const attnrun_step *step, int64_t b, int64_t h, int64_t from)
{
    const struct delta_state *s = step->state;
    const int64_t capacity =
        ((const struct delta_args *)step->args)->state_update_capacity;
    const int64_t keys = s->q_heads * s->d_k, share = s->heads / s->q_heads;
    const int64_t decays = s->heads * s->gate, values = s->heads * s->d_v;
    float *row = (float *)step->y[UPDATE].data + b * s->update_row;
    for (int64_t t = from; t < capacity; t++) {
        memset(row + t * decays + h * s->gate, 0, (size_t)s->gate * sizeof *row);
        if (h % share == 0)
            memset(row + capacity * decays + t * keys + h / share * s->d_k, 0,
                   (size_t)s->d_k * sizeof *row);
        memset(row + capacity * (decays + keys) + t * values + h * s->d_v, 0,
               (size_t)s->d_v * sizeof *row);
    }
}

static void capture(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct delta_state *s = step->state;
    const struct delta_args *args = step->args;
    int64_t b = task, h = op_take(&b, s->heads);
    const int32_t *starts = op_in_data(step, STARTS), *active = op_in_data(step, ACTIVE);
    const int64_t first = starts != NULL ? starts[b] : b * s->linear.tokens;
    const int64_t length = starts != NULL ? starts[b + 1] - first : s->linear.tokens;
    const float *state = op_in_data(step, INITIAL);
    float *memory = work->scratch;
    int64_t count = ((const int32_t *)step->x[COUNT].data)[b];
    count = count > length ? length : count;
    count = count > args->state_update_capacity ? args->state_update_capacity : count;
    count = count < 0 || (active != NULL && *active == 0) ? 0 : count;
    clear_update(step, b, h, count);
    for (int64_t j = 0; count > 0 && j < s->d_v; j++)
        for (int64_t i = 0; i < s->d_k; i++)
            memory[i * s->d_v + j] =
                state != NULL ? state[(task * s->d_v + j) * s->d_k + i] : 0.0f;
    for (int64_t t = 0; t < count; t++)
        capture_token(step, work, h, first + t, t,
                      (float *)step->y[UPDATE].data + b * s->update_row);
}

static attn_status delta_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct delta_state *s = step->state;
    if (work->phase == RECUR)
        return recur(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        const int64_t end = (task + 1) * TOKENS;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == CAPTURE && step->y[UPDATE].data != NULL)
            capture(step, work, task);
        if (work->phase == PREPARE && task == s->prepare_tasks)
            TRY(check_starts(step));
        for (int64_t t = task * TOKENS;
             work->phase == PREPARE && t < (end < s->tokens ? end : s->tokens); t++)
            gated_delta_prepare(step, work, t);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_gated_delta_net_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "GatedDeltaNet",
    .since = 1,
    .inputs = "query:T key:T? value:T? cu_seqlens:i32? decay:TG? beta:TG? "
              "initial_state:TS? a_log:TS? dt_bias:TS? capture_count:i32? "
              "state_update_active:i32?",
    .outputs = "output:T final_state:TS? state_update:TS?",
    .types = "T=f32 TG=f32 TS=f32",
    .args_bytes = sizeof(struct delta_args),
    .state_bytes = sizeof(struct delta_state),
    .attrs = delta_attrs,
    .infer = delta_infer,
    .run = delta_run,
    .cost = "O(tokens d_k d_v) per head",
    .source = "ONNX Runtime contrib operators; arXiv:2412.06464",
};
