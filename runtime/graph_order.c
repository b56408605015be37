/* graph_order.c - finishes a graph: the order of its nodes, producers, users of values.
 *
 * in:  nodes in any order, with gaps where nodes were removed
 * out: nodes in an order of execution, which is the old one where that was right. O(nodes). */
#include "graph.h"
#include "poll.h"

/* Values whose content exists before any node runs. */
static bool value_is_given(const struct attn_value *value)
{
    return value->data.data != NULL || value->data.kind != ATTNRUN_ABSENT ||
           (value->flags & (ATTN_VALUE_INPUT | ATTN_VALUE_CAPTURE)) != 0;
}

static attn_status fail_missing(const struct attn_node *node, int32_t in,
                                const struct attn_graph *graph)
{
    return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                          "input %d '%s' is defined by no input, initializer or node", in,
                          attn_quote(graph->values[node->in[in]].name));
}

enum { NODE_NEW, NODE_OPEN, NODE_PLACED };

struct sorting {
    struct attn_graph *graph;
    const uint8_t *given;     /* per value */
    struct attn_node **stack; /* nodes whose inputs are being placed */
    int32_t *next;            /* per stack entry: the input to look at next */
    struct attn_node **order;
    uint8_t *state; /* per node index */
    int64_t n_order;
};

/* Depth first along the producers of `root`, without recursion. */
static attn_status place_node(struct sorting *sorting, struct attn_node *root)
{
    struct attn_graph *graph = sorting->graph;
    int64_t depth = 0;
    sorting->stack[0] = root;
    sorting->next[0] = 0;
    sorting->state[root->pub.index] = NODE_OPEN;
    while (depth >= 0) {
        TRY(attn_poll_work(128));
        struct attn_node *node = sorting->stack[depth];
        int32_t i = sorting->next[depth]++;
        if (i == node->pub.n_in + node->n_captures) {
            sorting->state[node->pub.index] = NODE_PLACED;
            sorting->order[sorting->n_order++] = node;
            depth--;
            continue;
        }
        if (node->in[i] < 0 || sorting->given[node->in[i]])
            continue;
        int32_t producer = graph->values[node->in[i]].producer;
        if (producer < 0 || graph->nodes[producer] == NULL)
            return fail_missing(node, i, graph);
        if (sorting->state[producer] == NODE_OPEN)
            return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                                  "the graph has a cycle through this node");
        if (sorting->state[producer] == NODE_NEW) {
            sorting->state[producer] = NODE_OPEN;
            sorting->stack[++depth] = graph->nodes[producer];
            sorting->next[depth] = 0;
        }
    }
    return ATTNRUN_OK;
}

static void place_at(struct attn_graph *graph, struct attn_node *node, int64_t n)
{
    graph->nodes[n] = node;
    node->pub.index = (int32_t)n;
    for (int32_t o = 0; o < node->pub.n_out; o++)
        if (node->out[o] >= 0)
            graph->values[node->out[o]].producer = (int32_t)n;
}

/* Stable where the order was right already. */
static attn_status sort_nodes(struct sorting *sorting)
{
    struct attn_graph *graph = sorting->graph;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        TRY(attn_poll_work(256));
        if (node == NULL)
            continue;
        place_at(graph, node, n);
    }
    for (int64_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n] != NULL && sorting->state[n] == NODE_NEW)
            TRY(place_node(sorting, graph->nodes[n]));
    for (int64_t n = 0; n < sorting->n_order; n++)
        place_at(graph, sorting->order[n], n);
    graph->n_nodes = sorting->n_order;
    graph->model->counts.placed += sorting->n_order;
    return ATTNRUN_OK;
}

static attn_status check_outputs(const struct sorting *sorting)
{
    const struct attn_graph *graph = sorting->graph;
    for (int32_t i = 0; i < graph->n_outputs; i++) {
        int32_t id = graph->outputs[i];
        if (!sorting->given[id] && graph->values[id].producer < 0)
            return attn_fail(
                ATTNRUN_E_MODEL,
                "the graph output '%s' is defined by no input, initializer or node",
                attn_quote(graph->values[id].name));
    }
    return ATTNRUN_OK;
}

static attn_status order_graph(struct attn_graph *graph, struct attn_pool *scratch)
{
    int64_t n = graph->n_nodes + 1;
    uint8_t *given = attn_pool_alloc(scratch, graph->n_values + 1);
    struct sorting sorting = { .graph = graph, .given = given };
    sorting.stack = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.stack);
    sorting.next = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.next);
    sorting.order = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.order);
    sorting.state = attn_pool_alloc(scratch, n);
    if (!given || !sorting.stack || !sorting.next || !sorting.order || !sorting.state)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < graph->n_values; i++) {
        given[i] = value_is_given(&graph->values[i]);
        graph->values[i].producer = -1;
    }
    TRY(sort_nodes(&sorting));
    return check_outputs(&sorting);
}

attn_status attn_graph_order(struct attn_graph *graph)
{
    struct attn_pool scratch;
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = order_graph(graph, &scratch);
    attn_pool_free(&scratch);
    return status;
}

void attn_graph_close_gaps(struct attn_graph *graph)
{
    int64_t n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i] != NULL)
            place_at(graph, graph->nodes[i], n++);
    graph->n_nodes = n;
}

/* ---- after building ---- */

void attn_graph_rename(const struct attn_graph *graph, struct attn_node *node)
{
    const char **inputs = (const char **)(uintptr_t)node->pub.inputs;
    const char **outputs = (const char **)(uintptr_t)node->pub.outputs;
    for (int32_t i = 0; i < node->pub.n_in; i++)
        inputs[i] = node->in[i] >= 0 ? graph->values[node->in[i]].name : "";
    for (int32_t i = 0; i < node->pub.n_out; i++)
        outputs[i] = node->out[i] >= 0 ? graph->values[node->out[i]].name : "";
}

static attn_status link_nodes(struct attn_graph *graph)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        graph->values[i].n_uses = 0;
        graph->values[i].uses = NULL;
        graph->values[i].flags &= ~(uint32_t)ATTN_VALUE_OUTPUT;
    }
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        TRY(attn_poll_work(256));
        TRY(attn_node_link(graph, graph->nodes[n]));
        attn_graph_rename(graph, graph->nodes[n]);
    }
    return attn_graph_link_outputs(graph);
}

static attn_status finish_inner(struct attn_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++)
        for (int32_t g = 0; graph->nodes[i] && g < graph->nodes[i]->n_graphs; g++)
            TRY(attn_graph_finish(graph->nodes[i]->graphs[g]));
    return ATTNRUN_OK;
}

attn_status attn_graph_finish(struct attn_graph *graph)
{
    TRY(finish_inner(graph));
    TRY(attn_graph_order(graph));
    return link_nodes(graph);
}
