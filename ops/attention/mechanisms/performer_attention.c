/* performer_attention.c - PerformerAttention (FAVOR+): attention by random features f.
 *
 *   y_i = f(q_i) S / g(f(q_i) z),  S = sum over j of f(k_j)' v_j,  z = sum of f(k_j)
 *
 * The sums are over all keys, or, causal, over j <= i + kv_len - q_len. Let u = W x and n
 * = |x|^2 / 2 for x = sqrt(scale) times q or k (q or k itself where normalize_inputs is
 * 0). Then f(x) is
 *
 *   softmax_pos  M^-1/2 (exp(u - n - c) + feature_epsilon); c: the largest u of a query,
 *                of all keys of a head (masked ones too, unless mask_in_max); 0 where
 *                stabilizer is 0
 *   softmax_hyp  (2M)^-1/2 (exp(u - n - c), exp(-u - n - c)); c: the largest |x|^2 of a
 *                head, or 0
 *   softmax_trig M^-1/2 (cos u, sin u) exp(n - the largest n of a head)
 *   generalized  kernel_fn(u) + kernel_epsilon, of u M^-1/2 with feature_ratio; without a
 *                projection u = x
 *
 * Q, K, V, Y   see heads.h; q_len and kv_len may differ
 * projection   f32 (M, dim), or (kv_heads, M, dim): W; the query heads of a group share
 *              one
 * key_mask     b8 (batch, kv_len): false leaves a key out; a query without any key gives 0, but
 *              without a mask and without keys 0 / g(0)
 * denominator  g(R): none R; add R + d; add_keys f(q)(z + d); guard R + 2 d where |R| <=
 *              d; d = denominator_epsilon
 *
 * The defaults are softmax_pos, kernel_fn relu, normalize_inputs 1, feature_epsilon 1e-4,
 * kernel_epsilon 1e-3, feature_ratio 0, stabilizer 1, mask_in_max 0, denominator none and
 * denominator_epsilon 1e-6.
 *
 * Factors of f that are the same for all features are applied in g. There is one pass
 * over the keys: the exponential part of S is rescaled when c grows, and feature_epsilon
 * times the sum of v is kept in a sum of its own. In the causal form phase 0 computes c
 * first.
 * Refused: softmax features without a projection, a projection without features,
 * feature_ratio 1 with softmax_hyp or softmax_trig, a negative scale with
 * normalize_inputs 1.
 * Cost: O((q_len + kv_len) M (dim + v_dim)) for each head. feature_attention.h describes
 * the memory.
 * Source: Choromanski 2021, arXiv:2009.14794; compared with performer-pytorch 1.1.4
 * (FastAttention; causal add_keys 1e-6). The mask of that package only zeroes V, so it is
 * not key_mask. */
#include <math.h>

#include "performer.h"
#include "../../tile.h"

static const attnrun_attr_def performer_attrs[] = {
    ATTN_HEADS_ATTRS(struct performer_args),
    ATTR_ENUM(struct performer_args, features,
              "softmax_pos|softmax_hyp|softmax_trig|generalized", 0),
    ATTR_ENUM(struct performer_args, kernel_fn,
              "relu|requ|exp|elu1|sigmoid|tanh|gelu|abs|cos|sin|identity", 0),
    ATTR_INT(struct performer_args, normalize_inputs, 1),
    ATTR_FLOAT(struct performer_args, feature_epsilon, 1e-4f),
    ATTR_FLOAT(struct performer_args, kernel_epsilon, 1e-3f),
    ATTR_INT(struct performer_args, feature_ratio, 0),
    ATTR_INT(struct performer_args, stabilizer, 1),
    ATTR_INT(struct performer_args, mask_in_max, 0),
    ATTR_ENUM(struct performer_args, denominator, "none|add|add_keys|guard", 0),
    ATTR_FLOAT(struct performer_args, denominator_epsilon, 1e-6f),
    ATTR_END,
};

enum { Q, K, V, PROJECTION, KEY_MASK };
enum { NONE, ADD, ADD_KEYS, GUARD };

#define LOG2E 1.44269504088896341

/* ---- infer ---- */

static attn_status performer_check_args(const attnrun_step *step)
{
    const struct performer_args *args = step->args;
    TRY(attn_need_int(step, "normalize_inputs", args->normalize_inputs, 0, 1));
    TRY(attn_need_int(step, "feature_ratio", args->feature_ratio, 0, 1));
    TRY(attn_need_int(step, "stabilizer", args->stabilizer, 0, 1));
    TRY(attn_need_int(step, "mask_in_max", args->mask_in_max, 0, 1));
    TRY(attn_need_finite(step, "feature_epsilon", args->feature_epsilon, false));
    TRY(attn_need_finite(step, "kernel_epsilon", args->kernel_epsilon, false));
    TRY(attn_need_finite(step, "denominator_epsilon", args->denominator_epsilon, false));
    if (args->features != PERFORMER_GENERALIZED && !op_has_in(step, PROJECTION))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "features softmax_pos, softmax_hyp and softmax_trig need the "
                       "input projection, which is absent");
    if ((args->features == PERFORMER_HYP || args->features == PERFORMER_TRIG) &&
        args->feature_ratio != 0)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "feature_ratio is 1, expected 0 with softmax_hyp and softmax_trig");
    if (args->normalize_inputs != 0 && attn_scale_given(args->heads.scale) &&
        args->heads.scale < 0)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "scale is %g, expected a positive number, because its square root is used",
            (double)args->heads.scale);
    return ATTNRUN_OK;
}

static attn_status check_projection(const attnrun_step *step,
                                    const struct attn_qkv *shape)
{
    const attnrun_type *w = &step->in[PROJECTION];
    if (!op_has_in(step, PROJECTION) || w->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, PROJECTION, 2, 3));
    if (w->rank == 3)
        TRY(op_need_dim(step, PROJECTION, 0, shape->kv_heads, "the key heads"));
    TRY(op_need_dim(step, PROJECTION, w->rank - 1, shape->dim, "the head size"));
    if (dim_is(w->dims[w->rank - 2], 0))
        return op_fail_input(step, PROJECTION, ATTNRUN_E_SHAPE,
                             "expected at least one feature");
    return ATTNRUN_OK;
}

static void set_scales(const attnrun_step *step, struct performer_state *s)
{
    static const int32_t denominators[] = { ATTN_DENOMINATOR_ADD, ATTN_DENOMINATOR_ADD,
                                            ATTN_DENOMINATOR_ADD,
                                            ATTN_DENOMINATOR_GUARD };
    const struct performer_args *args = step->args;
    struct attn_feature_plan *p = &s->plan;
    const double scale = args->normalize_inputs != 0 ? (double)p->sizes.scale : 1.0;
    const double unit =
        args->features == PERFORMER_POS || args->features == PERFORMER_HYP ? LOG2E : 1.0;
    const double m = args->features == PERFORMER_GENERALIZED ? 1.0
                     : args->features == PERFORMER_HYP       ? 2.0 * (double)s->rows
                                                             : (double)s->rows;
    double x_scale = sqrt(scale) * unit;
    if (args->feature_ratio != 0 && args->features == PERFORMER_GENERALIZED &&
        s->rows > 0)
        x_scale /= sqrt((double)s->rows);
    s->x_scale = (float)x_scale;
    s->norm_scale = (float)(0.5 * scale * unit);
    /* Features here are sqrt(m) times those of the formula. */
    p->denominator = denominators[args->denominator];
    p->epsilon = args->denominator == ADD || args->denominator == GUARD
                     ? (float)((double)args->denominator_epsilon * m)
                     : 0.0f;
    s->keys_epsilon = args->denominator == ADD_KEYS
                          ? (float)((double)args->denominator_epsilon * sqrt(m))
                          : 0.0f;
    p->z_begin = s->keys_epsilon;
    p->scale = 1;
}

static attn_status plan_phases(attnrun_step *step, struct performer_state *s)
{
    const struct performer_args *args = step->args;
    struct attn_feature_plan *p = &s->plan;
    const struct attn_sizes *z = &p->sizes;
    int64_t floats, more;
    s->one_pass = args->features == PERFORMER_POS && args->stabilizer != 0 && !z->causal;
    s->extremes =
        (args->features == PERFORMER_POS && args->stabilizer != 0 && z->causal) ||
        (args->features == PERFORMER_HYP && args->stabilizer != 0) ||
        args->features == PERFORMER_TRIG;
    if (s->rows > INT64_C(1) << 30 || !ck_mul(s->rows + 64, z->dim + 64, &floats) ||
        !ck_mul(floats, 2 * s->projections, &floats) ||
        !ck_add(floats, z->batch * (z->q_heads + z->kv_heads) + 64, &floats) ||
        !ck_mul(floats, (int64_t)sizeof(float), &more))
        return op_fail_size(
            step,
            "the number of features would be over 2^30, or the memory of its projection",
            "2^63 - 1 bytes");
    s->panel_floats = op_whole_panels(s->rows) * z->dim;
    step->shared_bytes = 0;
    if (!attn_performer_place(s, &step->shared_bytes))
        return op_fail_scratch(step);
    int64_t tasks = s->rows > 0 ? s->projections : 0, heads = 0;
    if (s->extremes)
        heads =
            z->batch * (z->kv_heads + (args->features == PERFORMER_POS ? 0 : z->q_heads));
    p->first_phase = tasks + heads > 0 ? 1 : 0;
    const double flops = args->features == PERFORMER_POS ? 2.0 * (double)s->rows : 2.0;
    if (p->first_phase > 0)
        op_tasks(step, 0, tasks + heads,
                 op_ns(100 + 0.005 * flops * (double)z->dim * (double)(z->kv_len + 16)));
    const size_t keys =
        attn_gemm_scratch((size_t)s->rows, PERFORMER_TILE, (size_t)z->dim);
    const size_t queries =
        attn_gemm_scratch(PERFORMER_TILE, (size_t)s->rows, (size_t)z->dim);
    const size_t values = attn_gemm_scratch(1, (size_t)z->v_dim, PERFORMER_TILE);
    size_t gemm = keys > queries ? keys : queries;
    gemm = gemm > values ? gemm : values;
    p->rule_gemm = (int64_t)gemm;
    return attn_feature_plan_make(step, p, 2 * PERFORMER_TILE);
}

static attn_status performer_infer(attnrun_step *step)
{
    const struct performer_args *args = step->args;
    struct performer_state *s = step->state;
    struct attn_feature_plan *p = &s->plan;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(performer_check_args(step));
    TRY(check_projection(step, &shape));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &p->sizes));
    const attnrun_type *w = &step->in[PROJECTION];
    s->rows = op_has_in(step, PROJECTION) ? w->dims[w->rank - 2].value : 0;
    s->projections = s->rows > 0 && w->rank == 3 ? p->sizes.kv_heads : 1;
    if (s->rows > INT64_C(1) << 30)
        return op_fail_input(step, PROJECTION, ATTNRUN_E_LIMIT,
                             "expected at most 2^30 "
                             "features");
    set_scales(step, s);
    p->features = s->rows == 0 ? p->sizes.dim
                  : args->features == PERFORMER_HYP || args->features == PERFORMER_TRIG
                      ? 2 * s->rows
                      : s->rows;
    p->callbacks = s->rows > 0 ? &attn_performer_projected : &attn_performer_plain;
    p->more = PERFORMER_VALUES + p->sizes.v_dim;
    p->tile = PERFORMER_TILE;
    p->transposed = s->rows > 0;
    p->masked = op_has_in(step, KEY_MASK);
    p->token_cost = (double)p->features * (0.1 + 0.01 * (double)p->sizes.dim);
    return plan_phases(step, s);
}

/* ---- run ---- */

static attn_status performer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct performer_state *s = step->state;
    const struct performer p = attn_performer_open(step, work);
    const bool masked = op_has_in(step, KEY_MASK);
    const struct attn_feature_operands o = { .q = step->x[Q].data,
                                             .k = step->x[K].data,
                                             .v = step->x[V].data,
                                             .keep =
                                                 masked ? step->x[KEY_MASK].data : NULL,
                                             .y = step->y[0].data };
    if (work->phase >= s->plan.first_phase)
        return attn_feature_run(&s->plan, step->kernels, &o, &p, work);
    const struct attn_feature_call c =
        attn_feature_open(&s->plan, step->kernels, &o, &p, work);
    const float *w = s->rows > 0 ? step->x[PROJECTION].data : NULL;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(attn_performer_prepare(&c, w, task));
    return ATTNRUN_OK;
}

const attnrun_op_def op_performer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "PerformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T projection:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct performer_args),
    .state_bytes = sizeof(struct performer_state),
    .attrs = performer_attrs,
    .infer = performer_infer,
    .run = performer_run,
    .cost = "O(tokens M (dim + v_dim)) per head",
    .source = "arXiv:2009.14794",
};
