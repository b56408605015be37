/* flex_attention.c - FlexAttention: Y = prob_mod(softmax(score_mod(scale Q K'))) V, where
 * the two modifiers are subgraphs.
 *
 * Q, K, V           f32 or f64 (batch, heads, tokens, dim); groups of query heads may
 *                   share a key head
 * score_mod,        take and give (batch, heads, q_len, kv_len) of softmax_precision
 * prob_mod          (f32 by default, f64 where Q is)
 * scale             1 / sqrt(dim) by default
 * Y                 as Q, with the dim of V
 *
 * A modifier may look at all heads and positions, so with one all scores exist in shared
 * memory. Without a modifier only a block of rows of them exists. The phases are: the
 * scores (and the softmax, where no modifier comes before it); the modifiers; the values.
 * A row of only -inf gives NaN.
 * Cost: 2 q_len kv_len (dim + v_dim) FLOPs for each query head, and the modifiers.
 * Memory: batch heads q_len kv_len scores with a modifier. Source: ONNX ai.onnx.preview
 * FlexAttention-1. */
#include <math.h>

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"
#include "../../storage.h"
#include "../../tile.h"

struct flex_args {
    int32_t score_mod, prob_mod;
    int64_t softmax_precision;
    float scale;
};
static const attnrun_attr_def flex_attrs[] = {
    ATTR_GRAPH(struct flex_args, score_mod),
    ATTR_GRAPH(struct flex_args, prob_mod),
    ATTR_CHOICE(struct flex_args, softmax_precision, OP_REAL_DTYPES, OP_INT_ABSENT),
    ATTR_FLOAT(struct flex_args, scale, NAN), /* NaN: absent */
    ATTR_END,
};

enum { Q, K, V };
enum { ROWS = 64, ALIGN = 64 };
/* Enough for any head size and number of keys. */
#define GEMM_FLOATS attn_gemm_scratch(ROWS, SIZE_MAX, SIZE_MAX)

struct flex_state {
    int64_t dims[4]; /* of the scores */
    int64_t kv_heads, dim, v_dim, count;
    int64_t blocks;         /* of ROWS rows, per head */
    int64_t convert_offset; /* in shared memory: the scores in the graphs' dtype */
    double scale;
    int32_t dtype, graph_dtype; /* of the scores here (f32, f64), and in the graphs */
};

static bool modified(const struct flex_args *args)
{
    return args->score_mod >= 0 || args->prob_mod >= 0;
}

static attn_status choose_dtypes(const attnrun_step *step, struct flex_state *state)
{
    const struct flex_args *args = step->args;
    state->dtype = step->in[Q].dtype;
    if (attn_stored_narrow(state->dtype)) /* it is promoted later */
        state->dtype = ATTNRUN_F32;
    state->graph_dtype = state->dtype;
    if (args->softmax_precision == OP_INT_ABSENT)
        return ATTNRUN_OK;
    bool half =
        args->softmax_precision == ATTNRUN_F16 || args->softmax_precision == ATTNRUN_BF16;
    if (half && state->dtype == ATTNRUN_F64)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "softmax_precision %lld with f64 inputs is not supported",
                       (long long)args->softmax_precision);
    state->graph_dtype = (int32_t)args->softmax_precision;
    if (state->graph_dtype == ATTNRUN_F64)
        state->dtype = ATTNRUN_F64;
    return ATTNRUN_OK;
}

/* Checks K and V against Q, and each other; all ranks are known. */
static attn_status flex_check_operands(const attnrun_step *step)
{
    const attnrun_type *q = &step->in[Q], *k = &step->in[K];
    TRY(op_need_dim(step, K, 0, q->dims[0], "the batch"));
    TRY(op_need_dim(step, V, 0, q->dims[0], "the batch"));
    TRY(op_need_dim(step, K, 3, q->dims[3], "the head dim"));
    TRY(op_need_dim(step, V, 1, k->dims[1], "the key heads"));
    TRY(op_need_dim(step, V, 2, k->dims[2], "the number of keys"));
    if (dim_is_const(q->dims[1]) && dim_is_const(k->dims[1]) &&
        (k->dims[1].value < 1 || q->dims[1].value % k->dims[1].value != 0))
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "its head count, %lld, is not a multiple of that of K, %lld",
                             (long long)q->dims[1].value, (long long)k->dims[1].value);
    return ATTNRUN_OK;
}

static attn_status infer_graph(attnrun_step *step, int graph, const attnrun_type *scores)
{
    attnrun_type out;
    if (graph < 0)
        return ATTNRUN_OK;
    memset(&out, 0, sizeof out);
    TRY(op_graph_infer(step, graph, 1, scores, 1, &out));
    if (out.kind != ATTNRUN_ABSENT && out.dtype != 0 && out.dtype != scores->dtype)
        return op_fail(step, ATTNRUN_E_DTYPE, "its subgraph gives %s, expected %s",
                       attnrun_dtype_name(out.dtype), attnrun_dtype_name(scores->dtype));
    return ATTNRUN_OK;
}

static attn_status flex_memory(attnrun_step *step, struct flex_state *state)
{
    const struct flex_args *args = step->args;
    const int64_t bytes = dtype_bytes(state->dtype);
    int64_t block, copy = 0, v_row;
    bool fits = ck_mul(state->dims[3], ROWS * bytes, &block) &&
                ck_align(block, ALIGN, &block) &&
                ck_mul(state->v_dim, (int64_t)sizeof(double), &v_row) &&
                ck_align(v_row, ALIGN, &v_row) &&
                ck_add(v_row, (int64_t)(GEMM_FLOATS * sizeof(float)), &v_row);
    if (fits && modified(args)) {
        block = 0;
        fits = ck_mul(state->count, bytes, &state->convert_offset) &&
               ck_align(state->convert_offset, ALIGN, &state->convert_offset);
        if (fits && state->dtype != state->graph_dtype)
            fits = ck_mul(state->count, dtype_bytes(state->graph_dtype), &copy);
        fits = fits && ck_add(state->convert_offset, copy, &step->shared_bytes);
    }
    if (!fits || !ck_add(block, v_row, &step->scratch_bytes))
        return op_fail_size(step, "the memory of its scores", "2^63 - 1 bytes");
    return ATTNRUN_OK;
}

static attn_status flex_plan(attnrun_step *step, const attnrun_type *scores)
{
    const struct flex_args *args = step->args;
    struct flex_state *state = step->state;
    int64_t n = 1;
    for (int i = 0; i < 4; i++)
        state->dims[i] = scores->dims[i].value;
    state->kv_heads = step->in[K].dims[1].value;
    state->dim = step->in[Q].dims[3].value;
    state->v_dim = step->in[V].dims[3].value;
    state->scale =
        isnan(args->scale) ? 1 / sqrt((double)state->dim) : (double)args->scale;
    state->blocks = ceil_div(state->dims[2], ROWS);
    state->count = op_count(scores, 0, 4);
    if (state->count < 0 || !ck_mul(state->dims[0], state->dims[1], &n) ||
        !ck_mul(n, state->blocks, &n))
        return op_fail_size(step, "the number of its scores", "2^63 - 1");
    TRY(flex_memory(step, state));
    double cost = ROWS * (double)state->dims[3] *
                  (double)(state->dim + state->v_dim + 16) *
                  (state->dtype == ATTNRUN_F64 ? 1.0 : 0.05);
    int64_t task_cost = op_ns(cost);
    op_tasks(step, 0, n, task_cost);
    if (!modified(args))
        return ATTNRUN_OK;
    op_tasks(step, 1, 1, state->count);
    op_tasks(step, 2, n, task_cost);
    return ATTNRUN_OK;
}

static attn_status flex_infer(attnrun_step *step)
{
    const struct flex_args *args = step->args;
    struct flex_state *state = step->state;
    const attnrun_type *q = &step->in[Q], *k = &step->in[K], *v = &step->in[V];
    attnrun_type scores = { .kind = ATTNRUN_TENSOR, .rank = -1 };
    for (int i = Q; i <= V; i++)
        TRY(op_need_rank(step, i, 4));
    TRY(choose_dtypes(step, state));
    bool known = q->rank >= 0 && k->rank >= 0 && v->rank >= 0;
    scores.dtype = state->graph_dtype;
    if (known) {
        TRY(flex_check_operands(step));
        scores.rank = 4;
        memcpy(scores.dims, q->dims, 3 * sizeof *scores.dims);
        scores.dims[3] = k->dims[2];
    }
    attnrun_dim y[4] = { q->dims[0], q->dims[1], q->dims[2], v->dims[3] };
    TRY(infer_graph(step, args->score_mod, &scores));
    TRY(infer_graph(step, args->prob_mod, &scores));
    TRY(op_out(step, 0, q->dtype, known ? 4 : -1, y));
    return step->concrete ? flex_plan(step, &scores) : ATTNRUN_OK;
}

/* ---- rows ---- */

/* Up to ROWS queries of one head. */
struct flex_rows {
    int64_t n, kv; /* kv: sample * kv_heads + key head */
    int64_t first; /* row of Q and Y, counted over all heads */
    void *scores;  /* n lines of kv_len */
    double *sums;  /* v_dim */
    float *gemm;
};

static struct flex_rows flex_rows_of(const attnrun_step *step, const attnrun_work *work,
                                     int64_t task)
{
    const struct flex_args *args = step->args;
    const struct flex_state *state = step->state;
    const int64_t bytes = dtype_bytes(state->dtype), q_len = state->dims[2];
    int64_t row = op_take(&task, state->blocks) * ROWS, head = task;
    int64_t group = state->dims[1] / state->kv_heads;
    struct flex_rows rows = { .n = q_len - row < ROWS ? q_len - row : ROWS,
                              .first = head * q_len + row };
    char *scratch = work->scratch;
    rows.kv = head / state->dims[1] * state->kv_heads + head % state->dims[1] / group;
    rows.sums = (double *)(void *)scratch;
    scratch += round_up(state->v_dim * (int64_t)sizeof(double), ALIGN);
    rows.gemm = (float *)(void *)scratch;
    scratch += GEMM_FLOATS * sizeof(float);
    rows.scores = scratch;
    if (modified(args))
        rows.scores = (char *)work->shared + rows.first * state->dims[3] * bytes;
    return rows;
}

static double real_at(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_F64 ? ((const double *)x->data)[i]
                                   : (double)((const float *)x->data)[i];
}

static attn_status score_rows(const attnrun_step *step, const struct flex_rows *rows)
{
    const struct flex_state *state = step->state;
    const int64_t keys = state->dims[3], dim = state->dim;
    const struct attn_epilogue scale = { .kind = ATTN_EPI_SCALE,
                                         .alpha = (float)state->scale };
    if (state->dtype == ATTNRUN_F64 || dim == 0) {
        for (int64_t i = 0; i < rows->n * keys; i++) {
            int64_t q = (rows->first + i / keys) * dim;
            int64_t k = (rows->kv * keys + i % keys) * dim;
            double sum = 0;
            for (int64_t d = 0; d < dim; d++)
                sum += real_at(&step->x[Q], q + d) * real_at(&step->x[K], k + d);
            if (state->dtype == ATTNRUN_F64)
                ((double *)rows->scores)[i] = sum * state->scale;
            else
                ((float *)rows->scores)[i] = (float)(sum * state->scale);
            TRY(attn_poll());
        }
        return ATTNRUN_OK;
    }
    step->kernels->gemm_f32(&(struct attn_gemm_f32){
        .a = (const float *)step->x[Q].data + rows->first * dim,
        .a_row = dim,
        .b = (const float *)step->x[K].data + rows->kv * keys * dim,
        .b_row = 1,
        .b_col = dim,
        .c = rows->scores,
        .c_row = keys,
        .m = (size_t)rows->n,
        .n = (size_t)keys,
        .k = (size_t)dim,
        .epilogue = &scale,
        .n_epilogue = 1,
        .scratch = rows->gemm });
    return ATTNRUN_OK;
}

static void softmax_row_f64(double *x, int64_t n)
{
    double max = (double)-INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        x[i] = exp(x[i] - max);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void softmax_rows(const attnrun_step *step, void *scores, int64_t n)
{
    const struct flex_state *state = step->state;
    const int64_t keys = state->dims[3];
    for (int64_t r = 0; r < n && keys > 0; r++) {
        float *row = (float *)scores + r * keys;
        if (attn_poll() != ATTNRUN_OK)
            return;
        if (state->dtype == ATTNRUN_F64)
            softmax_row_f64((double *)scores + r * keys, keys);
        else
            step->kernels->softmax_f32(row, row, (size_t)keys, 0);
    }
}

/* Computes one row of Y by plain loops. */
static void value_row_plain(const attnrun_step *step, const struct flex_rows *rows,
                            int64_t r)
{
    const struct flex_state *state = step->state;
    const int64_t keys = state->dims[3], n = state->v_dim;
    const int64_t at = (rows->first + r) * n;
    for (int64_t i = 0; i < n; i++)
        rows->sums[i] = 0;
    for (int64_t j = 0; j < keys && attn_poll() == ATTNRUN_OK; j++) {
        double p = ((const double *)rows->scores)[r * keys + j];
        for (int64_t i = 0; i < n; i++)
            rows->sums[i] += p * real_at(&step->x[V], (rows->kv * keys + j) * n + i);
    }
    for (int64_t i = 0; i < n; i++) {
        if (step->y[0].dtype == ATTNRUN_F64)
            ((double *)step->y[0].data)[at + i] = rows->sums[i];
        else
            ((float *)step->y[0].data)[at + i] = (float)rows->sums[i];
    }
}

static void value_rows(const attnrun_step *step, const struct flex_rows *rows)
{
    const struct flex_state *state = step->state;
    const int64_t keys = state->dims[3], n = state->v_dim;
    if (step->y[0].data == NULL || n == 0)
        return;
    if (state->dtype == ATTNRUN_F64 || keys == 0) {
        for (int64_t r = 0; r < rows->n; r++)
            value_row_plain(step, rows, r);
        return;
    }
    step->kernels->gemm_f32(&(struct attn_gemm_f32){
        .a = rows->scores,
        .a_row = keys,
        .b = (const float *)step->x[V].data + rows->kv * keys * n,
        .b_row = n,
        .b_col = 1,
        .c = (float *)step->y[0].data + rows->first * n,
        .c_row = n,
        .m = (size_t)rows->n,
        .n = (size_t)n,
        .k = (size_t)keys,
        .scratch = rows->gemm });
}

/* ---- modifiers ---- */

/* Converts n elements between the dtype of the scores and that of the subgraphs. */
static void convert(const attnrun_step *step, void *to, int32_t to_dtype,
                    const void *from, int32_t from_dtype, int64_t n)
{
    const struct attn_kernels *kernels = step->kernels;
    if (to_dtype == ATTNRUN_F64)
        for (int64_t i = 0; i < n; i++)
            ((double *)to)[i] = (double)((const float *)from)[i];
    else if (from_dtype == ATTNRUN_F64)
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((const double *)from)[i];
    else if (to_dtype == ATTNRUN_F16)
        kernels->f32_to_f16(to, from, (size_t)n);
    else if (to_dtype == ATTNRUN_BF16)
        kernels->f32_to_bf16(to, from, (size_t)n);
    else if (from_dtype == ATTNRUN_F16)
        kernels->f16_to_f32(to, from, (size_t)n);
    else
        kernels->bf16_to_f32(to, from, (size_t)n);
}

/* Runs subgraph `graph` on the scores, in place. */
static attn_status modify(const attnrun_step *step, const attnrun_work *work, int graph)
{
    const struct flex_state *state = step->state;
    const bool other = state->dtype != state->graph_dtype;
    attnrun_tensor in = { .kind = ATTNRUN_TENSOR,
                          .dtype = state->graph_dtype,
                          .rank = 4 };
    attnrun_tensor out;
    if (graph < 0 || state->count == 0)
        return ATTNRUN_OK;
    memcpy(in.dims, state->dims, sizeof state->dims);
    tensor_set_dense(&in);
    in.data = other ? (char *)work->shared + state->convert_offset : work->shared;
    if (other)
        convert(step, in.data, in.dtype, work->shared, state->dtype, state->count);
    TRY(op_graph_run(step, work, graph, 1, &in, 1, &out));
    if (out.kind != ATTNRUN_TENSOR || out.dtype != in.dtype || out.rank != 4 ||
        memcmp(out.dims, in.dims, sizeof state->dims) != 0)
        return op_fail(step, ATTNRUN_E_SHAPE, "its subgraph gives %s, expected %s",
                       attn_tensor_format(&out), attn_tensor_format(&in));
    if (out.data != in.data || !tensor_is_dense(&out))
        tensor_copy(&in, &out);
    if (other)
        convert(step, work->shared, state->dtype, in.data, in.dtype, state->count);
    return ATTNRUN_OK;
}

static attn_status modify_all(const attnrun_step *step, const attnrun_work *work)
{
    const struct flex_args *args = step->args;
    const struct flex_state *state = step->state;
    TRY(modify(step, work, args->score_mod));
    if (args->prob_mod >= 0 && args->score_mod >= 0 && state->count > 0)
        softmax_rows(step, work->shared, state->count / state->dims[3]);
    return modify(step, work, args->prob_mod);
}

static attn_status flex_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct flex_args *args = step->args;
    if (work->phase == 1)
        return modify_all(step, work);
    /* The softmax is in phase 1 where both modifiers are given. */
    const bool softmax =
        args->score_mod < 0 ? work->phase == 0 : work->phase == 2 && args->prob_mod < 0;
    for (int64_t task = work->begin; task < work->end; task++) {
        struct flex_rows rows = flex_rows_of(step, work, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 0)
            TRY(score_rows(step, &rows));
        if (softmax)
            softmax_rows(step, rows.scores, rows.n);
        if (work->phase == 2 || !modified(args))
            value_rows(step, &rows);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_flex_attention_1 = {
    OP_ROW_OF("ai.onnx.preview"),
    .flags = ATTNRUN_OP_GRAPHS,
    .name = "FlexAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct flex_args),
    .state_bytes = sizeof(struct flex_state),
    .attrs = flex_attrs,
    .infer = flex_infer,
    .run = flex_run,
    .cost = "O(q_len kv_len dim) per head",
    .source = "ONNX ai.onnx.preview FlexAttention-1",
};
