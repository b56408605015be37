/* synthetic_attention.c - SyntheticAttention (Synthesizer): L = the sum over components m
 * of alpha_m L_m, and Y = softmax(L) V, or L V where normalize is 0.
 *
 *   dot                L = scale q k'
 *   dense              L[i,j] = hid_i W2[:,j] + b2[j]; hid is an activation of the graph
 *   random             L[i,j] = R[i,j]
 *   factorized_random  L[i,j] = R1[i] R2[j]'
 *   factorized_dense   L[i,j] = a_i[ia(j)] b_i[ib(j)]; "tile": j mod n, "repeat":
 *                      j / (n_a n_b / n)
 *
 * V          f32 (batch, kv_len, heads * v_dim) or (batch, heads, kv_len, v_dim)
 * q, k       as V, with dim and q_len, kv_len; Y as V, with q_len
 * hid        (batch, q_len, heads * dh) or (batch, heads, q_len, dh), or for all heads
 *            (batch, q_len, dh) or (batch, 1, q_len, dh)
 * W2, b2     (1 or heads, dh, m), (1 or heads, m); m is at least kv_len
 * a, b       (batch, q_len, heads * n_a), (batch, q_len, heads * n_b); or by head;
 *            n_a n_b is at least kv_len
 * R          (1 or heads, l, m); l is at least q_len, m at least kv_len
 * R1, R2     (1 or heads, l, r), (1 or heads, m, r)
 * alpha      (components), ones by default; key_mask bool (batch, kv_len): false masks a
 *            key
 *
 * q_len is that of q, hid, a and b where one of them is given, and kv_len otherwise. A
 * masked key has no part in the sum, with normalize 0 too. A query that sees no key gives
 * zeros. is_causal is bottom-right: j <= i + kv_len - q_len. Tables are read from their
 * beginning. Groups of query heads cannot share a head. Inputs of components that are not
 * named are ignored.
 * Refused: unknown components, none or more than 64 of them, a component without its
 * inputs, tables smaller than the sequences, n_a n_b < kv_len.
 * Cost: 2 n^2 (dims + v_dim) FLOPs. If no component depends on the sample and there is no
 * key_mask, logits and weights are computed once for several samples. No n x n matrix
 * exists but R.
 * Source: Tay 2021, arXiv:2005.00743; compared with leaderj1001/Synthesizer 3ee5829 (its
 * Random has no softmax, which is normalize 0; its FactorizedRandom is a dot of x) and
 * with scaled dot product attention under the logits as a mask (torch 2.13.0). */
#include "synthetic.h"

static const attnrun_attr_def synthetic_attrs[] = {
    ATTN_HEADS_ATTRS(struct synthetic_args),
    { .name = "components",
      .kind = ATTNRUN_ATTR_STRINGS,
      .offset = offsetof(struct synthetic_args, components),
      .flags = ATTNRUN_ATTR_REQUIRED },
    ATTR_ENUM(struct synthetic_args, tile_a, "tile|repeat", 0),
    ATTR_ENUM(struct synthetic_args, tile_b, "tile|repeat", 0),
    ATTR_INT(struct synthetic_args, normalize, 1),
    ATTR_END,
};

enum { MAX_COMPONENTS = 64 };

static const struct {
    const char *name;
    int in[2]; /* inputs that it needs */
} kinds[SYNTHETIC_KINDS] = {
    [SYNTHETIC_DOT] = { "dot", { SYNTHETIC_Q, SYNTHETIC_K } },
    [SYNTHETIC_DENSE] = { "dense", { SYNTHETIC_HID, SYNTHETIC_W2 } },
    [SYNTHETIC_FACTORS] = { "factorized_random", { SYNTHETIC_R1, SYNTHETIC_R2 } },
    [SYNTHETIC_RANDOM] = { "random", { SYNTHETIC_R, SYNTHETIC_R } },
    [SYNTHETIC_OUTER] = { "factorized_dense", { SYNTHETIC_A, SYNTHETIC_B } },
};
static const char *const input_names[] = { "V", "q", "k", "hid", "W2", "b2",
                                           "a", "b", "R", "R1",  "R2", "alpha" };

int attn_synthetic_kind(const struct synthetic_args *args, int64_t m)
{
    for (int kind = 0; kind < SYNTHETIC_KINDS; kind++)
        if (op_text_is(args->components.v[m], kinds[kind].name))
            return kind;
    return -1;
}

/* ---- attributes ---- */

/* Checks the components, and sets a bit of *found for each kind. */
static attn_status check_components(const attnrun_step *step, unsigned *found)
{
    const struct synthetic_args *args = step->args;
    const int64_t n = args->components.n;
    *found = 0;
    if (n < 1 || n > MAX_COMPONENTS)
        return op_fail(step, ATTNRUN_E_ATTR, "components has %s, expected 1 to %d",
                       attn_plural(n, "element"), MAX_COMPONENTS);
    for (int64_t m = 0; m < n; m++) {
        const attnrun_string *s = &args->components.v[m];
        const int kind = attn_synthetic_kind(args, m);
        if (kind < 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "component '%.*s' is unknown, expected dot, dense, random, "
                           "factorized_random or factorized_dense",
                           (int)(s->n < 64 ? s->n : 64), s->data);
        for (int i = 0; i < 2; i++)
            if (!op_has_in(step, kinds[kind].in[i]))
                return op_fail(step, ATTNRUN_E_ATTR, "component '%s' needs input %d '%s'",
                               kinds[kind].name, kinds[kind].in[i],
                               input_names[kinds[kind].in[i]]);
        *found |= 1u << kind;
    }
    return attn_need_int(step, "normalize", args->normalize, 0, 1);
}

static bool has(unsigned found, enum synthetic_kind kind) { return found >> kind & 1; }

/* ---- shapes ---- */

/* Checks an operand of q_len tokens: its rank and batch. The first one gives q_len. */
static attn_status check_tokens(const attnrun_step *step, int in, bool may_be_shared,
                                struct attn_qkv *shape, bool *q_len_known)
{
    const attnrun_type *t = &step->in[in];
    TRY(op_need_rank_between(step, in, 3, 4));
    if (t->rank < 0 || shape->rank < 0)
        return ATTNRUN_OK;
    if (t->rank != shape->rank && !(may_be_shared && t->rank == 3))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected rank %d, as V has",
                             shape->rank);
    const attnrun_dim tokens = t->dims[t->rank - 2];
    TRY(attn_need_equal(step, in, t->dims[0], shape->batch, "batch"));
    if (*q_len_known)
        TRY(attn_need_equal(step, in, tokens, shape->q_len, "number of queries"));
    if (!*q_len_known || !dim_is_const(shape->q_len))
        shape->q_len = tokens;
    *q_len_known = true;
    return ATTNRUN_OK;
}

static attn_status find_shape(const attnrun_step *step, unsigned found,
                              struct attn_qkv *shape)
{
    const struct synthetic_args *args = step->args;
    const bool dot = has(found, SYNTHETIC_DOT);
    bool known = dot;
    TRY(attn_qkv_infer(step, &args->heads, dot ? SYNTHETIC_Q : SYNTHETIC_V,
                       dot ? SYNTHETIC_K : SYNTHETIC_V, SYNTHETIC_V, ATTN_SAME_HEADS,
                       shape));
    if (has(found, SYNTHETIC_DENSE))
        TRY(check_tokens(step, SYNTHETIC_HID, true, shape, &known));
    if (has(found, SYNTHETIC_OUTER)) {
        TRY(check_tokens(step, SYNTHETIC_A, false, shape, &known));
        TRY(check_tokens(step, SYNTHETIC_B, false, shape, &known));
    }
    if (!known && shape->rank < 0)
        shape->q_len = attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

/* ---- sizes ---- */

static attn_status need_min(const attnrun_step *step, int in, int axis, int64_t min,
                            const char *what)
{
    const int64_t size = step->in[in].dims[axis].value;
    if (size >= min)
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected at least %lld %s in dim %d",
                         (long long)min, what, axis);
}

/* Checks a weight of `rank` whose first dim is 1 or the number of heads. *stride: from
 * one head to the next, or 0 where they share it. */
static attn_status check_weight(const attnrun_step *step, int in, int rank, int64_t heads,
                                int64_t *stride)
{
    const attnrun_type *t = &step->in[in];
    TRY(op_need_rank(step, in, rank));
    const int64_t own = t->dims[0].value;
    if (own != 1 && own != heads)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected 1 or %lld in dim 0, one for each head",
                             (long long)heads);
    *stride = 1;
    for (int axis = 1; axis < rank; axis++)
        if (!ck_mul(*stride, t->dims[axis].value, stride))
            return op_fail_input(step, in, ATTNRUN_E_LIMIT,
                                 "expected at most 2^63 - 1 elements for a head");
    if (own == 1)
        *stride = 0;
    return ATTNRUN_OK;
}

/* Finds the heads of an activation: *dim elements each. Where `known` is not 0 they have
 * that many, and all heads may share one. */
static attn_status find_heads(const attnrun_step *step, int in, int64_t known,
                              const struct synthetic_state *s, int64_t *dim,
                              struct attn_heads *strides)
{
    const attnrun_type *t = &step->in[in];
    const int64_t heads = s->sizes.q_heads, width = t->dims[t->rank - 1].value;
    int64_t own = heads, all;
    bool fits;
    *dim = known;
    if (t->rank == 4) {
        own = t->dims[1].value;
        *dim = known > 0 ? known : width;
        fits = width == *dim && (own == heads || (known > 0 && own == 1));
    } else if (known > 0) {
        fits = ck_mul(heads, known, &all) && (width == all || width == known);
        own = width == known ? 1 : heads;
    } else {
        *dim = width / heads;
        fits = width % heads == 0;
    }
    if (!fits || *dim < 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             known > 0 ? "expected %lld heads of %lld, or one"
                                       : "expected %lld heads of one size",
                             (long long)heads, (long long)known);
    *strides = attn_heads_dense(t->rank, own, s->sizes.q_len, *dim);
    if (own == 1)
        strides->head = 0;
    return ATTNRUN_OK;
}

static attn_status size_dense(const attnrun_step *step, struct synthetic_state *s)
{
    struct synthetic_product *p = &s->products[SYNTHETIC_DENSE];
    const attnrun_type *w2 = &step->in[SYNTHETIC_W2];
    const int64_t heads = s->sizes.q_heads, keys = s->sizes.kv_len;
    TRY(check_weight(step, SYNTHETIC_W2, 3, heads, &p->k.head));
    TRY(need_min(step, SYNTHETIC_W2, 1, 1, "element of hid"));
    TRY(need_min(step, SYNTHETIC_W2, 2, keys, "keys"));
    TRY(find_heads(step, SYNTHETIC_HID, w2->dims[1].value, s, &p->dim, &p->q));
    p->k.row = 1;
    p->k_col = w2->dims[2].value;
    if (!op_has_in(step, SYNTHETIC_B2))
        return ATTNRUN_OK;
    TRY(check_weight(step, SYNTHETIC_B2, 2, heads, &s->b2_head));
    return need_min(step, SYNTHETIC_B2, 1, keys, "keys");
}

static attn_status size_random(const attnrun_step *step, struct synthetic_state *s)
{
    struct synthetic_product *p = &s->products[SYNTHETIC_FACTORS];
    const int64_t heads = s->sizes.q_heads;
    if (has(s->kinds, SYNTHETIC_RANDOM)) {
        TRY(check_weight(step, SYNTHETIC_R, 3, heads, &s->r_head));
        TRY(need_min(step, SYNTHETIC_R, 1, s->sizes.q_len, "queries"));
        TRY(need_min(step, SYNTHETIC_R, 2, s->sizes.kv_len, "keys"));
        s->r_row = step->in[SYNTHETIC_R].dims[2].value;
    }
    if (!has(s->kinds, SYNTHETIC_FACTORS))
        return ATTNRUN_OK;
    TRY(check_weight(step, SYNTHETIC_R1, 3, heads, &p->q.head));
    TRY(check_weight(step, SYNTHETIC_R2, 3, heads, &p->k.head));
    TRY(need_min(step, SYNTHETIC_R1, 1, s->sizes.q_len, "queries"));
    TRY(need_min(step, SYNTHETIC_R1, 2, 1, "element"));
    TRY(need_min(step, SYNTHETIC_R2, 1, s->sizes.kv_len, "keys"));
    TRY(op_need_dim(step, SYNTHETIC_R2, 2, step->in[SYNTHETIC_R1].dims[2],
                    "the rows of R1"));
    p->dim = p->q.row = p->k.row = step->in[SYNTHETIC_R1].dims[2].value;
    p->k_col = 1;
    return ATTNRUN_OK;
}

static attn_status size_outer(const attnrun_step *step, struct synthetic_state *s)
{
    const struct synthetic_args *args = step->args;
    int64_t keys;
    TRY(find_heads(step, SYNTHETIC_A, 0, s, &s->a.n, &s->a.x));
    TRY(find_heads(step, SYNTHETIC_B, 0, s, &s->b.n, &s->b.x));
    s->a.repeat = args->tile_a != 0 ? s->b.n : 0;
    s->b.repeat = args->tile_b != 0 ? s->a.n : 0;
    if (!ck_mul(s->a.n, s->b.n, &keys) || keys < s->sizes.kv_len)
        return op_fail_input(
            step, SYNTHETIC_A, ATTNRUN_E_SHAPE,
            "its %lld times the %lld of b is less than the number of keys, "
            "%lld",
            (long long)s->a.n, (long long)s->b.n, (long long)s->sizes.kv_len);
    return ATTNRUN_OK;
}

/* Fills in the components from constant dims. */
static attn_status size_components(const attnrun_step *step, struct synthetic_state *s)
{
    const struct synthetic_args *args = step->args;
    int products = 0;
    if (has(s->kinds, SYNTHETIC_DOT))
        s->products[SYNTHETIC_DOT] = (struct synthetic_product){
            .dim = s->sizes.dim, .q = s->sizes.q, .k = s->sizes.k, .k_col = 1
        };
    if (has(s->kinds, SYNTHETIC_DENSE))
        TRY(size_dense(step, s));
    TRY(size_random(step, s));
    if (has(s->kinds, SYNTHETIC_OUTER))
        TRY(size_outer(step, s));
    TRY(op_need_vector(step, SYNTHETIC_ALPHA, dim_of(args->components.n),
                       "the number of components"));
    for (int kind = 0; kind < SYNTHETIC_PRODUCTS; kind++) {
        s->products[kind].q_in = kinds[kind].in[0];
        s->products[kind].k_in = kinds[kind].in[1];
        s->inner += s->products[kind].dim;
        products += s->products[kind].dim > 0;
    }
    s->joined = products > 1;
    return ATTNRUN_OK;
}

static attn_status synthetic_infer(attnrun_step *step)
{
    const struct synthetic_args *args = step->args;
    struct synthetic_state *s = step->state;
    struct attn_qkv shape;
    unsigned found;
    TRY(check_components(step, &found));
    TRY(find_shape(step, found, &shape));
    TRY(attn_key_mask_check(step, SYNTHETIC_KEY_MASK, shape.batch, shape.kv_len));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->kinds = found;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    if (s->sizes.q_heads > 0)
        TRY(size_components(step, s));
    TRY(attn_synthetic_plan(step, s));
    op_tasks(step, 0, s->n_tasks, s->task_cost);
    step->scratch_bytes = s->scratch_bytes;
    return ATTNRUN_OK;
}

const attnrun_op_def op_synthetic_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SyntheticAttention",
    .since = 1,
    .inputs = "V:T q:T? k:T? hid:T? W2:T? b2:T? a:T? b:T? R:T? R1:T? R2:T? alpha:T? "
              "key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct synthetic_args),
    .state_bytes = sizeof(struct synthetic_state),
    .attrs = synthetic_attrs,
    .infer = synthetic_infer,
    .run = attn_synthetic_run,
    .cost = "O(n^2 d), scratch O(block of queries)",
    .source = "Tay 2021, arXiv:2005.00743",
};
