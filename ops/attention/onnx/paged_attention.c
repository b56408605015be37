/* paged_attention.c - com.microsoft PagedAttention: attention of sequences that lie one behind the
 * other, with keys and values in pages of a common cache.
 *
 * query            (tokens, q_heads * dim), or with key and value, (tokens, (q_heads + 2 kv_heads)
 *                  * dim); key, value (tokens, kv_heads * dim)
 * key_cache, value_cache  (pages, page, kv_heads, dim), f32 or i8; their outputs hold the new
 *                  tokens too, in place where nothing else reads the cache
 * cumulative_sequence_length  i32 (batch + 1): where sequences begin; past_seqlens i32 (batch)
 * block_table      i32 (batch, n): the pages of a sequence, -1 where it has none; the pages that a
 *                  query sees must exist
 * slot_mapping     i32 (tokens): the place page * size + offset of a new token, -1: nowhere; by
 *                  default behind the past ones of its sequence
 * cos_, sin_cache  (positions, half): do_rotary rotates the features rotary_offset … + 2 half
 * q_, k_norm_weight (dim): RMS normalization of each head before that
 * k_, v_scale      of an i8 cache: (1), or (kv_heads, 1, dim) where PER_CHANNEL
 * head_sink        (q_heads): a score without a value
 * output           (tokens, q_heads * v_dim)
 * A query sees the keys up to its own (all keys with is_causal 0), of those before it the last
 * local_window_size - 1. kv_cache_layout LATENT: one cache, whose first v_head_size features are
 * the values. attention_metadata holds bounds that are not needed. f16 and bf16 are computed in
 * f32. Phases: the caches; new keys, values and queries; attention, which reads pages in place.
 * Cost: as sdpa.h. ONNX Runtime has no kernel for CPUs; the tests have the formula. Source: ONNX
 * Runtime contrib operators; Kwon 2023, arXiv:2309.06180. */
#include <math.h>

#include "../core/quantized_cache.h"
#include "../core/rotary.h"
#include "../core/sdpa.h"
#include "../core/stream.h"
#include "../../tile.h"

enum { Q, K, V, K_CACHE, V_CACHE, STARTS, PAST, TABLE, COS, SIN, SLOTS, SINK };
enum { Q_NORM = SINK + 1, K_NORM, K_SCALE, V_SCALE, METADATA };
enum { Y, K_OUT, V_OUT };
enum { COPY, FILL, ATTEND };
enum { NO_TYPE, PER_TENSOR, PER_CHANNEL };

struct paged_args {
    int64_t num_heads, kv_num_heads, do_rotary, rotary_interleaved, rotary_offset;
    int64_t local_window_size, is_causal, v_head_size;
    int32_t kv_cache_layout, k_quant_type, v_quant_type;
    attnrun_string k_cache_dtype, v_cache_dtype;
    float scale, softcap, qk_norm_epsilon;
};
static const attnrun_attr_def paged_attrs[] = {
    ATTR_INT_REQUIRED(struct paged_args, num_heads),
    ATTR_INT_REQUIRED(struct paged_args, kv_num_heads),
    ATTR_FLAG(struct paged_args, do_rotary, 0),
    ATTR_FLAG(struct paged_args, rotary_interleaved, 0),
    ATTR_INT(struct paged_args, rotary_offset, 0),
    ATTR_INT(struct paged_args, local_window_size, -1),
    ATTR_FLAG(struct paged_args, is_causal, 1),
    ATTR_INT(struct paged_args, v_head_size, 0),
    ATTR_ENUM(struct paged_args, kv_cache_layout, "SEPARATE|LATENT", 0),
    ATTR_ENUM(struct paged_args, k_quant_type, "NONE|PER_TENSOR|PER_CHANNEL", 0),
    ATTR_ENUM(struct paged_args, v_quant_type, "NONE|PER_TENSOR|PER_CHANNEL", 0),
    ATTR_STRING(struct paged_args, k_cache_dtype, ""),
    ATTR_STRING(struct paged_args, v_cache_dtype, ""),
    ATTR_FLOAT(struct paged_args, scale, 0.0f),
    ATTR_FLOAT(struct paged_args, softcap, 0.0f),
    ATTR_FLOAT(struct paged_args, qk_norm_epsilon, 1e-6f),
    ATTR_END
};

struct paged_state {
    int64_t tokens, batch, dim, v_dim, heads, kv_heads;
    int64_t pages, page, table; /* tokens of a page; pages of a sequence at most */
    int64_t half, positions;    /* half 0: no rotation */
    int64_t cache_bytes[2], cache_at[2], chunks[2];  /* at: of shared memory */
    int64_t q_row, k_row, v_row, k_offset, v_offset; /* floats of the inputs */
    struct attn_sdpa core;                           /* what all sequences share */
    bool latent;
};

/* ---- shapes ---- */

static attn_status paged_check_args(const attnrun_step *step)
{
    const struct paged_args *args = step->args;
    const attnrun_string *types[] = { &args->k_cache_dtype, &args->v_cache_dtype };
    if (args->num_heads < 1 || args->kv_num_heads < 1 || args->num_heads > 1 << 16 ||
        args->num_heads % args->kv_num_heads != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "num_heads is %lld, expected a multiple of kv_num_heads, %lld",
                       (long long)args->num_heads, (long long)args->kv_num_heads);
    for (int i = 0; i < 2; i++)
        if (op_text_is(*types[i], "int4") || op_text_is(*types[i], "float4e2m1"))
            return op_fail(step, ATTNRUN_E_UNSUPPORTED, "a cache of %s is not supported",
                           types[i]->data);
    const bool latent = args->kv_cache_layout != 0;
    if (latent == op_has_in(step, V_CACHE) || (latent && op_has_in(step, V)) ||
        (latent && args->kv_num_heads != 1) || (!latent && args->v_head_size != 0))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "value_cache, kv_num_heads or v_head_size do not fit the layout");
    if (op_has_in(step, V) != (op_has_in(step, K) && !latent))
        return op_fail(step, ATTNRUN_E_INPUT, "expected key and value, or neither");
    if (op_has_in(step, Q_NORM) != op_has_in(step, K_NORM))
        return op_fail(step, ATTNRUN_E_INPUT, "expected both norm weights, or neither");
    if (args->do_rotary && (!op_has_in(step, COS) || !op_has_in(step, SIN)))
        return op_fail(step, ATTNRUN_E_INPUT, "do_rotary needs cos_cache and sin_cache");
    return ATTNRUN_OK;
}

static attn_status need_dims(const attnrun_step *step, int in, int rank,
                             const int64_t *dims, const char *what)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, rank));
    for (int i = 0; i < rank; i++)
        TRY(op_need_dim(step, in, i, dim_of(dims[i]), what));
    return ATTNRUN_OK;
}

static attn_status check_scale(const attnrun_step *step, int cache, int in, int32_t type)
{
    const struct paged_state *s = step->state;
    const int64_t channels[] = { s->kv_heads, 1, s->dim }, one[] = { 1 };
    if (!op_has_in(step, cache))
        return ATTNRUN_OK;
    const bool bytes = step->in[cache].dtype == ATTNRUN_I8;
    if (bytes != (type != NO_TYPE) || bytes != op_has_in(step, in))
        return op_fail_input(step, cache, ATTNRUN_E_DTYPE,
                             "expected a quant_type and a scale if it is i8, else none");
    return type == PER_CHANNEL ? need_dims(step, in, 3, channels, "kv_num_heads, 1, dim")
                               : need_dims(step, in, 1, one, "one scale");
}

static attn_status check_rotary(const attnrun_step *step)
{
    const struct paged_args *args = step->args;
    struct paged_state *s = step->state;
    TRY(op_need_rank(step, COS, 2));
    s->positions = step->in[COS].dims[0].value;
    s->half = step->in[COS].dims[1].value;
    TRY(need_dims(step, SIN, 2, (const int64_t[]){ s->positions, s->half }, "cos_cache"));
    if (args->rotary_offset < 0 || args->rotary_offset > s->dim ||
        s->half > (s->dim - args->rotary_offset) / 2)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "rotary_offset is %lld: %lld rotated features do not fit behind it",
            (long long)args->rotary_offset, 2 * (long long)s->half);
    return ATTNRUN_OK;
}

static attn_status paged_check_inputs(attnrun_step *step)
{
    const struct paged_args *args = step->args;
    struct paged_state *s = step->state;
    const attnrun_type *cache = &step->in[K_CACHE];
    const bool packed = !op_has_in(step, K);
    const int64_t keys = s->kv_heads * s->dim, values = s->latent ? 0 : keys;
    s->q_row = s->heads * s->dim + (packed ? keys + values : 0);
    s->k_row = packed ? s->q_row : keys;
    s->v_row = packed ? s->q_row : values;
    s->k_offset = packed ? s->heads * s->dim : 0;
    s->v_offset = packed ? s->heads * s->dim + keys : 0;
    const int64_t q[] = { s->tokens, s->q_row }, k[] = { s->tokens, s->k_row },
                  v[] = { s->tokens, s->v_row };
    TRY(need_dims(step, Q, 2, q, "tokens, heads * dim"));
    TRY(need_dims(step, K, 2, k, "tokens, heads * dim"));
    TRY(need_dims(step, V, 2, v, "tokens, heads * dim"));
    TRY(op_need_dim(step, K_CACHE, 2, dim_of(s->kv_heads), "kv_num_heads"));
    for (int i = 0; i < 4 && op_has_in(step, V_CACHE); i++)
        TRY(op_need_dim(step, V_CACHE, i, cache->dims[i], "as in key_cache"));
    TRY(need_dims(step, PAST, 1, &s->batch, "the batch"));
    TRY(need_dims(step, TABLE, 2, (const int64_t[]){ s->batch, s->table }, "the batch"));
    TRY(need_dims(step, SLOTS, 1, &s->tokens, "tokens"));
    TRY(need_dims(step, SINK, 1, &s->heads, "num_heads"));
    TRY(need_dims(step, Q_NORM, 1, &s->dim, "the dim of a head"));
    TRY(need_dims(step, K_NORM, 1, &s->dim, "the dim of a head"));
    TRY(check_scale(step, K_CACHE, K_SCALE, args->k_quant_type));
    TRY(check_scale(step, V_CACHE, V_SCALE, args->v_quant_type));
    return args->do_rotary ? check_rotary(step) : ATTNRUN_OK;
}

/* Shared memory: rotated queries, and caches that no output holds. */
static attn_status paged_plan_memory(attnrun_step *step)
{
    struct paged_state *s = step->state;
    int64_t at;
    step->shared_bytes = 0;
    if (!op_slot_rows(&at, &step->shared_bytes, s->tokens, s->heads * s->dim, 4))
        return op_fail_size(step, "the memory of its rotated queries", "2^63 - 1 bytes");
    for (int i = 0; i < (s->latent ? 1 : 2); i++) {
        const int in = K_CACHE + i;
        s->cache_bytes[i] = op_count(&step->in[in], 0, 4);
        if (s->cache_bytes[i] < 0 ||
            !ck_mul(s->cache_bytes[i], step->in[in].dtype == ATTNRUN_I8 ? 1 : 4,
                    &s->cache_bytes[i]))
            return op_fail_size(step, "the memory of a cache", "2^63 - 1 bytes");
        s->chunks[i] = op_chunks(s->cache_bytes[i]);
        if (!op_slot(&s->cache_at[i], &step->shared_bytes,
                     op_has_out(step, K_OUT + i) ? 0 : s->cache_bytes[i], 1))
            return op_fail_size(step, "the memory of the caches", "2^63 - 1 bytes");
    }
    return ATTNRUN_OK;
}

static attn_status plan_paged(attnrun_step *step)
{
    const struct paged_args *args = step->args;
    struct paged_state *s = step->state;
    struct attn_sdpa *c = &s->core;
    const int64_t group = s->heads / s->kv_heads;
    int64_t length;
    if (!ck_mul(s->table, s->page, &length) || length > INT32_MAX ||
        !ck_mul(s->pages, s->page, &length) || length > INT32_MAX)
        return op_fail_size(step, "the tokens of the cache, or of a table", "2^31 - 1");
    TRY(attn_sdpa_fits(step, 1, s->heads, s->tokens, s->table * s->page, 2 * s->dim));
    TRY(paged_plan_memory(step));
    *c = (struct attn_sdpa){ .batch = 1,
                             .q_heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .q_len = s->tokens,
                             .kv_len = s->table * s->page,
                             .head_dim = s->dim,
                             .v_dim = s->v_dim,
                             .q = { 0, s->dim, s->heads * s->dim },
                             .y = { 0, s->v_dim, s->heads * s->v_dim },
                             .causal = args->is_causal != 0,
                             .promotes = true,
                             .left = args->local_window_size > 0
                                         ? args->local_window_size - 1
                                         : -1,
                             .right = -1,
                             .softcap = args->softcap,
                             .scale = args->scale };
    if (c->scale == 0.0f)
        c->scale = (float)(1.0 / sqrt((double)s->dim));
    TRY(attn_sdpa_plan(step, c));
    /* Sequences are planned one by one in run(): blocks of no more queries than these. */
    const int64_t rows =
        s->tokens * group < ATTN_STREAM_MAX ? s->tokens * group : ATTN_STREAM_MAX;
    const int64_t stream = attn_stream_bytes(rows, s->dim, s->v_dim);
    if (stream < 0)
        return op_fail_scratch(step);
    step->scratch_bytes = stream + c->promoted_bytes + 2 * 4 * s->dim;
    op_tasks(step, COPY, s->chunks[0] + s->chunks[1] + 1, OP_CHUNK / 8);
    op_tasks(step, FILL, s->kv_heads, s->tokens * (group + 2) * s->dim);
    op_tasks(step, ATTEND, s->batch * s->kv_heads, c->task_cost);
    return ATTNRUN_OK;
}

static attn_status paged_infer(attnrun_step *step)
{
    const struct paged_args *args = step->args;
    struct paged_state *s = step->state;
    const attnrun_type *q = &step->in[Q], *cache = &step->in[K_CACHE];
    const bool latent = args->kv_cache_layout != 0;
    TRY(paged_check_args(step));
    TRY(op_need_rank(step, Q, 2));
    TRY(op_need_rank(step, K_CACHE, 4));
    TRY(op_need_rank(step, STARTS, 1));
    TRY(op_need_rank(step, TABLE, 2));
    if (op_has_in(step, V_CACHE))
        TRY(op_need_rank(step, V_CACHE, 4));
    attnrun_dim v_dim =
        latent && args->v_head_size > 0 ? dim_of(args->v_head_size) : cache->dims[3];
    attnrun_dim y[2] = { q->dims[0],
                         attnrun_dim_mul(step, v_dim, dim_of(args->num_heads)) };
    TRY(op_out(step, Y, ATTNRUN_F32, q->rank < 0 || cache->rank < 0 ? -1 : 2, y));
    for (int i = 0; i < 2; i++)
        if (step->n_out > K_OUT + i && op_has_in(step, K_CACHE + i)) {
            TRY(op_out_like(step, K_OUT + i, K_CACHE + i));
            attnrun_step_inplace(step, K_OUT + i, K_CACHE + i);
        }
    if (!step->concrete)
        return ATTNRUN_OK;
    *s = (struct paged_state){ .tokens = q->dims[0].value,
                               .batch = step->in[STARTS].dims[0].value - 1,
                               .dim = cache->dims[3].value,
                               .v_dim = v_dim.value,
                               .heads = args->num_heads,
                               .kv_heads = args->kv_num_heads,
                               .pages = cache->dims[0].value,
                               .page = cache->dims[1].value,
                               .table = step->in[TABLE].dims[1].value,
                               .latent = latent };
    if (s->batch < 0 || s->dim < 1 || s->dim > 1 << 20 || s->page < 1 ||
        args->v_head_size < 0 || s->v_dim > s->dim)
        return op_fail_input(step, K_CACHE, ATTNRUN_E_SHAPE,
                             "expected pages, and a head size from 1 to 2^20");
    TRY(paged_check_inputs(step));
    return plan_paged(step);
}

/* ---- caches ---- */

static uint8_t *cache_of(const attnrun_step *step, const attnrun_work *work, int i)
{
    const struct paged_state *s = step->state;
    return op_has_out(step, K_OUT + i) && step->y[K_OUT + i].data != NULL
               ? step->y[K_OUT + i].data
               : (uint8_t *)work->shared + s->cache_at[i];
}

static void copy_chunk(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct paged_state *s = step->state;
    const int i = task >= s->chunks[0];
    const int64_t at = (task - (i ? s->chunks[0] : 0)) * OP_CHUNK;
    const int64_t left = s->cache_bytes[i] - at;
    const uint8_t *from = step->x[K_CACHE + i].data;
    uint8_t *to = cache_of(step, work, i);
    if (to != from)
        memcpy(to + at, from + at, (size_t)(left < OP_CHUNK ? left : OP_CHUNK));
}

/* ---- the sequences ---- */

struct sequence {
    const int32_t *pages;
    int64_t first, n, past; /* tokens of all; new ones; earlier ones */
};
static struct sequence sequence_of(const attnrun_step *step, int64_t b)
{
    const struct paged_state *s = step->state;
    const int32_t *starts = step->x[STARTS].data;
    return (struct sequence){ .pages =
                                  (const int32_t *)step->x[TABLE].data + b * s->table,
                              .first = starts[b],
                              .n = starts[b + 1] - starts[b],
                              .past = ((const int32_t *)step->x[PAST].data)[b] };
}

/* Checks that pages first … last of a sequence exist. */
static attn_status check_pages(const attnrun_step *step, const struct sequence *q,
                               int64_t first, int64_t last)
{
    const struct paged_state *s = step->state;
    for (int64_t i = first; i <= last; i++)
        if (q->pages[i] < 0 || q->pages[i] >= s->pages)
            return op_fail_input(step, TABLE, ATTNRUN_E_RANGE,
                                 "holds page %d, expected 0 to %lld", q->pages[i],
                                 (long long)s->pages - 1);
    return ATTNRUN_OK;
}

static attn_status check_sequence(const attnrun_step *step, int64_t b)
{
    const struct paged_state *s = step->state;
    const int32_t *starts = step->x[STARTS].data;
    if (starts[0] != 0 || starts[b + 1] < starts[b] || starts[b + 1] > s->tokens ||
        (b + 1 == s->batch && starts[b + 1] != s->tokens))
        return op_fail_input(step, STARTS, ATTNRUN_E_RANGE,
                             "expected numbers that grow from 0 to %lld",
                             (long long)s->tokens);
    const struct sequence q = sequence_of(step, b);
    const int64_t end = q.past + q.n, room = s->table * s->page;
    if (q.past < 0 || end > room)
        return op_fail_input(step, PAST, ATTNRUN_E_RANGE,
                             "holds %lld: its pages have room for %lld, %lld are new",
                             (long long)q.past, (long long)room, (long long)q.n);
    if (s->half > 0 && end > s->positions)
        return op_fail_input(step, COS, ATTNRUN_E_RANGE, "expected %s or more",
                             attn_plural(end, "row"));
    if (q.n == 0)
        return ATTNRUN_OK;
    int64_t from, to, unused;
    attn_sdpa_keys(&s->core, q.past, end, &from, &unused);
    attn_sdpa_keys(&s->core, end - 1, end, &unused, &to);
    return to > from ? check_pages(step, &q, from / s->page, (to - 1) / s->page)
                     : ATTNRUN_OK;
}

static attn_status check_sequences(const attnrun_step *step)
{
    const struct paged_state *s = step->state;
    const int32_t *slots = op_in_data(step, SLOTS);
    for (int64_t b = 0; b < s->batch; b++)
        TRY(check_sequence(step, b));
    TRY(attn_poll_work(16));
    for (int64_t i = 0; slots != NULL && i < s->tokens; i++)
        if (slots[i] < -1 || slots[i] >= s->pages * s->page)
            return op_fail_input(step, SLOTS, ATTNRUN_E_RANGE,
                                 "holds %d, expected -1 to %lld", slots[i],
                                 (long long)(s->pages * s->page - 1));
    if (s->batch == 0 && s->tokens > 0)
        return op_fail_input(step, STARTS, ATTNRUN_E_RANGE, "expected a sequence");
    return ATTNRUN_OK;
}

static const float *scale_of(const attnrun_step *step, int i, int64_t head,
                             bool *by_channel)
{
    const struct paged_args *args = step->args;
    const struct paged_state *s = step->state;
    *by_channel = (i == 0 ? args->k_quant_type : args->v_quant_type) == PER_CHANNEL;
    const float *scale = op_in_data(step, K_SCALE + i);
    return scale != NULL && *by_channel ? scale + head * s->dim : scale;
}

/* Stores a head of a token in a cache. */
static void paged_put(const attnrun_step *step, const attnrun_work *work, int i,
                      int64_t slot, int64_t head, const float *from)
{
    const struct paged_state *s = step->state;
    const int64_t at = (slot * s->kv_heads + head) * s->dim;
    bool by_channel;
    const float *scale = scale_of(step, i, head, &by_channel);
    uint8_t *cache = cache_of(step, work, i);
    if (scale == NULL) {
        memcpy((float *)(void *)cache + at, from, (size_t)s->dim * sizeof *from);
        return;
    }
    const struct attn_quantized q = { .bits = 8,
                                      .by_channel = by_channel,
                                      .dim = s->dim };
    attn_quantize(&q, cache + at, from, scale);
}

/* Normalizes and rotates a head of the token at `position`; `room`: dim floats. */
static void make_head(const attnrun_step *step, int norm, const float *from,
                      int64_t position, float *room, float *to)
{
    const struct paged_args *args = step->args;
    const struct paged_state *s = step->state;
    const int64_t at = args->rotary_offset;
    float inverse;
    if (op_has_in(step, norm)) {
        step->kernels->rms_norm_f32(room, from, step->x[norm].data, (size_t)s->dim,
                                    args->qk_norm_epsilon, &inverse);
        from = room;
    }
    memcpy(to, from, (size_t)s->dim * sizeof *to);
    if (s->half > 0)
        attn_rotary_rotate(to + at, from + at,
                           (const float *)step->x[COS].data + position * s->half,
                           (const float *)step->x[SIN].data + position * s->half, s->half,
                           s->dim - at, args->rotary_interleaved != 0);
}

/* Fills in all of a token that belongs to key head `head`. */
static void fill_token(const attnrun_step *step, const attnrun_work *work,
                       const struct sequence *q, int64_t i, int64_t head)
{
    const struct paged_state *s = step->state;
    const int64_t token = q->first + i, position = q->past + i,
                  group = s->heads / s->kv_heads;
    const int32_t *slots = op_in_data(step, SLOTS);
    const bool packed = !op_has_in(step, K);
    const float *x = step->x[Q].data;
    float *room = work->scratch, *key = room + s->dim;
    int64_t slot = slots != NULL ? slots[token] : -1;
    if (slots == NULL)
        slot = q->pages[position / s->page] * s->page + position % s->page;
    for (int64_t h = head * group; h < (head + 1) * group; h++)
        make_head(step, Q_NORM, x + token * s->q_row + h * s->dim, position, room,
                  (float *)work->shared + (token * s->heads + h) * s->dim);
    if (slot < 0)
        return;
    const float *k = (packed ? x : (const float *)step->x[K].data) + token * s->k_row +
                     s->k_offset + head * s->dim;
    make_head(step, K_NORM, k, position, room, key);
    paged_put(step, work, 0, slot, head, key);
    if (!s->latent)
        paged_put(step, work, 1, slot, head,
                  (packed ? x : (const float *)step->x[V].data) + token * s->v_row +
                      s->v_offset + head * s->dim);
}

static attn_status paged_fill(const attnrun_step *step, const attnrun_work *work,
                              int64_t head)
{
    const struct paged_state *s = step->state;
    for (int64_t b = 0; b < s->batch; b++) {
        const struct sequence q = sequence_of(step, b);
        for (int64_t i = 0; i < q.n; i++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            if (!op_has_in(step, SLOTS)) {
                const int64_t page = (q.past + i) / s->page;
                TRY(check_pages(step, &q, page, page));
            }
            fill_token(step, work, &q, i, head);
        }
    }
    return ATTNRUN_OK;
}

/* ---- attention ---- */

struct paged_reader {
    const attnrun_step *step;
    const attnrun_work *work;
    const int32_t *pages;
};

/* Reads n features of a head of a slot as floats. */
static void paged_take(const struct paged_reader *r, int i, int64_t slot, int64_t head,
                       int64_t n, float *to)
{
    const struct paged_state *s = r->step->state;
    const int64_t at = (slot * s->kv_heads + head) * s->dim;
    bool by_channel;
    const float *scale = scale_of(r->step, i, head, &by_channel);
    const uint8_t *cache = cache_of(r->step, r->work, i);
    if (scale == NULL) {
        memcpy(to, (const float *)(const void *)cache + at, (size_t)n * sizeof *to);
        return;
    }
    const struct attn_quantized q = { .bits = 8, .by_channel = by_channel, .dim = n };
    attn_dequantize(r->step->kernels, &q, to, cache + at, scale, 1);
}

static void read_pages(const void *arg, int64_t b, int64_t kv_head, int64_t first,
                       int64_t n, float *k, float *v)
{
    const struct paged_reader *r = arg;
    const struct paged_state *s = r->step->state;
    (void)b;
    for (int64_t j = first; j < first + n; j++, k += s->dim, v += s->v_dim) {
        const int32_t page = r->pages[j / s->page];
        const int64_t slot = page * s->page + j % s->page;
        if (page < 0 || page >= s->pages) { /* of no query's window */
            memset(k, 0, (size_t)s->dim * sizeof *k);
            memset(v, 0, (size_t)s->v_dim * sizeof *v);
            continue;
        }
        paged_take(r, 0, slot, kv_head, s->dim, k);
        paged_take(r, s->latent ? 0 : 1, slot, kv_head, s->v_dim, v);
    }
}

/* Runs every kv_heads-th task of a sequence, from `share` on. */
static attn_status paged_attend(const attnrun_step *step, const attnrun_work *work,
                                int64_t task)
{
    const struct paged_state *s = step->state;
    int64_t b = task, share = op_take(&b, s->kv_heads);
    const struct sequence q = sequence_of(step, b);
    const struct paged_reader reader = { step, work, q.pages };
    struct attn_sdpa core = s->core;
    int64_t length = q.past + q.n;
    core.q_len = q.n;
    core.kv_len = length;
    if (q.n == 0)
        return ATTNRUN_OK;
    TRY(attn_sdpa_plan(step, &core));
    if (core.scratch_bytes > step->scratch_bytes)
        return op_fail(step, ATTNRUN_E_INTERNAL, "a sequence needs unplanned memory");
    const attnrun_tensor lens = { .kind = ATTNRUN_TENSOR,
                                  .dtype = ATTNRUN_I64,
                                  .rank = 1,
                                  .dims = { 1 },
                                  .data = &length };
    const struct attn_sdpa_operands o = {
        .q = (const float *)work->shared + q.first * s->heads * s->dim,
        .promote = read_pages,
        .promote_arg = &reader,
        .lens = &lens,
        .lens_position = true,
        .sinks = op_in_data(step, SINK),
        .sink_step = 1,
        .y = (float *)step->y[Y].data + q.first * s->heads * s->v_dim,
    };
    for (int64_t i = share; i < core.n_tasks; i += s->kv_heads)
        TRY(attn_sdpa_run(&core, step->kernels, &o, i, work));
    return ATTNRUN_OK;
}

static attn_status paged_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct paged_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == COPY && task == s->chunks[0] + s->chunks[1])
            TRY(check_sequences(step));
        else if (work->phase == COPY)
            copy_chunk(step, work, task);
        else if (work->phase == FILL)
            TRY(paged_fill(step, work, task));
        else if (step->y[Y].data != NULL)
            TRY(paged_attend(step, work, task));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_paged_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "PagedAttention",
    .since = 1,
    .inputs =
        "query:T key:T? value:T? key_cache:C value_cache:C? "
        "cumulative_sequence_length:i32 past_seqlens:i32 block_table:i32 cos_cache:T? "
        "sin_cache:T? slot_mapping:i32? head_sink:T? q_norm_weight:T? "
        "k_norm_weight:T? k_scale:f32? v_scale:f32? attention_metadata:i32?",
    .outputs = "output:T key_cache_out:C? value_cache_out:C?",
    .types = "T=f32 C=f32,i8",
    .args_bytes = sizeof(struct paged_args),
    .state_bytes = sizeof(struct paged_state),
    .attrs = paged_attrs,
    .infer = paged_infer,
    .run = paged_run,
    .cost = "O(n^2 d), scratch O(tile)",
    .source = "ONNX Runtime contrib operators; arXiv:2309.06180",
};
