/* group_query_attention.c - com.microsoft GroupQueryAttention, by the streaming core.
 *
 * query       f32 (batch, q, heads * dim), or with key and value behind it in its rows
 * key, value  (batch, q, kv_heads * dim)
 * past_key, past_value  (batch, kv_heads, past, dim): filled up to seqlens_k + 1 - q
 * seqlens_k   i32 (batch): the number of keys with the new ones, minus 1
 * total_sequence_length  i32, one: the largest of them; present_ have max(past, it) keys
 * cos_cache, sin_cache   (positions, r/2) for do_rotary
 * position_ids    i64 (batch, q): the positions of the tokens, by default those in the
 *                 cache; of a prompt (total_sequence_length is q) only the first number
 *                 counts
 * attention_bias  (batch or 1, heads or 1, q, total), added to the scores
 * head_sink   (heads): the score of one more key, without a value; smooth_softmax: 0
 *
 * Causal (unless `causal` is 0): query i of a sample is at position seqlens_k + 1 - q + i
 * (i, where nothing is past). With local_window_size w it sees itself and the w - 1 keys
 * before it. output_qk (batch, heads, q, total_sequence_length) holds the scores with cap
 * and bias (qk_output 1), or their softmax (2); it is 0 where a key is not seen.
 *
 * kv_cache_bit_width 8 or 4: the caches are i8 or pairs of 4 bits, the latter of shape
 * (batch, kv_heads, total, dim / 2). k_quant_type and v_quant_type say how many numbers
 * k_scale and v_scale have, one or kv_heads * dim. New tokens are read back from the
 * cache, so they are rounded, too. Tiles of the cache become floats when they are needed.
 *
 * sliding_window_cache: past_key and past_value have room for C >= local_window_size
 * tokens, and begin with the last tokens before the new ones. present_ have the same form
 * with the new tokens, see resident().
 * Refused: norms of queries and keys, types of keys and values that differ, output_qk of
 * a sliding cache.
 * Cost: as sdpa.h, and one pass over the caches. Source: ONNX Runtime contrib operators,
 * compared with 1.31.1; Ainslie 2023, arXiv:2305.13245. */
#include <math.h>

#include "../core/heads.h"
#include "../core/rotary.h"
#include "group_query.h"

static const attnrun_attr_def gqa_attrs[] = {
    ATTR_INT_REQUIRED(struct gqa_args, num_heads),
    ATTR_INT_REQUIRED(struct gqa_args, kv_num_heads),
    ATTR_FLAG(struct gqa_args, do_rotary, 0),
    ATTR_FLAG(struct gqa_args, rotary_interleaved, 0),
    ATTR_INT(struct gqa_args, local_window_size, -1),
    ATTR_FLAG(struct gqa_args, smooth_softmax, 0),
    ATTR_FLAG(struct gqa_args, causal, 1),
    ATTR_CHOICE(struct gqa_args, qk_output, "0..2", 0),
    ATTR_FLAG(struct gqa_args, sliding_window_cache, 0),
    ATTR_INT(struct gqa_args, kv_cache_bit_width, 0),
    ATTR_ENUM(struct gqa_args, k_quant_type, "NONE|PER_TENSOR|PER_CHANNEL", 0),
    ATTR_ENUM(struct gqa_args, v_quant_type, "NONE|PER_TENSOR|PER_CHANNEL", 0),
    ATTR_IGNORED("qk_norm_epsilon"),
    ATTR_FLOAT(struct gqa_args, scale, 0.0f),
    ATTR_FLOAT(struct gqa_args, softcap, 0.0f),
    ATTR_END,
};

static attn_status check_sliding(const attnrun_step *step)
{
    const struct gqa_args *args = step->args;
    if (args->local_window_size < 1 || args->causal == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "sliding_window_cache needs local_window_size and causal");
    if (!op_has_in(step, PAST_K) || !op_has_in(step, PAST_V))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "sliding_window_cache needs past_key and past_value");
    if (op_has_out(step, QK))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output_qk is not supported with sliding_window_cache");
    return ATTNRUN_OK;
}

static attn_status gqa_check_args(const attnrun_step *step)
{
    const struct gqa_args *args = step->args;
    if (args->local_window_size < 1 && args->local_window_size != -1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "local_window_size is %lld, expected -1, or 1 and more",
                       (long long)args->local_window_size);
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, MAX_HEADS));
    TRY(attn_need_int(step, "kv_num_heads", args->kv_num_heads, 1, MAX_HEADS));
    if (args->num_heads % args->kv_num_heads != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "num_heads is %lld, expected a multiple of kv_num_heads, %lld",
                       (long long)args->num_heads, (long long)args->kv_num_heads);
    if (args->k_quant_type != args->v_quant_type)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "k_quant_type and v_quant_type differ, which is not supported");
    if (args->k_quant_type == 0
            ? args->kv_cache_bit_width != 0
            : args->kv_cache_bit_width != 8 && args->kv_cache_bit_width != 4)
        return op_fail(step, ATTNRUN_E_ATTR, "kv_cache_bit_width is %lld, expected %s",
                       (long long)args->kv_cache_bit_width,
                       args->k_quant_type == 0 ? "0 without k_quant_type" : "8 or 4");
    if (args->sliding_window_cache != 0)
        TRY(check_sliding(step));
    for (int in = Q_NORM; in <= K_NORM; in++)
        if (op_has_in(step, in))
            return op_fail_input(step, in, ATTNRUN_E_UNSUPPORTED,
                                 "norms of queries and keys are not supported");
    if (op_has_out(step, QK) && (args->qk_output == NO_QK || !op_has_out(step, Y)))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "output output_qk needs attribute qk_output 1 or 2 and output 0");
    if (op_has_in(step, K) != op_has_in(step, V) ||
        op_has_in(step, PAST_K) != op_has_in(step, PAST_V))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "key and value, and past_key and past_value, are each given "
                       "together or not at all");
    if (args->do_rotary != 0 && (!op_has_in(step, COS) || !op_has_in(step, SIN)))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "do_rotary is 1, but cos_cache or sin_cache is absent");
    return ATTNRUN_OK;
}

/* Finds the type of a token of a cache, and its scales. */
static attn_status find_cache(const attnrun_step *step, struct gqa_state *s)
{
    const struct gqa_args *args = step->args;
    s->token_bytes = s->dim * (int64_t)sizeof(float);
    s->quantized = (struct attn_quantized){ (int32_t)args->kv_cache_bit_width,
                                            args->k_quant_type == PER_CHANNEL, s->dim };
    if (s->quantized.bits == 0)
        return ATTNRUN_OK;
    if (s->quantized.bits == 4 && s->dim % 2 != 0)
        return op_fail_input(
            step, Q, ATTNRUN_E_SHAPE,
            "its head size is %lld, expected an even one for a cache of 4 bits",
            (long long)s->dim);
    s->token_bytes = attn_quantized_bytes(&s->quantized);
    const int64_t scales = s->quantized.by_channel ? args->kv_num_heads * s->dim : 1;
    for (int in = K_SCALE; in <= V_SCALE; in++) {
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT, "%s is missing",
                           in == K_SCALE ? "k_scale" : "v_scale");
        if (op_count(&step->in[in], 0, step->in[in].rank) != scales)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected %s",
                                 attn_plural(scales, "element"));
    }
    return ATTNRUN_OK;
}

/* Finds the sizes of the operands; `packed`: the query input holds key and value too. */
static attn_status find_sizes(const attnrun_step *step, struct gqa_state *s)
{
    const struct gqa_args *args = step->args;
    const attnrun_type *q = &step->in[Q];
    const bool packed = !op_has_in(step, K);
    const int64_t all = args->num_heads + (packed ? 2 * args->kv_num_heads : 0);
    if (q->dims[2].value % all != 0)
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "expected a multiple of %s in dim 2",
                             attn_plural(all, "head"));
    s->dim = q->dims[2].value / all;
    s->new_tokens = q->dims[1].value;
    s->q_row = q->dims[2].value;
    s->k_row = packed ? s->q_row : args->kv_num_heads * s->dim;
    s->k_offset = packed ? args->num_heads * s->dim : 0;
    s->v_offset = packed ? (args->num_heads + args->kv_num_heads) * s->dim : 0;
    for (int in = K; !packed && in <= V; in++) {
        TRY(op_need_rank(step, in, 3));
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, q->dims[1], "the tokens"));
        TRY(op_need_dim(step, in, 2, dim_of(s->k_row), "kv_num_heads * dim"));
    }
    TRY(find_cache(step, s));
    for (int in = PAST_K; in <= PAST_V && op_has_in(step, in); in++) {
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, dim_of(args->kv_num_heads), "kv_num_heads"));
        TRY(op_need_dim(step, in, 2, step->in[PAST_K].dims[2], "past_key's length"));
        TRY(op_need_dim(step, in, 3, dim_of(s->quantized.bits == 4 ? s->dim / 2 : s->dim),
                        "the dim of a head"));
        s->past = step->in[in].dims[2].value;
    }
    s->room = gqa_slides(step) ? s->past + s->new_tokens : s->total;
    if (gqa_slides(step) && s->past < args->local_window_size)
        return op_fail_input(step, PAST_K, ATTNRUN_E_SHAPE,
                             "expected at least local_window_size, %lld, in dim 2",
                             (long long)args->local_window_size);
    return ATTNRUN_OK;
}

static attn_status find_rotary(const attnrun_step *step, struct gqa_state *s)
{
    const struct gqa_args *args = step->args;
    if (args->do_rotary == 0)
        return ATTNRUN_OK;
    return attn_rotary_caches(step, COS, s->dim, &s->half, &s->positions);
}

/* Plans attention_bias, head_sink and position_ids, where given. */
static attn_status plan_extras(const attnrun_step *step, struct attn_sdpa *c)
{
    const attnrun_type *t = &step->in[SCORE_BIAS];
    TRY(op_need_vector(step, SINK, dim_of(c->q_heads), "num_heads"));
    if (op_has_in(step, POSITIONS)) {
        TRY(op_need_rank(step, POSITIONS, 2));
        TRY(op_need_dim(step, POSITIONS, 0, dim_of(c->batch), "the batch"));
        TRY(op_need_dim(step, POSITIONS, 1, dim_of(c->q_len), "the tokens"));
    }
    if (!op_has_in(step, SCORE_BIAS))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, SCORE_BIAS, 4));
    if (!dim_is(t->dims[0], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 0, dim_of(c->batch), "the batch"));
    if (!dim_is(t->dims[1], 1))
        TRY(op_need_dim(step, SCORE_BIAS, 1, dim_of(c->q_heads), "num_heads"));
    TRY(op_need_dim(step, SCORE_BIAS, 2, dim_of(c->q_len), "the tokens"));
    c->mask_kind = ATTN_MASK_ADD;
    c->mask_len = t->dims[3].value;
    const int64_t matrix = c->q_len * c->mask_len;
    c->mask = (struct attn_heads){ dim_is(t->dims[0], 1) ? 0 : matrix * t->dims[1].value,
                                   dim_is(t->dims[1], 1) ? 0 : matrix, c->mask_len };
    return ATTNRUN_OK;
}

/* A row of output_qk has total_sequence_length keys. */
static attn_status need_total(const attnrun_step *step, int64_t tokens)
{
    if (step->out[QK].dims[3].value >= tokens)
        return ATTNRUN_OK;
    return op_fail_input(step, TOTAL, ATTNRUN_E_RANGE, "holds %lld, which is below %s",
                         (long long)step->out[QK].dims[3].value,
                         attn_plural(tokens, "new token"));
}

static attn_status plan_group_query(attnrun_step *step, struct gqa_state *s)
{
    const struct gqa_args *args = step->args;
    struct attn_sdpa *c = &s->core;
    const int64_t batch = step->in[Q].dims[0].value, heads = args->num_heads;
    TRY(attn_sdpa_fits(step, batch, heads, s->new_tokens, s->room, 2 * s->dim));
    *c = (struct attn_sdpa){ .batch = batch,
                             .q_heads = heads,
                             .kv_heads = args->kv_num_heads,
                             .q_len = s->new_tokens,
                             .kv_len = s->room,
                             .head_dim = s->dim,
                             .v_dim = s->dim,
                             .causal = args->causal != 0,
                             .promotes = s->quantized.bits != 0,
                             .left = args->local_window_size > 0
                                         ? args->local_window_size - 1
                                         : -1,
                             .right = -1,
                             .softcap = args->softcap,
                             .scale = args->scale };
    if (args->scale == 0.0f && s->dim > 0)
        c->scale = (float)(1.0 / sqrt((double)s->dim));
    c->q = c->y =
        (struct attn_heads){ s->new_tokens * heads * s->dim, s->dim, heads * s->dim };
    const int64_t cache =
        round_up(batch * args->kv_num_heads * s->room * s->token_bytes, 64);
    s->k_at =
        round_up(batch * s->new_tokens * heads * s->dim * (int64_t)sizeof(float), 64);
    s->v_at = s->k_at + (gqa_cache_is_out(step, PRESENT_K) ? 0 : cache);
    s->samples_at = s->v_at + (gqa_cache_is_out(step, PRESENT_V) ? 0 : cache);
    step->shared_bytes =
        s->samples_at + (gqa_slides(step) ? 2 * batch * (int64_t)sizeof(int64_t) : 0);
    TRY(plan_extras(step, c));
    if (op_has_out(step, QK)) {
        TRY(need_total(step, s->new_tokens));
        c->scores_mode =
            args->qk_output == QK_AFTER ? ATTN_SCORES_SOFTMAX : ATTN_SCORES_SEEN;
        c->scores_len = step->out[QK].dims[3].value;
    }
    op_tasks(step, 0, batch * args->kv_num_heads, s->room * s->dim);
    step->scratch_bytes = s->dim * (int64_t)sizeof(float); /* a key to be quantised */
    return attn_sdpa_phases(step, c, 1, op_has_out(step, Y));
}

static attn_status gqa_check_past(const attnrun_step *step)
{
    const int32_t dtype = gqa_cache_dtype(step->args);
    for (int in = PAST_K; in <= PAST_V && op_has_in(step, in); in++) {
        if (step->in[in].dtype != 0 && step->in[in].dtype != dtype)
            return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected %s",
                                 attnrun_dtype_name(dtype));
        TRY(op_need_rank(step, in, 4));
    }
    return ATTNRUN_OK;
}

static attn_status unknown_outputs(attnrun_step *step)
{
    const int32_t cache = gqa_cache_dtype(step->args);
    for (int out = 0; out < step->n_out; out++)
        TRY(op_out(step, out, out == PRESENT_K || out == PRESENT_V ? cache : ATTNRUN_F32,
                   -1, NULL));
    return ATTNRUN_OK;
}

static attn_status gqa_infer(attnrun_step *step)
{
    struct gqa_state *s = step->state;
    const struct gqa_args *args = step->args;
    attnrun_dim total = attnrun_dim_unknown(step), past = dim_of(0);
    int64_t value;
    int n;
    bool known;
    TRY(gqa_check_args(step));
    TRY(op_need_rank(step, Q, 3));
    TRY(gqa_check_past(step));
    if (!op_rank_known(step, Q))
        return unknown_outputs(step);
    TRY(op_ints(step, TOTAL, &value, 1, &n, &known));
    if (known && n != 1)
        return op_fail_input(step, TOTAL, ATTNRUN_E_SHAPE, "expected one element");
    if (op_has_in(step, PAST_K))
        past = step->in[PAST_K].rank == 4 ? step->in[PAST_K].dims[2]
                                          : attnrun_dim_unknown(step);
    if (gqa_slides(step))
        total = past;
    else if (known)
        total = attnrun_dim_max(step, past, dim_of(value < 0 ? 0 : value));
    else if (!op_has_out(step, PRESENT_K) && !op_has_out(step, PRESENT_V) &&
             !op_has_out(step, QK)) /* not known: its upper bound */
        total = attnrun_dim_add(step, past, step->in[Q].dims[1]);
    attnrun_dim all =
        dim_of(args->num_heads + (op_has_in(step, K) ? 0 : 2 * args->kv_num_heads));
    attnrun_dim dim = attnrun_dim_div(step, step->in[Q].dims[2], all);
    attnrun_dim y[3] = { step->in[Q].dims[0], step->in[Q].dims[1],
                         attnrun_dim_mul(step, dim, dim_of(args->num_heads)) };
    attnrun_dim cache[4] = { y[0], dim_of(args->kv_num_heads), total,
                             args->kv_cache_bit_width == 4
                                 ? attnrun_dim_div(step, dim, dim_of(2))
                                 : dim };
    TRY(op_out(step, Y, ATTNRUN_F32, 3, y));
    TRY(op_out(step, PRESENT_K, gqa_cache_dtype(args), 4, cache));
    TRY(op_out(step, PRESENT_V, gqa_cache_dtype(args), 4, cache));
    attnrun_dim qk[4] = { y[0], dim_of(args->num_heads), y[1],
                          known ? dim_of(value < 0 ? 0 : value)
                                : attnrun_dim_unknown(step) };
    TRY(op_out(step, QK, ATTNRUN_F32, 4, qk));
    for (int i = 0; i < 2 && op_has_in(step, PAST_K + i) && !gqa_slides(step); i++)
        s->in_place[i] = attnrun_step_append(step, PRESENT_K + i, PAST_K + i, 2);
    if (!step->concrete || !dim_is_const(total))
        return ATTNRUN_OK;
    s->total = total.value;
    TRY(find_sizes(step, s));
    TRY(find_rotary(step, s));
    TRY(op_need_rank_between(step, SEQLENS, 1, 2));
    if (op_count(&step->in[SEQLENS], 0, step->in[SEQLENS].rank) !=
        step->in[Q].dims[0].value)
        return op_fail_input(step, SEQLENS, ATTNRUN_E_SHAPE,
                             "expected one length per sample");
    return plan_group_query(step, s);
}

struct quantized_caches {
    const attnrun_step *step;
    attnrun_tensor k, v;
};

static void promote(const void *arg, int64_t b, int64_t h, int64_t first, int64_t n,
                    float *k, float *v)
{
    const struct quantized_caches *c = arg;
    const struct gqa_state *s = c->step->state;
    attn_dequantize(c->step->kernels, &s->quantized, k, cache_at(&c->k, b, h, first),
                    attn_gqa_scale(c->step, K_SCALE, h), n);
    attn_dequantize(c->step->kernels, &s->quantized, v, cache_at(&c->v, b, h, first),
                    attn_gqa_scale(c->step, V_SCALE, h), n);
}

static attn_status gqa_run(const attnrun_step *step, const attnrun_work *work)
{
    static const float no_sink = 0.0f; /* smooth_softmax */
    const struct gqa_args *args = step->args;
    const bool sinks = op_has_in(step, SINK);
    const struct gqa_state *s = step->state;
    const struct quantized_caches caches = {
        step, attn_gqa_cache(step, PRESENT_K, work->shared),
        attn_gqa_cache(step, PRESENT_V, work->shared)
    };
    struct attn_sdpa core = s->core;
    core.k = cache_strides(&caches.k, s->dim);
    core.v = cache_strides(&caches.v, s->dim);
    const attnrun_tensor lens = { .kind = ATTNRUN_TENSOR,
                                  .dtype = ATTNRUN_I64,
                                  .rank = 1,
                                  .dims = { core.batch },
                                  .data = attn_gqa_samples(step, work->shared) };
    const struct attn_sdpa_operands o = {
        .q = work->shared,
        .k = caches.k.data,
        .v = caches.v.data,
        .promote = promote,
        .promote_arg = &caches,
        .lens = gqa_slides(step) ? &lens : &step->x[SEQLENS],
        .lens_add = !gqa_slides(step),
        .lens_position = true,
        .lens_not_before = true,
        .mask = op_in_data(step, SCORE_BIAS),
        .mask_from = gqa_slides(step)
                         ? attn_gqa_samples(step, work->shared) + s->core.batch
                         : NULL,
        .sinks = sinks                      ? step->x[SINK].data
                 : args->smooth_softmax > 0 ? &no_sink
                                            : NULL,
        .sink_step = sinks,
        .y = step->y[Y].data,
        .scores = op_has_out(step, QK) ? step->y[QK].data : NULL,
    };
    if (work->phase == 0)
        TRY(attn_gqa_check(step));
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase > 0) {
            TRY(attn_sdpa_run(&core, step->kernels, &o, task, work));
            continue;
        }
        TRY(attn_gqa_fill(step, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_group_query_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "GroupQueryAttention",
    .since = 1,
    .inputs = "query:T key:T? value:T? past_key:C? past_value:C? seqlens_k:i32 "
              "total_sequence_length:i32 cos_cache:T? sin_cache:T? position_ids:i64? "
              "attention_bias:T? head_sink:T? k_scale:f32? v_scale:f32? q_norm_weight:T? "
              "k_norm_weight:T?",
    .outputs = "output:T present_key:C? present_value:C? output_qk:T?",
    .types = "T=f32 C=f32,i8,u8",
    .args_bytes = sizeof(struct gqa_args),
    .state_bytes = sizeof(struct gqa_state),
    .attrs = gqa_attrs,
    .infer = gqa_infer,
    .run = gqa_run,
    .strided_in = 1 << PAST_K | 1 << PAST_V,
    .cost = "O(n^2 d), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};
