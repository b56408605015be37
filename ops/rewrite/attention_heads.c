/* attention_heads.c - attention whose operands were split into heads by Reshape and
 * Transpose reads (batch, tokens, heads * dim) directly, and gives that: four transposes
 * less. For Attention and FusedAttention without a past or present. */
#include "match.h"

static const int64_t split_perm[] = { 0, 2, 1, 3 };

static bool transposes_heads(const struct attn_node *node)
{
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == 4 && memcmp(attr->ints.v, split_perm, sizeof split_perm) == 0;
}

/* (batch, tokens, heads * dim) that the value (batch, heads, tokens, dim) was made of; -1
 * where it was not. *heads: how many. */
static int32_t unsplit(const struct attn_graph *graph, int32_t value, int64_t *heads)
{
    struct attn_node *transpose = attn_graph_producer(graph, value);
    if (!transposes_heads(transpose))
        return -1;
    struct attn_node *reshape = attn_match_in(graph, transpose, 0, "Reshape");
    if (reshape == NULL)
        return -1;
    int32_t from = reshape->in[0];
    const attnrun_type *wide = &graph->values[reshape->out[0]].type;
    const attnrun_type *flat = &graph->values[from].type;
    if (wide->rank != 4 || flat->rank != 3 || !dim_is_const(wide->dims[2]) ||
        !dim_is_const(wide->dims[3]) || !dim_equal(wide->dims[0], flat->dims[0]) ||
        !dim_equal(wide->dims[1], flat->dims[1]) || !attn_match_is_f32(graph, from))
        return -1;
    *heads = wide->dims[2].value;
    return from;
}

/* The value (batch, tokens, heads * dim) that the result is made into, or -1. */
static int32_t joined(const struct attn_graph *graph, const struct attn_node *node)
{
    struct attn_node *transpose = attn_graph_only_user(graph, node->out[0]);
    if (!transposes_heads(transpose))
        return -1;
    struct attn_node *reshape = attn_match_user(graph, transpose, "Reshape");
    if (reshape == NULL || reshape->in[0] != transpose->out[0])
        return -1;
    const attnrun_type *wide = &graph->values[transpose->out[0]].type;
    const attnrun_type *flat = &graph->values[reshape->out[0]].type;
    if (wide->rank != 4 || flat->rank != 3 || !dim_equal(wide->dims[0], flat->dims[0]) ||
        !dim_equal(wide->dims[1], flat->dims[1]))
        return -1;
    return reshape->out[0];
}

static bool is_attention(const struct attn_node *node)
{
    if (node == NULL || strcmp(node->pub.domain, "attnrun.fused") != 0)
        return node_is(node, "Attention");
    return strcmp(node->pub.op_type, "FusedAttention") == 0;
}

static bool plain(const struct attn_node *node)
{
    for (int32_t i = 4; i < node->pub.n_in; i++)
        if (node->in[i] >= 0)
            return false;
    for (int32_t i = 1; i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            return false;
    return node->n_attrs < 12;
}

static attn_status try_node(struct attn_graph *graph, struct attn_node *node,
                            int32_t *applied)
{
    int64_t heads[3];
    int32_t in[4] = { -1, -1, -1, node->pub.n_in > 3 ? node->in[3] : -1 };
    if (!plain(node) || graph->values[node->in[0]].type.rank != 4)
        return ATTNRUN_OK;
    for (int i = 0; i < 3; i++) {
        in[i] = unsplit(graph, node->in[i], &heads[i]);
        if (in[i] < 0)
            return ATTNRUN_OK;
    }
    int32_t result = joined(graph, node);
    if (result < 0 || heads[1] != heads[2])
        return ATTNRUN_OK;
    struct attn_attr attrs[16];
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "q_num_heads") != 0 &&
            strcmp(node->attrs[i].name, "kv_num_heads") != 0)
            attrs[n++] = node->attrs[i];
    attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", heads[0]);
    attrs[n++] = (struct attn_attr)MATCH_INT("kv_num_heads", heads[1]);
    struct attn_node *made =
        attn_match_make(graph, node, node->pub.domain, node->pub.op_type,
                        in[3] >= 0 ? 4 : 3, in, result, n, attrs);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    attn_match_replace(graph, result, made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes; n++)
        if (is_attention(graph->nodes[n]) &&
            graph->values[graph->nodes[n]->out[0]].n_uses > 0)
            TRY(try_node(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_attention_heads = { .name = "attention_heads",
                                                     .run = run };
