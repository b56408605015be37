/* linear_quotient.c - reads a quotient of products and replaces it by LinearAttention: see
 * linear_quotient.h. */
#include "linear_quotient.h"

enum { RANK = 4 };

static bool read_factors(const struct attn_graph *graph, const struct attn_node *node,
                         attn_quotient_roles *roles, void *found)
{
    struct attn_product p;
    const bool divides = node_is(node, "Div");
    for (int side = 0; side < (divides ? 1 : 2); side++) {
        const int32_t other = node->in[1 - side];
        if ((!attn_product_read(graph, node->in[side], &p) &&
             !attn_product_read_broadcast(graph, node->in[side], &p)) ||
            p.n_in != 2 || graph->values[node->in[side]].n_uses != 1 ||
            !attn_match_is_f32(graph, other) || graph->values[other].type.rank != RANK)
            continue;
        struct attn_labelled denominator = p.out;
        denominator.value = other;
        for (int q = 0; q < 2; q++)
            if (roles(graph, &p, q, 1 - q, denominator, !divides, found))
                return true;
    }
    return false;
}

static bool may_be_quotient(const struct attn_node *node)
{
    return node_is(node, "Div") || node_is(node, "Einsum") ||
           (node_is(node, "Mul") && node->pub.n_in == 2);
}

bool attn_quotient_read(const struct attn_graph *graph, const struct attn_node *node,
                        attn_quotient_roles *roles, void *found)
{
    struct attn_product p;
    if (!may_be_quotient(node))
        return false;
    if (!node_is(node, "Einsum"))
        return read_factors(graph, node, roles, found);
    if (!attn_product_read(graph, node->out[0], &p) || p.n_in != 3)
        return false;
    for (int z = 0; z < 3; z++)
        for (int side = 1; side < 3; side++)
            if (roles(graph, &p, (z + side) % 3, (z + 3 - side) % 3, p.in[z], true,
                      found))
                return true;
    return false;
}

const char *attn_linear_map_of(const struct attn_graph *graph, int32_t *value)
{
    int32_t other;
    double one;
    const struct attn_node *node = attn_graph_producer(graph, *value);
    if (node_is(node, "Relu")) {
        *value = node->in[0];
        return "relu";
    }
    /* Not nearly 1: Elu of small numbers is nearly -1. */
    if (node_is(node, "Add") && attn_match_scalar(graph, node, true, &one, &other) &&
        one == 1 && attn_match_same_rank(graph, other, *value)) {
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

const char *attn_linear_feature_map(const struct attn_graph *graph,
                                    struct attn_labelled *x)
{
    const char *map = attn_linear_map_of(graph, &x->value);
    attn_labelled_untranspose(graph, x);
    return map;
}

attn_status attn_linear_replace(struct attn_graph *graph, struct attn_node *node,
                                const struct attn_linear *linear)
{
    const struct attn_linear_order *o = &linear->order;
    const attnrun_type *q = &graph->values[o->in[0]].type,
                       *v = &graph->values[o->in[2]].type;
    const bool dims_first = o->axes == ATTN_AXES_DIMS_FIRST;
    const bool has_heads = q->rank == RANK,
               joins = has_heads && o->axes == ATTN_AXES_TOKENS_FIRST;
    const int64_t heads = has_heads ? q->dims[joins ? 2 : 1].value : 1,
                  dim = q->dims[q->rank - 1 - dims_first].value,
                  v_dim = v->dims[v->rank - 1 - dims_first].value;
    int32_t in[3] = { o->in[0], o->in[1], o->in[2] }, y;
    const struct attn_attr attrs[] = {
        MATCH_STRING("feature_map_q", linear->map_q),
        MATCH_STRING("feature_map_k", linear->map_k),
        MATCH_STRING("denominator", linear->denominator),
        MATCH_FLOAT("epsilon", (float)linear->epsilon),
        MATCH_FLOAT("scale", (float)linear->scale),
        MATCH_INT("is_causal", linear->causal),
        MATCH_INT("dims_first", dims_first),
        MATCH_INT("q_num_heads", heads), /* of rank 3 alone */
        MATCH_INT("kv_num_heads", heads),
    };
    struct attn_node *made;
    for (int i = 0; i < 3 && joins; i++) {
        const int64_t joined[3] = { 0, 0, heads * (i == 2 ? v_dim : dim) };
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, node, "attnrun", "LinearAttention", 3, in, 1, &y,
                          joins || !has_heads ? 9 : 7, attrs, &made));
    if (joins) {
        const int64_t apart[4] = { 0, 0, heads, v_dim };
        TRY(attn_match_reshape(graph, node, 4, apart, &y));
    }
    TRY(attn_labels_transpose(graph, node, o->made, o->y_labels,
                              has_heads ? RANK : RANK - 1, &y));
    graph->values[y].type = graph->values[o->y].type;
    attn_match_replace(graph, o->y, attn_graph_producer(graph, y));
    return ATTNRUN_OK;
}

attn_status attn_linear_replace_quotient(struct attn_graph *graph, struct attn_node *node,
                                         const char *pass,
                                         struct attn_linear_roles *roles, double epsilon,
                                         int32_t *applied)
{
    roles->y.value = node->out[0];
    const char *why = attn_linear_roles_fit(graph, roles);
    TRY(attn_graph_note(graph, node, pass, why));
    if (why != NULL)
        return ATTNRUN_OK;
    struct attn_linear linear = { .denominator = "add", .epsilon = epsilon, .scale = 1 };
    linear.map_q = attn_linear_feature_map(graph, &roles->q);
    linear.map_k = attn_linear_feature_map(graph, &roles->k);
    TRY(attn_linear_roles_arrange(graph, node, roles, &linear.order));
    TRY(attn_linear_replace(graph, node, &linear));
    ++*applied;
    return ATTNRUN_OK;
}
