/* fuse_linear_attention.c - attention by kernel features, written out by its
 * associativity, becomes LinearAttention of domain attnrun, which makes features and
 * sums tile by tile:
 *
 *   Y = (f(Q) (f(K)' V)) / (f(Q) sum_j f(K_j) + epsilon)
 *
 * with epsilon 0 where there is none. Products are MatMul or Einsum; the quotient is Div, or
 * a factor that is Reciprocal, also as the third operand of an Einsum; the sum over keys is
 * ReduceSum, its product with f(Q) one of Einsum, MatMul or ReduceSum of a Mul. Heads come
 * before tokens or behind them. f is elu + 1, relu, or whatever the graph makes of Q and K.
 * Each axis of each operand has a label; what the labels of two operands share decides what
 * is summed, so that transposes cost nothing and prove nothing wrong. All dims must be
 * provably equal: nothing is broadcast. */
#include "../../runtime/poll.h"
#include "linear_quotient.h"

enum { RANK = 4, SUMMED = '#', ALONE = '1' }; /* labels of axes that others have not */

struct linear_attention_match {
    struct attn_labelled q, k, v, y;
    char batch, head, query, key, dim, v_dim;
    double epsilon;
    int32_t result;
    const char
        *why; /* queries times the product of keys and values are no such quotient */
};

/* ---- sums over keys ---- */

/* `value` is the sum over keys of f(K), without that axis or with one of 1 in its place (or,
 * `at` -1, in any place): labels as those of K. */
static bool is_key_sum(const struct attn_graph *graph,
                       const struct linear_attention_match *found,
                       const struct attn_labelled *value)
{
    struct attn_labelled x = *value;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (node_is(node, "Unsqueeze")) { /* its axis has a label that nothing else has */
        int axis;
        double at;
        if (node->pub.n_in < 2 || !attn_value_scalar(graph, node->in[1], &at))
            return false;
        axis = (int)(at < 0 ? at + x.n : at);
        if (axis < 0 || axis >= x.n)
            return false;
        memmove(x.labels + axis, x.labels + axis + 1, (size_t)(x.n - axis - 1));
        x.n--;
        x.value = node->in[0];
        node = attn_graph_producer(graph, x.value);
    }
    int axis;
    if (!node_is(node, "ReduceSum") || node->in[0] != found->k.value ||
        !attn_match_axis(graph, node, &axis) || found->k.labels[axis] != found->key)
        return false;
    const bool keeps = attn_match_int(node, "keepdims", 1) != 0;
    if (x.n != (keeps ? RANK : RANK - 1))
        return false;
    for (int i = 0, at = 0; i < RANK; i++) {
        if (i == axis && !keeps)
            continue;
        if (i != axis && x.labels[at] != found->k.labels[i])
            return false;
        at++;
    }
    return true;
}

/* f(Q) by the sum over keys, as Einsum or MatMul: labels of the result are those of y but
 * v_dim, one of 1 may stand there. */
static bool is_weight_sum(const struct attn_graph *graph,
                          const struct linear_attention_match *found,
                          struct attn_labelled x)
{
    struct attn_product p;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (node_is(node, "ReduceSum")) { /* of f(Q) times the sum, over dim */
        int axis;
        struct attn_node *times = attn_match_in(graph, node, 0, "Mul");
        if (times == NULL || !attn_match_axis(graph, node, &axis) ||
            found->q.labels[axis] != found->dim ||
            attn_match_int(node, "keepdims", 1) == 0 || x.n != RANK ||
            !attn_match_is_f32_of(graph, times->out[0], RANK))
            return false;
        for (int side = 0; side < 2; side++) {
            struct attn_labelled sum = { .value = times->in[1 - side], .n = RANK };
            if (times->in[side] != found->q.value ||
                !attn_match_is_f32_of(graph, sum.value, RANK))
                continue;
            for (int i = 0; i < RANK; i++) /* places of f(Q), queries for keys */
                sum.labels[i] =
                    found->q.labels[i] == found->query ? found->key : found->q.labels[i];
            bool in_place = true;
            for (int i = 0; i < RANK; i++)
                in_place = in_place && (i == axis || x.labels[i] == found->q.labels[i]);
            return in_place && is_key_sum(graph, found, &sum);
        }
        return false;
    }
    if (!attn_product_read(graph, x.value, &p) || p.n_in != 2 || p.out.n != x.n)
        return false;
    /* The product's own labels become those of f(Q). */
    char to[26] = { 0 };
    struct attn_labelled q = p.in[0], sum = p.in[1];
    attn_labelled_untranspose(graph, &q);
    attn_labelled_untranspose(graph, &sum);
    if (q.value != found->q.value || q.n != RANK)
        return false;
    for (int i = 0; i < RANK; i++)
        to[q.labels[i] - 'a'] = found->q.labels[i];
    for (int i = 0; i < sum.n; i++)
        sum.labels[i] = to[sum.labels[i] - 'a'] ? to[sum.labels[i] - 'a'] : ALONE;
    for (int i = 0; i < p.out.n; i++) {
        const char label = to[p.out.labels[i] - 'a'];
        if (label == found->dim || (label != 0 && label != x.labels[i]) ||
            (label == 0 && x.labels[i] != found->v_dim))
            return false;
    }
    return is_key_sum(graph, found, &sum);
}

/* Through Unsqueezes that add an axis where y has v_dim. */
static bool squeeze(const struct attn_graph *graph,
                    const struct linear_attention_match *found, struct attn_labelled *x)
{
    const struct attn_node *node = attn_graph_producer(graph, x->value);
    if (!node_is(node, "Unsqueeze"))
        return true;
    double at;
    if (node->pub.n_in < 2 || !attn_value_scalar(graph, node->in[1], &at))
        return false;
    const int axis = (int)(at < 0 ? at + x->n : at);
    if (axis < 0 || axis >= x->n || x->labels[axis] != found->v_dim)
        return false;
    memmove(x->labels + axis, x->labels + axis + 1, (size_t)(x->n - axis - 1));
    x->n--;
    x->value = node->in[0];
    return true;
}

/* d, d + epsilon, or what it divides by as a factor, whose labels are those of y without v_dim,
 * or with one of 1 there. */
static bool read_denominator(const struct attn_graph *graph,
                             struct linear_attention_match *found, struct attn_labelled x,
                             bool factor)
{
    int32_t other;
    if (!squeeze(graph, found, &x))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (factor && !node_is(node, "Reciprocal"))
        return false;
    if (factor)
        x.value = node->in[0];
    if (!squeeze(graph, found, &x))
        return false;
    node = attn_graph_producer(graph, x.value);
    found->epsilon = 0;
    if (node_is(node, "Add") &&
        attn_match_scalar(graph, node, true, &found->epsilon, &other)) {
        if (!(found->epsilon >= 0) || !attn_match_is_f32_of(graph, other, x.n))
            return false;
        x.value = other;
    }
    return is_weight_sum(graph, found, x);
}

/* ---- the whole ---- */

/* Operands of a product by the labels of its result; what both have and it has not, and
 * nothing else, is SUMMED. */
static bool take_sum(const struct attn_graph *graph, const char *to,
                     struct attn_labelled *k, struct attn_labelled *v)
{
    struct attn_labelled *const operands[] = { k, v };
    char summed[2] = { 0 };
    attn_labelled_untranspose(graph, k);
    attn_labelled_untranspose(graph, v);
    if (k->n != RANK || v->n != RANK)
        return false;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < RANK; i++) {
            char *const label = &operands[o]->labels[i];
            if (to[*label - 'a'] != 0) {
                *label = to[*label - 'a'];
                continue;
            }
            if (summed[o] != 0)
                return false;
            summed[o] = *label;
            *label = SUMMED;
        }
    return summed[0] != 0 && summed[0] == summed[1];
}

/* Which label is what, of y = f(Q) by the product of f(K) and V. */
static bool read_roles(const struct attn_graph *graph, const struct attn_product *p,
                       int q_in, int kv_in, struct linear_attention_match *found)
{
    struct attn_product kv;
    struct attn_labelled inner = p->in[kv_in];
    char to[26] = { 0 };
    found->q = p->in[q_in];
    attn_labelled_untranspose(graph, &found->q);
    attn_labelled_untranspose(graph, &inner);
    if (found->q.n != RANK || inner.n != RANK || p->out.n != RANK ||
        !attn_product_read(graph, inner.value, &kv) || kv.n_in != 2 || kv.out.n != RANK)
        return false;
    found->y = p->out;
    found->batch = found->head = found->query = found->dim = found->v_dim = 0;
    for (int i = 0; i < RANK; i++) {
        const char label = found->q.labels[i];
        const bool in_y = attn_labelled_has(&found->y, label),
                   in_kv = attn_labelled_has(&inner, label);
        char *const role = in_y && in_kv ? (found->batch ? &found->head : &found->batch)
                           : in_y        ? &found->query
                           : in_kv       ? &found->dim
                                         : NULL;
        if (role == NULL || *role != 0)
            return false;
        *role = label;
    }
    for (int i = 0; i < RANK; i++)
        if (!attn_labelled_has(&found->q, found->y.labels[i]))
            found->v_dim = found->y.labels[i];
    if (found->dim == 0 || found->query == 0 || found->v_dim == 0 ||
        !attn_labelled_has(&inner, found->v_dim))
        return false;
    for (int i = 0; i < RANK; i++)
        to[kv.out.labels[i] - 'a'] = inner.labels[i];
    for (int side = 0; side < 2; side++) {
        struct attn_labelled k = kv.in[side], v = kv.in[1 - side];
        if (!take_sum(graph, to, &k, &v) || !attn_labelled_has(&k, found->dim) ||
            !attn_labelled_has(&v, found->v_dim) ||
            !attn_labelled_has(&k, found->batch) || !attn_labelled_has(&k, found->head) ||
            !attn_labelled_has(&v, found->batch) || !attn_labelled_has(&v, found->head))
            continue;
        found->k = k;
        found->v = v;
        found->key = SUMMED;
        return true;
    }
    return false;
}

static bool read_quotient(const struct attn_graph *graph, const struct attn_product *p,
                          int q, int kv, struct attn_labelled denominator, bool factor,
                          void *arg)
{
    struct linear_attention_match *found = arg;
    if (!read_roles(graph, p, q, kv, found))
        return false;
    found->why = "what it divides by is not the product of queries and the sum of keys";
    const char needed[] = { found->batch, found->head, found->query };
    const bool apart = denominator.n == RANK - 1; /* its labels are its own */
    for (int i = 0; apart && i < 3; i++)
        if (!attn_labelled_has(&denominator, needed[i]))
            return false;
    return (apart ? !attn_labelled_has(&denominator, found->dim) &&
                        !attn_labelled_has(&denominator, found->v_dim)
                  : denominator.n == RANK) &&
           read_denominator(graph, found, denominator, factor);
}

/* Heads before tokens: 0; behind them: 1; -1: another order. */
static int order_of(const struct linear_attention_match *found,
                    const struct attn_labelled *x, char token, char dim)
{
    const char order[2][RANK] = { { found->batch, found->head, token, dim },
                                  { found->batch, token, found->head, dim } };
    for (int k = 0; k < 2; k++)
        if (memcmp(x->labels, order[k], RANK) == 0)
            return k;
    return -1;
}

/* All of one order, and no dim is broadcast. */
static int common_order(const struct attn_graph *graph,
                        struct linear_attention_match *found)
{
    const struct attn_labelled *const operands[] = { &found->q, &found->k, &found->v,
                                                     &found->y };
    if (attn_labelled_place(&found->q, found->batch) >
        attn_labelled_place(&found->q, found->head)) {
        const char batch = found->batch;
        found->batch = found->head;
        found->head = batch;
    }
    const int order = order_of(found, &found->q, found->query, found->dim);
    if (order < 0 || order_of(found, &found->k, found->key, found->dim) != order ||
        order_of(found, &found->v, found->key, found->v_dim) != order ||
        order_of(found, &found->y, found->query, found->v_dim) != order)
        return -1;
    for (int i = 0; i < 4; i++)
        if (!dim_equal(attn_labelled_dim(graph, operands[i], found->batch),
                       attn_labelled_dim(graph, &found->q, found->batch)) ||
            !dim_equal(attn_labelled_dim(graph, operands[i], found->head),
                       attn_labelled_dim(graph, &found->q, found->head)))
            return -1;
    const bool fits = dim_equal(attn_labelled_dim(graph, &found->q, found->dim),
                                attn_labelled_dim(graph, &found->k, found->dim)) &&
                      dim_equal(attn_labelled_dim(graph, &found->k, SUMMED),
                                attn_labelled_dim(graph, &found->v, SUMMED));
    return fits ? order : -1;
}

/* What f is, by the words of the operator; *value: what it is of. */
static const char *feature_map(const struct attn_graph *graph, int32_t *value)
{
    int32_t other;
    const struct attn_node *node = attn_graph_producer(graph, *value);
    if (node_is(node, "Relu")) {
        *value = node->in[0];
        return "relu";
    }
    if (node_is(node, "Add") && attn_match_number(graph, node, true, 1.0, &other)) {
        const struct attn_node *elu = attn_graph_producer(graph, other);
        const float alpha =
            node_is(elu, "Elu") ? attn_match_float(elu, "alpha", 1.0f) : 0.0f;
        if (alpha >= 1.0f && alpha <= 1.0f) {
            *value = elu->in[0];
            return "elu1";
        }
    }
    return "identity";
}

static attn_status try_node(struct attn_graph *graph, struct attn_node *node,
                            int32_t *applied)
{
    struct linear_attention_match found = { .result = node->out[0] };
    if (!attn_match_is_f32_of(graph, node->out[0], RANK))
        return ATTNRUN_OK;
    if (!attn_quotient_read(graph, node, read_quotient, &found))
        return found.why != NULL
                   ? attn_graph_note(graph, node, "linear_attention", found.why)
                   : ATTNRUN_OK;
    found.y.value = found.result;
    const int order = common_order(graph, &found);
    if (order < 0)
        return attn_graph_note(
            graph, node, "linear_attention",
            "its operands have axes in different orders, or sizes that "
            "are not known to be equal");
    if (!dim_is_const(attn_labelled_dim(graph, &found.q, found.head)) ||
        !dim_is_const(attn_labelled_dim(graph, &found.q, found.dim)) ||
        !dim_is_const(attn_labelled_dim(graph, &found.v, found.v_dim)) ||
        attn_labelled_dim(graph, &found.q, found.head).value < 1)
        return attn_graph_note(graph, node, "linear_attention",
                               "its heads and their sizes are not known");
    TRY(attn_graph_note(graph, node, "linear_attention", NULL));
    struct attn_linear linear = { .in = { found.q.value, found.k.value, found.v.value },
                                  .epsilon = found.epsilon,
                                  .by_token = order == 1 };
    linear.map_q = feature_map(graph, &linear.in[0]);
    linear.map_k = feature_map(graph, &linear.in[1]);
    TRY(attn_linear_replace(graph, node, &linear));
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run_fuse_linear(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++)
        if (attn_quotient_may_be(graph->nodes[n]) &&
            graph->values[graph->nodes[n]->out[0]].n_uses > 0)
            TRY(try_node(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_linear_attention = { .name = "linear_attention",
                                                      .run = run_fuse_linear };
