/* packed_qkv.c - masks, past and present of attention over packed QKV, where one product
 * makes query, key and value. packed_qkv.h has the interface.
 *
 * mask_index  i32 (batch, total) or (batch, q, total): 0 masks a key; (batch): the number
 *             of keys; (2 * batch): ends, then begins
 * past, present   (2, batch, heads, past or total, dim)
 * attention_bias  (batch or 1, heads or 1, q, total), added to the scores
 *
 * A scale of 0 means 1 / sqrt(dim). unidirectional: query i sees keys up to past + i.
 * mask_filter_value is added to the scores of masked keys, so a query whose keys are all
 * masked sees all of them. Padding before and behind what all queries of a sample may see
 * is only skipped after a look at its keys, which shows that no score of theirs can
 * count. Cost: as sdpa.h. Source: ONNX Runtime contrib operators. */
#include "packed_qkv.h"

#include <math.h>

#include "kv_cache.h"

enum {
    X = ATTN_PACKED_QKV_X,
    WEIGHTS = ATTN_PACKED_QKV_WEIGHTS,
    BIAS = ATTN_PACKED_QKV_BIAS
};
enum { Y = ATTN_PACKED_QKV_Y, PRESENT = ATTN_PACKED_QKV_PRESENT };
enum { MAX_HEADS = 1 << 16 };
enum { ATTEND, KEEP };

static attn_status packed_qkv_check_args(const attnrun_step *step,
                                         const struct attn_packed_qkv_inputs *in)
{
    const struct attn_packed_qkv_args *args = step->args;
    const attnrun_ints *sizes = &args->qkv_hidden_sizes;
    if (args->num_heads < 1 || args->num_heads > MAX_HEADS)
        return op_fail(step, ATTNRUN_E_ATTR, "num_heads is %lld, expected 1 to %d",
                       (long long)args->num_heads, MAX_HEADS);
    if (args->do_rotary != 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "do_rotary is not supported");
    if (args->past_present_share_buffer != 0 || op_has_in(step, in->past_len))
        return op_fail(
            step, ATTNRUN_E_UNSUPPORTED,
            "a shared key buffer (past_present_share_buffer) is not supported");
    if (sizes->v == NULL)
        return ATTNRUN_OK;
    if (sizes->n != 3)
        return op_fail(step, ATTNRUN_E_ATTR, "qkv_hidden_sizes has %s, expected 3",
                       attn_plural(sizes->n, "number"));
    for (int i = 0; i < 3; i++)
        if (sizes->v[i] < 1 || sizes->v[i] > ATTN_MAX_DIM ||
            sizes->v[i] % args->num_heads != 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "qkv_hidden_sizes holds %lld, expected a multiple of "
                           "num_heads, %lld, from 1 to 2^47",
                           (long long)sizes->v[i], (long long)args->num_heads);
    if (sizes->v[0] != sizes->v[1])
        return op_fail(step, ATTNRUN_E_ATTR,
                       "qkv_hidden_sizes holds %lld for the query and %lld for the key, "
                       "expected the same",
                       (long long)sizes->v[0], (long long)sizes->v[1]);
    return ATTNRUN_OK;
}

/* Finds the hidden sizes of query and key, and of value. */
static attn_status find_widths(const attnrun_step *step, attnrun_dim *hidden,
                               attnrun_dim *v_hidden)
{
    const struct attn_packed_qkv_args *args = step->args;
    const attnrun_ints *sizes = &args->qkv_hidden_sizes;
    attnrun_dim width = attnrun_dim_unknown(step);
    if (step->in[WEIGHTS].rank == 2)
        width = step->in[WEIGHTS].dims[1];
    if (sizes->v != NULL) {
        *hidden = dim_of(sizes->v[0]);
        *v_hidden = dim_of(sizes->v[2]);
        return op_need_dim(step, WEIGHTS, 1, dim_of(2 * sizes->v[0] + sizes->v[2]),
                           "the sum of qkv_hidden_sizes");
    }
    if (dim_is_const(width) && width.value % (3 * args->num_heads) != 0)
        return op_fail_input(step, WEIGHTS, ATTNRUN_E_SHAPE,
                             "expected a multiple of 3 * %s in dim 1",
                             attn_plural(args->num_heads, "head"));
    *hidden = *v_hidden = attnrun_dim_div(step, width, dim_of(3));
    return ATTNRUN_OK;
}

static attn_status packed_qkv_check_mask(const attnrun_step *step, int in,
                                         const struct attn_sdpa *c)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    const attnrun_type *mask = &step->in[in];
    TRY(op_need_rank_between(step, in, 1, 3));
    if (mask->rank > 1 || !dim_is(mask->dims[0], 2 * c->batch))
        TRY(op_need_dim(step, in, 0, dim_of(c->batch), "the batch"));
    if (mask->rank > 1)
        TRY(op_need_dim(step, in, mask->rank - 1, dim_of(c->kv_len), "all keys"));
    return mask->rank == 3 ? op_need_dim(step, in, 1, dim_of(c->q_len), "the queries")
                           : ATTNRUN_OK;
}

static attn_status plan_bias(const attnrun_step *step, int in, struct attn_sdpa *c)
{
    const int64_t matrix = c->q_len * c->kv_len;
    c->mask_len = c->kv_len;
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    const attnrun_dim *dims = step->in[in].dims;
    TRY(op_need_rank(step, in, 4));
    TRY(op_need_dim(step, in, 2, dim_of(c->q_len), "the queries"));
    TRY(op_need_dim(step, in, 3, dim_of(c->kv_len), "all keys"));
    if (!dim_is(dims[0], 1))
        TRY(op_need_dim(step, in, 0, dim_of(c->batch), "the batch"));
    if (!dim_is(dims[1], 1))
        TRY(op_need_dim(step, in, 1, dim_of(c->q_heads), "num_heads"));
    c->mask_kind = ATTN_MASK_ADD;
    c->mask = (struct attn_heads){ dim_is(dims[0], 1) ? 0 : matrix * dims[1].value,
                                   dim_is(dims[1], 1) ? 0 : matrix, c->kv_len };
    return ATTNRUN_OK;
}

static attn_status plan_past(const attnrun_step *step, struct attn_sdpa *c, int in)
{
    int64_t past = 0;
    if (op_has_in(step, in)) {
        const int64_t want[5] = { 2, c->batch, c->q_heads, -1, c->head_dim };
        TRY(op_need_rank(step, in, 5));
        for (int i = 0; i < 5; i++)
            if (i != 3)
                TRY(op_need_dim(step, in, i, dim_of(want[i]),
                                "(2, batch, num_heads, past, dim)"));
        past = step->in[in].dims[3].value;
    }
    if ((op_has_in(step, in) || op_has_out(step, PRESENT)) && c->head_dim != c->v_dim)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the dim of a head is %lld for keys and %lld for values, expected "
                       "the same with past or present",
                       (long long)c->head_dim, (long long)c->v_dim);
    TRY(attn_sdpa_fits(step, c->batch, c->q_heads, c->q_len, c->q_len + past,
                       2 * c->head_dim + c->v_dim));
    c->past_len = past;
    c->kv_len = past + c->q_len;
    c->past_k = c->past_v = (struct attn_heads){ c->q_heads * past * c->head_dim,
                                                 past * c->head_dim, c->head_dim };
    return ATTNRUN_OK;
}

static attn_status plan_packed_qkv(attnrun_step *step,
                                   const struct attn_packed_qkv_inputs *in,
                                   int64_t hidden, int64_t v_hidden)
{
    const struct attn_packed_qkv_args *args = step->args;
    struct attn_packed_qkv *m = step->state;
    struct attn_sdpa *c = &m->core;
    const int64_t heads = args->num_heads, tokens = step->in[X].dims[1].value;
    m->in = *in;
    *c = (struct attn_sdpa){ .batch = step->in[X].dims[0].value,
                             .q_heads = heads,
                             .kv_heads = heads,
                             .q_len = tokens,
                             .head_dim = hidden / heads,
                             .v_dim = v_hidden / heads,
                             .causal = args->unidirectional != 0,
                             .left = -1,
                             .right = -1,
                             .scale = args->scale };
    if (args->scale == 0.0f && c->head_dim > 0)
        c->scale = (float)(1.0 / sqrt((double)c->head_dim));
    TRY(plan_past(step, c, in->past));
    m->width = 2 * hidden + v_hidden;
    c->q = c->k = (struct attn_heads){ tokens * m->width, c->head_dim, m->width };
    c->v = (struct attn_heads){ tokens * m->width, c->v_dim, m->width };
    c->y = (struct attn_heads){ tokens * v_hidden, c->v_dim, v_hidden };
    TRY(plan_bias(step, in->score_bias, c));
    TRY(packed_qkv_check_mask(step, in->mask, c));
    m->floats = c->batch * tokens * m->width;
    attn_gemm_describe(&m->gemm, c->batch * tokens, m->width, step->in[X].dims[2].value,
                       false, false);
    return attn_sdpa_plan(step, c);
}

void attn_packed_qkv_tasks(attnrun_step *step, int phase)
{
    struct attn_packed_qkv *m = step->state;
    const struct attn_sdpa *c = &m->core;
    const bool keeps = op_has_out(step, PRESENT) && c->head_dim > 0;
    m->phase = phase;
    op_tasks(step, phase + ATTEND, op_has_out(step, Y) ? c->n_tasks : 0, c->task_cost);
    op_tasks(step, phase + KEEP, keeps ? 2 * c->batch * c->q_heads : 0,
             c->kv_len * c->head_dim / 4);
    step->shared_bytes = m->floats * (int64_t)sizeof(float);
    step->scratch_bytes = m->gemm.scratch_bytes > c->scratch_bytes ? m->gemm.scratch_bytes
                                                                   : c->scratch_bytes;
}

attn_status attn_packed_qkv_infer(attnrun_step *step,
                                  const struct attn_packed_qkv_inputs *in)
{
    const struct attn_packed_qkv_args *args = step->args;
    attnrun_dim hidden, v_hidden, total;
    TRY(packed_qkv_check_args(step, in));
    TRY(op_need_rank(step, X, 3));
    TRY(op_need_rank(step, WEIGHTS, 2));
    if (!op_rank_known(step, X)) {
        TRY(op_out(step, Y, ATTNRUN_F32, -1, NULL));
        return op_out(step, PRESENT, ATTNRUN_F32, -1, NULL);
    }
    const attnrun_dim *x = step->in[X].dims;
    TRY(op_need_dim(step, WEIGHTS, 0, x[2], "the width of the input"));
    TRY(find_widths(step, &hidden, &v_hidden));
    if (op_has_in(step, BIAS)) {
        TRY(op_need_rank(step, BIAS, 1));
        if (step->in[WEIGHTS].rank == 2)
            TRY(op_need_dim(step, BIAS, 0, step->in[WEIGHTS].dims[1],
                            "the columns of weights"));
    }
    total = x[1];
    if (op_has_in(step, in->past))
        total = step->in[in->past].rank == 5
                    ? attnrun_dim_add(step, total, step->in[in->past].dims[3])
                    : attnrun_dim_unknown(step);
    attnrun_dim y[3] = { x[0], x[1], v_hidden };
    attnrun_dim present[5] = { dim_of(2), x[0], dim_of(args->num_heads), total,
                               attnrun_dim_div(step, hidden, dim_of(args->num_heads)) };
    TRY(op_out(step, Y, ATTNRUN_F32, 3, y));
    TRY(op_out(step, PRESENT, ATTNRUN_F32, 5, present));
    return step->concrete ? plan_packed_qkv(step, in, hidden.value, v_hidden.value)
                          : ATTNRUN_OK;
}

static const float *past_of(const attnrun_step *step, bool value)
{
    const struct attn_packed_qkv *m = step->state;
    const struct attn_sdpa *c = &m->core;
    if (!op_has_in(step, m->in.past))
        return NULL;
    return (const float *)step->x[m->in.past].data +
           (value ? c->batch * c->past_k.batch : 0);
}

/* Copies keys (first half of the tasks) or values of a head: the past, then the new
 * ones. */
static void keep_head(const attnrun_step *step, int64_t task, const float *projected)
{
    const struct attn_packed_qkv *m = step->state;
    const struct attn_sdpa *c = &m->core;
    const int64_t heads = c->batch * c->q_heads, past = c->past_len * c->head_dim;
    const bool value = task >= heads;
    const int64_t head = task % heads;
    if (step->y[PRESENT].data == NULL)
        return;
    float *to = (float *)step->y[PRESENT].data + task * c->kv_len * c->head_dim;
    const struct op_task at = op_task_at(head, c->q_heads, 1);
    const float *from = projected + at.b * c->k.batch + at.head * c->head_dim +
                        (value ? 2 : 1) * c->q_heads * c->head_dim;
    const int64_t size = (int64_t)sizeof *to, row = c->head_dim * size;
    if (past > 0)
        attn_cache_copy(to, past_of(step, value) + head * past, row, c->past_len, row);
    attn_cache_copy(to + past, from, m->width * size, c->q_len, row);
}

/* Sets where mask_index adds mask_filter_value. */
static void give_mask(const attnrun_step *step, struct attn_sdpa_operands *o)
{
    const struct attn_packed_qkv_args *args = step->args;
    const struct attn_packed_qkv *m = step->state;
    const struct attn_sdpa *c = &m->core;
    if (!op_has_in(step, m->in.mask))
        return;
    const attnrun_tensor *mask = &step->x[m->in.mask];
    o->masked = args->mask_filter_value;
    if (mask->rank == 1) {
        o->key_ends = mask->data;
        o->key_begins = mask->dims[0] == c->batch ? NULL : o->key_ends + c->batch;
        return;
    }
    o->key_keep = mask->data;
    o->keep_row = mask->rank == 3 ? c->kv_len : 0;
    o->keep_batch = mask->rank == 3 ? c->q_len * c->kv_len : c->kv_len;
}

attn_status attn_packed_qkv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_packed_qkv *m = step->state;
    const int64_t hidden = m->core.q_heads * m->core.head_dim;
    const int phase = work->phase - m->phase;
    float *shared = work->shared;
    struct attn_sdpa_operands o = {
        .q = shared,
        .k = shared + hidden,
        .v = shared + 2 * hidden,
        .past_k = past_of(step, false),
        .past_v = past_of(step, true),
        .mask = op_in_data(step, m->in.score_bias),
        .y = step->y[Y].data,
    };
    give_mask(step, &o);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (phase == ATTEND)
            TRY(attn_sdpa_run(&m->core, step->kernels, &o, task, work));
        else
            keep_head(step, task, shared);
    }
    return ATTNRUN_OK;
}
