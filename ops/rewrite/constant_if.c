/* constant_if.c - an If whose condition is a constant becomes the nodes of the branch
 * that it takes. Exporters leave such conditions where a shape decides: Squeeze of a dim
 * that may be 1, or a cache that may be absent. Exact. The pass runs without fusion, too, so
 * that a branch that never runs is refused in neither way, whatever stands in it. */
#include "../../runtime/poll.h"
#include "match.h"

struct inlining {
    struct attn_graph *graph; /* around the If */
    const struct attn_graph *branch;
    int32_t *ids; /* per value of the branch: the value of `graph`, -1 not there yet */
};

static struct attn_graph *taken_branch(const struct attn_graph *graph,
                                       const struct attn_node *node)
{
    double condition;
    if (!node_is(node, "If") || !attn_value_scalar(graph, node->in[0], &condition))
        return NULL;
    const bool then = condition > 0 || condition < 0;
    const struct attn_attr *attr =
        attn_node_attr(node, then ? "then_branch" : "else_branch");
    if (attr == NULL || attr->kind != ATTN_ATTR_GRAPH)
        return NULL;
    struct attn_graph *branch = node->graphs[attr->graph];
    return branch->n_inputs == 0 && branch->n_outputs == node->pub.n_out ? branch : NULL;
}

/* The value of the graph that replaces value `id` of the branch. */
static attn_status bring_value(struct inlining *in, int32_t id)
{
    const struct attn_value *value = &in->branch->values[id];
    if (in->ids[id] >= 0)
        return ATTNRUN_OK;
    if (value->flags & ATTN_VALUE_CAPTURE) {
        in->ids[id] = value->outer;
        return ATTNRUN_OK;
    }
    const char *name = attn_graph_find(in->graph, value->name) < 0 ? value->name : NULL;
    TRY(attn_graph_add_value(in->graph, name, &in->ids[id]));
    struct attn_value *made = &in->graph->values[in->ids[id]];
    made->type = value->type;
    made->data = value->data;
    made->flags = value->flags & ATTN_VALUE_FOLDED;
    return ATTNRUN_OK;
}

/* Translates the n ids of `from` to ids of the surrounding graph, in the model's
 * memory. */
static attn_status bring_values(struct inlining *in, const int32_t *from, int32_t n,
                                int32_t **to)
{
    *to = attn_pool_alloc(&in->graph->model->pool, (n + 1) * (int64_t)sizeof **to);
    if (*to == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        if (from[i] >= 0)
            TRY(bring_value(in, from[i]));
        (*to)[i] = from[i] >= 0 ? in->ids[from[i]] : -1;
    }
    return ATTNRUN_OK;
}

/* Changes the subgraphs of a node that moves up, which now capture from the surrounding
 * graph. */
static attn_status bring_graphs(struct inlining *in, struct attn_node *made,
                                const struct attn_node *node)
{
    made->graphs = node->graphs;
    made->n_graphs = node->n_graphs;
    for (int32_t g = 0; g < node->n_graphs; g++) {
        struct attn_graph *inner = node->graphs[g];
        inner->outer = in->graph;
        for (int64_t v = 0; v < inner->n_values; v++) {
            struct attn_value *value = &inner->values[v];
            if (!(value->flags & ATTN_VALUE_CAPTURE))
                continue;
            TRY(bring_value(in, value->outer));
            value->outer = in->ids[value->outer];
        }
    }
    return ATTNRUN_OK;
}

static attn_status bring_node(struct inlining *in, const struct attn_node *node)
{
    int32_t *inputs, *outputs;
    TRY(bring_values(in, node->in, node->pub.n_in + node->n_captures, &inputs));
    TRY(bring_values(in, node->out, node->pub.n_out, &outputs));
    struct attn_node *made;
    TRY(attn_graph_add_node(in->graph, node->pub.domain, node->pub.op_type,
                            node->pub.name, node->pub.n_in, inputs, node->pub.n_out,
                            outputs, &made));
    made->internal = node->internal;
    made->in = inputs; /* with the captures */
    made->n_captures = node->n_captures;
    made->pub.function = node->pub.function;
    made->formula = node->formula;
    made->pub.opset = node->pub.opset;
    made->file_type = node->file_type;
    made->overload = node->overload;
    made->has_body = node->has_body;
    TRY(bring_graphs(in, made, node));
    TRY(attn_node_set_attrs(in->graph, made, node->n_attrs, node->attrs));
    TRY(attn_node_link(in->graph, made));
    return attn_node_resolve(in->graph, made);
}

/* Gives the branch's output as output `out` of the If. A node is inserted between them,
 * because the branch's output may be an input or a constant, which must not become an
 * output. A sequence needs none where it can do without: in files of opset 13 it has none. */
static attn_status bring_output(struct inlining *in, struct attn_node *node, int32_t out)
{
    const int32_t result = in->branch->outputs[out];
    TRY(bring_value(in, result));
    struct attn_node *made;
    if (in->branch->values[result].type.kind > ATTNRUN_TENSOR &&
        attn_graph_can_replace(in->graph, node->out[out], in->ids[result])) {
        attn_graph_replace(in->graph, node->out[out], in->ids[result]);
        return ATTNRUN_OK;
    }
    TRY(attn_match_make(in->graph, node, "", "Identity", 1, &in->ids[result],
                        in->ids[result], 0, NULL, &made));
    attn_match_replace(in->graph, node->out[out], made);
    return ATTNRUN_OK;
}

static attn_status inline_branch(struct attn_graph *graph, struct attn_node *node,
                                 const struct attn_graph *branch)
{
    struct inlining in = { .graph = graph, .branch = branch };
    in.ids = attn_pool_alloc(&graph->model->pool,
                             (branch->n_values + 1) * (int64_t)sizeof *in.ids);
    if (in.ids == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < branch->n_values; v++)
        in.ids[v] = -1;
    graph->promoted |= branch->promoted; /* weights in 16 bits come with their nodes */
    for (int64_t n = 0; n < branch->n_nodes; n++)
        if (branch->nodes[n] != NULL)
            TRY(bring_node(&in, branch->nodes[n]));
    for (int32_t out = 0; out < node->pub.n_out; out++)
        if (node->out[out] >= 0)
            TRY(bring_output(&in, node, out));
    attn_graph_remove(graph, node);
    return ATTNRUN_OK;
}

static attn_status run_constant_if(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++) {
        struct attn_graph *branch =
            graph->nodes[n] ? taken_branch(graph, graph->nodes[n]) : NULL;
        if (branch == NULL)
            continue;
        TRY(inline_branch(graph, graph->nodes[n], branch));
        ++*applied;
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_constant_if = {
    .name = "constant_if", .run = run_constant_if, .lowering = true, .portable = true
};
