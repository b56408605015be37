/* attnrun_longformer_attention.c - LongformerAttention: attention in windows, and global
 * tokens with projections of their own.
 *
 * Let m be the tokens that key_mask keeps, and g the tokens of global_mask that are in m.
 * Then
 *
 *   i not in g:  y_i = softmax(scale q_i k_j) v_j over the j in m that are in g, or are
 *                i + d t with |t| <= window (t <= 0 where is_causal); each key once
 *   i in g:      y_i = softmax(scale qg_i kg_j) vg_j over all j in m
 *   i not in m:  y_i = 0
 *
 * Q, K, V      f32 (batch, n, heads * dim) or (batch, heads, n, dim)
 * key_mask, global_mask   b8 (batch, n)
 * Qg, Kg, Vg   as Q, K, V: the projections for global queries; or in their place
 * X            f32 (batch, n, width) with
 * Wqg, Wkg     (width, heads * dim), Wvg (width, heads * v_dim) and
 * bqg, bkg     (heads * dim), bvg (heads * v_dim), the biases; without either form global
 *              queries read Q, K and V
 * Y            as Q, with v_dim
 * window, dilation   one element, or one a head; window is one-sided, at least 1
 *
 * Refused: both forms of global projections, or half of one; global_mask with is_causal;
 * window or dilation < 1; fewer key heads than query heads; n that differ.
 *
 * Cost: O(n (2 window + 1 + globals) dim) a head. Global queries by X and weights cost
 * O(globals n width) while there are at most width / heads of them, because the keys and
 * values of all tokens are then not formed. Scratch is O(tile). Bound: products, as those of
 * local_attention.c, which has the roofline of its windows.
 * Source: Beltagy 2020, arXiv:2004.05150; equals transformers 5.23.0
 * LongformerSelfAttention and LEDEncoderSelfAttention, whose attention_window counts both
 * sides together. In allenai/longformer `autoregressive` has no effect; here is_causal
 * has one. Keys that these programs mask by adding -10000 or less are left out here. */
#include "../core/global_rows.h"

struct longformer_args {
    struct attn_heads_args heads;
    attnrun_ints window, dilation;
};
static const attnrun_attr_def longformer_attrs[] = {
    ATTN_HEADS_ATTRS(struct longformer_args),
    ATTR_INTS_REQUIRED(struct longformer_args, window),
    ATTR_INTS(struct longformer_args, dilation),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK, GLOBAL_MASK, QG, KG, VG, X, WQ, WK, WV, BQ, BK, BV };
enum { Y };

struct longformer_state {
    struct attn_window window;
    struct attn_global_rows rows;
};

/* ---- shapes ---- */

/* Checks that Qg, Kg, Vg are like Q, K, V. */
static attn_status check_projected(const attnrun_step *step, const struct attn_qkv *shape)
{
    for (int i = 0; i < 3; i++) {
        const int in = QG + i;
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT,
                           "Qg, Kg and Vg go together, but one is missing");
        TRY(op_need_rank_between(step, in, 3, 4));
        if (!op_rank_known(step, in) || shape->rank < 0)
            continue;
        TRY(op_need_rank(step, in, shape->rank));
        const attnrun_type *like = &step->in[Q + i];
        for (int axis = 0; axis < shape->rank && like->rank == shape->rank; axis++)
            TRY(op_need_dim(step, in, axis, like->dims[axis], "as in Q, K or V"));
    }
    return ATTNRUN_OK;
}

static attn_status check_bias(const attnrun_step *step, int in, attnrun_dim columns)
{
    return op_need_vector(step, in, columns, "heads * dim");
}

/* Checks X and its weights. */
static attn_status longformer_check_weights(const attnrun_step *step,
                                            const struct attn_qkv *shape)
{
    attnrun_dim width = attnrun_dim_unknown(step);
    for (int in = X; in <= WV; in++)
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT,
                           "X, Wqg, Wkg and Wvg go together, but one is missing");
    TRY(op_need_rank(step, X, 3));
    if (op_rank_known(step, X)) {
        TRY(op_need_dim(step, X, 0, shape->batch, "the batch"));
        TRY(op_need_dim(step, X, 1, shape->kv_len, "the number of tokens"));
        width = step->in[X].dims[2];
    }
    for (int i = 0; i < 3; i++) {
        const attnrun_dim columns =
            attnrun_dim_mul(step, shape->q_heads, i == 2 ? shape->v_dim : shape->dim);
        TRY(op_need_rank(step, WQ + i, 2));
        TRY(op_need_dim(step, WQ + i, 0, width, "the width of X"));
        TRY(op_need_dim(step, WQ + i, 1, columns, "heads * dim"));
        TRY(check_bias(step, BQ + i, columns));
    }
    return ATTNRUN_OK;
}

static bool has_any(const attnrun_step *step, int from, int to)
{
    for (int in = from; in <= to; in++)
        if (op_has_in(step, in))
            return true;
    return false;
}

static attn_status check_globals(const attnrun_step *step, const struct attn_qkv *shape)
{
    const struct longformer_args *args = step->args;
    const bool projected = has_any(step, QG, VG), weights = has_any(step, X, BV);
    if (projected && weights)
        return op_fail(step, ATTNRUN_E_INPUT,
                       "the global projections are given both as Qg, Kg, Vg and as X "
                       "with weights");
    if (op_has_in(step, GLOBAL_MASK) && args->heads.is_causal)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "is_causal is 1, expected 0 where global_mask is given");
    if (projected)
        return check_projected(step, shape);
    return weights ? longformer_check_weights(step, shape) : ATTNRUN_OK;
}

/* ---- plan ---- */

/* Global queries that are projected from X by weights of their own. */
static attn_status plan_rows(attnrun_step *step, struct longformer_state *state)
{
    const struct attn_window *w = &state->window;
    struct attn_global_rows *g = &state->rows;
    *g = (struct attn_global_rows){ .s = w->s,
                                    .width = step->in[X].dims[2].value,
                                    .wq = w->s.q_heads * w->s.dim,
                                    .wk = w->s.q_heads * w->s.dim,
                                    .wv = w->s.q_heads * w->s.v_dim };
    TRY(attn_global_rows_plan(step, g));
    if (step->scratch_bytes < g->scratch_bytes)
        step->scratch_bytes = g->scratch_bytes;
    op_tasks(step, ATTN_WINDOW_ROWS, w->s.v_dim > 0 ? g->n_tasks : 0, g->task_cost);
    return ATTNRUN_OK;
}

static attn_status plan_longformer(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct longformer_args *args = step->args;
    struct longformer_state *state = step->state;
    struct attn_window *w = &state->window;
    *w = (struct attn_window){ .left = args->window,
                               .right = args->window,
                               .dilation = args->dilation,
                               .chunk = 1,
                               .zero_masked = true,
                               .globals = op_has_in(step, GLOBAL_MASK) };
    TRY(attn_qkv_sizes(step, &args->heads, shape, &w->s));
    w->max_globals = w->globals ? w->s.kv_len : 0;
    TRY(attn_window_plan_step(step, w));
    return w->globals && op_has_in(step, X) ? plan_rows(step, state) : ATTNRUN_OK;
}

static attn_status longformer_infer(attnrun_step *step)
{
    const struct longformer_args *args = step->args;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_LENGTH | ATTN_SAME_HEADS,
                       &shape));
    TRY(attn_window_need_ints(step, "window", args->window, shape.q_heads, 1));
    TRY(attn_window_need_ints(step, "dilation", args->dilation, shape.q_heads, 1));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_key_mask_check(step, GLOBAL_MASK, shape.batch, shape.kv_len));
    TRY(check_globals(step, &shape));
    TRY(attn_qkv_output(step, &shape, Y));
    return step->concrete ? plan_longformer(step, &shape) : ATTNRUN_OK;
}

/* ---- run ---- */

static attn_status longformer_run_rows(const attnrun_step *step,
                                       const struct attn_window_operands *o, int64_t task,
                                       const attnrun_work *work)
{
    const struct longformer_state *state = step->state;
    if (op_has_in(step, X)) {
        const struct attn_global_rows_operands x = { .x = step->x[X].data,
                                                     .wq = step->x[WQ].data,
                                                     .wk = step->x[WK].data,
                                                     .wv = step->x[WV].data,
                                                     .bq = op_in_data(step, BQ),
                                                     .bv = op_in_data(step, BV),
                                                     .key_mask = o->key_mask,
                                                     .lists = o->lists,
                                                     .y = o->y };
        return attn_global_rows_run(&state->rows, step->kernels, &x, task, work);
    }
    struct attn_window_operands own = *o;
    if (op_has_in(step, QG)) {
        own.q = step->x[QG].data;
        own.k = step->x[KG].data;
        own.v = step->x[VG].data;
    }
    return attn_window_run_rows(&state->window, step->kernels, &own, task, work);
}

static attn_status longformer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct longformer_state *state = step->state;
    const struct attn_window_operands o = { .q = step->x[Q].data,
                                            .k = step->x[K].data,
                                            .v = step->x[V].data,
                                            .y = step->y[Y].data,
                                            .key_mask = op_in_data(step, KEY_MASK) };
    const struct attn_window_globals globals = { .mask = op_in_data(step, GLOBAL_MASK),
                                                 .needs_key = true };
    return attn_window_run_step(step, &state->window, &o, &globals, work,
                                longformer_run_rows);
}

const attnrun_op_def op_attnrun_longformer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LongformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8? global_mask:b8? Qg:T? Kg:T? Vg:T? X:T? Wqg:T? "
              "Wkg:T? Wvg:T? bqg:T? bkg:T? bvg:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct longformer_args),
    .state_bytes = sizeof(struct longformer_state),
    .attrs = longformer_attrs,
    .infer = longformer_infer,
    .run = longformer_run,
    .cost = "O(n (2 window + 1 + globals) d), scratch O(tile)",
    .source = "Beltagy 2020, arXiv:2004.05150",
};
