/* linear_quotient.c - a quotient of products becomes LinearAttention: see linear_quotient.h. */
#include "linear_quotient.h"

enum { RANK = 4 };

static bool read_factors(const struct attn_graph *graph, const struct attn_node *node,
                         attn_quotient_roles *roles, void *found)
{
    struct attn_product p;
    const bool divides = node_is(node, "Div");
    for (int side = 0; side < (divides ? 1 : 2); side++) {
        const int32_t other = node->in[1 - side];
        if (!attn_product_read(graph, node->in[side], &p) || p.n_in != 2 ||
            graph->values[node->in[side]].n_uses != 1 ||
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

bool attn_quotient_read(const struct attn_graph *graph, const struct attn_node *node,
                        attn_quotient_roles *roles, void *found)
{
    struct attn_product p;
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

attn_status attn_linear_replace(struct attn_graph *graph, struct attn_node *node,
                                const struct attn_linear *linear)
{
    const attnrun_type *q = &graph->values[linear->in[0]].type,
                       *v = &graph->values[linear->in[2]].type;
    const bool has_heads = q->rank == RANK, joins = has_heads && linear->by_token;
    const int64_t heads = has_heads ? q->dims[linear->by_token ? 2 : 1].value : 1,
                  dim = q->dims[q->rank - 1].value, v_dim = v->dims[v->rank - 1].value;
    int32_t in[3] = { linear->in[0], linear->in[1], linear->in[2] }, y;
    const struct attn_attr attrs[] = {
        MATCH_STRING("feature_map_q", linear->map_q),
        MATCH_STRING("feature_map_k", linear->map_k),
        MATCH_STRING("denominator", linear->denominator),
        MATCH_FLOAT("epsilon", (float)linear->epsilon),
        MATCH_FLOAT("scale", (float)linear->scale),
        MATCH_INT("is_causal", linear->causal),
        MATCH_INT("q_num_heads", heads), /* of rank 3 alone */
        MATCH_INT("kv_num_heads", heads),
    };
    struct attn_node *made;
    for (int i = 0; i < 3 && joins; i++) {
        const int64_t joined[3] = { 0, 0, heads * (i == 2 ? v_dim : dim) };
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    if (!joins)
        graph->values[y].type = graph->values[node->out[0]].type;
    TRY(attn_graph_insert(graph, node, "attnrun", "LinearAttention", 3, in, 1, &y,
                          joins || !has_heads ? 8 : 6, attrs, &made));
    if (joins) {
        const int64_t apart[4] = { 0, 0, heads, v_dim };
        TRY(attn_match_reshape(graph, node, 4, apart, &y));
        made = attn_graph_producer(graph, y);
    }
    attn_match_replace(graph, node->out[0], made);
    return ATTNRUN_OK;
}
