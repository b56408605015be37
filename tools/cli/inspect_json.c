/* inspect_json.c - attnrun inspect --json: what inspect.c gathered, as one JSON object. */

#include "inspect.h"
#include "name_set.h"

static const char *const coverage_names[] = { "native", "body", "missing" };

static void json_type(struct json *json, const attnrun_value_info *info)
{
    json_open(json, NULL, '{');
    json_text(json, "name", info->name);
    json_text(json, "dtype", attnrun_dtype_name(info->dtype));
    json_text(json, "kind", value_kind_name(info->kind));
    if (info->rank >= 0) {
        json_open(json, "shape", '[');
        for (int32_t d = 0; d < info->rank; d++) {
            if (info->dims[d] >= 0)
                json_int(json, NULL, info->dims[d]);
            else
                json_text(json, NULL, info->dim_names[d]);
        }
        json_close(json, ']');
    }
    json_close(json, '}');
}

static attnrun_status json_values(const struct inspect *inspect, struct json *json)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    json_open(json, "inputs", '[');
    for (int32_t i = 0; i < inspect->info.n_inputs; i++) {
        TRY_LIB(attnrun_model_input(inspect->model, i, &info));
        json_type(json, &info);
    }
    json_close(json, ']');
    json_open(json, "outputs", '[');
    for (int32_t i = 0; i < inspect->info.n_outputs; i++) {
        TRY_LIB(attnrun_model_output(inspect->model, i, &info));
        json_type(json, &info);
    }
    json_close(json, ']');
    return ATTNRUN_OK;
}

/* A key that a file repeats is one member, with the last value: so do readers of JSON, and those of
 * ONNX files that make a map of it. From the last to the first. */
static attnrun_status json_metadata(const struct inspect *inspect, struct json *json)
{
    struct name_set seen = { .n = 0 };
    attnrun_status status = ATTNRUN_OK;
    json_open(json, "metadata", '{');
    for (int32_t i = inspect->info.n_metadata - 1; i >= 0 && status == ATTNRUN_OK; i--) {
        const char *key, *value;
        status = attnrun_model_metadata(inspect->model, i, &key, &value);
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
        else if (name_set_has(&seen, key, NULL))
            continue;
        else if (!name_set_add(&seen, key, NULL))
            status = tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
        else
            json_text(json, key, value);
    }
    json_close(json, '}');
    name_set_free(&seen);
    return status;
}

static attnrun_status json_about(const struct inspect *inspect, struct json *json)
{
    const attnrun_model_info *info = &inspect->info;
    json_text(json, "producer", info->producer);
    json_text(json, "producer_version", info->producer_version);
    json_text(json, "graph", info->graph_name);
    json_text(json, "doc", info->doc);
    json_int(json, "ir_version", info->ir_version);
    json_text(json, "precision", info->precision);
    json_int(json, "parameters", info->n_parameters);
    json_int(json, "weights_bytes", info->weights_bytes);
    json_int(json, "file_bytes", info->file_bytes);
    json_open(json, "opsets", '{');
    for (int32_t i = 0; i < info->n_opsets; i++) {
        const char *domain;
        int64_t version;
        TRY_LIB(attnrun_model_opset(inspect->model, i, &domain, &version));
        json_int(json, domain[0] == 0 ? "ai.onnx" : domain, version);
    }
    json_close(json, '}');
    TRY(json_metadata(inspect, json));
    json_open(json, "passes", '{');
    for (int32_t i = 0; i < info->n_passes; i++) {
        const char *name;
        int32_t applied;
        TRY_LIB(attnrun_model_pass(inspect->model, i, &name, &applied));
        json_int(json, name, applied);
    }
    json_close(json, '}');
    json_open(json, "left", '[');
    for (int32_t i = 0; i < info->n_notes; i++) {
        const char *pass, *node, *why;
        TRY_LIB(attnrun_model_note(inspect->model, i, &pass, &node, &why));
        json_open(json, NULL, '{');
        json_text(json, "pass", pass);
        json_text(json, "node", node);
        json_text(json, "why", why);
        json_close(json, '}');
    }
    json_close(json, ']');
    return ATTNRUN_OK;
}

static void json_coverage(const struct inspect *inspect, struct json *json)
{
    json_open(json, "coverage", '{');
    for (int c = 0; c < 3; c++)
        json_int(json, coverage_names[c], inspect->coverage[c]);
    json_words(json, "missing_operators", inspect->info.missing, ", ");
    json_close(json, '}');
}

static void json_ops(const struct op_counts *ops, struct json *json)
{
    json_open(json, "ops", '[');
    for (int64_t i = 0; i < ops->n; i++) {
        const struct op_count *op = &ops->v[i];
        json_open(json, NULL, '{');
        json_text(json, "domain", op->domain);
        json_text(json, "op_type", op->op_type);
        json_int(json, "opset", op->opset);
        json_text(json, "coverage", coverage_names[op->coverage]);
        json_text(json, "function", op->function);
        json_int(json, "nodes", op->n);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void json_names(struct json *json, const char *key, const char *const *names,
                       int32_t n)
{
    json_open(json, key, '[');
    for (int32_t i = 0; i < n; i++)
        json_text(json, NULL, names[i]);
    json_close(json, ']');
}

static void json_attribute(struct json *json, const attnrun_attribute_info *a)
{
    if (a->kind == ATTNRUN_ATTR_INT)
        json_int(json, a->name, a->i);
    else if (a->kind == ATTNRUN_ATTR_FLOAT)
        json_real_of(json, a->name, a->f, ATTNRUN_F32);
    else if (a->kind == ATTNRUN_ATTR_STRING) {
        json_key(json, a->name);
        json_string(json, a->s.data, a->s.n);
    } else if (a->kind == ATTNRUN_ATTR_INTS || a->kind == ATTNRUN_ATTR_FLOATS ||
               a->kind == ATTNRUN_ATTR_STRINGS) {
        json_open(json, a->name, '[');
        for (int64_t i = 0; a->kind == ATTNRUN_ATTR_INTS && i < a->ints.n; i++)
            json_int(json, NULL, a->ints.v[i]);
        for (int64_t i = 0; a->kind == ATTNRUN_ATTR_FLOATS && i < a->floats.n; i++)
            json_real_of(json, NULL, (double)a->floats.v[i], ATTNRUN_F32);
        for (int64_t i = 0; a->kind == ATTNRUN_ATTR_STRINGS && i < a->strings.n; i++) {
            json_key(json, NULL);
            json_string(json, a->strings.v[i].data, a->strings.v[i].n);
        }
        json_close(json, ']');
    }
}

/* Numbers, text and lists of them; tensors, graphs and types are left out. */
static attnrun_status json_attributes(const attnrun_graph *graph, int32_t node, int32_t n,
                                      struct json *json)
{
    json_open(json, "attributes", '{');
    for (int32_t i = 0; i < n; i++) {
        attnrun_attribute_info info = { .struct_size = sizeof info };
        TRY_LIB(attnrun_graph_attribute(graph, node, i, &info));
        json_attribute(json, &info);
    }
    json_close(json, '}');
    return ATTNRUN_OK;
}

static attnrun_status json_layers(const struct inspect_graph *of, struct json *json)
{
    json_open(json, "layers", '[');
    for (int32_t i = 0; i < of->info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        TRY_LIB(attnrun_graph_node(of->graph, i, &node));
        json_open(json, NULL, '{');
        json_text(json, "name", node.name);
        json_text(json, "domain", node.domain);
        json_text(json, "op_type", node.op_type);
        json_names(json, "inputs", node.inputs, node.n_inputs);
        json_names(json, "outputs", node.outputs, node.n_outputs);
        TRY(json_attributes(of->graph, i, node.n_attributes, json));
        json_close(json, '}');
    }
    json_close(json, ']');
    return ATTNRUN_OK;
}

/* Numbers of graphs are those of this list; the main graph is not in it. */
static attnrun_status json_subgraphs(const struct inspect *inspect, struct json *json)
{
    json_open(json, "subgraphs", '[');
    for (int32_t g = 1; g < inspect->n_graphs; g++) {
        const struct inspect_graph *graph = &inspect->graphs[g];
        json_open(json, NULL, '{');
        json_text(json, "node", graph->node);
        json_int(json, "node_index", graph->node_index);
        json_text(json, "op_type", graph->op_type);
        json_text(json, "attribute", graph->attribute);
        json_text(json, "graph", graph->info.name);
        json_int(json, "outer", graph->outer - 1);
        json_int(json, "nodes", graph->info.n_nodes);
        json_ops(&graph->ops, json);
        if (inspect->cli->layers)
            TRY(json_layers(graph, json));
        json_close(json, '}');
    }
    json_close(json, ']');
    return ATTNRUN_OK;
}

static void json_weight(void *user, const attnrun_value_info *info)
{
    struct json *json = user;
    json_open(json, NULL, '{');
    json_text(json, "name", info->name);
    json_text(json, "dtype", attnrun_dtype_name(info->dtype));
    json_dims(json, "shape", info->constant);
    json_int(json, "bytes", attnrun_tensor_bytes(info->constant));
    json_close(json, '}');
}

attnrun_status inspect_json(const struct inspect *inspect)
{
    struct json json = { .out = cli_json_stream() };
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/inspect/5");
    json_text(&json, "model", inspect->path);
    TRY(json_about(inspect, &json));
    TRY(json_values(inspect, &json));
    json_coverage(inspect, &json);
    json_ops(&inspect->ops, &json);
    TRY(json_subgraphs(inspect, &json));
    if (inspect->cli->layers)
        TRY(json_layers(&inspect->graphs[0], &json));
    if (inspect->cli->weights) {
        json_open(&json, "weights", '[');
        TRY(inspect_weights(inspect, json_weight, &json));
        json_close(&json, ']');
    }
    json_close(&json, '}');
    return ATTNRUN_OK;
}
