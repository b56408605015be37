/* linear_attention.c - LinearAttention: attention whose memory is one matrix per key
 * head.
 *
 *   S = exp(g) S + k (x) u;  o = scale * S' q        with u = v (linear, gated), or
 *   u = beta (v - exp(g) S' k) (delta, gated_delta)  and g = 0 where not gated
 *
 * query        (batch, tokens, q_heads * d_k); key, value (batch, tokens, kv_heads * d)
 * decay        g: (batch, tokens, kv_heads * d_k), or one per head (…, kv_heads)
 * beta         (batch, tokens, kv_heads), or one for all heads (…, 1)
 * past_state   (batch, kv_heads, d_k, d_v), zeros by default; present_state is like it
 * Groups of q_heads / kv_heads query heads read one S. f16 and bf16 are converted row by
 * row; S is f32 until it is stored. The columns of S do not depend on each other, so a
 * task is a block of them that stays in the first-level cache for all tokens.
 * Cost: O(tokens * d_k * d_v) per head. Source: ONNX LinearAttention-27; Yang 2024,
 * arXiv:2412.06464 (gated delta rule). */
#include <math.h>

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

struct linear_args {
    int64_t q_num_heads, kv_num_heads;
    float scale; /* 0: 1 / sqrt(d_k) */
    int32_t update_rule;
};
static const attnrun_attr_def linear_attrs[] = {
    ATTR_INT_REQUIRED(struct linear_args, q_num_heads),
    ATTR_INT_REQUIRED(struct linear_args, kv_num_heads),
    ATTR_FLOAT(struct linear_args, scale, 0.0f),
    ATTR_ENUM(struct linear_args, update_rule, "linear|gated|delta|gated_delta", 3),
    ATTR_IGNORED("chunk_size"),
    ATTR_END,
};

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };
enum { RULE_LINEAR, RULE_GATED, RULE_DELTA, RULE_GATED_DELTA };
enum { BLOCK = 64, VECTOR = 16, TOKENS_PER_LOOK = 64 };

struct linear_state {
    int64_t batch, tokens, d_k, d_v, group;
    int64_t blocks; /* of columns of S */
    bool per_key;   /* a decay for each row of S */
    float scale;
};

static bool gated(const struct linear_args *args)
{
    return args->update_rule == RULE_GATED || args->update_rule == RULE_GATED_DELTA;
}

static bool delta(const struct linear_args *args)
{
    return args->update_rule >= RULE_DELTA;
}

static attn_status check_attributes(const attnrun_step *step)
{
    const struct linear_args *args = step->args;
    if (args->q_num_heads < 1 || args->kv_num_heads < 1 ||
        args->q_num_heads % args->kv_num_heads != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is %lld, expected a positive multiple of "
                       "kv_num_heads, %lld",
                       (long long)args->q_num_heads, (long long)args->kv_num_heads);
    if (gated(args) != op_has_in(step, DECAY))
        return op_fail(step, ATTNRUN_E_INPUT, "this update rule %s a decay",
                       gated(args) ? "needs" : "has not");
    if (delta(args) != op_has_in(step, BETA))
        return op_fail(step, ATTNRUN_E_INPUT, "this update rule %s a beta",
                       delta(args) ? "needs" : "has not");
    return ATTNRUN_OK;
}

/* Checks rank, batch and tokens of input `in`; *dim: last dim / heads. */
static attn_status split_heads(const attnrun_step *step, int in, int64_t heads,
                               attnrun_dim *dim)
{
    const attnrun_type *type = &step->in[in], *q = &step->in[QUERY];
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
                             "its dim 2 is no multiple of %lld heads", (long long)heads);
    *dim = attnrun_dim_div(step, type->dims[2], dim_of(heads));
    return ATTNRUN_OK;
}

/* The last dim of decay or beta is `a` or `b`. */
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

static attn_status check_past(const attnrun_step *step, attnrun_dim d_k, attnrun_dim d_v)
{
    const struct linear_args *args = step->args;
    if (!op_has_in(step, PAST))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, PAST, 4));
    if (!op_rank_known(step, PAST))
        return ATTNRUN_OK;
    if (op_rank_known(step, QUERY))
        TRY(op_need_dim(step, PAST, 0, step->in[QUERY].dims[0], "the batch"));
    TRY(op_need_dim(step, PAST, 1, dim_of(args->kv_num_heads), "the key heads"));
    TRY(op_need_dim(step, PAST, 2, d_k, "the dim of a key"));
    return op_need_dim(step, PAST, 3, d_v, "the dim of a value");
}

static attn_status set_outputs(attnrun_step *step, attnrun_dim d_k, attnrun_dim d_v)
{
    const struct linear_args *args = step->args;
    const attnrun_type *q = &step->in[QUERY];
    bool known = q->rank >= 0;
    int32_t dtype = op_has_in(step, PAST) ? step->in[PAST].dtype : q->dtype;
    attnrun_dim y[3] = { q->dims[0], q->dims[1],
                         attnrun_dim_mul(step, d_v, dim_of(args->q_num_heads)) };
    attnrun_dim state[4] = { q->dims[0], dim_of(args->kv_num_heads), d_k, d_v };
    TRY(op_out(step, 0, q->dtype, known ? 3 : -1, y));
    if (step->n_out > 1)
        TRY(op_out(step, 1, dtype, known ? 4 : -1, state));
    return ATTNRUN_OK;
}

static attn_status linear_plan(attnrun_step *step, int64_t d_k, int64_t d_v)
{
    const struct linear_args *args = step->args;
    struct linear_state *state = step->state;
    int64_t n, floats, bytes;
    state->batch = step->in[QUERY].dims[0].value;
    state->tokens = step->in[QUERY].dims[1].value;
    state->d_k = d_k;
    state->d_v = d_v;
    state->group = args->q_num_heads / args->kv_num_heads;
    state->blocks = d_v / BLOCK + (d_v % BLOCK != 0);
    state->scale = args->scale != 0 ? args->scale : (float)(1 / sqrt((double)d_k));
    state->per_key =
        op_has_in(step, DECAY) && step->in[DECAY].dims[2].value != args->kv_num_heads;
    if (!ck_mul(state->batch, args->kv_num_heads, &n) || !ck_mul(n, state->blocks, &n) ||
        !ck_mul(d_k, (BLOCK + 4) * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t),
                &floats) ||
        !ck_add(floats, (VECTOR + 3 * BLOCK) * (int64_t)sizeof(float), &bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "its state is too large");
    double cost = (double)state->tokens * (double)d_k * BLOCK * 0.3;
    step->scratch_bytes = bytes;
    op_tasks(step, 0, n, cost < 1e15 ? (int64_t)cost + 100 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

static attn_status linear_infer(attnrun_step *step)
{
    const struct linear_args *args = step->args;
    attnrun_dim d_k, key_dim, d_v;
    TRY(check_attributes(step));
    TRY(split_heads(step, QUERY, args->q_num_heads, &d_k));
    TRY(split_heads(step, KEY, args->kv_num_heads, &key_dim));
    TRY(split_heads(step, VALUE, args->kv_num_heads, &d_v));
    if (!dim_may_equal(d_k, key_dim))
        return op_fail_input(step, KEY, ATTNRUN_E_SHAPE,
                             "its dim per head is %lld, expected %lld as in the query",
                             (long long)key_dim.value, (long long)d_k.value);
    TRY(check_gate(step, DECAY, dim_of(args->kv_num_heads),
                   attnrun_dim_mul(step, d_k, dim_of(args->kv_num_heads))));
    TRY(check_gate(step, BETA, dim_of(args->kv_num_heads), dim_of(1)));
    TRY(check_past(step, d_k, d_v));
    TRY(set_outputs(step, d_k, d_v));
    return step->concrete ? linear_plan(step, d_k.value, d_v.value) : ATTNRUN_OK;
}

/* n elements of x from `first` on as f32: in place, or converted into `room`. */
static const float *load(const attnrun_step *step, const attnrun_tensor *x, int64_t first,
                         int64_t n, float *room)
{
    const uint16_t *half = (const uint16_t *)x->data;
    if (x->dtype == ATTNRUN_F32)
        return (const float *)x->data + first;
    if (x->dtype == ATTNRUN_F16)
        step->kernels->f16_to_f32(room, half + first, (size_t)n);
    else
        step->kernels->bf16_to_f32(room, half + first, (size_t)n);
    return room;
}

static void store(const attnrun_step *step, const attnrun_tensor *y, int64_t first,
                  int64_t n, const float *from)
{
    uint16_t *half = (uint16_t *)y->data;
    if (y->data == NULL)
        return;
    if (y->dtype == ATTNRUN_F32)
        memcpy((float *)y->data + first, from, (size_t)n * sizeof *from);
    else if (y->dtype == ATTNRUN_F16)
        step->kernels->f32_to_f16(half + first, from, (size_t)n);
    else
        step->kernels->f32_to_bf16(half + first, from, (size_t)n);
}

/* A block of columns of one S, and the rows of the token at work. */
struct memory {
    float *s; /* d_k rows of `width`: columns and zeros up to whole vectors */
    int64_t columns, width, sample, head, first;
    float *k, *q, *decay, *weights; /* d_k each */
    float *v, *u, *o;               /* BLOCK each */
    int64_t *offsets;               /* of the rows of s */
};

static void memory_open(const attnrun_step *step, int64_t task, void *scratch,
                        struct memory *m)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    int64_t d_k = state->d_k;
    m->first = task % state->blocks * BLOCK;
    m->head = task / state->blocks % args->kv_num_heads;
    m->sample = task / state->blocks / args->kv_num_heads;
    m->columns = state->d_v - m->first < BLOCK ? state->d_v - m->first : BLOCK;
    m->width = (m->columns + VECTOR - 1) / VECTOR * VECTOR;
    m->offsets = scratch;
    m->s = (float *)(void *)(m->offsets + d_k);
    m->k = m->s + d_k * BLOCK + VECTOR;
    m->q = m->k + d_k;
    m->decay = m->q + d_k;
    m->weights = m->decay + d_k;
    m->v = m->weights + d_k;
    m->u = m->v + BLOCK;
    m->o = m->u + BLOCK;
    memset(m->s, 0, (size_t)(d_k * BLOCK + VECTOR) * sizeof *m->s);
    for (int64_t d = 0; d < d_k; d++) {
        int64_t row = (m->sample * args->kv_num_heads + m->head) * d_k + d;
        float *s = m->s + d * m->width;
        m->offsets[d] = d * m->width;
        if (!op_has_in(step, PAST))
            continue;
        const float *past =
            load(step, &step->x[PAST], row * state->d_v + m->first, m->columns, m->v);
        memcpy(s, past, (size_t)m->columns * sizeof *s);
    }
}

static void memory_store(const attnrun_step *step, const struct memory *m)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    for (int64_t d = 0; step->n_out > 1 && d < state->d_k; d++) {
        int64_t row = (m->sample * args->kv_num_heads + m->head) * state->d_k + d;
        store(step, &step->y[1], row * state->d_v + m->first, m->columns,
              m->s + d * m->width);
    }
}

/* exp(g) for each row of S. */
static const float *decays(const attnrun_step *step, const struct memory *m, int64_t row)
{
    static const float unused[2] = { 0 };
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    int64_t n = state->per_key ? state->d_k : 1;
    if (!gated(args)) {
        for (int64_t d = 0; d < state->d_k; d++)
            m->decay[d] = 1;
        return m->decay;
    }
    const float *g = load(step, &step->x[DECAY], (row * args->kv_num_heads + m->head) * n,
                          n, m->decay);
    if (state->per_key) {
        step->kernels->exp_f32(m->decay, g, (size_t)n, unused);
    } else if (state->d_k > 0) {
        float all = expf(*g);
        for (int64_t d = 0; d < state->d_k; d++)
            m->decay[d] = all;
    }
    return m->decay;
}

static float beta_of(const attnrun_step *step, const struct memory *m, int64_t row)
{
    const attnrun_tensor *beta = &step->x[BETA];
    float room;
    int64_t at = beta->dims[2] == 1 ? row : row * beta->dims[2] + m->head;
    return *load(step, beta, at, 1, &room);
}

/* s = decay s + k u; n is a multiple of VECTOR. The loop of fixed length is what the
 * compiler turns into vectors. */
static void update_row(float *restrict s, const float *restrict u, int64_t n, float decay,
                       float k)
{
    for (int64_t i = 0; i < n; i += VECTOR)
        for (int j = 0; j < VECTOR; j++)
            s[i + j] = decay * s[i + j] + k * u[i + j];
}

/* S = exp(g) S + k (x) u. `row`: sample * tokens + token. */
static void learn(const attnrun_step *step, const struct memory *m, int64_t row)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    int64_t at = row * args->kv_num_heads + m->head;
    const float *k = load(step, &step->x[KEY], at * state->d_k, state->d_k, m->k);
    const float *v =
        load(step, &step->x[VALUE], at * state->d_v + m->first, m->columns, m->v);
    const float *decay = decays(step, m, row);
    memset(m->u, 0, BLOCK * sizeof *m->u);
    if (delta(args)) {
        float beta = beta_of(step, m, row);
        for (int64_t d = 0; d < state->d_k; d++)
            m->weights[d] = decay[d] * k[d];
        step->kernels->conv_taps_f32(m->o, m->width, m->s, m->offsets, m->weights,
                                     state->d_k, 0.0f);
        for (int64_t i = 0; i < m->columns; i++)
            m->u[i] = beta * (v[i] - m->o[i]);
    } else {
        memcpy(m->u, v, (size_t)m->columns * sizeof *v);
    }
    for (int64_t d = 0; d < state->d_k; d++)
        update_row(m->s + d * m->width, m->u, m->width, decay[d], k[d]);
}

static void answer(const attnrun_step *step, const struct memory *m, int64_t row)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    for (int64_t h = m->head * state->group; h < (m->head + 1) * state->group; h++) {
        int64_t at = row * args->q_num_heads + h;
        const float *q = load(step, &step->x[QUERY], at * state->d_k, state->d_k, m->q);
        step->kernels->conv_taps_f32(m->o, m->width, m->s, m->offsets, q, state->d_k,
                                     0.0f);
        for (int64_t i = 0; i < m->columns; i++)
            m->o[i] *= state->scale;
        store(step, &step->y[0], at * state->d_v + m->first, m->columns, m->o);
    }
}

static attn_status linear_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct linear_state *state = step->state;
    struct memory m;
    for (int64_t task = work->begin; task < work->end; task++) {
        memory_open(step, task, work->scratch, &m);
        for (int64_t t = 0; t < state->tokens; t++) {
            if (t % TOKENS_PER_LOOK == 0 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            learn(step, &m, m.sample * state->tokens + t);
            if (step->y[0].data != NULL)
                answer(step, &m, m.sample * state->tokens + t);
        }
        memory_store(step, &m);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_linear_attention_27 = {
    OP_ROW,
    .flags = ATTNRUN_OP_NOWIDEN,
    .name = "LinearAttention",
    .since = 27,
    .inputs = "query:T key:T value:T past_state:S? decay:T? beta:T?",
    .outputs = "output:T present_state:S?",
    .types = "T=f32,f16,bf16 S=f32,f16,bf16",
    .args_bytes = sizeof(struct linear_args),
    .state_bytes = sizeof(struct linear_state),
    .attrs = linear_attrs,
    .infer = linear_infer,
    .run = linear_run,
    .cost = "O(tokens d_k d_v) per head",
    .source = "ONNX LinearAttention-27; arXiv:2412.06464",
};
