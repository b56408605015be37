/* graph_edit.c - edits of a finished graph: what rewrite passes do.
 *
 * in:  a graph after attn_graph_finish()
 * out: the same graph with other nodes; use counts are right, and the order of the nodes is
 *      left to the next attn_graph_finish() */
#include "graph.h"

static int32_t count_reads(const struct attn_node *node, int32_t value)
{
    int32_t reads = 0;
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        reads += node->in[i] == value;
    return reads;
}

struct attn_node *attn_graph_only_user(const struct attn_graph *graph, int32_t value)
{
    if (value < 0 || graph->values[value].n_uses != 1 ||
        (graph->values[value].flags & ATTN_VALUE_OUTPUT))
        return NULL;
    for (int64_t i = graph->values[value].producer + 1; i < graph->n_nodes; i++)
        if (graph->nodes[i] != NULL && count_reads(graph->nodes[i], value) > 0)
            return graph->nodes[i];
    for (int64_t i = 0; i < graph->n_nodes; i++) /* inserted nodes are not in order */
        if (graph->nodes[i] != NULL && count_reads(graph->nodes[i], value) > 0)
            return graph->nodes[i];
    return NULL;
}

/* Captures of subgraphs follow a value that is replaced in the graph around them. */
static void replace_captures(struct attn_node *node, int32_t from, int32_t to)
{
    for (int32_t g = 0; g < node->n_graphs; g++)
        for (int64_t v = 0; v < node->graphs[g]->n_values; v++) {
            struct attn_value *value = &node->graphs[g]->values[v];
            if ((value->flags & ATTN_VALUE_CAPTURE) && value->outer == from)
                value->outer = to;
        }
}

static void swap_output(struct attn_graph *graph, int32_t from, int32_t to)
{
    struct attn_value *a = &graph->values[from], *b = &graph->values[to];
    for (int32_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == from) {
            graph->outputs[i] = to;
            a->n_uses--;
            b->n_uses++;
        }
    a->flags &= ~(uint32_t)ATTN_VALUE_OUTPUT;
    bool keeps = (b->flags & (ATTN_VALUE_OUTPUT | ATTN_VALUE_INPUT)) != 0;
    b->flags |= ATTN_VALUE_OUTPUT;
    if (!keeps) {
        const char *name = a->name;
        a->name = b->name;
        b->name = name; /* the table of names follows in attn_graph_finish() */
    }
}

void attn_graph_replace(struct attn_graph *graph, int32_t from, int32_t to)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        if (node == NULL)
            continue;
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] == from) {
                node->in[i] = to;
                graph->values[from].n_uses--;
                graph->values[to].n_uses++;
            }
        replace_captures(node, from, to);
    }
    if (graph->values[from].flags & ATTN_VALUE_OUTPUT)
        swap_output(graph, from, to);
}

void attn_graph_remove(struct attn_graph *graph, struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        if (node->in[i] >= 0)
            graph->values[node->in[i]].n_uses--;
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && graph->values[node->out[i]].producer == node->pub.index)
            graph->values[node->out[i]].producer = -1;
    graph->nodes[node->pub.index] = NULL;
}

/* A node is a list of this many things. NOLINTNEXTLINE(readability-function-size) */
attn_status attn_graph_insert(struct attn_graph *graph, struct attn_node *before,
                              const char *domain, const char *op_type, int32_t n_in,
                              const int32_t *in, int32_t n_out, const int32_t *out,
                              int32_t n_attrs, const struct attn_attr *attrs,
                              struct attn_node **made)
{
    struct attn_node *node;
    TRY(attn_graph_add_node(graph, domain, op_type, before ? before->pub.name : "", n_in,
                            in, n_out, out, &node));
    TRY(attn_node_set_attrs(graph, node, n_attrs, attrs));
    node->internal = true;
    node->pub.opset =
        domain[0] == 0 ? ATTN_NEWEST_OPSET : 1; /* passes write newest forms */
    if (before != NULL)
        node->function = before->function;
    for (int32_t i = 0; i < n_in; i++)
        if (in[i] >= 0)
            graph->values[in[i]].n_uses++;
    *made = node;
    return attn_node_resolve(graph, node);
}
