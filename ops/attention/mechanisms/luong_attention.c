/* luong_attention.c - LuongAttention, global or in a window:
 *
 *   Y_i = sum over j of a_ij values_j,  a_i the softmax over j of
 *
 *     dot      scale q_i . k_j ("general" is "dot" of W q, made before this node)
 *     concat   scale v . tanh(q_i + k_j) (W [q; k] is W_1 q + W_2 k, both made before)
 *
 * query       f32 (batch, q_len, units)
 * keys        f32 (batch, kv_len, units)
 * values      f32 (batch, kv_len, v_dim); the keys by default
 * pos         f32 (batch, q_len), for mode local_p only: the position of the centre, from
 *             0 to 1
 * v           f32 (units), for score concat only
 * key_mask    b8 (batch, kv_len): false masks a key; in local modes the true ones must
 *             come first (E_RANGE), and S is their number
 * Y           f32 (batch, q_len, v_dim); zeros where a query sees no key
 * weights     f32 (batch, q_len, kv_len), optional
 * score       dot or concat
 * mode        global: all keys. local_m: centre p_i = i + step_offset; local_p: p_i = S
 *             pos_i. A local query sees the keys floor(p) - window … floor(p) + window
 * scale       1 by default
 * window      10 by default
 * gaussian    1 by default in local_p, else 0. With gaussian_at "after" the weights are
 *             multiplied by exp(-(j - p)^2 / (2 sigma^2)) and not normalized again; with
 *             "before" the scores are, before the softmax
 * sigma       window / 2 by default
 *
 * Refused: mode local_p without pos or pos without it, score concat without v or v
 * without it, gaussian 1 in mode global, sigma <= 0, sizes that disagree; in local modes
 * a key_mask with a true value behind a false one.
 * Cost: q_len kv_len units terms in mode global, q_len (2 window + 1) units in local
 * modes. Scratch: a tile of scores, or a window.
 * Source: Luong 2015, arXiv:1508.04025. The global forms are compared with keras 3.15.1
 * layers.Attention. The authors' lmthang/nmt.hybrid counts positions from 1, so its
 * centre is S pos when counted from 0. OpenNMT's CenteredWindow inverts the sign of the
 * fraction; this operator does not follow that. */
#include "luong_local.h"

enum { QUERY, KEYS, VALUES, POS, V, KEY_MASK, ROWS = 64 };
enum { DOT, CONCAT };
enum { GLOBAL, LOCAL_M, LOCAL_P };

struct luong_args {
    int32_t score, mode, gaussian_at;
    float scale, sigma;
    int64_t window, gaussian, step_offset;
};

static const attnrun_attr_def luong_attrs[] = {
    ATTR_ENUM(struct luong_args, score, "dot|concat", DOT),
    ATTR_ENUM(struct luong_args, mode, "global|local_m|local_p", GLOBAL),
    ATTR_ENUM(struct luong_args, gaussian_at, "after|before", 0),
    ATTR_FLOAT(struct luong_args, scale, 1.0f),
    ATTR_FLOAT(struct luong_args, sigma, ATTN_SCALE_ABSENT),
    ATTR_INT(struct luong_args, window, 10),
    ATTR_INT(struct luong_args, gaussian, OP_INT_ABSENT),
    ATTR_INT(struct luong_args, step_offset, 0),
    ATTR_END,
};

enum path { STREAM, DOT_WEIGHTS, ADDITIVE, LOCAL };

struct luong_state {
    enum path path;
    struct attn_sdpa stream;
    struct attn_additive additive;
    struct attn_pooling pooling;
    struct attn_luong_local local;
    int64_t units;
    float scale;
};

/* ---- infer ---- */

static bool has_gaussian(const struct luong_args *args)
{
    return args->gaussian != OP_INT_ABSENT ? args->gaussian != 0 : args->mode == LOCAL_P;
}

static double sigma_of(const struct luong_args *args)
{
    return attn_scale_given(args->sigma) ? (double)args->sigma : (double)args->window / 2;
}

static attn_status luong_check_args(const attnrun_step *step)
{
    const struct luong_args *args = step->args;
    TRY(attn_need_finite(step, "scale", args->scale, true));
    TRY(attn_need_int(step, "window", args->window, 0, INT32_MAX));
    if (args->gaussian != OP_INT_ABSENT)
        TRY(attn_need_int(step, "gaussian", args->gaussian, 0, 1));
    if (attn_scale_given(args->sigma))
        TRY(attn_need_finite(step, "sigma", args->sigma, true));
    if (has_gaussian(args) && args->mode == GLOBAL)
        return op_fail(step, ATTNRUN_E_ATTR, "gaussian is 1, expected 0 in mode global");
    if ((has_gaussian(args) || attn_scale_given(args->sigma)) && !(sigma_of(args) > 0))
        return op_fail(step, ATTNRUN_E_ATTR, "sigma is %g, expected more than 0",
                       sigma_of(args));
    if ((args->score == CONCAT) != op_has_in(step, V))
        return op_fail(step, ATTNRUN_E_ATTR,
                       args->score == CONCAT
                           ? "score is concat, but input 4 (v) is absent"
                           : "input 4 (v) is only for score concat");
    if ((args->mode == LOCAL_P) != op_has_in(step, POS))
        return op_fail(step, ATTNRUN_E_ATTR,
                       args->mode == LOCAL_P
                           ? "mode is local_p, but input 3 (pos) is absent"
                           : "input 3 (pos) is only for mode local_p");
    return ATTNRUN_OK;
}

/* Plans mode global with dot and without weights: one head of streaming attention. */
static attn_status plan_stream(attnrun_step *step, struct luong_state *s)
{
    const struct attn_pooling *w = &s->pooling;
    struct attn_sdpa *t = &s->stream;
    TRY(attn_sdpa_fits(step, w->batch, 1, w->rows, w->tokens, s->units + w->v_dim));
    *t = (struct attn_sdpa){ .batch = w->batch,
                             .q_heads = 1,
                             .kv_heads = 1,
                             .q_len = w->rows,
                             .kv_len = w->tokens,
                             .head_dim = s->units,
                             .v_dim = w->v_dim,
                             .q = { w->rows * s->units, 0, s->units },
                             .k = { w->tokens * s->units, 0, s->units },
                             .v = { w->tokens * w->v_dim, 0, w->v_dim },
                             .y = { w->rows * w->v_dim, 0, w->v_dim },
                             .scale = s->scale,
                             .left = -1,
                             .right = -1,
                             .mask = { .batch = w->tokens },
                             .mask_len = w->tokens };
    t->mask_kind = op_has_in(step, KEY_MASK) ? ATTN_MASK_KEEP : ATTN_MASK_NONE;
    TRY(attn_sdpa_plan(step, t));
    op_tasks(step, 0, t->n_tasks, t->task_cost);
    step->scratch_bytes = t->scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status plan_weights(attnrun_step *step, struct luong_state *s)
{
    struct attn_pooling *w = &s->pooling;
    w->block = w->rows < ROWS ? w->rows : ROWS;
    w->tile = ATTN_POOLING_TILE;
    if (s->units > INT32_MAX)
        return op_fail_size(step, "the number of hidden units", "2^31 - 1");
    w->extra_floats =
        (int64_t)attn_gemm_scratch((size_t)w->block, (size_t)w->tile, (size_t)s->units);
    w->token_ns = (double)w->block * 0.02 * (double)(s->units + w->v_dim) +
                  0.1 * (double)(s->units + w->v_dim);
    TRY(attn_pooling_plan(step, w));
    attn_pooling_tasks(step, w);
    return ATTNRUN_OK;
}

static attn_status plan_local(attnrun_step *step, struct luong_state *s)
{
    const struct luong_args *args = step->args;
    const struct attn_pooling *w = &s->pooling;
    s->local =
        (struct attn_luong_local){ .batch = w->batch,
                                   .q_len = w->rows,
                                   .kv_len = w->tokens,
                                   .units = s->units,
                                   .v_dim = w->v_dim,
                                   .window = args->window,
                                   .offset = args->step_offset,
                                   .sigma = has_gaussian(args) ? sigma_of(args) : 0,
                                   .before = args->gaussian_at == 1,
                                   .concat = args->score == CONCAT,
                                   .masked = op_has_in(step, KEY_MASK),
                                   .scale = s->scale };
    return attn_luong_local_plan(step, &s->local);
}

static attn_status luong_infer(attnrun_step *step)
{
    const struct luong_args *args = step->args;
    struct luong_state *s = step->state;
    const struct attn_single_head_inputs in = { QUERY, KEYS, VALUES, KEY_MASK, 3 };
    struct attn_single_head shape;
    TRY(luong_check_args(step));
    TRY(attn_single_head_infer(step, &in, &shape));
    TRY(attn_single_head_vector(step, V, &shape));
    if (op_has_in(step, POS)) {
        TRY(op_need_rank(step, POS, 2));
        TRY(op_need_dim(step, POS, 0, shape.batch, "the batch of the queries"));
        TRY(op_need_dim(step, POS, 1, shape.q_len, "the number of queries"));
    }
    TRY(attn_single_head_outputs(step, &shape));
    if (!step->concrete)
        return ATTNRUN_OK;
    attn_single_head_sizes(&shape, &s->pooling);
    s->units = shape.units.value;
    s->scale = args->scale;
    s->path = args->mode != GLOBAL    ? LOCAL
              : args->score == CONCAT ? ADDITIVE
              : op_has_out(step, 1)   ? DOT_WEIGHTS
                                      : STREAM;
    switch (s->path) {
    case STREAM:
        return plan_stream(step, s);
    case DOT_WEIGHTS:
        return plan_weights(step, s);
    case ADDITIVE:
        return attn_additive_plan(step, &s->additive, ATTN_ADDITIVE_TANH, s->scale,
                                  s->units, ROWS, &s->pooling);
    default:
        return plan_local(step, s);
    }
}

/* ---- run ---- */

static attn_status run_stream(const attnrun_step *step, const struct luong_state *s,
                              const struct attn_additive_operands *o,
                              const attnrun_work *work)
{
    const struct attn_sdpa_operands operands = {
        .q = o->q, .k = o->k, .v = o->values, .mask = o->mask, .y = o->y
    };
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(attn_sdpa_run(&s->stream, step->kernels, &operands, task, work));
    return ATTNRUN_OK;
}

/* The operands of the scores of a task. */
struct dot_queries {
    const struct luong_state *s;
    const struct attn_kernels *kernels;
    const float *q, *k; /* of the block; of the sample */
};

static void dot_scores(void *arg, const struct attn_pooling_task *task, float *scores,
                       int64_t first, int64_t n)
{
    const struct dot_queries *d = arg;
    const int64_t units = d->s->units;
    const struct attn_epilogue scale = { .kind = ATTN_EPI_SCALE, .alpha = d->s->scale };
    struct attn_gemm_f32 g = { .a = d->q,
                               .a_row = units,
                               .b = d->k + first * units,
                               .b_row = 1,
                               .b_col = units,
                               .c = scores,
                               .c_row = d->s->pooling.tile,
                               .m = (size_t)task->rows,
                               .n = (size_t)n,
                               .k = (size_t)units,
                               .epilogue = &scale,
                               .n_epilogue = 1,
                               .scratch = task->extra };
    d->kernels->gemm_f32(&g);
}

static attn_status run_weights(const attnrun_step *step, const struct luong_state *s,
                               const struct attn_additive_operands *o,
                               const attnrun_work *work)
{
    const struct attn_pooling *w = &s->pooling;
    struct dot_queries queries = { .s = s, .kernels = step->kernels };
    struct attn_pooling_operands pooling =
        attn_pooling_dense(w, o->values, o->mask, o->y, o->weights);
    pooling.scores = dot_scores;
    pooling.arg = &queries;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 1) {
            attn_pooling_merge(w, step->kernels, &pooling, task, work);
            continue;
        }
        const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
        queries.q = o->q + (t.b * w->rows + t.row) * s->units;
        queries.k = o->k + t.b * w->tokens * s->units;
        TRY(attn_pooling_run(w, step->kernels, &pooling, &t, work));
    }
    return ATTNRUN_OK;
}

static attn_status luong_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct luong_state *s = step->state;
    const struct attn_additive_operands o = {
        .q = step->x[QUERY].data,
        .k = step->x[KEYS].data,
        .values = step->x[op_has_in(step, VALUES) ? VALUES : KEYS].data,
        .v = op_in_data(step, V),
        .mask = op_in_data(step, KEY_MASK),
        .y = step->y[0].data,
        .weights = op_has_out(step, 1) ? step->y[1].data : NULL,
    };
    const struct attn_luong_operands local = {
        .q = o.q,
        .k = o.k,
        .values = o.values,
        .v = o.v,
        .pos = op_in_data(step, POS),
        .mask = o.mask,
        .y = o.y,
        .weights = o.weights,
    };
    switch (s->path) {
    case STREAM:
        return run_stream(step, s, &o, work);
    case DOT_WEIGHTS:
        return run_weights(step, s, &o, work);
    case ADDITIVE:
        return attn_additive_run(&s->additive, &s->pooling, step->kernels, &o, work);
    default:
        return attn_luong_local_run(step, &s->local, &local, work);
    }
}

const attnrun_op_def op_luong_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LuongAttention",
    .since = 1,
    .inputs = "query:T keys:T values:T? pos:T? v:T? key_mask:b8?",
    .outputs = "Y:T weights:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct luong_args),
    .state_bytes = sizeof(struct luong_state),
    .attrs = luong_attrs,
    .infer = luong_infer,
    .run = luong_run,
    .cost = "global O(n_q n_k d), local O(n_q window d)",
    .source = "Luong 2015, arXiv:1508.04025",
};
