/* linear_heads.c - LinearAttention and PerformerAttention of domain attnrun read their operands
 * where they lie: queries, keys and values that Transpose split into heads before tokens are
 * (batch, tokens, heads, dim) in front of it, which the operators take as (batch, tokens,
 * heads * dim). The result goes back the same way. Behind the passes that make these operators.
 * Four transposes less. */
#include "../../runtime/poll.h"
#include "product.h"

enum { RANK = 4, MAX_IN = 6, MAX_ATTRS = 16 };

static const attnrun_dim *dims_of(const struct attn_graph *graph, int32_t value)
{
    return graph->values[value].type.dims;
}

/* Exchanges the two axes in the middle. */
static bool swaps_heads(const struct attn_node *node)
{
    static const int64_t perm[] = { 0, 2, 1, 3 };
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == RANK && memcmp(attr->ints.v, perm, sizeof perm) == 0;
}

/* (batch, tokens, heads, dim) that the operand is made of, -1 where it is not. */
static int32_t by_token(const struct attn_graph *graph, const struct attn_node *node,
                        int in)
{
    const struct attn_node *transpose = attn_graph_producer(graph, node->in[in]);
    if (!swaps_heads(transpose) || !attn_match_is_f32_of(graph, transpose->in[0], RANK))
        return -1;
    int64_t joined;
    const attnrun_dim *d = dims_of(graph, transpose->in[0]);
    return dim_is_const(d[2]) && dim_is_const(d[3]) && d[2].value > 0 &&
                   d[2].value <= INT32_MAX && ck_mul(d[2].value, d[3].value, &joined)
               ? transpose->in[0]
               : -1;
}

/* All attributes but the numbers of heads, and those; returns how many, 0: too many. */
static int32_t write_attrs(const struct attn_node *node, int64_t q_heads,
                           int64_t kv_heads, struct attn_attr attrs[MAX_ATTRS])
{
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_attrs; i++) {
        if (n + 2 == MAX_ATTRS)
            return 0;
        if (strcmp(node->attrs[i].name, "q_num_heads") != 0 &&
            strcmp(node->attrs[i].name, "kv_num_heads") != 0)
            attrs[n++] = node->attrs[i];
    }
    attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", q_heads);
    attrs[n++] = (struct attn_attr)MATCH_INT("kv_num_heads", kv_heads);
    return n;
}

/* The node's result, or what a Transpose that alone reads it gives. */
static attn_status place_result(struct attn_graph *graph, struct attn_node *node,
                                int32_t y, int64_t v_dim, int64_t heads)
{
    const int64_t apart[RANK] = { 0, 0, heads, v_dim };
    const struct attn_node *user = attn_graph_only_user(graph, node->out[0]);
    int32_t old = node->out[0];
    TRY(attn_match_reshape(graph, node, RANK, apart, &y));
    if (swaps_heads(user))
        old = user->out[0];
    else
        TRY(attn_labels_transpose(graph, node, "bnhd", "bhnd", RANK, &y));
    graph->values[y].type = graph->values[old].type;
    attn_match_replace(graph, old, attn_graph_producer(graph, y));
    return ATTNRUN_OK;
}

static attn_status try_linear_heads(struct attn_graph *graph, struct attn_node *node,
                                    int32_t *applied)
{
    int32_t in[MAX_IN], y;
    struct attn_attr attrs[MAX_ATTRS];
    struct attn_node *made;
    if (node->pub.n_in < 3 || node->pub.n_in > MAX_IN || node->pub.n_out != 1 ||
        attn_match_int(node, "dims_first", 0) != 0)
        return ATTNRUN_OK;
    for (int i = 0; i < node->pub.n_in; i++) {
        in[i] = i < 3 ? by_token(graph, node, i) : node->in[i];
        if (i < 3 && in[i] < 0)
            return ATTNRUN_OK;
    }
    const attnrun_dim *q = dims_of(graph, in[0]), *v = dims_of(graph, in[2]);
    const int64_t heads = q[2].value, kv_heads = v[2].value, v_dim = v[3].value;
    const int32_t n_attrs = write_attrs(node, heads, kv_heads, attrs);
    if (n_attrs == 0)
        return ATTNRUN_OK;
    for (int i = 0; i < 3; i++) {
        const attnrun_dim *d = dims_of(graph, in[i]);
        const int64_t joined[3] = { 0, 0, d[2].value * d[3].value };
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, node, "attnrun", node->pub.op_type, node->pub.n_in, in,
                          1, &y, n_attrs, attrs, &made));
    TRY(place_result(graph, node, y, v_dim, heads));
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run_linear_heads(struct attn_graph *graph, int32_t *applied)
{
    const int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        if ((node_is_of(node, "attnrun", "LinearAttention") ||
             node_is_of(node, "attnrun", "PerformerAttention")) &&
            graph->values[node->out[0]].n_uses > 0)
            TRY(try_linear_heads(graph, node, applied));
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_linear_heads = { .name = "linear_heads",
                                                  .run = run_linear_heads };
