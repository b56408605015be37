/* fuse_softmax_features.c - attention whose features are softmaxes, written out by its
 * associativity, becomes LinearAttention of domain attnrun, which computes the softmaxes tile by
 * tile:
 *
 *   Y = s f(Q) (softmax_n(K)' V)
 *
 *   softmax_n   the softmax over keys, of each feature separately
 *   f(Q)        the softmax over features, or whatever the graph computes from Q
 *   s           a product of scalars on Q or K, before or after a Transpose
 *
 * Heads are an axis before the tokens or after them, or there are none (linear_roles.h). A mask
 * that adds a large negative number to K stays in the graph, in front of K: the softmax over keys
 * gives such keys no weight.
 * Source of the mechanism: Shen 2018, arXiv:1812.01243. */
#include "linear_quotient.h"

/* x = scale times a Softmax over the axis of `label`, which one node alone reads: x becomes what it
 * is of. */
static bool strip_softmax(const struct attn_graph *graph, struct attn_labelled *x,
                          char label, double *scale)
{
    struct attn_labelled at = *x;
    double factor = *scale;
    at.value = attn_match_strip_scale(graph, at.value, &factor);
    attn_labelled_untranspose(graph, &at);
    at.value = attn_match_strip_scale(graph, at.value, &factor);
    const struct attn_node *node = attn_graph_producer(graph, at.value);
    if (!node_is(node, "Softmax") || node->pub.opset < 13 ||
        graph->values[at.value].n_uses != 1)
        return false;
    const int64_t axis = attn_match_int(node, "axis", -1);
    if ((axis < 0 ? axis + at.n : axis) != attn_labelled_place(&at, label))
        return false;
    at.value = node->in[0];
    attn_labelled_untranspose(graph, &at);
    *x = at;
    *scale = factor;
    return true;
}

struct found {
    struct attn_linear_roles r;
    struct attn_linear linear;
};

/* A product of Q, and of a product of a softmax over keys and values. */
static bool read_sides(const struct attn_graph *graph, const struct attn_product *p,
                       int q, struct found *found)
{
    struct attn_linear_roles *r = &found->r;
    double *scale = &found->linear.scale;
    *scale = 1;
    if (graph->values[p->in[1 - q].value].n_uses != 1 ||
        !attn_linear_roles_read(graph, p, q, 1 - q, r) ||
        !strip_softmax(graph, &r->k, r->key, scale))
        return false;
    r->q.value = attn_match_strip_scale(graph, r->q.value, scale);
    found->linear.map_q = "identity";
    if (strip_softmax(graph, &r->q, r->dim, scale))
        found->linear.map_q = "softmax_d";
    return true;
}

static attn_status try_softmax_features(struct attn_graph *graph, struct attn_node *node,
                                        int32_t *applied)
{
    struct found found = { .linear = { .map_k = "softmax_n", .denominator = "none" } };
    struct attn_product p;
    if ((!node_is(node, "Einsum") && !node_is(node, "MatMul")) ||
        !attn_product_read(graph, node->out[0], &p) || p.n_in != 2 ||
        (!read_sides(graph, &p, 0, &found) && !read_sides(graph, &p, 1, &found)))
        return ATTNRUN_OK;
    const char *why = attn_linear_roles_fit(graph, &found.r);
    TRY(attn_graph_note(graph, node, "softmax_features", why));
    if (why != NULL)
        return ATTNRUN_OK;
    TRY(attn_linear_roles_arrange(graph, node, &found.r, &found.linear.order));
    ++*applied;
    return attn_linear_replace(graph, node, &found.linear);
}

const struct attn_pass attn_pass_softmax_features = { .name = "softmax_features",
                                                      .try_node = try_softmax_features };
