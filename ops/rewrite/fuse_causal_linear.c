/* fuse_causal_linear.c - causal attention by kernel features, written out with cumulative sums
 * over tokens, becomes LinearAttention of domain attnrun, which keeps one sum of dim x v_dim:
 *
 *   Y = (Q S) / (Q Z + epsilon),   S = CumSum(K' V of each token), Z = CumSum(K)
 *
 * with epsilon 0 where there is none. Products are Einsum; the quotient is Div, a product with
 * Reciprocal, or Reciprocal as the third operand of an Einsum; Q Z may be ReduceSum of a Mul.
 * Axes are batch, heads, tokens, dim, or batch, tokens, heads, dim, the same in all operands;
 * nothing is broadcast. Q and K are what the graph made of features. */
#include "../../runtime/poll.h"
#include "product.h"

enum { RANK = 4 };

struct found {
    struct attn_lettered q, k, v, y; /* in the letters of y's product */
    char token, dim, v_dim;
    int at; /* the axis of tokens */
    double epsilon;
};

static const attnrun_type *type_of(const struct attn_graph *graph, int32_t value)
{
    return &graph->values[value].type;
}

/* What CumSum sums up to and with each element along that axis; -1: no such sums. */
static int32_t sums_of(const struct attn_graph *graph, int32_t value, int *axis)
{
    double at;
    const struct attn_node *node = attn_graph_producer(graph, value);
    const int rank = type_of(graph, value)->rank;
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

/* The one letter of x that neither of the others has; 0: none, or several. */
static char letter_of(const struct attn_lettered *x, const struct attn_lettered *a)
{
    char own = 0;
    for (int i = 0; i < x->n; i++)
        if (!attn_lettered_has(a, x->letters[i])) {
            if (own != 0)
                return 0;
            own = x->letters[i];
        }
    return own;
}

/* S of y's product: cumulative sums of products of each token of K and V. */
static bool read_sums(const struct attn_graph *graph, const struct attn_lettered *s,
                      struct found *found)
{
    struct attn_product p;
    char to[26] = { 0 };
    int axis;
    const int32_t products = sums_of(graph, s->value, &axis);
    if (s->n != RANK + 1 || products < 0 || graph->values[s->value].n_uses != 1 ||
        !attn_product_read(graph, products, &p) || p.n_in != 2 || p.out.n != RANK + 1)
        return false;
    found->token = s->letters[axis];
    for (int i = 0; i < s->n; i++)
        to[p.out.letters[i] - 'a'] = s->letters[i];
    for (int side = 0; side < 2; side++) {
        found->k = p.in[side];
        found->v = p.in[1 - side];
        if (found->k.n != RANK || found->v.n != RANK)
            return false;
        for (int i = 0; i < RANK; i++) {
            found->k.letters[i] = to[found->k.letters[i] - 'a'];
            found->v.letters[i] = to[found->v.letters[i] - 'a'];
        }
        if (memcmp(found->k.letters, found->q.letters, RANK) == 0 &&
            memcmp(found->v.letters, found->y.letters, RANK) == 0)
            return true;
    }
    return false;
}

/* Q S of a product with these two operands. */
static bool read_numerator(const struct attn_graph *graph, const struct attn_product *p,
                           int q, int s, struct found *found)
{
    found->q = p->in[q];
    found->y = p->out;
    if (found->q.n != RANK || found->y.n != RANK)
        return false;
    found->dim = letter_of(&found->q, &found->y);
    found->v_dim = letter_of(&found->y, &found->q);
    if (found->dim == 0 || found->v_dim == 0 || !read_sums(graph, &p->in[s], found))
        return false;
    found->at = attn_lettered_place(&found->q, found->token);
    return (found->at == 1 || found->at == 2) && found->q.letters[3] == found->dim &&
           found->y.letters[3] == found->v_dim &&
           memcmp(found->q.letters, found->y.letters, 3) == 0;
}

/* Z: cumulative sums of K. */
static bool is_key_sums(const struct attn_graph *graph, const struct found *found,
                        int32_t value)
{
    int axis;
    return sums_of(graph, value, &axis) == found->k.value && axis == found->at;
}

/* Q Z over dim, without that axis or with one of 1. */
static bool is_weights(const struct attn_graph *graph, const struct found *found,
                       int32_t value)
{
    double axis = 0;
    struct attn_product p;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "ReduceSum")) {
        const struct attn_node *times = attn_match_in(graph, node, 0, "Mul");
        if (times == NULL || node->pub.n_in < 2 ||
            !attn_value_scalar(graph, node->in[1], &axis) || (axis > -1 && axis < 3) ||
            axis < -1 || axis > 3 || type_of(graph, times->out[0])->rank != RANK)
            return false;
        const int32_t other = attn_match_other(times, found->q.value);
        return other >= 0 && is_key_sums(graph, found, other);
    }
    if (!attn_product_read(graph, value, &p) || p.n_in != 2 || p.out.n != RANK - 1 ||
        p.in[0].n != RANK || p.in[1].n != RANK ||
        memcmp(p.in[0].letters, p.in[1].letters, RANK) != 0 ||
        memcmp(p.in[0].letters, p.out.letters, RANK - 1) != 0)
        return false;
    for (int side = 0; side < 2; side++)
        if (p.in[side].value == found->q.value &&
            is_key_sums(graph, found, p.in[1 - side].value))
            return true;
    return false;
}

/* The denominator, or, `factor`, one over it; `rank` 3, or 4 with a last axis of 1. */
static bool read_denominator(const struct attn_graph *graph, struct found *found,
                             int32_t value, bool factor)
{
    int32_t other;
    double axis;
    found->epsilon = 0;
    for (int k = 0; k < 4; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        const attnrun_type *t = type_of(graph, value);
        if (node_is(node, "Unsqueeze") && t->rank == RANK && node->pub.n_in > 1 &&
            attn_value_scalar(graph, node->in[1], &axis) && !(axis > -1 && axis < 3))
            value = node->in[0];
        else if (node_is(node, "Reciprocal") && factor) {
            value = node->in[0];
            factor = false;
        } else if (node_is(node, "Add") && found->epsilon <= 0 &&
                   attn_match_scalar(graph, node, true, &found->epsilon, &other) &&
                   attn_match_same_rank(graph, other, value))
            value = other;
        else
            break;
    }
    const attnrun_type *t = type_of(graph, value);
    return !factor && found->epsilon >= 0 &&
           (t->rank == RANK - 1 || (t->rank == RANK && dim_is(t->dims[3], 1))) &&
           is_weights(graph, found, value);
}

static bool read_quotient(const struct attn_graph *graph, const struct attn_node *node,
                          struct found *found)
{
    struct attn_product p;
    const bool divides = node_is(node, "Div");
    for (int side = 0; side < (divides ? 1 : 2); side++) {
        if (!attn_product_read(graph, node->in[side], &p) || p.n_in != 2 ||
            graph->values[node->in[side]].n_uses != 1 ||
            type_of(graph, node->in[1 - side])->rank != RANK)
            continue;
        for (int q = 0; q < 2; q++)
            if (read_numerator(graph, &p, q, 1 - q, found) &&
                read_denominator(graph, found, node->in[1 - side], !divides))
                return true;
    }
    return false;
}

static bool read_three(const struct attn_graph *graph, const struct attn_node *node,
                       struct found *found)
{
    struct attn_product p;
    if (!attn_product_read(graph, node->out[0], &p) || p.n_in != 3)
        return false;
    for (int z = 0; z < 3; z++)
        for (int side = 1; side < 3; side++)
            if (p.in[z].n == RANK - 1 &&
                read_numerator(graph, &p, (z + side) % 3, (z + 3 - side) % 3, found) &&
                memcmp(p.in[z].letters, found->q.letters, RANK - 1) == 0 &&
                read_denominator(graph, found, p.in[z].value, true))
                return true;
    return false;
}

/* All dims are known to be equal, heads and dims as numbers. */
static bool dims_fit(const struct attn_graph *graph, const struct found *found,
                     int32_t result)
{
    const attnrun_dim *q = type_of(graph, found->q.value)->dims,
                      *k = type_of(graph, found->k.value)->dims,
                      *v = type_of(graph, found->v.value)->dims,
                      *y = type_of(graph, result)->dims;
    for (int i = 0; i < 3; i++)
        if (!dim_equal(q[i], k[i]) || !dim_equal(q[i], v[i]) || !dim_equal(q[i], y[i]))
            return false;
    return dim_equal(q[3], k[3]) && dim_equal(v[3], y[3]) && dim_is_const(q[3]) &&
           dim_is_const(v[3]) && dim_is_const(q[3 - found->at]) &&
           q[3 - found->at].value > 0;
}

static attn_status replace(struct attn_graph *graph, struct attn_node *node,
                           const struct found *found)
{
    const bool by_token = found->at == 1;
    const int64_t heads = type_of(graph, found->q.value)->dims[3 - found->at].value,
                  dim = type_of(graph, found->q.value)->dims[3].value,
                  v_dim = type_of(graph, found->v.value)->dims[3].value;
    int32_t in[3] = { found->q.value, found->k.value, found->v.value }, y;
    const struct attn_attr attrs[] = { MATCH_STRING("feature_map_q", "identity"),
                                       MATCH_STRING("feature_map_k", "identity"),
                                       MATCH_FLOAT("epsilon", (float)found->epsilon),
                                       MATCH_INT("is_causal", 1),
                                       MATCH_INT("q_num_heads", heads),
                                       MATCH_INT("kv_num_heads", heads) };
    struct attn_node *made;
    for (int i = 0; by_token && i < 3; i++) {
        const int64_t joined[3] = { 0, 0, heads * (i == 2 ? v_dim : dim) };
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    if (!by_token)
        graph->values[y].type = graph->values[node->out[0]].type;
    TRY(attn_graph_insert(graph, node, "attnrun", "LinearAttention", 3, in, 1, &y,
                          by_token ? 6 : 4, attrs, &made));
    if (by_token) {
        const int64_t apart[4] = { 0, 0, heads, v_dim };
        TRY(attn_match_reshape(graph, node, 4, apart, &y));
        made = attn_graph_producer(graph, y);
    }
    attn_match_replace(graph, node->out[0], made);
    return ATTNRUN_OK;
}

static attn_status run(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        struct found found = { .epsilon = 0 };
        const bool quotient =
            node_is(node, "Div") || (node_is(node, "Mul") && node->pub.n_in == 2);
        if ((!quotient && !node_is(node, "Einsum")) ||
            graph->values[node->out[0]].n_uses == 0 ||
            !attn_match_is_f32(graph, node->out[0]) ||
            type_of(graph, node->out[0])->rank != RANK ||
            !(quotient ? read_quotient(graph, node, &found)
                       : read_three(graph, node, &found)) ||
            !dims_fit(graph, &found, node->out[0]))
            continue;
        TRY(replace(graph, node, &found));
        ++*applied;
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_causal_linear_attention = {
    .name = "causal_linear_attention", .run = run
};
