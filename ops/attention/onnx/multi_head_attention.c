/* multi_head_attention.c - com.microsoft MultiHeadAttention, by the streaming core.
 *
 * query   f32 (batch, q, hidden), or (batch, q, heads, 3, dim) with key and value in it
 * key     (batch, k, hidden), (batch, heads, k, dim), or (batch, k, heads, 2, dim) with
 *         value in it
 * value   (batch, k, v_hidden) or (batch, heads, k, v_dim)
 * bias    (hidden + hidden + v_hidden), added to query, key and value of rank 3
 * key_padding_mask  i32 (batch, total) or (batch, q, total): mask_filter_value is added
 *                   to the scores of keys that are not above 0; or (batch) or (3 batch +
 *                   2): it is added from that key on
 * attention_bias    (batch or 1, heads or 1, q, total), added to the scores
 * past_, present_   (batch, heads, past or total, dim)
 * output  f32 (batch, q, v_hidden)
 *
 * A scale of 0 means 1 / sqrt(dim). unidirectional: query i sees keys up to past + i. A
 * query that sees no key gives zeros; a mask alone does not take the last key from a
 * query. Padding (the keys from some key on, for all queries of a sample) is only skipped
 * after a look at its keys, which shows that no score of theirs can count beside the
 * others.
 * Cost: 2 q total (dim + v_dim) FLOPs a head; scratch is one tile.
 * Source: ONNX Runtime contrib operators, compared with 1.31.1. */
#include <math.h>

#include "../core/kv_cache.h"
#include "../../tile.h"

struct mha_args {
    int64_t num_heads, unidirectional;
    float scale, mask_filter_value;
};
static const attnrun_attr_def mha_attrs[] = {
    ATTR_INT_REQUIRED(struct mha_args, num_heads),
    ATTR_FLAG(struct mha_args, unidirectional, 0),
    ATTR_FLOAT(struct mha_args, scale, 0.0f),
    ATTR_FLOAT(struct mha_args, mask_filter_value, -10000.0f),
    ATTR_END,
};

enum { Q, K, V, BIAS, KEY_MASK, SCORE_BIAS, PAST_K, PAST_V, PAST_LEN, INDIRECTION };
enum { Y, PRESENT_K, PRESENT_V };
enum { MAX_HEADS = 1 << 16 };

/* Where an operand begins: input, element offset; its strides and dims. */
struct mha_operand {
    int32_t in;
    int64_t offset, tokens, dim;
    struct attn_heads strides;
    attnrun_dim n_tokens, width; /* width: heads * dim */
};
struct mha_state {
    struct attn_sdpa core; /* without the strides of past keys and values */
    struct mha_operand operand[3];
    int32_t in_place[2]; /* the past is in present_key, present_value already */
    bool biased;
    /* Rows that get a bias; and their offsets in shared memory, in floats. */
    int64_t bias_rows[3], bias_at[3];
};

/* Finds operand `part` of the `parts` operands packed in input `in` (parts 1: alone). */
static attn_status find_operand(const attnrun_step *step, int in, int part, int parts,
                                struct mha_operand *o)
{
    const struct mha_args *args = step->args;
    const attnrun_type *t = &step->in[in];
    const int64_t heads = args->num_heads;
    *o = (struct mha_operand){ .in = in };
    if (t->rank == 4 && parts == 1) {
        TRY(op_need_dim(step, in, 1, dim_of(heads), "num_heads"));
        o->n_tokens = t->dims[2];
        o->width = attnrun_dim_mul(step, dim_of(heads), t->dims[3]);
        o->tokens = t->dims[2].value;
        o->dim = t->dims[3].value;
        o->strides =
            (struct attn_heads){ heads * o->tokens * o->dim, o->tokens * o->dim, o->dim };
        return ATTNRUN_OK;
    }
    TRY(op_need_rank(step, in, parts == 1 ? 3 : 5));
    o->n_tokens = t->dims[1];
    o->tokens = t->dims[1].value;
    if (parts == 1) {
        o->width = t->dims[2];
        if (dim_is_const(o->width) && o->width.value % heads != 0)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "expected a multiple of num_heads, %lld, in dim 2",
                                 (long long)heads);
        o->dim = o->width.value / heads;
    } else {
        TRY(op_need_dim(step, in, 2, dim_of(heads), "num_heads"));
        TRY(op_need_dim(step, in, 3, dim_of(parts), "the operands packed"));
        o->width = attnrun_dim_mul(step, dim_of(heads), t->dims[4]);
        o->dim = t->dims[4].value;
    }
    o->offset = part * o->dim;
    o->strides = (struct attn_heads){ o->tokens * heads * parts * o->dim, parts * o->dim,
                                      heads * parts * o->dim };
    return ATTNRUN_OK;
}

static attn_status find_operands(const attnrun_step *step, struct mha_operand *o)
{
    bool has_key = op_has_in(step, K), has_value = op_has_in(step, V);
    int q_parts = has_key ? 1 : 3;
    if (!has_key && has_value)
        return op_fail(step, ATTNRUN_E_INPUT, "value is given, but key is absent");
    TRY(op_need_rank(step, Q, has_key ? 3 : 5));
    if (has_value)
        TRY(op_need_rank(step, V, step->in[K].rank));
    TRY(find_operand(step, Q, 0, q_parts, &o[0]));
    for (int i = 1; i < 3; i++) {
        if (!has_key)
            TRY(find_operand(step, Q, i, 3, &o[i]));
        else if (!has_value)
            TRY(find_operand(step, K, i - 1, 2, &o[i]));
        else
            TRY(find_operand(step, K + i - 1, 0, 1, &o[i]));
    }
    if (!dim_may_equal(o[0].width, o[1].width) ||
        !dim_may_equal(o[1].n_tokens, o[2].n_tokens))
        return op_fail_input(
            step, has_key ? K : Q, ATTNRUN_E_SHAPE,
            "expected the head size of the query, and as many keys as values");
    return ATTNRUN_OK;
}

static attn_status mha_check_past(const attnrun_step *step, int in,
                                  const struct mha_state *s, int64_t dim, int64_t *length)
{
    *length = 0;
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 4));
    TRY(op_need_dim(step, in, 0, dim_of(s->core.batch), "the batch"));
    TRY(op_need_dim(step, in, 1, dim_of(s->core.q_heads), "num_heads"));
    TRY(op_need_dim(step, in, 3, dim_of(dim), "the dim of a head"));
    *length = step->in[in].dims[2].value;
    return ATTNRUN_OK;
}

static attn_status plan_masks(const attnrun_step *step, struct attn_sdpa *s)
{
    s->mask_len = s->kv_len;
    if (op_has_in(step, KEY_MASK)) {
        const attnrun_type *mask = &step->in[KEY_MASK];
        TRY(op_need_rank_between(step, KEY_MASK, 1, 3));
        if (mask->rank > 1 || !dim_is(mask->dims[0], 3 * s->batch + 2))
            TRY(op_need_dim(step, KEY_MASK, 0, dim_of(s->batch), "the batch"));
        if (mask->rank == 3)
            TRY(op_need_dim(step, KEY_MASK, 1, dim_of(s->q_len), "the queries"));
        if (mask->rank > 1)
            TRY(op_need_dim(step, KEY_MASK, mask->rank - 1, dim_of(s->kv_len),
                            "all keys"));
    }
    if (!op_has_in(step, SCORE_BIAS))
        return ATTNRUN_OK;
    const attnrun_type *t = &step->in[SCORE_BIAS];
    TRY(op_need_rank(step, SCORE_BIAS, 4));
    TRY(op_need_dim(step, SCORE_BIAS, 2, dim_of(s->q_len), "the queries"));
    TRY(op_need_dim(step, SCORE_BIAS, 3, dim_of(s->kv_len), "all keys"));
    if (!dim_is(t->dims[0], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 0, dim_of(s->batch), "the batch"));
    if (!dim_is(t->dims[1], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 1, dim_of(s->q_heads), "num_heads"));
    int64_t matrix = s->q_len * s->kv_len;
    s->mask_kind = ATTN_MASK_ADD;
    s->mask.row = s->kv_len;
    s->mask.head = dim_is(t->dims[1], 1) ? 0 : matrix;
    s->mask.batch = dim_is(t->dims[0], 1) ? 0 : matrix * t->dims[1].value;
    return ATTNRUN_OK;
}

/* Plans shared memory for query, key and value with their bias; operands of rank 4 have
 * it already. */
static attn_status plan_bias(attnrun_step *step, struct mha_state *state)
{
    struct attn_sdpa *s = &state->core;
    int64_t width = 0, at = 0, rows = 0;
    state->biased = op_has_in(step, BIAS);
    if (!state->biased)
        return ATTNRUN_OK;
    for (int i = 0; i < 3; i++) {
        const struct mha_operand *o = &state->operand[i];
        if (step->in[o->in].rank == 5)
            return op_fail_input(step, o->in, ATTNRUN_E_UNSUPPORTED,
                                 "expected rank 3 or 4 with a bias");
        state->bias_rows[i] = step->in[o->in].rank == 3 ? s->batch * o->tokens : 0;
        state->bias_at[i] = at;
        at += state->bias_rows[i] * s->q_heads * o->dim;
        width += s->q_heads * o->dim;
        rows += state->bias_rows[i];
    }
    TRY(op_need_vector(step, BIAS, dim_of(width),
                       "hidden sizes of query, key and value"));
    step->shared_bytes = at * (int64_t)sizeof(float);
    op_tasks(step, 0, rows, width / 3);
    return ATTNRUN_OK;
}

static attn_status plan_multi_head(attnrun_step *step, struct mha_state *state)
{
    const struct mha_args *args = step->args;
    const struct mha_operand *o = state->operand;
    struct attn_sdpa *s = &state->core;
    int64_t past_v;
    const attnrun_type *past = op_has_in(step, PAST_K) ? &step->in[PAST_K] : NULL;
    int64_t before = past != NULL && past->rank == 4 ? past->dims[2].value : 0;
    TRY(attn_sdpa_fits(step, step->in[Q].dims[0].value, args->num_heads, o[0].tokens,
                       o[1].tokens + before, o[0].dim + o[2].dim));
    *s = (struct attn_sdpa){ .batch = step->in[Q].dims[0].value,
                             .q_heads = args->num_heads,
                             .kv_heads = args->num_heads,
                             .q_len = o[0].tokens,
                             .head_dim = o[0].dim,
                             .v_dim = o[2].dim,
                             .q = o[0].strides,
                             .k = o[1].strides,
                             .v = o[2].strides,
                             .causal = args->unidirectional != 0,
                             .left = -1,
                             .right = -1,
                             .scale = args->scale };
    for (int i = 1; i < 3; i++)
        TRY(op_need_dim(step, o[i].in, 0, dim_of(s->batch), "the batch"));
    if (args->scale == 0.0f && s->head_dim > 0)
        s->scale = (float)(1.0 / sqrt((double)s->head_dim));
    TRY(mha_check_past(step, PAST_K, state, s->head_dim, &s->past_len));
    TRY(mha_check_past(step, PAST_V, state, s->v_dim, &past_v));
    if (past_v != s->past_len)
        return op_fail(step, ATTNRUN_E_INPUT,
                       "past_key has %s and past_value %lld, expected as many",
                       attn_plural(s->past_len, "token"), (long long)past_v);
    s->kv_len = s->past_len + o[1].tokens;
    s->y = (struct attn_heads){ s->q_len * s->q_heads * s->v_dim, s->v_dim,
                                s->q_heads * s->v_dim };
    TRY(plan_masks(step, s));
    TRY(plan_bias(step, state));
    TRY(attn_sdpa_phases(step, s, state->biased, op_has_out(step, Y)));
    int64_t copied = state->in_place[0] && state->in_place[1] ? o[1].tokens : s->kv_len;
    op_tasks(step, s->sum_phase + 1, s->batch * s->q_heads,
             copied * (s->head_dim + s->v_dim) / 4);
    return ATTNRUN_OK;
}

static attn_status mha_infer(attnrun_step *step)
{
    const struct mha_args *args = step->args;
    struct mha_state *state = step->state;
    struct mha_operand *o = state->operand;
    if (args->num_heads < 1 || args->num_heads > MAX_HEADS)
        return op_fail(step, ATTNRUN_E_ATTR, "num_heads is %lld, expected 1 to %d",
                       (long long)args->num_heads, MAX_HEADS);
    if (op_has_in(step, PAST_LEN) || op_has_in(step, INDIRECTION))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "a shared key buffer (past_sequence_length) is not supported");
    for (int in = Q; in <= V; in++)
        if (op_has_in(step, in) && !op_rank_known(step, in)) {
            for (int out = 0; out < step->n_out; out++)
                TRY(op_out(step, out, ATTNRUN_F32, -1, NULL));
            return ATTNRUN_OK;
        }
    TRY(find_operands(step, o));
    attnrun_dim heads = dim_of(args->num_heads), batch = step->in[Q].dims[0];
    attnrun_dim total = o[1].n_tokens;
    if (op_has_in(step, PAST_K))
        total = op_rank_known(step, PAST_K) && step->in[PAST_K].rank == 4
                    ? attnrun_dim_add(step, total, step->in[PAST_K].dims[2])
                    : attnrun_dim_unknown(step);
    attnrun_dim y[3] = { batch, o[0].n_tokens, o[2].width };
    attnrun_dim key[4] = { batch, heads, total,
                           attnrun_dim_div(step, o[1].width, heads) };
    attnrun_dim value[4] = { batch, heads, total,
                             attnrun_dim_div(step, o[2].width, heads) };
    TRY(op_out(step, Y, ATTNRUN_F32, 3, y));
    TRY(op_out(step, PRESENT_K, ATTNRUN_F32, 4, key));
    TRY(op_out(step, PRESENT_V, ATTNRUN_F32, 4, value));
    for (int i = 0; i < 2 && op_has_in(step, PAST_K + i); i++)
        state->in_place[i] = attnrun_step_append(step, PRESENT_K + i, PAST_K + i, 2);
    return step->concrete ? plan_multi_head(step, state) : ATTNRUN_OK;
}

/* Adds the bias to token `task` of query, key or value. */
static void add_bias(const attnrun_step *step, int64_t task, float *shared)
{
    const struct mha_state *state = step->state;
    const float *bias = step->x[BIAS].data;
    for (int i = 0; i < 3; i++) {
        const struct mha_operand *o = &state->operand[i];
        const int64_t rows = state->bias_rows[i], width = state->core.q_heads * o->dim;
        if (task < rows) {
            const float *x = (const float *)step->x[o->in].data + task * width;
            step->kernels->add_f32(shared + state->bias_at[i] + task * width, x, 1, bias,
                                   1, (size_t)width);
            return;
        }
        task -= rows;
        bias += width;
    }
}

/* Copies head `task` of past and new keys or values. */
static void copy_present(const attnrun_step *step, int out, int past_in,
                         const float *from, int64_t task)
{
    const struct mha_state *state = step->state;
    const struct attn_sdpa *s = &state->core;
    const struct mha_operand *o = &state->operand[out];
    if (!op_has_out(step, out) || step->y[out].data == NULL)
        return;
    int64_t b = task, h = op_take(&b, s->q_heads);
    if (!state->in_place[out - PRESENT_K])
        attn_cache_copy_past(&step->y[out], &step->x[past_in], task, s->past_len);
    const int64_t size = (int64_t)sizeof *from;
    attn_cache_copy(cache_at(&step->y[out], b, h, s->past_len),
                    from + b * o->strides.batch + h * o->strides.head,
                    o->strides.row * size, o->tokens, o->dim * size);
}

static attn_status mha_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct mha_state *state = step->state;
    const int phase = work->phase + (state->biased ? 0 : 1);
    const float *at[3];
    for (int i = 0; i < 3; i++)
        at[i] = state->bias_rows[i] > 0
                    ? (const float *)work->shared + state->bias_at[i]
                    : (const float *)step->x[state->operand[i].in].data +
                          state->operand[i].offset;
    struct attn_sdpa core = state->core;
    if (op_has_in(step, PAST_K)) {
        core.past_k = cache_strides(&step->x[PAST_K], core.head_dim);
        core.past_v = cache_strides(&step->x[PAST_V], core.v_dim);
    }
    const int rank = op_has_in(step, KEY_MASK) ? step->in[KEY_MASK].rank : 0;
    const struct attn_sdpa_operands o = {
        .q = at[0],
        .k = at[1],
        .v = at[2],
        .past_k = op_in_data(step, PAST_K),
        .past_v = op_in_data(step, PAST_V),
        .mask = op_in_data(step, SCORE_BIAS),
        .key_keep = rank > 1 ? step->x[KEY_MASK].data : NULL,
        .key_ends = rank == 1 ? step->x[KEY_MASK].data : NULL,
        .keep_batch = (rank == 3 ? core.q_len : 1) * core.kv_len,
        .keep_row = rank == 3 ? core.kv_len : 0,
        .masked = ((const struct mha_args *)step->args)->mask_filter_value,
        .y = step->y[Y].data,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (phase == 0) {
            add_bias(step, task, work->shared);
        } else if (work->phase <= core.sum_phase) {
            TRY(attn_sdpa_run(&core, step->kernels, &o, task, work));
        } else {
            copy_present(step, PRESENT_K, PAST_K, at[1], task);
            copy_present(step, PRESENT_V, PAST_V, at[2], task);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_multi_head_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MultiHeadAttention",
    .since = 1,
    .inputs =
        "query:T key:T? value:T? bias:T? key_padding_mask:i32? attention_bias:T? "
        "past_key:T? past_value:T? past_sequence_length:i32? cache_indirection:i32?",
    .outputs = "output:T present_key:T? present_value:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct mha_args),
    .state_bytes = sizeof(struct mha_state),
    .attrs = mha_attrs,
    .infer = mha_infer,
    .run = mha_run,
    .strided_in = 1 << PAST_K | 1 << PAST_V,
    .cost = "O(n^2 d), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};
