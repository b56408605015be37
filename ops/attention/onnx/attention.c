/* attention.c - Attention: Y = softmax(scale Q K' + bias) V, by the streaming core (cost: sdpa.h).
 *
 * Q, K, V    f32 or f64 (batch, heads, tokens, dim), or (batch, tokens, heads * dim) with
 *            q_num_heads and kv_num_heads; groups of query heads may share a key head
 * attn_mask  b8 (true: seen), or floats or integers that are added, broadcast to (batch, heads, q,
 *            total); a shorter last dim masks the rest, but before version 24 one key is broadcast
 * past_key, past_value  (batch, kv_heads, past, dim); present_key and _value: past and new tokens
 * nonpad_kv_seqlen      i64 (batch): the number of keys of each sample
 *
 * Causal (and the windows of version 25): query i is at position past + i, or nonpad - q_len + i.
 * A query without any key gives zeros. softmax_precision is at least f32. Doubles go through
 * doubles.c. Source: ONNX Attention-25. */
#include <math.h>

#include "../core/kv_cache.h"
#include "../core/doubles.h"
#include "../core/heads.h"
#include "../core/masked.h"
#include "../../tile.h"

struct attention_args {
    int64_t is_causal, kv_num_heads, q_num_heads, qk_matmul_output_mode;
    int64_t left_window_size, right_window_size, nan_rows, softmax_precision;
    float scale, softcap;
    /* FusedAttention only; v NULL: by rank. See fused_attention_attrs. */
    attnrun_ints layouts, columns;
    attnrun_ints code, mask, axes; /* of its mask program */
    int64_t windows, key_columns;
};
static const attnrun_attr_def attention_attrs[] = {
    ATTR_FLAG(struct attention_args, is_causal, 0),
    ATTR_INT(struct attention_args, kv_num_heads, 0),
    ATTR_INT(struct attention_args, q_num_heads, 0),
    ATTR_CHOICE(struct attention_args, qk_matmul_output_mode, "0..3", 0),
    ATTR_INT(struct attention_args, left_window_size, -1),
    ATTR_INT(struct attention_args, right_window_size, -1),
    ATTR_FLOAT(struct attention_args, scale, ATTN_SCALE_ABSENT),
    ATTR_FLOAT(struct attention_args, softcap, 0.0f),
    ATTR_CHOICE(struct attention_args, softmax_precision, "0 " OP_REAL_DTYPES, 0),
    ATTR_END,
};

enum { Q, K, V, MASK, PAST_K, PAST_V, LENS };
enum { LEAVES = LENS + 1 }; /* of FusedAttention: of the mask program */
enum { Y, PRESENT_K, PRESENT_V, SCORES };
enum { ATTEND, SUM, KEEP }; /* phases */

/* Layouts of Q, K, V and Y: (batch, heads, tokens, dim), of rank 3 (batch, tokens,
 * columns); (batch, tokens, heads, dim); of rank 3 (tokens, batch, columns), Y (tokens,
 * batch, heads, dim); Y (batch, tokens, heads * dim). */
enum { AS_GIVEN, BY_TOKEN, TOKENS_FIRST, JOINED, LAYOUTS };
/* `columns`: where Q, K and V begin in their last dim of rank 3, dims of a head. */
enum { HEAD_DIM = 3, V_DIM, COLUMNS };

static int64_t layout_of(const struct attention_args *args, int operand)
{
    return args->layouts.v != NULL ? args->layouts.v[operand] : AS_GIVEN;
}

struct attention_state {
    struct attn_sdpa core;     /* keys and values as if they were dense */
    struct attn_masked masked; /* instead of it, with a mask program */
    int32_t in_place[2];       /* the past is in present_key, present_value already */
};

/* The logical dims of an operand. */
struct qkv_dims {
    attnrun_dim batch, heads, tokens, dim;
};

/* Takes some columns of a wider operand of rank 3. */
static attn_status take_columns(const attnrun_step *step, int in, int64_t heads,
                                struct qkv_dims *o)
{
    const struct attention_args *args = step->args;
    const attnrun_type *t = &step->in[in];
    const int64_t dim = args->columns.v[in == V ? V_DIM : HEAD_DIM];
    int64_t width;
    if (!ck_mul(dim, heads, &width) || !ck_add(width, args->columns.v[in], &width) ||
        (dim_is_const(t->dims[2]) && t->dims[2].value < width))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected %s of %s in dim 2, from %lld on",
                             attn_plural(heads, "head"), attn_plural(dim, "column"),
                             (long long)args->columns.v[in]);
    o->dim = dim_of(dim);
    return ATTNRUN_OK;
}

static attn_status split_operand(const attnrun_step *step, int in, int64_t heads,
                                 struct qkv_dims *o)
{
    const struct attention_args *args = step->args;
    const attnrun_type *t = &step->in[in];
    const int64_t layout = layout_of(args, in);
    TRY(op_need_rank_between(step, in, 3, 4));
    o->batch = t->dims[layout == TOKENS_FIRST];
    if (t->rank == 4) {
        o->heads = t->dims[layout == BY_TOKEN ? 2 : 1];
        o->tokens = t->dims[layout == BY_TOKEN ? 1 : 2];
        o->dim = t->dims[3];
        return layout == TOKENS_FIRST ? op_need_rank(step, in, 3) : ATTNRUN_OK;
    }
    if (heads < 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "%s is %lld, expected at least 1 with inputs of rank 3",
                       in == Q ? "q_num_heads" : "kv_num_heads", (long long)heads);
    o->heads = dim_of(heads);
    o->tokens = t->dims[layout != TOKENS_FIRST];
    if (args->columns.v != NULL)
        return take_columns(step, in, heads, o);
    if (dim_is_const(t->dims[2]) && t->dims[2].value % heads != 0)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "dim 2 is not a multiple of %s",
                             attn_plural(heads, "head"));
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

/* Checks past_key or past_value against the new `o`; adds its length to *total. */
static attn_status add_past(const attnrun_step *step, int in, const struct qkv_dims *o,
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

static attn_status qkv_check_operands(const attnrun_step *step, const struct qkv_dims *q,
                                      const struct qkv_dims *k, const struct qkv_dims *v,
                                      attnrun_dim total_k, attnrun_dim total_v)
{
    if (op_has_in(step, PAST_K) != op_has_in(step, PAST_V))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "past_key and past_value go together; only %s is given",
                       op_has_in(step, PAST_K) ? "past_key" : "past_value");
    TRY(agree(step, K, k->batch, q->batch, "batch"));
    TRY(agree(step, V, v->batch, q->batch, "batch"));
    TRY(agree(step, V, v->heads, k->heads, "number of heads"));
    TRY(agree(step, K, k->dim, q->dim, "head dim"));
    TRY(agree(step, V, v->tokens, k->tokens, "number of keys"));
    TRY(agree(step, V, total_v, total_k, "number of keys with the past"));
    if (dim_is_const(q->heads) && dim_is_const(k->heads) &&
        (k->heads.value < 1 ? q->heads.value != 0 : q->heads.value % k->heads.value != 0))
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "its head count, %lld, is not a multiple of that of K, %lld",
                             (long long)q->heads.value, (long long)k->heads.value);
    if (op_has_in(step, LENS)) {
        TRY(op_need_vector(step, LENS, q->batch, "the batch"));
        if (op_has_in(step, PAST_K))
            return op_fail_input(step, LENS, ATTNRUN_E_INPUT,
                                 "expected none together with past_key");
    }
    return ATTNRUN_OK;
}

static int64_t y_layout(const attnrun_step *step)
{
    const struct attention_args *args = step->args;
    if (args->layouts.v != NULL)
        return args->layouts.v[3];
    return step->in[Q].rank == 3 ? JOINED : AS_GIVEN;
}

static attn_status outputs(attnrun_step *step, const struct qkv_dims *q,
                           const struct qkv_dims *k, const struct qkv_dims *v,
                           attnrun_dim total)
{
    const int64_t layout = y_layout(step);
    attnrun_dim y[4] = { q->batch, q->heads, q->tokens, v->dim };
    if (layout == JOINED) {
        y[1] = q->tokens;
        y[2] = attnrun_dim_mul(step, q->heads, v->dim);
    } else if (layout != AS_GIVEN) {
        y[layout == TOKENS_FIRST] = q->batch;
        y[layout != TOKENS_FIRST] = q->tokens;
        y[2] = q->heads;
    }
    attnrun_dim key[4] = { q->batch, k->heads, total, k->dim };
    attnrun_dim value[4] = { q->batch, v->heads, total, v->dim };
    attnrun_dim scores[4] = { q->batch, q->heads, q->tokens, total };
    TRY(op_out(step, Y, step->in[Q].dtype, layout == JOINED ? 3 : 4, y));
    TRY(op_out(step, PRESENT_K, step->in[K].dtype, 4, key));
    TRY(op_out(step, PRESENT_V, step->in[V].dtype, 4, value));
    return op_out(step, SCORES, step->in[Q].dtype, 4, scores);
}

/* The strides of dense (batch, heads, tokens, dim). */
static struct attn_heads by_head(int64_t heads, int64_t tokens, int64_t dim)
{
    return (struct attn_heads){ heads * tokens * dim, tokens * dim, dim };
}

/* The strides of an operand; dim: the dim of a head. */
static struct attn_heads strides_of(const attnrun_step *step, int in, int64_t dim)
{
    const attnrun_dim *d = step->in[in].dims;
    const int64_t layout = layout_of(step->args, in);
    if (step->in[in].rank == 4 && layout == AS_GIVEN)
        return by_head(d[1].value, d[2].value, dim);
    if (step->in[in].rank == 4)
        return (struct attn_heads){ d[1].value * d[2].value * dim, dim,
                                    d[2].value * dim };
    if (layout == TOKENS_FIRST)
        return (struct attn_heads){ d[2].value, dim, d[1].value * d[2].value };
    return (struct attn_heads){ d[1].value * d[2].value, dim, d[2].value };
}

static struct attn_heads y_strides(const attnrun_step *step, const struct attn_sdpa *s)
{
    const int64_t width = s->q_heads * s->v_dim;
    switch (y_layout(step)) {
    case AS_GIVEN:
        return by_head(s->q_heads, s->q_len, s->v_dim);
    case TOKENS_FIRST:
        return (struct attn_heads){ width, s->v_dim, s->batch * width };
    default:
        return (struct attn_heads){ s->q_len * width, s->v_dim, width };
    }
}

/* Plans FusedAttention with a mask program. */
static attn_status plan_masked(attnrun_step *step, const struct attn_sdpa *s,
                               struct attn_masked *m)
{
    const struct attention_args *args = step->args;
    int64_t sizes[MASK_AXES];
    TRY(attn_masked_sizes(step, s, args->windows, sizes));
    bool others = s->causal || s->left >= 0 || s->right >= 0;
    for (int in = MASK; in <= LENS; in++)
        others = others || op_has_in(step, in);
    if (others)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "a mask program (code, mask, axes) excludes attn_mask, past_key, "
                       "nonpad_kv_seqlen, is_causal and windows");
    *m = (struct attn_masked){ .s = *s, .windows = args->windows };
    TRY(attn_mask_plan(step, LEAVES, args->code, args->mask, args->axes, sizes,
                       &m->program));
    return attn_masked_plan(step, m);
}

/* Before version 24 a mask of one key is broadcast to all keys; since then it hides the others. */
static void broadcast_mask(const attnrun_step *step, struct attn_sdpa *s)
{
    const attnrun_node *node = step->node;
    if (s->mask_kind == ATTN_MASK_NONE || s->mask_len != 1 || node->op->domain[0] != 0 ||
        node->opset >= 24)
        return;
    s->mask_one = true;
    s->mask_len = s->kv_len;
}

static attn_status plan_core(attnrun_step *step, int64_t total, const struct qkv_dims *q,
                             const struct qkv_dims *k, const struct qkv_dims *v)
{
    const struct attention_args *args = step->args;
    struct attention_state *state = step->state;
    struct attn_sdpa *s = &state->core;
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
                             .nan_rows = args->nan_rows > 0,
                             .zero_nan = args->nan_rows < 0,
                             .left = args->left_window_size,
                             .right = args->right_window_size,
                             .scores_mode = (int32_t)args->qk_matmul_output_mode };
    s->scale = args->scale;
    if (!attn_scale_given(args->scale))
        s->scale = (float)(1.0 / sqrt((double)s->head_dim));
    s->q = strides_of(step, Q, s->head_dim);
    s->k = strides_of(step, K, s->head_dim);
    s->v = strides_of(step, V, s->v_dim);
    s->past_k = by_head(s->kv_heads, s->past_len, s->head_dim);
    s->past_v = by_head(s->kv_heads, s->past_len, s->v_dim);
    s->y = y_strides(step, s);
    if (args->mask.v != NULL)
        return plan_masked(step, s, &state->masked);
    TRY(args->key_columns != 0
            ? attn_sdpa_plan_map(step, MASK, LEAVES, args->key_columns, s)
            : attn_sdpa_plan_mask(step, MASK, s));
    broadcast_mask(step, s);
    if (!op_has_out(step, Y) && op_has_out(step, SCORES))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output qk_matmul_output needs output Y");
    TRY(step->in[Q].dtype == ATTNRUN_F64
            ? attn_doubles_plan(step, s, ATTEND, op_has_out(step, Y))
            : attn_sdpa_phases(step, s, ATTEND, op_has_out(step, Y)));
    if (op_has_out(step, PRESENT_K) || op_has_out(step, PRESENT_V)) {
        int64_t copied =
            state->in_place[0] && state->in_place[1] ? k->tokens.value : total;
        op_tasks(step, KEEP, s->batch * s->kv_heads,
                 copied * (s->head_dim + s->v_dim) / 4);
    }
    return ATTNRUN_OK;
}

static attn_status attention_check_args(const attnrun_step *step)
{
    const struct attention_args *args = step->args;
    if (args->left_window_size < -1 || args->right_window_size < -1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "left_window_size is %lld and right_window_size %lld, expected -1 "
                       "(no bound) or more",
                       (long long)args->left_window_size,
                       (long long)args->right_window_size);
    if (step->n_in > LEAVES + MASK_MAX_LEAVES)
        return op_fail(step, ATTNRUN_E_INPUT, "it has %s, expected at most %d",
                       attn_plural(step->n_in, "input"), LEAVES + MASK_MAX_LEAVES);
    if (args->layouts.v != NULL)
        TRY(attn_need_ints(step, "layouts", args->layouts, 4, LAYOUTS - 1));
    for (int in = Q; in <= V; in++)
        if (layout_of(args, in) == JOINED)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "layouts holds %d at %d, which is only for Y", JOINED, in);
    return args->columns.v == NULL
               ? ATTNRUN_OK
               : attn_need_ints(step, "columns", args->columns, COLUMNS, ATTN_MAX_DIM);
}

/* Checks that Q, K, V have one type; only doubles take a mask of doubles. */
static attn_status check_types(const attnrun_step *step)
{
    const int32_t q = step->in[Q].dtype;
    if (q == 0 || step->in[V].dtype == 0)
        return ATTNRUN_OK;
    if (step->in[V].dtype != q)
        return op_fail_input(step, V, ATTNRUN_E_UNSUPPORTED, "expected %s as Q is",
                             attnrun_dtype_name(q));
    if (op_has_in(step, MASK) && step->in[MASK].dtype == ATTNRUN_F64 && q != ATTNRUN_F64)
        return op_fail_input(step, MASK, ATTNRUN_E_UNSUPPORTED, "expected f32 as Q is");
    return ATTNRUN_OK;
}

/* All have rank 3, or all rank 4, where head attributes only repeat dim 1. */
static attn_status check_ranks(const attnrun_step *step)
{
    const struct attention_args *args = step->args;
    const int64_t heads[3] = { args->q_num_heads, args->kv_num_heads,
                               args->kv_num_heads };
    for (int in = Q; in <= V && args->layouts.v == NULL; in++) {
        TRY(op_need_rank(step, in, step->in[Q].rank));
        if (step->in[in].rank == 4 && heads[in] > 0)
            TRY(op_need_dim(step, in, 1, dim_of(heads[in]), "the number of heads"));
    }
    return ATTNRUN_OK;
}

static attn_status attention_infer(attnrun_step *step)
{
    const struct attention_args *args = step->args;
    struct qkv_dims q, k, v;
    attnrun_dim total_k, total_v;
    TRY(attention_check_args(step));
    TRY(check_types(step));
    if (!op_rank_known(step, Q) || !op_rank_known(step, K) || !op_rank_known(step, V)) {
        for (int out = 0; out < step->n_out; out++)
            TRY(op_out(step, out, step->in[out == PRESENT_V ? V : Q].dtype, -1, NULL));
        return ATTNRUN_OK;
    }
    TRY(check_ranks(step));
    TRY(split_operand(step, Q, args->q_num_heads, &q));
    TRY(split_operand(step, K, args->kv_num_heads, &k));
    TRY(split_operand(step, V, args->kv_num_heads, &v));
    TRY(add_past(step, PAST_K, &k, &total_k));
    TRY(add_past(step, PAST_V, &v, &total_v));
    TRY(qkv_check_operands(step, &q, &k, &v, total_k, total_v));
    TRY(outputs(step, &q, &k, &v, total_k));
    struct attention_state *state = step->state;
    for (int i = 0; i < 2 && op_has_in(step, PAST_K + i); i++)
        state->in_place[i] = attnrun_step_append(step, PRESENT_K + i, PAST_K + i, 2);
    return step->concrete ? plan_core(step, total_k.value, &q, &k, &v) : ATTNRUN_OK;
}

/* present = past, then the new tokens, for one head of one sample. */
static void copy_present(const attnrun_step *step, const struct attn_sdpa *s, int out,
                         int past, int in, int64_t task)
{
    const struct attention_state *state = step->state;
    if (!op_has_out(step, out) || step->y[out].data == NULL)
        return;
    const bool key = out == PRESENT_K;
    int64_t b = task, h = op_take(&b, s->kv_heads);
    const int64_t dim = key ? s->head_dim : s->v_dim;
    const struct attn_heads *at = key ? &s->k : &s->v;
    const int64_t size = dtype_bytes(step->x[in].dtype);
    const char *from =
        (const char *)step->x[in].data + (b * at->batch + h * at->head) * size;
    if (!state->in_place[out - PRESENT_K])
        attn_cache_copy_past(&step->y[out], &step->x[past], task, s->past_len);
    attn_cache_copy(cache_at(&step->y[out], b, h, s->past_len), from, at->row * size,
                    s->kv_len - s->past_len, dim * size);
}

/* Strides of keys or values in this run, which may be in a larger buffer. */
static struct attn_heads run_strides(const attnrun_step *step, int in, int64_t dim)
{
    const int64_t layout = in <= V ? layout_of(step->args, in) : AS_GIVEN;
    const int64_t *strides = step->x[in].strides, size = dtype_bytes(step->x[in].dtype);
    if (step->x[in].rank == 4)
        return (struct attn_heads){ strides[0] / size,
                                    strides[layout == BY_TOKEN ? 2 : 1] / size,
                                    strides[layout == BY_TOKEN ? 1 : 2] / size };
    return (struct attn_heads){ strides[layout == TOKENS_FIRST] / size, dim,
                                strides[layout != TOKENS_FIRST] / size };
}

static struct attn_sdpa with_strides(const attnrun_step *step)
{
    const struct attention_state *state = step->state;
    struct attn_sdpa s = state->core;
    s.k = run_strides(step, K, s.head_dim);
    s.v = run_strides(step, V, s.v_dim);
    if (op_has_in(step, PAST_K)) {
        s.past_k = run_strides(step, PAST_K, s.head_dim);
        s.past_v = run_strides(step, PAST_V, s.v_dim);
    }
    return s;
}

static const float *operand_data(const attnrun_step *step, int in)
{
    const struct attention_args *args = step->args;
    const bool part = args->columns.v != NULL && step->in[in].rank == 3;
    return (const float *)step->x[in].data + (part ? args->columns.v[in] : 0);
}

static attn_status run_doubles(const attnrun_step *step, const struct attn_sdpa *s,
                               int64_t task, const attnrun_work *work)
{
    const struct attention_args *args = step->args;
    const struct attn_doubles o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .past_k = op_in_data(step, PAST_K),
        .past_v = op_in_data(step, PAST_V),
        .mask = op_has_in(step, MASK) ? &step->x[MASK] : NULL,
        .lens = op_has_in(step, LENS) ? &step->x[LENS] : NULL,
        .scale = attn_scale_given(args->scale)
                     ? (double)args->scale
                     : 1.0 / sqrt((double)max64(s->head_dim, 1)),
        .y = step->y[Y].data,
        .scores = op_has_out(step, SCORES) ? step->y[SCORES].data : NULL,
    };
    return attn_doubles_run(s, step->kernels, &o, task, work);
}

/* Checks nonpad_kv_seqlen of the sample of a task. */
static attn_status check_length(const attnrun_step *step, const struct attn_sdpa *s,
                                int64_t task)
{
    if (!op_has_in(step, LENS))
        return ATTNRUN_OK;
    const int64_t b = op_task_at(task / s->parts, s->heads, s->blocks).b;
    const int64_t length = tensor_get_int(&step->x[LENS], b);
    if (length >= 0 && length <= s->kv_len)
        return ATTNRUN_OK;
    return op_fail_input(step, LENS, ATTNRUN_E_RANGE,
                         "sample %lld has length %lld, expected 0 to %lld", (long long)b,
                         (long long)length, (long long)s->kv_len);
}

static attn_status run_masked(const attnrun_step *step, const struct attn_sdpa *s,
                              const attnrun_work *work)
{
    struct attn_masked m = ((const struct attention_state *)step->state)->masked;
    const struct attn_masked_operands o = { .q = operand_data(step, Q),
                                            .k = operand_data(step, K),
                                            .v = operand_data(step, V),
                                            .y = step->y[Y].data,
                                            .leaves = step->x + LEAVES };
    m.s = *s;
    attn_masked_split_batch(&m);
    return attn_masked_run(step, &m, &o, work);
}

static attn_status attention_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attention_args *args = step->args;
    const struct attn_sdpa s = with_strides(step);
    if (args->mask.v != NULL)
        return run_masked(step, &s, work);
    const bool doubles = step->x[Q].dtype == ATTNRUN_F64;
    const struct attn_sdpa_operands o = {
        .q = operand_data(step, Q),
        .k = operand_data(step, K),
        .v = operand_data(step, V),
        .past_k = op_in_data(step, PAST_K),
        .past_v = op_in_data(step, PAST_V),
        .mask = op_in_data(step, args->key_columns != 0 ? LEAVES : MASK),
        .columns = args->key_columns != 0 ? step->x[LEAVES + 1].data : NULL,
        .ints = op_has_in(step, MASK) ? &step->x[MASK] : NULL,
        .lens = op_has_in(step, LENS) ? &step->x[LENS] : NULL,
        .lens_position = true,
        .y = step->y[Y].data,
        .scores = op_has_out(step, SCORES) ? step->y[SCORES].data : NULL,
    };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase <= SUM) {
            TRY(work->phase == ATTEND ? check_length(step, &s, task) : ATTNRUN_OK);
            TRY(doubles ? run_doubles(step, &s, task, work)
                        : attn_sdpa_run(&s, step->kernels, &o, task, work));
            continue;
        }
        copy_present(step, &s, PRESENT_K, PAST_K, K, task);
        copy_present(step, &s, PRESENT_V, PAST_V, V, task);
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
    .types = "T1=f32,f64 T2=f32,f64 U=f32,f64,b8,int,uint",
    .args_bytes = sizeof(struct attention_args),
    .state_bytes = sizeof(struct attention_state),
    .attrs = attention_attrs,
    .infer = attention_infer,
    .run = attention_run,
    .strided_in = 1 << K | 1 << V | 1 << PAST_K | 1 << PAST_V,
    .cost = "O(n^2 d), scratch O(tile)",
    .source = "Vaswani 2017, arXiv:1706.03762",
};

/* What rewrite passes make of decomposed attention: `scale` as it is; nan_rows: a query that sees
 * no key gives NaN (1) or zeros (0; -1: so does one whose weights are NaN); operands where they
 * lie. layouts: of Q, K, V, Y, see the enum above. columns: for operands of rank 3, the first
 * column of Q, K and V, and the dims of a head of Q and of V. code, mask, axes: in place of
 * attn_mask a program over leaves, see mask_program.h; windows: see masked.h. key_columns, not 0:
 * keys are a map of so many columns, and two leaves are added, see attn_sdpa_plan_map(). */
static const attnrun_attr_def fused_attention_attrs[] = {
    ATTR_FLAG(struct attention_args, is_causal, 0),
    ATTR_INT(struct attention_args, kv_num_heads, 0),
    ATTR_INT(struct attention_args, q_num_heads, 0),
    ATTR_INT(struct attention_args, left_window_size, -1),
    ATTR_INT(struct attention_args, right_window_size, -1),
    ATTR_INT(struct attention_args, nan_rows, 0),
    ATTR_FLOAT(struct attention_args, scale, 1.0f),
    ATTR_FLOAT(struct attention_args, softcap, 0.0f),
    ATTR_INTS(struct attention_args, layouts),
    ATTR_INTS(struct attention_args, columns),
    ATTR_INT(struct attention_args, windows, 1),
    ATTR_INTS(struct attention_args, code),
    ATTR_INTS(struct attention_args, mask),
    ATTR_INTS(struct attention_args, axes),
    ATTR_INT(struct attention_args, key_columns, 0),
    ATTR_END,
};

const attnrun_op_def op_fused_attention_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T attn_mask:U? past_key:T? past_value:T? nonpad_kv_seqlen:i64? "
              "leaf:L*!",
    .outputs = "Y:T",
    .types = "T=f32 U=f32,f16,bf16,b8 L=f32,b8,i32,i64",
    .storage_in = 1 << MASK,
    .args_bytes = sizeof(struct attention_args),
    .state_bytes = sizeof(struct attention_state),
    .attrs = fused_attention_attrs,
    .infer = attention_infer,
    .run = attention_run,
    .strided_in = 1 << K | 1 << V,
    .cost = "O(n^2 d), scratch O(tile)",
};
