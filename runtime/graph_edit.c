/* graph_edit.c - edits of a finished graph: what rewrite passes do.
 *
 * in:  a graph after attn_graph_finish()
 * out: the same graph with other nodes. The lists of users are right after each edit; the
 *      order of the nodes is left to attn_graph_order().
 *
 *      value ──uses──▶ operand 0 of node A ◀──▶ operand 1 of node B ◀──▶ output 0
 *
 * Each operand, each output and each value of a subgraph that stands for one of the graph
 * around it is in one list, that of the value which it reads; so an edit takes time for
 * the users that it changes, whatever the size of the graph. */
#include "graph_names.h"

/* ---- lists of users ---- */

static void link_use(struct attn_graph *graph, struct attn_use *use, int32_t value)
{
    struct attn_value *read = &graph->values[value];
    use->previous = NULL;
    use->next = read->uses;
    if (use->next != NULL)
        use->next->previous = use;
    read->uses = use;
    read->n_uses += use->inner == NULL;
}

static void unlink_use(struct attn_graph *graph, struct attn_use *use, int32_t value)
{
    struct attn_value *read = &graph->values[value];
    if (use->next != NULL)
        use->next->previous = use->previous;
    if (use->previous != NULL)
        use->previous->next = use->next;
    else
        read->uses = use->next;
    read->n_uses -= use->inner == NULL;
}

/* The values of a subgraph that stand for others of the graph around. */
static attn_status link_captures(struct attn_graph *graph, struct attn_node *node,
                                 struct attn_graph *inner)
{
    int32_t n = 0;
    for (int64_t v = 0; v < inner->n_values; v++)
        n += (inner->values[v].flags & ATTN_VALUE_CAPTURE) != 0;
    inner->n_captures = n;
    inner->capture_uses = attn_pool_alloc(&graph->model->pool,
                                          (n + 1) * (int64_t)sizeof *inner->capture_uses);
    if (inner->capture_uses == NULL)
        return ATTNRUN_E_MEMORY;
    struct attn_use *use = inner->capture_uses;
    for (int64_t v = 0; v < inner->n_values; v++) {
        if (!(inner->values[v].flags & ATTN_VALUE_CAPTURE))
            continue;
        *use = (struct attn_use){ .node = node, .inner = inner, .index = (int32_t)v };
        link_use(graph, use++, inner->values[v].outer);
    }
    return ATTNRUN_OK;
}

attn_status attn_node_link(struct attn_graph *graph, struct attn_node *node)
{
    const int32_t n = node->pub.n_in + node->n_captures;
    node->uses =
        attn_pool_alloc(&graph->model->pool, (n + 1) * (int64_t)sizeof *node->uses);
    if (node->uses == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        node->uses[i] = (struct attn_use){ .node = node, .index = i };
        if (node->in[i] >= 0)
            link_use(graph, &node->uses[i], node->in[i]);
    }
    for (int32_t g = 0; g < node->n_graphs; g++)
        TRY(link_captures(graph, node, node->graphs[g]));
    return ATTNRUN_OK;
}

attn_status attn_graph_link_outputs(struct attn_graph *graph)
{
    const int32_t n = graph->n_outputs;
    graph->output_uses = attn_pool_alloc(&graph->model->pool,
                                         (n + 1) * (int64_t)sizeof *graph->output_uses);
    if (graph->output_uses == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        graph->output_uses[i] = (struct attn_use){ .index = i };
        graph->values[graph->outputs[i]].flags |= ATTN_VALUE_OUTPUT;
        link_use(graph, &graph->output_uses[i], graph->outputs[i]);
    }
    return ATTNRUN_OK;
}

struct attn_node *attn_graph_only_user(const struct attn_graph *graph, int32_t value)
{
    if (value < 0 || graph->values[value].n_uses != 1 ||
        (graph->values[value].flags & ATTN_VALUE_OUTPUT))
        return NULL;
    return graph->values[value].uses->node; /* its subgraphs are in the list, too */
}

/* ---- what is to be inferred ---- */

void attn_node_touch(struct attn_graph *graph, struct attn_node *node)
{
    graph->n_stale += !node->stale;
    graph->edited = node->stale = true;
}

void attn_value_touch_users(struct attn_graph *graph, int32_t value)
{
    for (struct attn_use *use = graph->values[value].uses; use != NULL; use = use->next)
        if (use->node != NULL)
            attn_node_touch(graph, use->node);
}

/* ---- edits ---- */

void attn_node_set_input(struct attn_graph *graph, struct attn_node *node, int32_t index,
                         int32_t value)
{
    if (node->in[index] >= 0)
        unlink_use(graph, &node->uses[index], node->in[index]);
    node->in[index] = value;
    if (value >= 0)
        link_use(graph, &node->uses[index], value);
    attn_node_touch(graph, node);
}

void attn_node_set_output(struct attn_graph *graph, struct attn_node *node, int32_t index,
                          int32_t value)
{
    const int32_t old = node->out[index];
    if (old >= 0 && graph->values[old].producer == node->pub.index)
        graph->values[old].producer = -1;
    node->out[index] = value;
    if (value >= 0)
        graph->values[value].producer = node->pub.index;
    attn_node_touch(graph, node);
}

/* Lets a user of value `from` read value `to`. */
static void move_use(struct attn_graph *graph, struct attn_use *use, int32_t from,
                     int32_t to)
{
    unlink_use(graph, use, from);
    link_use(graph, use, to);
    if (use->node == NULL)
        graph->outputs[use->index] = to;
    else if (use->inner != NULL)
        use->inner->values[use->index].outer = to;
    else
        use->node->in[use->index] = to;
    if (use->node != NULL)
        attn_node_touch(graph, use->node);
    graph->edited = true;
    graph->model->counts.moved++;
}

void attn_graph_replace(struct attn_graph *graph, int32_t from, int32_t to)
{
    struct attn_value *a = &graph->values[from], *b = &graph->values[to];
    if (from == to)
        return;
    while (a->uses != NULL)
        move_use(graph, a->uses, from, to);
    if (!(a->flags & ATTN_VALUE_OUTPUT))
        return;
    a->flags &= ~(uint32_t)ATTN_VALUE_OUTPUT;
    bool keeps = (b->flags & (ATTN_VALUE_OUTPUT | ATTN_VALUE_INPUT)) != 0;
    b->flags |= ATTN_VALUE_OUTPUT;
    if (!keeps)
        attn_graph_swap_names(graph, from, to);
}

bool attn_graph_can_replace(const struct attn_graph *graph, int32_t from, int32_t to)
{
    const struct attn_value *value = &graph->values[to];
    return !(graph->values[from].flags & ATTN_VALUE_OUTPUT) ||
           (value->producer >= 0 && !(value->flags & ATTN_VALUE_OUTPUT));
}

void attn_graph_swap_names(struct attn_graph *graph, int32_t a, int32_t b)
{
    const char *name = graph->values[a].name;
    attn_names_swap(graph, a, b);
    graph->values[a].name = graph->values[b].name;
    graph->values[b].name = name;
}

void attn_graph_remove(struct attn_graph *graph, struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        if (node->in[i] >= 0)
            unlink_use(graph, &node->uses[i], node->in[i]);
    for (int32_t g = 0; g < node->n_graphs; g++) {
        struct attn_graph *inner = node->graphs[g];
        for (int32_t c = 0; c < inner->n_captures; c++) {
            struct attn_use *use = &inner->capture_uses[c];
            unlink_use(graph, use, inner->values[use->index].outer);
        }
    }
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && graph->values[node->out[i]].producer == node->pub.index)
            graph->values[node->out[i]].producer = -1;
    graph->nodes[node->pub.index] = NULL;
    graph->n_stale -= node->stale;
    graph->edited = true;
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
    if (before != NULL) {
        node->pub.function = before->pub.function;
        node->formula = before->formula;
    }
    TRY(attn_node_link(graph, node));
    *made = node;
    return attn_node_resolve(graph, node);
}
