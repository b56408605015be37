/* group_query_cache.c - what com.microsoft GroupQueryAttention does before the attention.
 * New keys are rotated and go behind the past ones, or into a sliding cache. New values
 * go there unchanged. Queries are rotated.
 *
 * In: tokens and caches, floats or small integers. Out: present_key, present_value, and
 * queries in shared memory. Cost: one pass over the caches. Source: ONNX Runtime contrib
 * operators, compared with 1.31.1. */
#include "group_query.h"
#include "../core/rotary.h"
#include "../../tile.h"

/* The position by position_ids. For a prompt only the first number counts, and the others
 * follow it. */
static int64_t position_of(const attnrun_step *step, int64_t b, int64_t i)
{
    const struct gqa_state *s = step->state;
    const int64_t *positions = step->x[POSITIONS].data;
    if (tensor_get_int(&step->x[TOTAL], 0) == s->new_tokens)
        return positions[0] < s->positions ? positions[0] + i : positions[0];
    return positions[b * s->new_tokens + i];
}

static attn_status check_positions(const attnrun_step *step, int64_t b)
{
    const struct gqa_state *s = step->state;
    for (int64_t i = 0; s->half > 0 && i < s->new_tokens; i++) {
        const int64_t position = position_of(step, b, i);
        if (position < 0 || position >= s->positions)
            return op_fail_input(
                step, POSITIONS, ATTNRUN_E_RANGE,
                "holds position %lld, expected 0 to %lld as in cos_cache",
                (long long)position, (long long)s->positions - 1);
    }
    return ATTNRUN_OK;
}

/* Finds where the new tokens of sample b go; they must fit. */
static attn_status first_new(const attnrun_step *step, int64_t b, int64_t *first)
{
    const struct gqa_state *s = step->state;
    int64_t len = (int64_t)((const int32_t *)step->x[SEQLENS].data)[b] + 1;
    *first = len > s->new_tokens ? len - s->new_tokens : 0;
    if (gqa_slides(step) && len < s->new_tokens)
        return op_fail_input(step, SEQLENS, ATTNRUN_E_RANGE,
                             "holds %lld for sample %lld, expected at least %lld with %s",
                             (long long)len - 1, (long long)b,
                             (long long)s->new_tokens - 1,
                             attn_plural(s->new_tokens, "new token"));
    if (!gqa_slides(step) &&
        (len < 0 || *first > s->past || *first + s->new_tokens > s->total))
        return op_fail_input(step, SEQLENS, ATTNRUN_E_RANGE,
                             "holds %lld for sample %lld: with %s and %lld past "
                             "ones it must be below %lld",
                             (long long)len - 1, (long long)b,
                             attn_plural(s->new_tokens, "new token"), (long long)s->past,
                             (long long)s->total);
    const int64_t total = tensor_get_int(&step->x[TOTAL], 0);
    if (op_has_in(step, SCORE_BIAS) && total != step->x[SCORE_BIAS].dims[3])
        return op_fail_input(step, SCORE_BIAS, ATTNRUN_E_RANGE,
                             "expected total_sequence_length, %lld, in dim 3",
                             (long long)total);
    if (op_has_in(step, POSITIONS))
        return check_positions(step, b);
    if (s->half > 0 && *first + s->new_tokens > s->positions)
        return op_fail_input(step, COS, ATTNRUN_E_RANGE,
                             "expected a row for position %lld",
                             (long long)(*first + s->new_tokens - 1));
    return ATTNRUN_OK;
}

/* A head of a token was rotated or stored; false where the call is to end. */
static bool token_polls(const struct gqa_state *s)
{
    return attn_poll_work(s->dim * (int64_t)sizeof(float)) == ATTNRUN_OK;
}

/* Rotates token i of sample b, which is the one at `position`. */
static void put_token(const attnrun_step *step, float *to, const float *from, int64_t b,
                      int64_t i, int64_t position)
{
    const struct gqa_args *args = step->args;
    const struct gqa_state *s = step->state;
    if (s->half == 0) {
        memcpy(to, from, (size_t)s->dim * sizeof *to);
        return;
    }
    if (op_has_in(step, POSITIONS))
        position = position_of(step, b, i);
    const float *cosine = (const float *)step->x[COS].data + position * s->half;
    const float *sine = (const float *)step->x[SIN].data + position * s->half;
    attn_rotary_rotate(to, from, cosine, sine, s->half, s->dim,
                       args->rotary_interleaved != 0);
}

const float *attn_gqa_scale(const attnrun_step *step, int in, int64_t h)
{
    const struct gqa_state *s = step->state;
    return (const float *)step->x[in].data + (s->quantized.by_channel ? h * s->dim : 0);
}

/* A cache in the output, or in shared memory where that output is not wanted. */
attnrun_tensor attn_gqa_cache(const attnrun_step *step, int out, void *shared)
{
    const int32_t dtype = gqa_cache_dtype(step->args);
    const struct gqa_state *s = step->state;
    if (gqa_cache_is_out(step, out))
        return step->y[out];
    attnrun_tensor cache = {
        .kind = ATTNRUN_TENSOR,
        .dtype = dtype,
        .rank = 4,
        .dims = { s->core.batch, s->core.kv_heads, s->room,
                  dtype == ATTNRUN_U8 ? s->dim / 2 : s->dim },
        .data = op_slot_at(shared, out == PRESENT_K ? s->k_at : s->v_at),
    };
    tensor_set_dense(&cache);
    return cache;
}

/* The number of `tokens` that a sliding cache still holds, which are the last ones. It
 * drops several at once, so that it is moved once in as many steps. */
static int64_t resident(const attnrun_step *step, int64_t tokens)
{
    const struct gqa_state *s = step->state;
    const struct gqa_args *args = step->args;
    const int64_t several = s->past - args->local_window_size + 1,
                  over = tokens - s->past;
    return over <= 0 ? tokens : tokens - several * ceil_div(over, several);
}

int64_t *attn_gqa_samples(const attnrun_step *step, void *shared)
{
    const struct gqa_state *s = step->state;
    return op_slot_at(shared, s->samples_at);
}

/* Fills a sliding cache with the old and new tokens, and zeros behind them. */
static void slide(const attnrun_step *step, int out, int64_t task, int64_t first,
                  void *shared)
{
    const struct gqa_state *s = step->state;
    int64_t b = task, h = op_take(&b, s->core.kv_heads);
    const int64_t all = resident(step, first) + s->new_tokens,
                  kept = resident(step, first + s->new_tokens);
    const attnrun_tensor cache = attn_gqa_cache(step, out, shared);
    if (h == 0) {
        attn_gqa_samples(step, shared)[b] = all;
        attn_gqa_samples(step, shared)[s->core.batch + b] = first + s->new_tokens - all;
    }
    if (!op_has_out(step, out))
        return;
    char *to = (char *)cache_at(&step->y[out], b, h, 0);
    attn_cache_copy(to, cache_at(&cache, b, h, all - kept), s->token_bytes, kept,
                    s->token_bytes);
    (void)attn_poll_fill(to + kept * s->token_bytes, 0,
                         (s->total - kept) * s->token_bytes);
}

/* Stores new token i of head h as the cache has it; `room`: space for its floats. */
static void keep_new(const attnrun_step *step, int out, void *to, const float *from,
                     int64_t b, int64_t h, int64_t i, int64_t position, float *room)
{
    const struct gqa_state *s = step->state;
    const bool key = out == PRESENT_K;
    float *token = s->quantized.bits == 0 ? to : room;
    if (key)
        put_token(step, token, from, b, i, position);
    else
        memcpy(token, from, (size_t)s->dim * sizeof *token);
    if (s->quantized.bits != 0)
        attn_quantize(&s->quantized, to, token,
                      attn_gqa_scale(step, key ? K_SCALE : V_SCALE, h));
}

/* Fills the cache of head h of sample b: past, new tokens, and zeros behind them. */
static void fill_cache(const attnrun_step *step, int out, int64_t task, int64_t first,
                       const attnrun_work *work)
{
    const struct gqa_state *s = step->state;
    int64_t b = task, h = op_take(&b, s->core.kv_heads);
    const bool key = out == PRESENT_K;
    const int in = op_has_in(step, K) ? (key ? K : V) : Q,
              past_in = key ? PAST_K : PAST_V;
    const attnrun_tensor cache = attn_gqa_cache(step, out, work->shared);
    char *to = (char *)cache_at(&cache, b, h, 0);
    const float *from = (const float *)step->x[in].data + b * s->new_tokens * s->k_row +
                        (key ? s->k_offset : s->v_offset) + h * s->dim;
    const int64_t kept = gqa_slides(step)  ? resident(step, first)
                         : first < s->past ? first
                                           : s->past;
    const int64_t at = gqa_slides(step) ? kept : first;
    if (!s->in_place[out - PRESENT_K])
        attn_cache_copy_past(&cache, &step->x[past_in], task, kept);
    else if (kept < s->past)
        op_overwrite(step, to + kept * s->token_bytes, s->token_bytes);
    (void)attn_poll_fill(to + kept * s->token_bytes, 0,
                         (s->room - kept) * s->token_bytes);
    for (int64_t i = 0; i < s->new_tokens && token_polls(s); i++)
        keep_new(step, out, to + (at + i) * s->token_bytes, from + i * s->k_row, b, h, i,
                 first + i, work->scratch);
    if (gqa_slides(step))
        slide(step, out, task, first, work->shared);
}

/* Rotates the queries of the heads that share key head h. */
static void fill_queries(const attnrun_step *step, int64_t task, int64_t first,
                         float *shared)
{
    const struct gqa_state *s = step->state;
    const int64_t group = s->core.q_heads / s->core.kv_heads;
    const int64_t head = op_take(&task, s->core.kv_heads) * group, b = task;
    for (int64_t i = 0; i < s->new_tokens; i++)
        for (int64_t h = head; h < head + group && token_polls(s); h++) {
            int64_t row = b * s->new_tokens + i;
            put_token(step, shared + (row * s->core.q_heads + h) * s->dim,
                      (const float *)step->x[Q].data + row * s->q_row + h * s->dim, b, i,
                      first + i);
        }
}

attn_status attn_gqa_check(const attnrun_step *step)
{
    const struct gqa_state *s = step->state;
    int64_t first;
    for (int64_t b = 0; b < s->core.batch && (s->in_place[0] || s->in_place[1]); b++)
        TRY(first_new(step, b, &first));
    return ATTNRUN_OK;
}

attn_status attn_gqa_fill(const attnrun_step *step, int64_t task,
                          const attnrun_work *work)
{
    const struct gqa_state *s = step->state;
    int64_t first = 0;
    TRY(first_new(step, op_task_at(task, s->core.kv_heads, 1).b, &first));
    fill_queries(step, task, first, work->shared);
    fill_cache(step, PRESENT_K, task, first, work);
    fill_cache(step, PRESENT_V, task, first, work);
    return ATTNRUN_OK;
}
