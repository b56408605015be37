/* fuse_causal_linear.c - causal attention by kernel features, written out with cumulative sums
 * over tokens, becomes LinearAttention of domain attnrun, which keeps one sum of dim x v_dim:
 *
 *   Y = (Q S) / (Q Z + epsilon),   S = CumSum(K' V of each token), Z = CumSum(K)
 *
 * epsilon is 0 if the graph adds none; Q (Z + epsilon) is recognised, too. Products are Einsum, or
 * are written by broadcasting (product_broadcast.c). The quotient is Div, a product with
 * Reciprocal, or Reciprocal as the third operand of an Einsum. Q Z may be the ReduceSum of a Mul.
 * Axes are (batch, heads, tokens, dim) or (batch, tokens, heads, dim), the same in all operands,
 * and nothing is broadcast. Q and K are features: elu + 1, relu, or whatever the graph computes.
 * Source of the mechanism: Katharopoulos 2020, arXiv:2006.16236. */
#include "linear_quotient.h"

enum { RANK = 4 };

struct causal_linear_match {
    struct attn_labelled q, k, v, y; /* in the labels of y's product */
    char token, dim, v_dim;
    int at;                       /* the axis of tokens */
    double epsilon, keys_epsilon; /* added to Q Z; to Z */
    const char *why; /* there are cumulative sums, but no such quotient of them */
};

/* What CumSum sums up to and with each element along that axis; -1: no such sums. */
static int32_t sums_of(const struct attn_graph *graph, int32_t value, int *axis)
{
    double at;
    const struct attn_node *node = attn_graph_producer(graph, value);
    const int rank = match_type(graph, value)->rank;
    if (!node_is(node, "CumSum") || attn_match_int(node, "exclusive", 0) != 0 ||
        attn_match_int(node, "reverse", 0) != 0 || rank < 1 ||
        !attn_value_scalar(graph, node->in[1], &at))
        return -1;
    at = at < 0 ? at + rank : at;
    if (at < 0 || at >= rank)
        return -1;
    *axis = (int)at;
    return node->in[0];
}

/* S of y's product: cumulative sums of products of each token of K and V. */
static bool read_sums(const struct attn_graph *graph, const struct attn_labelled *s,
                      struct causal_linear_match *found)
{
    struct attn_product p;
    char to[26] = { 0 };
    int axis;
    const int32_t products = sums_of(graph, s->value, &axis);
    if (s->n != RANK + 1 || products < 0 || graph->values[s->value].n_uses != 1 ||
        (!attn_product_read_broadcast(graph, products, &p) &&
         !attn_product_read(graph, products, &p)) ||
        p.n_in != 2 || p.out.n != RANK + 1)
        return false;
    found->token = s->labels[axis];
    for (int i = 0; i < s->n; i++)
        to[p.out.labels[i] - 'a'] = s->labels[i];
    for (int side = 0; side < 2; side++) {
        found->k = p.in[side];
        found->v = p.in[1 - side];
        if (found->k.n != RANK || found->v.n != RANK)
            return false;
        for (int i = 0; i < RANK; i++) {
            found->k.labels[i] = to[found->k.labels[i] - 'a'];
            found->v.labels[i] = to[found->v.labels[i] - 'a'];
        }
        if (memcmp(found->k.labels, found->q.labels, RANK) == 0 &&
            memcmp(found->v.labels, found->y.labels, RANK) == 0)
            return true;
    }
    return false;
}

/* Q S of a product with these two operands. */
static bool read_numerator(const struct attn_graph *graph, const struct attn_product *p,
                           int q, int s, struct causal_linear_match *found)
{
    found->q = p->in[q];
    found->y = p->out;
    if (found->q.n != RANK || found->y.n != RANK)
        return false;
    found->dim = attn_labelled_own(&found->q, &found->y);
    found->v_dim = attn_labelled_own(&found->y, &found->q);
    if (found->dim == 0 || found->v_dim == 0 || !read_sums(graph, &p->in[s], found))
        return false;
    found->at = attn_labelled_place(&found->q, found->token);
    found->why = "the axes of its operands are in different orders";
    return (found->at == 1 || found->at == 2) && found->q.labels[3] == found->dim &&
           found->y.labels[3] == found->v_dim &&
           memcmp(found->q.labels, found->y.labels, 3) == 0;
}

/* Z: cumulative sums of K, or these and a number. */
static bool is_key_sums(const struct attn_graph *graph, struct causal_linear_match *found,
                        int32_t value)
{
    int axis;
    int32_t sums;
    const struct attn_node *add = attn_graph_producer(graph, value);
    found->keys_epsilon = 0;
    if (node_is(add, "Add") &&
        attn_match_scalar(graph, add, true, &found->keys_epsilon, &sums) &&
        attn_match_same_rank(graph, sums, value))
        value = sums;
    return sums_of(graph, value, &axis) == found->k.value && axis == found->at;
}

/* The last of RANK axes. */
static bool is_last(double axis)
{
    return (axis >= -1 && axis <= -1) || (axis >= RANK - 1 && axis <= RANK - 1);
}

/* Q Z over dim, without that axis or with one of 1. */
static bool is_weights(const struct attn_graph *graph, struct causal_linear_match *found,
                       int32_t value)
{
    double axis = 0;
    struct attn_product p;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "ReduceSum")) {
        const struct attn_node *times = attn_match_in(graph, node, 0, "Mul");
        if (times == NULL || node->pub.n_in < 2 ||
            !attn_value_scalar(graph, node->in[1], &axis) || !is_last(axis) ||
            match_type(graph, times->out[0])->rank != RANK)
            return false;
        const int32_t other = attn_match_other(times, found->q.value);
        return other >= 0 && is_key_sums(graph, found, other);
    }
    if (!attn_product_read(graph, value, &p) || p.n_in != 2 || p.out.n != RANK - 1 ||
        p.in[0].n != RANK || p.in[1].n != RANK ||
        memcmp(p.in[0].labels, p.in[1].labels, RANK) != 0 ||
        memcmp(p.in[0].labels, p.out.labels, RANK - 1) != 0)
        return false;
    for (int side = 0; side < 2; side++)
        if (p.in[side].value == found->q.value &&
            is_key_sums(graph, found, p.in[1 - side].value))
            return true;
    return false;
}

/* The denominator, or, `factor`, one over it; `rank` 3, or 4 with a last axis of 1. */
static bool read_denominator(const struct attn_graph *graph,
                             struct causal_linear_match *found, int32_t value,
                             bool factor)
{
    int32_t other;
    double axis;
    found->epsilon = 0;
    for (int k = 0; k < 4; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        const attnrun_type *t = match_type(graph, value);
        if (node_is(node, "Unsqueeze") && t->rank == RANK && node->pub.n_in > 1 &&
            attn_value_scalar(graph, node->in[1], &axis) && is_last(axis))
            value = node->in[0];
        else if (node_is(node, "Reciprocal") && factor) {
            value = node->in[0];
            factor = false;
        } else if (!factor && node_is(node, "Add") && found->epsilon == 0 &&
                   attn_match_scalar(graph, node, true, &found->epsilon, &other) &&
                   attn_match_same_rank(graph, other, value))
            value = other;
        else
            break;
    }
    const attnrun_type *t = match_type(graph, value);
    return !factor && found->epsilon >= 0 &&
           (t->rank == RANK - 1 || (t->rank == RANK && dim_is(t->dims[3], 1))) &&
           is_weights(graph, found, value) && found->keys_epsilon >= 0 &&
           (found->keys_epsilon <= 0 || found->epsilon <= 0);
}

static bool read_quotient(const struct attn_graph *graph, const struct attn_product *p,
                          int q, int s, struct attn_labelled denominator, bool factor,
                          void *arg)
{
    struct causal_linear_match *found = arg;
    if (!read_numerator(graph, p, q, s, found))
        return false;
    found->why =
        "its divisor is not the product of the queries and cumulative sums of the keys";
    const bool apart = denominator.n == RANK - 1; /* its labels are its own */
    return (apart ? memcmp(denominator.labels, found->q.labels, RANK - 1) == 0
                  : denominator.n == RANK) &&
           read_denominator(graph, found, denominator.value, factor);
}

/* All dims are known to be equal, heads and dims as numbers. */
static bool dims_fit(const struct attn_graph *graph,
                     const struct causal_linear_match *found, int32_t result)
{
    const attnrun_dim *q = match_type(graph, found->q.value)->dims,
                      *k = match_type(graph, found->k.value)->dims,
                      *v = match_type(graph, found->v.value)->dims,
                      *y = match_type(graph, result)->dims;
    for (int i = 0; i < 3; i++)
        if (!dim_equal(q[i], k[i]) || !dim_equal(q[i], v[i]) || !dim_equal(q[i], y[i]))
            return false;
    return dim_equal(q[3], k[3]) && dim_equal(v[3], y[3]) && dim_is_const(q[3]) &&
           dim_is_const(v[3]) && dim_is_const(q[3 - found->at]) && q[3].value > 0 &&
           v[3].value > 0 && q[3 - found->at].value > 0;
}

static attn_status try_causal_linear(struct attn_graph *graph, struct attn_node *node,
                                     int32_t *applied)
{
    struct causal_linear_match found = { .epsilon = 0 };
    if (!attn_match_is_f32_of(graph, node->out[0], RANK))
        return ATTNRUN_OK;
    if (attn_quotient_read(graph, node, read_quotient, &found))
        found.why = dims_fit(graph, &found, node->out[0])
                        ? NULL
                        : "the sizes of its operands are not known to be equal";
    else if (found.why == NULL)
        return ATTNRUN_OK;
    TRY(attn_graph_note(graph, node, "causal_linear_attention", found.why));
    if (found.why != NULL)
        return ATTNRUN_OK;
    const char *const labels = found.y.labels; /* of the result; none are moved */
    const bool by_keys = found.keys_epsilon > 0;
    const char *const map_q = attn_linear_map_of(graph, &found.q.value),
                      *const map_k = attn_linear_map_of(graph, &found.k.value);
    const struct attn_linear linear = {
        .order = { .in = { found.q.value, found.k.value, found.v.value },
                   .y = node->out[0],
                   .made = { labels[0], labels[1], labels[2], labels[3] },
                   .y_labels = { labels[0], labels[1], labels[2], labels[3] },
                   .axes =
                       found.at == 1 ? ATTN_AXES_TOKENS_FIRST : ATTN_AXES_HEADS_FIRST },
        .map_q = map_q,
        .map_k = map_k,
        .denominator = by_keys ? "add_keys" : "add",
        .epsilon = by_keys ? found.keys_epsilon : found.epsilon,
        .scale = 1,
        .causal = true
    };
    ++*applied;
    return attn_linear_replace(graph, node, &linear);
}

const struct attn_pass attn_pass_causal_linear_attention = {
    .name = "causal_linear_attention", .try_node = try_causal_linear
};
