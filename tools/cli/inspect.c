/* inspect.c - attnrun inspect: what is in a model, and which of its nodes can run.
 *
 * In: a model file. Out: struct inspect, which inspect_print.c or inspect_json.c shows. With
 * --coverage operators that are missing are an error, E_UNSUPPORTED. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "job.h"
#include "name_set.h"

/* Equal ones are the same operator. */
static int by_op(const void *a, const void *b)
{
    const struct op_count *x = a, *y = b;
    int order = strcmp(x->op_type, y->op_type);
    if (order == 0)
        order = strcmp(x->domain, y->domain);
    if (order == 0)
        order = strcmp(x->function, y->function);
    if (order == 0)
        order = (x->opset > y->opset) - (x->opset < y->opset);
    return order != 0 ? order : x->coverage - y->coverage;
}

static int by_count(const void *a, const void *b)
{
    const struct op_count *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : by_op(a, b);
}

/* One more node; sort_ops() then puts those of one operator together. */
static attnrun_status count_op(struct op_counts *ops, const attnrun_node_info *node)
{
    if (ops->n == ops->capacity) {
        const int64_t capacity = 2 * ops->capacity + 64;
        struct op_count *grown = realloc(ops->v, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a list of operators");
        ops->v = grown;
        ops->capacity = capacity;
    }
    ops->v[ops->n++] = (struct op_count){ .op_type = node->op_type,
                                          .domain = node->domain,
                                          .function = node->function,
                                          .opset = node->opset,
                                          .coverage = node->coverage,
                                          .n = 1 };
    return ATTNRUN_OK;
}

static void sort_ops(struct op_counts *ops)
{
    int64_t n = 0;
    if (ops->n == 0)
        return;
    qsort(ops->v, (size_t)ops->n, sizeof *ops->v, by_op);
    for (int64_t i = 1; i < ops->n; i++)
        if (by_op(&ops->v[n], &ops->v[i]) == 0)
            ops->v[n].n += ops->v[i].n;
        else
            ops->v[++n] = ops->v[i];
    ops->n = n + 1;
    qsort(ops->v, (size_t)ops->n, sizeof *ops->v, by_count);
}

static attnrun_status add_graph(struct inspect *inspect,
                                const struct inspect_graph *graph)
{
    struct inspect_graph *grown =
        realloc(inspect->graphs, (size_t)(inspect->n_graphs + 1) * sizeof *grown);
    if (grown == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a list of graphs");
    inspect->graphs = grown;
    grown[inspect->n_graphs] = *graph;
    grown[inspect->n_graphs].info.struct_size = sizeof graph->info;
    TRY_LIB(attnrun_graph_query(graph->graph, &grown[inspect->n_graphs++].info));
    return ATTNRUN_OK;
}

/* Counts the nodes of a graph that is in the list, and adds the graphs within them, each with
 * those within it: as deep as the limit subgraph_depth. */
static attnrun_status count_graph(struct inspect *inspect, int32_t at)
{
    const struct inspect_graph around = inspect->graphs[at];
    for (int32_t i = 0; i < around.info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        TRY_LIB(attnrun_graph_node(around.graph, i, &node));
        TRY(count_op(&inspect->ops, &node));
        TRY(count_op(&inspect->graphs[at].ops, &node));
        inspect->coverage[node.coverage < 0 || node.coverage > 2 ? 2 : node.coverage]++;
        inspect->n_inner += at > 0;
        for (int32_t k = 0; k < node.n_graphs; k++) {
            struct inspect_graph inner = { .outer = at,
                                           .depth = around.depth + 1,
                                           .node_index = i,
                                           .node = node.name,
                                           .op_type = node.op_type };
            TRY_LIB(attnrun_subgraph(around.graph, i, k, &inner.attribute, &inner.graph));
            TRY(add_graph(inspect, &inner));
            TRY(count_graph(inspect, inspect->n_graphs - 1));
        }
    }
    sort_ops(&inspect->graphs[at].ops);
    return ATTNRUN_OK;
}

static attnrun_status count_ops(struct inspect *inspect)
{
    struct inspect_graph top = {
        .outer = -1, .node = "", .op_type = "", .attribute = ""
    };
    TRY_LIB(attnrun_model_graph(inspect->model, &top.graph));
    TRY(add_graph(inspect, &top));
    TRY(count_graph(inspect, 0));
    sort_ops(&inspect->ops);
    return ATTNRUN_OK;
}

/* The weights that the nodes of one graph read. `seen`: those that were visited. */
static attnrun_status visit_weights(const struct inspect_graph *graph,
                                    struct name_set *seen, weight_visit *visit,
                                    void *user)
{
    for (int32_t i = 0; i < graph->info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        TRY_LIB(attnrun_graph_node(graph->graph, i, &node));
        for (int32_t k = 0; k < node.n_inputs; k++) {
            attnrun_value_info info = { .struct_size = sizeof info };
            if (node.inputs[k][0] == 0 ||
                attnrun_graph_value(graph->graph, node.inputs[k], &info) != 0 ||
                info.constant == NULL)
                continue;
            if (name_set_has(seen, info.name, info.constant->data))
                continue;
            if (!name_set_add(seen, info.name, info.constant->data))
                return tool_fail(ATTNRUN_E_MEMORY, "no memory for the names of weights");
            visit(user, &info);
        }
    }
    return ATTNRUN_OK;
}

/* All weights are named by the nodes that read them. Two branches may have a name each. */
attnrun_status inspect_weights(const struct inspect *inspect, weight_visit *visit,
                               void *user)
{
    struct name_set seen = { 0 };
    attnrun_status status = ATTNRUN_OK;
    for (int32_t g = 0; g < inspect->n_graphs && status == ATTNRUN_OK; g++)
        status = visit_weights(&inspect->graphs[g], &seen, visit, user);
    name_set_free(&seen);
    return status;
}

static attnrun_status show(struct inspect *inspect)
{
    struct cli *cli = inspect->cli;
    if (cli->json)
        return inspect_json(inspect);
    if (cli->coverage)
        inspect_print_coverage(inspect);
    else
        TRY(inspect_print(inspect));
    if (cli->layers)
        TRY(inspect_print_layers(inspect));
    if (cli->weights)
        TRY(inspect_print_weights(inspect));
    return ATTNRUN_OK;
}

attnrun_status command_inspect(struct cli *cli, int *exit_code)
{
    struct inspect inspect = { .cli = cli, .path = cli->paths.v[0] };
    uint32_t flags = ATTNRUN_ALLOW_MISSING;
    inspect.info.struct_size = sizeof inspect.info;
    attnrun_status status = cli_open_model(cli, inspect.path, flags, &inspect.model);
    if (status != ATTNRUN_OK) {
        budget_explain_work(cli, budget_open, &flags);
        return status;
    }
    status = attnrun_model_query(inspect.model, &inspect.info);
    if (status != ATTNRUN_OK)
        tool_fail_library(status);
    if (status == ATTNRUN_OK)
        status = count_ops(&inspect);
    if (status == ATTNRUN_OK)
        status = show(&inspect);
    *exit_code = 0;
    if (status == ATTNRUN_OK && cli->coverage && inspect.info.n_missing > 0)
        status =
            tool_fail(ATTNRUN_E_UNSUPPORTED, "%s %s missing: %s",
                      tool_plural(inspect.info.n_missing, "operator"),
                      inspect.info.n_missing == 1 ? "is" : "are", inspect.info.missing);
    for (int32_t g = 0; g < inspect.n_graphs; g++)
        free(inspect.graphs[g].ops.v);
    free(inspect.graphs);
    free(inspect.ops.v);
    attnrun_model_release(inspect.model);
    return status;
}
