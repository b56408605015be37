/* decoder_masked_multi_head_attention.c - com.microsoft DecoderMaskedMultiHeadAttention:
 * attention of one new token for each sample, by the streaming core.
 *
 * query   f32 (batch, 1, hidden), or (batch, 1, 3 hidden) with key and value behind it
 * key, value      (batch, 1, hidden), (batch, 1, v_hidden): of the new token; or all keys
 *         and values, (batch, heads, k, dim) (cross-attention, without a past)
 * mask_index      i32 (batch, total): mask_filter_value is added, literally, to the
 *         scores of keys that are not above 0
 * attention_bias  (batch or 1, heads or 1, 1, total), added to the scores
 * past_key, past_value   (batch, heads, past, dim), and total is past + 1. With
 *         past_present_share_buffer they are a buffer (batch, heads, capacity, dim) whose
 *         first past_sequence_length (below the capacity) tokens count
 * present_key, present_value   the past with the new token behind it, in a copy of the
 *         buffer or, where the buffer is a state, in place
 * bias    (hidden + hidden + v_hidden), added to query and new keys and values
 * qk      (batch, heads, 1, total): the scores with scale, mask and bias, with output_qk
 *
 * A scale of 0 means 1 / sqrt(dim). The keys of a buffer lie token by token, as ONNX
 * Runtime's CPU kernel has them, and not interleaved as on GPUs.
 * Refused: cache_indirection, beam_width above 1.
 * Cost: 2 total (dim + v_dim) FLOPs a head; scratch is one tile.
 * Source: ONNX Runtime contrib operators, compared with 1.31.1, which runs only the
 * shared buffer and cross-attention. */
#include <math.h>

#include "../core/kv_cache.h"
#include "../../tile.h"

struct decoder_args {
    int64_t num_heads, past_present_share_buffer, output_qk;
    float scale, mask_filter_value;
};
static const attnrun_attr_def decoder_attrs[] = {
    ATTR_INT_REQUIRED(struct decoder_args, num_heads),
    ATTR_FLAG(struct decoder_args, past_present_share_buffer, 0),
    ATTR_FLAG(struct decoder_args, output_qk, 0),
    ATTR_FLOAT(struct decoder_args, scale, 0.0f),
    ATTR_FLOAT(struct decoder_args, mask_filter_value, -10000.0f),
    ATTR_END,
};

enum { Q, K, V, MASK, SCORE_BIAS, PAST_K, PAST_V, PAST_LEN, BEAMS, INDIRECTION, BIAS };
enum { Y, PRESENT_K, PRESENT_V, QK };
enum { MAX_HEADS = 1 << 16 };
enum phase { ADD_BIAS, ATTEND, SUM, KEEP };

struct decoder_state {
    struct attn_sdpa core; /* without lengths and strides that are known at run */
    attnrun_dim width[3];  /* heads * dim of query, key and value */
    int64_t max;           /* tokens of past_key */
    bool packed, cross, shared;
    int32_t in_place[2]; /* the past is in present_key, present_value already */
    /* Offsets in shared memory, in floats: query, key and value with their bias; and a
     * result that is no output, where the scores are one. */
    int64_t at[3], y_at;
};

static attn_status decoder_check_args(const attnrun_step *step)
{
    const struct decoder_args *args = step->args;
    if (args->num_heads < 1 || args->num_heads > MAX_HEADS)
        return op_fail(step, ATTNRUN_E_ATTR, "num_heads is %lld, expected 1 to %d",
                       (long long)args->num_heads, MAX_HEADS);
    if (op_has_in(step, INDIRECTION))
        return op_fail_input(step, INDIRECTION, ATTNRUN_E_UNSUPPORTED,
                             "expected none: beams are not supported");
    if (op_has_in(step, K) != op_has_in(step, V))
        return op_fail_input(step, op_has_in(step, K) ? K : V, ATTNRUN_E_INPUT,
                             "expected both key and value, or neither");
    if (op_has_in(step, PAST_K) != op_has_in(step, PAST_V))
        return op_fail_input(step, op_has_in(step, PAST_K) ? PAST_K : PAST_V,
                             ATTNRUN_E_INPUT,
                             "expected both past_key and past_value, or neither");
    if (op_has_out(step, QK) && args->output_qk == 0)
        return op_fail(step, ATTNRUN_E_ATTR, "output qk is named, but output_qk is 0");
    return ATTNRUN_OK;
}

/* Finds the form of the operands; the rank of key must be known. */
static attn_status check_form(const attnrun_step *step, const struct decoder_state *s)
{
    if (s->cross && op_has_in(step, PAST_K))
        return op_fail_input(step, K, ATTNRUN_E_UNSUPPORTED,
                             "expected rank 3 together with past_key");
    if (s->cross && (op_has_out(step, PRESENT_K) || op_has_out(step, PRESENT_V)))
        return op_fail_input(step, K, ATTNRUN_E_UNSUPPORTED,
                             "expected rank 3 where present_key or present_value is "
                             "an output");
    if (s->shared && !op_has_in(step, PAST_K))
        return op_fail(
            step, ATTNRUN_E_INPUT,
            "past_present_share_buffer is 1, but past_key or past_value is absent");
    if (s->shared && !op_has_in(step, PAST_LEN))
        return op_fail(
            step, ATTNRUN_E_INPUT,
            "past_present_share_buffer is 1, but past_sequence_length is absent");
    for (int in = PAST_LEN; in <= BEAMS; in++) {
        if (!op_has_in(step, in))
            continue;
        TRY(op_need_rank_between(step, in, 0, 1));
        if (step->in[in].rank == 1)
            TRY(op_need_dim(step, in, 0, dim_of(1), "one number"));
    }
    return ATTNRUN_OK;
}

/* Finds the widths of query, key and value of a token; their ranks are known. */
static attn_status find_widths(const attnrun_step *step, struct decoder_state *s)
{
    const int64_t heads = ((const struct decoder_args *)step->args)->num_heads;
    const int64_t parts = s->packed ? 3 : 1;
    TRY(op_need_rank(step, Q, 3));
    TRY(op_need_dim(step, Q, 1, dim_of(1), "one token"));
    for (int in = Q; in <= V; in++) {
        const attnrun_type *t = &step->in[s->packed ? Q : in];
        if (in > Q && s->cross) {
            TRY(op_need_rank(step, in, 4));
            TRY(op_need_dim(step, in, 1, dim_of(heads), "num_heads"));
            TRY(op_need_dim(step, in, 2, step->in[K].dims[2], "the keys"));
            s->width[in] = attnrun_dim_mul(step, t->dims[3], dim_of(heads));
        } else if (in > Q && !s->packed) {
            TRY(op_need_rank(step, in, 3));
            TRY(op_need_dim(step, in, 1, dim_of(1), "one token"));
        }
        if (in == Q || !s->cross) {
            if (dim_is_const(t->dims[2]) && t->dims[2].value % (parts * heads) != 0)
                return op_fail_input(step, s->packed ? Q : in, ATTNRUN_E_SHAPE,
                                     "expected a multiple of %s in dim 2",
                                     attn_plural(parts * heads, "head"));
            s->width[in] = attnrun_dim_div(step, t->dims[2], dim_of(parts));
        }
        TRY(op_need_dim(step, s->packed ? Q : in, 0, step->in[Q].dims[0], "the batch"));
    }
    if (!dim_may_equal(s->width[0], s->width[1]))
        return op_fail_input(step, K, ATTNRUN_E_SHAPE, "expected the width of query");
    return ATTNRUN_OK;
}

static attn_status decoder_check_past(const attnrun_step *step,
                                      const struct decoder_state *s)
{
    const attnrun_dim heads =
        dim_of(((const struct decoder_args *)step->args)->num_heads);
    for (int i = 0; i < 2 && op_has_in(step, PAST_K); i++) {
        const int in = PAST_K + i;
        TRY(op_need_rank(step, in, 4));
        TRY(op_need_dim(step, in, 0, step->in[Q].dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, heads, "num_heads"));
        TRY(op_need_dim(step, in, 2, step->in[PAST_K].dims[2], "past_key's tokens"));
        TRY(op_need_dim(step, in, 3, attnrun_dim_div(step, s->width[1 + i], heads),
                        "the dim of a head"));
    }
    return ATTNRUN_OK;
}

/* The number of tokens of a buffer, or of all keys and values. */
static int64_t decoder_tokens(const attnrun_step *step, const struct decoder_state *s)
{
    if (s->cross)
        return step->in[K].dims[2].value;
    return op_has_in(step, PAST_K) ? step->in[PAST_K].dims[2].value : 0;
}

/* Checks past_sequence_length against past_key. */
static attn_status check_length(const attnrun_step *step, const struct decoder_state *s,
                                int64_t past)
{
    const int64_t tokens = decoder_tokens(step, s);
    if (s->shared && (past < 0 || past >= tokens))
        return op_fail_input(step, PAST_LEN, ATTNRUN_E_RANGE,
                             "holds %lld, expected 0 to %lld: past_key has %s",
                             (long long)past, (long long)tokens - 1,
                             attn_plural(tokens, "token"));
    if (!s->shared && !s->cross && past != tokens)
        return op_fail_input(step, PAST_LEN, ATTNRUN_E_RANGE,
                             "holds %lld, expected %lld as past_key has tokens",
                             (long long)past, (long long)tokens);
    return ATTNRUN_OK;
}

/* Finds the number of keys with the new one: with a shared buffer by
 * past_sequence_length, else as mask or bias have it, else unknown. */
static attn_status find_total(const attnrun_step *step, const struct decoder_state *s,
                              attnrun_dim *total)
{
    const attnrun_type *mask = &step->in[MASK], *bias = &step->in[SCORE_BIAS];
    bool known = false;
    int n;
    *total = dim_of(1);
    if (s->cross)
        *total = step->in[K].dims[2];
    else if (s->shared) {
        TRY(op_dims(step, PAST_LEN, total, 1, &n, &known));
        if (known && n == 1 && dim_is_const(*total) && step->concrete)
            TRY(check_length(step, s, total->value));
        if (known && n == 1)
            *total = attnrun_dim_add(step, *total, dim_of(1));
        else if (op_has_in(step, MASK) && mask->rank == 2)
            *total = mask->dims[1];
        else if (op_has_in(step, SCORE_BIAS) && bias->rank == 4)
            *total = bias->dims[3];
        else
            *total = attnrun_dim_unknown(step);
    } else if (op_has_in(step, PAST_K))
        *total = attnrun_dim_add(step, step->in[PAST_K].dims[2], dim_of(1));
    return ATTNRUN_OK;
}

/* Checks mask_index and attention_bias, except for the number of keys. */
static attn_status check_masks(const attnrun_step *step, const struct decoder_state *s)
{
    const attnrun_type *t = &step->in[SCORE_BIAS];
    if (op_has_in(step, MASK)) {
        TRY(op_need_rank(step, MASK, 2));
        TRY(op_need_dim(step, MASK, 0, dim_of(s->core.batch), "the batch"));
    }
    if (!op_has_in(step, SCORE_BIAS))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, SCORE_BIAS, 4));
    if (!dim_is(t->dims[0], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 0, dim_of(s->core.batch), "the batch"));
    if (!dim_is(t->dims[1], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 1, dim_of(s->core.q_heads), "num_heads"));
    return op_need_dim(step, SCORE_BIAS, 2, dim_of(1), "one token");
}

static attn_status check_total(const attnrun_step *step, int64_t total)
{
    if (op_has_in(step, MASK))
        TRY(op_need_dim(step, MASK, 1, dim_of(total), "all keys"));
    if (op_has_in(step, SCORE_BIAS))
        TRY(op_need_dim(step, SCORE_BIAS, 3, dim_of(total), "all keys"));
    return ATTNRUN_OK;
}

/* Plans shared memory for operands with a bias, and for a result that is no output of the
 * node. */
static attn_status plan_shared(attnrun_step *step, struct decoder_state *s)
{
    const struct attn_sdpa *c = &s->core;
    const int operands = s->cross ? 1 : 3;
    int64_t at = 0, width = 0;
    for (int i = 0; i < 3; i++) {
        s->at[i] = at;
        width += s->width[i].value;
        if (op_has_in(step, BIAS) && i < operands)
            at += c->batch * s->width[i].value;
    }
    s->y_at = at;
    if (!op_has_out(step, Y) && op_has_out(step, QK))
        at += c->batch * s->width[V].value;
    step->shared_bytes = at * (int64_t)sizeof(float);
    return op_need_vector(step, BIAS, dim_of(width),
                          "hidden sizes of query, key and value");
}

/* Plans the strides of new queries, keys and values. */
static void plan_strides(const attnrun_step *step, struct decoder_state *s)
{
    struct attn_sdpa *c = &s->core;
    struct attn_heads *to[3] = { &c->q, &c->k, &c->v };
    const int64_t dims[3] = { c->head_dim, c->head_dim, c->v_dim };
    for (int i = 0; i < 3; i++) {
        const bool alone = op_has_in(step, BIAS) || !s->packed;
        *to[i] =
            (struct attn_heads){ s->width[i].value * (alone ? 1 : 3), dims[i], dims[i] };
        if (s->cross && i > 0)
            *to[i] = (struct attn_heads){ c->q_heads * s->max * dims[i], s->max * dims[i],
                                          dims[i] };
    }
    c->y = (struct attn_heads){ s->width[V].value, c->v_dim, c->v_dim };
}

static attn_status plan_decoder_masked_multi_head(attnrun_step *step,
                                                  struct decoder_state *s,
                                                  attnrun_dim total)
{
    const struct decoder_args *args = step->args;
    struct attn_sdpa *c = &s->core;
    const int64_t batch = step->in[Q].dims[0].value, heads = args->num_heads;
    const int64_t dim = s->width[Q].value / heads, v_dim = s->width[V].value / heads;
    s->max = decoder_tokens(step, s);
    const int64_t keys = s->max + (s->shared || s->cross ? 0 : 1);
    TRY(attn_sdpa_fits(step, batch, heads, 1, keys, dim + v_dim));
    *c = (struct attn_sdpa){ .batch = batch,
                             .q_heads = heads,
                             .kv_heads = heads,
                             .q_len = 1,
                             .kv_len = keys,
                             .head_dim = dim,
                             .v_dim = v_dim,
                             .left = -1,
                             .right = -1,
                             .scores_mode = ATTN_SCORES_BIASED,
                             .scale = args->scale };
    if (args->scale == 0.0f && dim > 0)
        c->scale = (float)(1.0 / sqrt((double)dim));
    if (op_has_in(step, SCORE_BIAS))
        c->mask_kind = ATTN_MASK_ADD;
    plan_strides(step, s);
    TRY(check_masks(step, s));
    if (dim_is_const(total))
        TRY(check_total(step, total.value));
    TRY(plan_shared(step, s));
    const bool attends = op_has_out(step, Y) || op_has_out(step, QK);
    const int64_t kept = s->in_place[0] && s->in_place[1] ? 1 : keys;
    op_tasks(step, ADD_BIAS, op_has_in(step, BIAS) ? batch : 0, 3 * s->width[Q].value);
    TRY(attn_sdpa_phases(step, c, ATTEND, attends));
    op_tasks(step, KEEP, batch * heads, kept * (dim + v_dim) / 4);
    return ATTNRUN_OK;
}

static attn_status decoder_infer(attnrun_step *step)
{
    const struct decoder_args *args = step->args;
    struct decoder_state *s = step->state;
    const attnrun_dim heads = dim_of(args->num_heads);
    attnrun_dim total;
    TRY(decoder_check_args(step));
    for (int in = Q; in <= PAST_V; in++)
        if (op_has_in(step, in) && !op_rank_known(step, in)) {
            for (int out = 0; out < step->n_out; out++)
                TRY(op_out(step, out, ATTNRUN_F32, -1, NULL));
            return ATTNRUN_OK;
        }
    s->packed = !op_has_in(step, K);
    s->cross = !s->packed && step->in[K].rank == 4;
    s->shared = !s->cross && args->past_present_share_buffer != 0;
    TRY(check_form(step, s));
    TRY(find_widths(step, s));
    TRY(decoder_check_past(step, s));
    TRY(find_total(step, s, &total));
    const attnrun_dim batch = step->in[Q].dims[0], one = dim_of(1);
    const attnrun_dim kept = s->shared ? step->in[PAST_K].dims[2] : total;
    TRY(op_out(step, Y, ATTNRUN_F32, 3, (attnrun_dim[]){ batch, one, s->width[V] }));
    for (int i = 0; i < 2; i++) {
        const attnrun_dim dim = attnrun_dim_div(step, s->width[1 + i], heads);
        TRY(op_out(step, PRESENT_K + i, ATTNRUN_F32, 4,
                   (attnrun_dim[]){ batch, heads, kept, dim }));
        if (op_has_in(step, PAST_K + i))
            s->in_place[i] = attnrun_step_append(step, PRESENT_K + i, PAST_K + i, 2);
    }
    TRY(op_out(step, QK, ATTNRUN_F32, 4, (attnrun_dim[]){ batch, heads, one, total }));
    if (!step->concrete || (op_has_out(step, QK) && !dim_is_const(total)))
        return ATTNRUN_OK;
    return plan_decoder_masked_multi_head(step, s, total);
}

/* ---- run ---- */

/* Reads the number of keys with the new one, and checks that mask and bias have as
 * many. */
static attn_status read_lengths(const attnrun_step *step, const struct decoder_state *s,
                                int64_t *total)
{
    const int64_t past =
        op_has_in(step, PAST_LEN) ? tensor_get_int(&step->x[PAST_LEN], 0) : s->max;
    if (op_has_in(step, BEAMS) && tensor_get_int(&step->x[BEAMS], 0) > 1)
        return op_fail_input(step, BEAMS, ATTNRUN_E_UNSUPPORTED,
                             "holds %lld, expected 1: beams are not supported",
                             (long long)tensor_get_int(&step->x[BEAMS], 0));
    TRY(check_length(step, s, past));
    *total = s->cross ? s->max : past + 1;
    return check_total(step, *total);
}

/* The strides and lengths of this run. */
static struct attn_sdpa core_of(const attnrun_step *step, int64_t total)
{
    const struct decoder_state *s = step->state;
    struct attn_sdpa core = s->core;
    core.kv_len = core.mask_len = total;
    core.past_len = s->cross ? 0 : total - 1;
    if (op_has_in(step, PAST_K)) {
        core.past_k = cache_strides(&step->x[PAST_K], core.head_dim);
        core.past_v = cache_strides(&step->x[PAST_V], core.v_dim);
    }
    if (op_has_in(step, SCORE_BIAS)) {
        const int64_t *dims = step->x[SCORE_BIAS].dims;
        core.mask = (struct attn_heads){ dims[0] == 1 ? 0 : total * dims[1],
                                         dims[1] == 1 ? 0 : total, 0 };
    }
    return core;
}

/* Adds the bias to query, key and value of sample b. */
static void add_bias(const attnrun_step *step, int64_t b, float *shared)
{
    const struct decoder_state *s = step->state;
    const float *bias = step->x[BIAS].data;
    for (int i = 0; i < (s->cross ? 1 : 3); i++) {
        const int64_t width = s->width[i].value;
        const float *x = step->x[s->packed ? Q : i].data;
        x += s->packed ? (3 * b + i) * width : b * width;
        step->kernels->add_f32(shared + s->at[i] + b * width, x, 1, bias, 1,
                               (size_t)width);
        bias += width;
    }
}

/* Copies head `task` of past and new keys (0) or values (1). */
static void keep(const attnrun_step *step, int i, const struct attn_sdpa *core,
                 const float *fresh, int64_t task)
{
    const struct decoder_state *s = step->state;
    const attnrun_tensor *to = &step->y[PRESENT_K + i];
    const struct attn_heads *from = i == 0 ? &core->k : &core->v;
    int64_t b = task, h = op_take(&b, core->q_heads);
    if (!op_has_out(step, PRESENT_K + i) || to->data == NULL)
        return;
    const int64_t bytes =
        (i == 0 ? core->head_dim : core->v_dim) * (int64_t)sizeof *fresh;
    void *at = cache_at(to, b, h, core->past_len);
    if (!s->in_place[i] && op_has_in(step, PAST_K + i))
        attn_cache_copy_past(to, &step->x[PAST_K + i], task, s->max);
    else if (s->in_place[i] && s->shared)
        op_overwrite(step, at, bytes);
    memcpy(at, fresh + b * from->batch + h * from->head, (size_t)bytes);
}

static attn_status decoder_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct decoder_state *s = step->state;
    const float *at[3];
    int64_t total = 0;
    TRY(read_lengths(step, s, &total));
    const struct attn_sdpa core = core_of(step, total);
    for (int i = 0; i < 3; i++) {
        at[i] = step->x[s->packed ? Q : i].data;
        if (op_has_in(step, BIAS) && !(s->cross && i > 0))
            at[i] = (const float *)work->shared + s->at[i];
        else if (s->packed)
            at[i] += i * s->width[i].value;
    }
    const struct attn_sdpa_operands o = {
        .q = at[0],
        .k = at[1],
        .v = at[2],
        .past_k = op_in_data(step, PAST_K),
        .past_v = op_in_data(step, PAST_V),
        .mask = op_in_data(step, SCORE_BIAS),
        .key_keep = op_in_data(step, MASK),
        .keep_batch = total,
        .masked = ((const struct decoder_args *)step->args)->mask_filter_value,
        .y = op_has_out(step, Y) ? step->y[Y].data : (float *)work->shared + s->y_at,
        .scores = op_has_out(step, QK) ? step->y[QK].data : NULL,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == ADD_BIAS) {
            add_bias(step, task, work->shared);
        } else if (work->phase <= SUM) {
            TRY(attn_sdpa_run(&core, step->kernels, &o, task, work));
        } else {
            keep(step, 0, &core, at[1], task);
            keep(step, 1, &core, at[2], task);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_decoder_masked_multi_head_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "DecoderMaskedMultiHeadAttention",
    .since = 1,
    .inputs = "query:T key:T? value:T? mask_index:i32? attention_bias:T? past_key:T? "
              "past_value:T? past_sequence_length:i32? beam_width:i32? "
              "cache_indirection:i32? bias:T?",
    .outputs = "output:T present_key:T? present_value:T? qk:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct decoder_args),
    .state_bytes = sizeof(struct decoder_state),
    .attrs = decoder_attrs,
    .infer = decoder_infer,
    .run = decoder_run,
    .strided_in = 1 << PAST_K | 1 << PAST_V,
    .cost = "O(n d), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};
