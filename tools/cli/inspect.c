/* inspect.c - attnrun inspect: what is in a model, and which of its nodes can run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"

static int by_count(const void *a, const void *b)
{
    const struct op_count *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->op_type, y->op_type);
}

static attnrun_status count_op(struct inspect *inspect, const attnrun_node_info *node)
{
    for (int64_t i = 0; i < inspect->n_ops; i++) {
        struct op_count *op = &inspect->ops[i];
        if (op->coverage == node->coverage && op->opset == node->opset &&
            strcmp(op->op_type, node->op_type) == 0 &&
            strcmp(op->domain, node->domain) == 0 &&
            strcmp(op->function, node->function) == 0) {
            op->n++;
            return ATTNRUN_OK;
        }
    }
    size_t bytes = (size_t)(inspect->n_ops + 1) * sizeof *inspect->ops;
    struct op_count *ops = realloc(inspect->ops, bytes);
    if (ops == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a list of operators");
    inspect->ops = ops;
    ops[inspect->n_ops++] = (struct op_count){ .op_type = node->op_type,
                                               .domain = node->domain,
                                               .function = node->function,
                                               .opset = node->opset,
                                               .coverage = node->coverage,
                                               .n = 1 };
    return ATTNRUN_OK;
}

static attnrun_status count_ops(struct inspect *inspect)
{
    for (int32_t i = 0; i < inspect->info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        TRY_LIB(attnrun_model_node(inspect->model, i, &node));
        TRY(count_op(inspect, &node));
        inspect->coverage[node.coverage < 0 || node.coverage > 2 ? 2 : node.coverage]++;
    }
    if (inspect->n_ops > 0)
        qsort(inspect->ops, (size_t)inspect->n_ops, sizeof *inspect->ops, by_count);
    return ATTNRUN_OK;
}

/* All weights are named by the nodes that read them. */
attnrun_status inspect_weights(const struct inspect *inspect, weight_visit *visit,
                               void *user)
{
    struct list seen = { 0 };
    attnrun_status status = ATTNRUN_OK;
    for (int32_t i = 0; i < inspect->info.n_nodes && status == ATTNRUN_OK; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        status = attnrun_model_node(inspect->model, i, &node);
        for (int32_t k = 0; k < node.n_inputs && status == ATTNRUN_OK; k++) {
            attnrun_value_info info = { .struct_size = sizeof info };
            bool known = node.inputs[k][0] == 0;
            for (int64_t s = 0; s < seen.n && !known; s++)
                known = strcmp(seen.v[s], node.inputs[k]) == 0;
            if (known ||
                attnrun_model_value(inspect->model, node.inputs[k], &info) != 0 ||
                info.constant == NULL)
                continue;
            status = list_add(&seen, info.name);
            visit(user, &info);
        }
    }
    free(seen.v);
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
    inspect.info.struct_size = sizeof inspect.info;
    TRY(cli_open_model(cli, inspect.path, ATTNRUN_ALLOW_MISSING, &inspect.model));
    attnrun_status status = attnrun_model_query(inspect.model, &inspect.info);
    if (status != ATTNRUN_OK)
        tool_fail_library(status);
    if (status == ATTNRUN_OK)
        status = count_ops(&inspect);
    if (status == ATTNRUN_OK)
        status = show(&inspect);
    *exit_code = 0;
    if (status == ATTNRUN_OK && cli->coverage && inspect.info.n_missing > 0)
        status = tool_fail(
            ATTNRUN_E_UNSUPPORTED, "%d operator%s missing: %s", inspect.info.n_missing,
            inspect.info.n_missing == 1 ? " is" : "s are", inspect.info.missing);
    free(inspect.ops);
    attnrun_model_release(inspect.model);
    return status;
}
