/* attnrun_linear_attention.c - LinearAttention of domain attnrun: attention by feature
 * maps f. Its time is linear in the number of tokens, and its memory does not depend on
 * it.
 *
 *   S = sum over j of f_k(k_j)' v_j;  z = sum over j of f_k(k_j)
 *   y_i = scale f_q(q_i) S / g(f_q(q_i) z)     over all j, or causal over j <= i
 *
 * Q               f32 (batch, q_len, q_heads * dim) or (batch, q_heads, q_len, dim)
 * K, V            f32 (batch, kv_len, kv_heads * dim or v_dim), or by head: see heads.h
 * Y               as Q, with v_dim
 * dims_first      1: all four have their tokens last, (batch, q_heads * dim, q_len) or
 *                 (batch, q_heads, dim, q_len), as maps have; not causal, no key_mask
 * key_mask        b8 (batch, kv_len): false leaves a key out; a query without any key gives 0, but
 *                 without a mask and without keys 0 / g(0)
 * past_kv, past_z (batch, kv_heads, dim, v_dim), (batch, kv_heads, dim): S and z of the
 *                 tokens that came before; causal only
 * present_kv, present_z   the same with K and V
 * feature_map_q   elu1 (default): x + 1 where x > 0, else exp(x); relu; identity;
 *                 softmax_d: softmax over dim
 * feature_map_k   elu1 (default), relu, identity, exp; softmax_n: for each feature, the
 *                 softmax over the keys that count (not causal, and without states)
 * denominator     g(d): add (default) d + epsilon; clamp max(d, epsilon); none 1;
 *                 add_keys f_q(q_i) (z + epsilon), causal and without states
 *
 * The defaults are epsilon 1e-6, scale 1.0 and is_causal 0.
 * Refused: causal with q_len != kv_len and no past.
 *
 * Cost: O((q_len + kv_len) dim v_dim) for each head. feature_attention.h describes the
 * memory.
 * Source: Katharopoulos 2020, arXiv:2006.16236 (idiap/fast-transformers: elu1, add 1e-6);
 * Shen 2018, arXiv:1812.01243 (linear-attention-transformer 0.19.1: softmax_d, softmax_n,
 * none, scale dim^-1/2; causal softmax_d, exp, clamp with 1e-3 sqrt(dim), since its own
 * scale cancels). */
#include "../core/feature_attention.h"

#include <math.h>

struct attnrun_linear_args {
    struct attn_heads_args heads;
    int64_t dims_first;
    int32_t feature_map_q, feature_map_k, denominator;
    float epsilon;
};
static const attnrun_attr_def attnrun_linear_attrs[] = {
    ATTN_HEADS_ATTRS_WITH(struct attnrun_linear_args, 0, 1.0f),
    ATTR_ENUM(struct attnrun_linear_args, feature_map_q, "elu1|relu|identity|softmax_d",
              0),
    ATTR_ENUM(struct attnrun_linear_args, feature_map_k,
              "elu1|relu|identity|softmax_n|exp", 0),
    ATTR_ENUM(struct attnrun_linear_args, denominator, "add|clamp|none|add_keys", 0),
    ATTR_FLOAT(struct attnrun_linear_args, epsilon, 1e-6f),
    ATTR_FLAG(struct attnrun_linear_args, dims_first, 0),
    ATTR_END,
};

enum { Q, K, V, KEY_MASK, PAST_KV, PAST_Z };
enum { Y, PRESENT_KV, PRESENT_Z };
enum { MAP_ELU1, MAP_RELU, MAP_IDENTITY, MAP_SOFTMAX, MAP_EXP };
enum { ADD, CLAMP, NONE, ADD_KEYS };
enum { TILE = 128 };

struct attnrun_linear_state {
    struct attn_feature_plan plan;
};

/* ---- features ---- */

static int32_t kernel_map(int32_t map)
{
    static const int32_t maps[] = { ATTN_MAP_ELU1, ATTN_MAP_RELU, ATTN_MAP_IDENTITY,
                                    ATTN_MAP_EXP, ATTN_MAP_EXP };
    return maps[map];
}

static void write_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                       float *features, const struct attn_feature_sum *sum)
{
    const struct attnrun_linear_args *args = c->rule_arg;
    const struct attn_feature_plan *p = c->plan;
    const float *shift =
        args->feature_map_k == MAP_SOFTMAX ? c->rule_scratch + TILE : NULL;
    struct attn_features f = { .x = attn_tile_rows(c->o->k, &p->sizes.k, t),
                               .y = features,
                               .x_row = p->sizes.k.row,
                               .y_row = p->features,
                               .rows = (size_t)t.n,
                               .n = (size_t)p->features,
                               .map = kernel_map(args->feature_map_k),
                               .scale = 1,
                               .column_shift = shift,
                               .row_factor =
                                   attn_tile_keep_factors(c, t, c->rule_scratch),
                               .column_sums = sum->tile_z };
    c->kernels->features_f32(&f);
}

static void write_queries(const struct attn_feature_call *c, struct attn_feature_tile t,
                          float *features, const float *z, float *dots)
{
    const struct attnrun_linear_args *args = c->rule_arg;
    const struct attn_feature_plan *p = c->plan;
    struct attn_features f = { .x = attn_tile_rows(c->o->q, &p->sizes.q, t),
                               .y = features,
                               .x_row = p->sizes.q.row,
                               .y_row = p->query_row,
                               .rows = (size_t)t.n,
                               .n = (size_t)p->features,
                               .map = kernel_map(args->feature_map_q),
                               .scale = 1,
                               .weights = z,
                               .dots = dots };
    if (args->feature_map_q == MAP_SOFTMAX) {
        for (int64_t r = 0; r < t.n; r++)
            c->kernels->softmax_f32(features + r * p->query_row, f.x + r * f.x_row, f.n,
                                    0);
        f.x = features;
        f.x_row = f.y_row;
        f.map = ATTN_MAP_IDENTITY;
    }
    c->kernels->features_f32(&f);
}

/* ---- softmax over keys: more[1 …] are the largest keys so far, feature by feature
 * ---- */

static void begin_softmax(const struct attn_feature_call *c,
                          const struct attn_feature_sum *sum)
{
    for (int64_t i = 0; i < c->plan->features; i++)
        sum->more[1 + i] = -INFINITY;
}

/* Multiplies the sums so that they are relative to the maximum `max`, not `old`. */
static void rescale(const struct attn_feature_call *c, const struct attn_feature_sum *sum,
                    const float *old, const float *max)
{
    const int64_t v_dim = c->plan->sizes.v_dim;
    for (int64_t i = 0; i < c->plan->features; i++) {
        if (old[i] == max[i])
            continue;
        const float by = old[i] == -INFINITY ? 0.0f : expf(old[i] - max[i]);
        sum->z[i] *= by;
        c->kernels->multiply_rows_f32(sum->s + i * v_dim, v_dim, 1, (size_t)v_dim, &by);
    }
}

/* What is subtracted from the keys of a tile: the largest so far. Where all of these are -inf it is
 * 0, so that they have no weight beside later ones. */
static void put_shifts(const struct attn_feature_call *c, const float *max, float *shifts)
{
    for (int64_t i = 0; i < c->plan->features; i++)
        shifts[i] = max[i] == -INFINITY ? 0.0f : max[i];
}

static void softmax_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                         float *features, const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    float *max = sum->more + 1, *old = c->rule_scratch + TILE;
    const size_t n = (size_t)p->features;
    memcpy(old, max, n * sizeof *max);
    c->kernels->max_columns_f32(max, attn_tile_rows(c->o->k, &p->sizes.k, t),
                                p->sizes.k.row, (size_t)t.n, n, attn_tile_keep(c, t));
    rescale(c, sum, old, max);
    put_shifts(c, max, old);
    write_keys(c, t, features, sum);
}

static void softmax_combine(const struct attn_feature_call *c,
                            const struct attn_feature_sum *into,
                            const struct attn_feature_sum *from)
{
    float *max = c->rule_scratch;
    for (int64_t i = 0; i < c->plan->features; i++)
        max[i] =
            into->more[1 + i] > from->more[1 + i] ? into->more[1 + i] : from->more[1 + i];
    rescale(c, into, into->more + 1, max);
    rescale(c, from, from->more + 1, max);
    memcpy(into->more + 1, max, (size_t)c->plan->features * sizeof *max);
}

static void softmax_end(const struct attn_feature_call *c,
                        const struct attn_feature_sum *sum)
{
    const int64_t v_dim = c->plan->sizes.v_dim;
    for (int64_t i = 0; i < c->plan->features && sum->more[0] > 0; i++) {
        const float by = 1.0f / sum->z[i];
        c->kernels->multiply_rows_f32(sum->s + i * v_dim, v_dim, 1, (size_t)v_dim, &by);
        sum->z[i] *= by;
    }
}

/* ---- tokens last: features (F, n) of columns of K and Q ---- */

/* The features of keys, less a shift of their rows where those are given. */
static void write_columns(const struct attn_feature_call *c, struct attn_feature_tile t,
                          float *features, const struct attn_feature_sum *sum,
                          const float *shifts)
{
    const struct attnrun_linear_args *args = c->rule_arg;
    const struct attn_feature_plan *p = c->plan;
    const struct attn_features f = { .x = attn_tile_rows(c->o->k, &p->sizes.k, t),
                                     .y = features,
                                     .x_row = p->sizes.kv_len,
                                     .y_row = ATTN_TRANSPOSED_ROW,
                                     .rows = (size_t)p->features,
                                     .n = (size_t)t.n,
                                     .map = kernel_map(args->feature_map_k),
                                     .scale = 1,
                                     .row_shift = shifts,
                                     .row_sums = sum->tile_z };
    c->kernels->features_f32(&f);
}

static void key_columns(const struct attn_feature_call *c, struct attn_feature_tile t,
                        float *features, const struct attn_feature_sum *sum)
{
    write_columns(c, t, features, sum, NULL);
}

static void softmax_key_columns(const struct attn_feature_call *c,
                                struct attn_feature_tile t, float *features,
                                const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    const float *x = attn_tile_rows(c->o->k, &p->sizes.k, t);
    float *max = sum->more + 1, *old = c->rule_scratch + TILE;
    memcpy(old, max, (size_t)p->features * sizeof *max);
    for (int64_t i = 0; i < p->features; i++, x += p->sizes.kv_len) {
        const float largest = c->kernels->reduce_max_f32(x, (size_t)t.n);
        max[i] = largest > max[i] ? largest : max[i];
    }
    rescale(c, sum, old, max);
    put_shifts(c, max, old);
    write_columns(c, t, features, sum, old);
}

/* dots = z' features (F, n). */
static void column_dots(const struct attn_feature_call *c, const float *features,
                        int64_t n, const float *z, float *dots)
{
    const struct attn_gemm_f32 g = { .a = z,
                                     .a_row = c->plan->features,
                                     .b = features,
                                     .b_row = ATTN_TRANSPOSED_ROW,
                                     .b_col = 1,
                                     .c = dots,
                                     .c_row = n,
                                     .m = 1,
                                     .n = (size_t)n,
                                     .k = (size_t)c->plan->features,
                                     .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
}

static void query_columns(const struct attn_feature_call *c, struct attn_feature_tile t,
                          float *features, const float *z, float *dots)
{
    const struct attnrun_linear_args *args = c->rule_arg;
    const struct attn_feature_plan *p = c->plan;
    const bool softmax = args->feature_map_q == MAP_SOFTMAX;
    float *shift = c->rule_scratch, *sums = dots;
    struct attn_features f = { .x = attn_tile_rows(c->o->q, &p->sizes.q, t),
                               .y = features,
                               .x_row = p->sizes.q_len,
                               .y_row = ATTN_TRANSPOSED_ROW,
                               .rows = (size_t)p->features,
                               .n = (size_t)t.n,
                               .map = kernel_map(args->feature_map_q),
                               .scale = 1 };
    if (softmax) {
        for (int64_t i = 0; i < t.n; i++) {
            shift[i] = -INFINITY;
            sums[i] = 0;
        }
        c->kernels->max_columns_f32(shift, f.x, f.x_row, f.rows, f.n, NULL);
        f.column_shift = shift;
        f.column_sums = sums;
    }
    c->kernels->features_f32(&f);
    if (softmax) {
        for (int64_t i = 0; i < t.n; i++)
            shift[i] = 1.0f / sums[i];
        attn_feature_scale_columns(c, features, ATTN_TRANSPOSED_ROW, p->features, t.n,
                                   shift);
    }
    if (p->denominator != ATTN_DENOMINATOR_NONE)
        column_dots(c, features, t.n, z, dots);
}

static const struct attn_feature_callbacks column_callbacks = { .keys = key_columns,
                                                                .queries =
                                                                    query_columns };
static const struct attn_feature_callbacks softmax_column_callbacks = {
    .keys = softmax_key_columns,
    .queries = query_columns,
    .begin = begin_softmax,
    .combine = softmax_combine,
    .end = softmax_end
};

static const struct attn_feature_callbacks plain_callbacks = { .keys = write_keys,
                                                               .queries = write_queries };
static const struct attn_feature_callbacks softmax_callbacks = { .keys = softmax_keys,
                                                                 .queries = write_queries,
                                                                 .begin = begin_softmax,
                                                                 .combine =
                                                                     softmax_combine,
                                                                 .end = softmax_end };

/* ---- infer ---- */

static attn_status check_modes(const attnrun_step *step)
{
    const struct attnrun_linear_args *args = step->args;
    const bool past = op_has_in(step, PAST_KV) || op_has_in(step, PAST_Z);
    const bool present = step->n_out > PRESENT_KV;
    TRY(attn_need_not_negative(step, "epsilon", args->epsilon));
    if (args->denominator == ADD_KEYS && (args->heads.is_causal == 0 || past || present))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "denominator is add_keys, expected add, clamp or none %s",
                       args->heads.is_causal == 0 ? "without is_causal 1"
                                                  : "with past_kv or present_kv");
    if (op_has_in(step, PAST_KV) != op_has_in(step, PAST_Z))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "past_kv and past_z go together; only %s is given",
                       op_has_in(step, PAST_KV) ? "past_kv" : "past_z");
    if (args->dims_first != 0 &&
        (args->heads.is_causal != 0 || op_has_in(step, KEY_MASK)))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "dims_first is 1, expected 0 with %s: transpose the operands",
                       args->heads.is_causal != 0 ? "is_causal 1" : "a key_mask");
    if (past && args->heads.is_causal == 0)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "a past state needs is_causal 1; with is_causal 0 all keys are seen at once");
    if (args->feature_map_k == MAP_SOFTMAX && args->heads.is_causal != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "feature_map_k is softmax_n, which needs all keys at once, but "
                       "is_causal is 1");
    if (args->feature_map_k == MAP_SOFTMAX && present)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "feature_map_k softmax_n has no states, so present_kv and "
                       "present_z cannot be outputs");
    return ATTNRUN_OK;
}

static attn_status attnrun_linear_check_past(const attnrun_step *step,
                                             const struct attn_qkv *shape)
{
    const struct attnrun_linear_args *args = step->args;
    const int ins[2] = { PAST_KV, PAST_Z };
    for (int i = 0; i < 2; i++) {
        const int in = ins[i];
        if (!op_has_in(step, in))
            continue;
        TRY(op_need_rank(step, in, i == 0 ? 4 : 3));
        TRY(op_need_dim(step, in, 0, shape->batch, "the batch"));
        TRY(op_need_dim(step, in, 1, shape->kv_heads, "the key heads"));
        TRY(op_need_dim(step, in, 2, shape->dim, "the head size of keys"));
        if (i == 0)
            TRY(op_need_dim(step, in, 3, shape->v_dim, "the head size of values"));
    }
    if (args->heads.is_causal != 0 && !op_has_in(step, PAST_KV) &&
        !dim_may_equal(shape->q_len, shape->kv_len))
        return op_fail_input(step, K, ATTNRUN_E_SHAPE,
                             "its length is %lld, expected %lld as in Q, because "
                             "is_causal is 1 and there is no past state",
                             (long long)shape->kv_len.value,
                             (long long)shape->q_len.value);
    return ATTNRUN_OK;
}

static attn_status attnrun_linear_set_outputs(attnrun_step *step,
                                              const struct attn_qkv *shape)
{
    attnrun_dim dims[4] = { shape->batch, shape->kv_heads, shape->dim, shape->v_dim };
    TRY(attn_qkv_output(step, shape, Y));
    if (step->n_out > PRESENT_KV)
        TRY(op_out(step, PRESENT_KV, shape->dtype, 4, dims));
    return step->n_out > PRESENT_Z ? op_out(step, PRESENT_Z, shape->dtype, 3, dims)
                                   : ATTNRUN_OK;
}

static attn_status attnrun_linear_infer(attnrun_step *step)
{
    static const int32_t denominators[] = { ATTN_DENOMINATOR_ADD, ATTN_DENOMINATOR_CLAMP,
                                            ATTN_DENOMINATOR_NONE, ATTN_DENOMINATOR_ADD };
    const struct attnrun_linear_args *args = step->args;
    struct attn_feature_plan *p = &((struct attnrun_linear_state *)step->state)->plan;
    const bool softmax = args->feature_map_k == MAP_SOFTMAX;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V,
                       args->dims_first != 0 ? ATTN_DIMS_FIRST : 0, &shape));
    TRY(check_modes(step));
    TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
    TRY(attnrun_linear_check_past(step, &shape));
    TRY(attnrun_linear_set_outputs(step, &shape));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &p->sizes));
    p->transposed = args->dims_first != 0;
    p->masked = op_has_in(step, KEY_MASK);
    if (args->dims_first != 0)
        p->callbacks = softmax ? &softmax_column_callbacks : &column_callbacks;
    else
        p->callbacks = softmax ? &softmax_callbacks : &plain_callbacks;
    p->features = p->sizes.dim;
    p->more = softmax ? 1 + p->features : 1;
    p->tile = TILE;
    p->denominator = denominators[args->denominator];
    p->epsilon = args->denominator == ADD_KEYS ? 0.0f : args->epsilon;
    p->z_begin = args->denominator == ADD_KEYS ? args->epsilon : 0.0f;
    p->scale = p->sizes.scale;
    p->token_cost = 0.3 * (double)p->features;
    return attn_feature_plan_make(step, p, TILE + p->features);
}

/* ---- run ---- */

static attn_status attnrun_linear_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attnrun_linear_state *state = step->state;
    const bool past = op_has_in(step, PAST_KV), masked = op_has_in(step, KEY_MASK);
    const struct attn_feature_operands o = {
        .q = step->x[Q].data,
        .k = step->x[K].data,
        .v = step->x[V].data,
        .keep = masked ? step->x[KEY_MASK].data : NULL,
        .past_kv = past ? step->x[PAST_KV].data : NULL,
        .past_z = past ? step->x[PAST_Z].data : NULL,
        .y = step->y[Y].data,
        .present_kv = op_has_out(step, PRESENT_KV) ? step->y[PRESENT_KV].data : NULL,
        .present_z = op_has_out(step, PRESENT_Z) ? step->y[PRESENT_Z].data : NULL
    };
    return attn_feature_run(&state->plan, step->kernels, &o, step->args, work);
}

const attnrun_op_def op_attnrun_linear_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LinearAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8? past_kv:T? past_z:T?",
    .outputs = "Y:T present_kv:T? present_z:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct attnrun_linear_args),
    .state_bytes = sizeof(struct attnrun_linear_state),
    .attrs = attnrun_linear_attrs,
    .infer = attnrun_linear_infer,
    .run = attnrun_linear_run,
    .cost = "O(tokens dim v_dim) per head",
    .source = "arXiv:2006.16236; arXiv:1812.01243",
};
