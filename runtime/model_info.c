/* model_info.c - describes a model to its user: inputs, outputs, nodes, values, opsets, metadata
 * and bytes.
 *
 * In: a loaded model, which stays as it is. Out: the structs of attnrun.h, whose texts belong to
 * the model. Cost: O(1) for each operand or node; names are looked up one after another. */
#include <stdio.h>

#include "abi.h"
#include "cpu.h"
#include "model.h"

static attn_status need(const void *model)
{
    return model ? ATTNRUN_OK : attn_fail(ATTNRUN_E_USAGE, "the model is NULL");
}

/* The handle of a graph, and back. */
static const attnrun_graph *graph_of(const struct attn_graph *graph)
{
    return (const attnrun_graph *)graph;
}

static const struct attn_graph *inner_of(const attnrun_graph *graph)
{
    return (const struct attn_graph *)graph;
}

static const char *precision_of(const struct attn_model *m)
{
    const bool rounds = m->precision == ATTNRUN_PRECISION_AUTO &&
                        attn_isa_has_dots((enum attn_isa)m->isa);
    if (!m->products_bf16)
        return rounds ? "f32 and i8" : "f32";
    if (!attn_isa_has_bf16((enum attn_isa)m->isa))
        return "bf16 by floats";
    return rounds ? "bf16 and i8" : "bf16";
}

attnrun_status attnrun_model_query(const attnrun_model *model, attnrun_model_info *info)
{
    TRY(need(model));
    const struct attn_model *m = model_of(model);
    attnrun_model_info filled = {
        .n_inputs = m->graph->n_inputs,
        .n_outputs = m->graph->n_outputs,
        .n_nodes = (int32_t)m->graph->n_nodes,
        .n_file_nodes = m->n_file_nodes,
        .n_functions = m->n_functions,
        .n_metadata = m->n_metadata,
        .n_opsets = m->n_opsets,
        .n_passes = m->n_passes,
        .n_missing = m->n_missing,
        .ir_version = m->ir_version,
        .n_parameters = m->n_parameters,
        .weights_bytes = m->weights_bytes,
        .file_bytes = m->file_bytes,
        .producer = m->producer,
        .producer_version = m->producer_version,
        .graph_name = m->graph_name,
        .doc = m->doc,
        .domain = m->domain,
        .graph_doc = m->graph_doc,
        .model_version = m->model_version,
        .missing = m->missing,
        .n_notes = m->n_notes,
        .precision = precision_of(m),
        .packed_for = m->packed_for,
    };
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_model_info");
}

static void fill_value(const struct attn_graph *graph, int32_t id,
                       attnrun_value_info *info)
{
    const struct attn_value *value = &graph->values[id];
    memset(info, 0, sizeof *info);
    info->kind = value->type.kind;
    info->dtype = value->type.dtype;
    info->key_dtype = value->type.key_dtype;
    info->rank = value->type.rank;
    info->name = value->name;
    bool here = value->data.data != NULL && !(value->flags & ATTN_VALUE_RELEASED);
    info->constant = here ? &value->data : NULL;
    for (int i = 0; i < value->type.rank; i++) {
        attnrun_dim d = value->type.dims[i];
        info->dims[i] = dim_is_const(d) ? d.value : -1;
        if (!dim_is_const(d))
            attn_dim_format(graph->model->dims, d, info->dim_names[i],
                            sizeof info->dim_names[i]);
    }
}

static attn_status give_value(const struct attn_graph *graph, const int32_t *ids,
                              int32_t n, int32_t index, attnrun_value_info *info)
{
    attnrun_value_info filled;
    bool packed;
    if (index < 0 || index >= n)
        return attn_fail(ATTNRUN_E_USAGE, "index %d is not in 0..%d", index, n - 1);
    TRY(attn_model_lock(graph->model,
                        &packed)); /* packing moves and releases constants */
    fill_value(graph, ids[index], &filled);
    attn_model_unlock(graph->model);
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_value_info");
}

attnrun_status attnrun_model_input(const attnrun_model *model, int32_t index,
                                   attnrun_value_info *info)
{
    TRY(need(model));
    const struct attn_graph *graph = model_of(model)->graph;
    return give_value(graph, graph->inputs, graph->n_inputs, index, info);
}

attnrun_status attnrun_model_output(const attnrun_model *model, int32_t index,
                                    attnrun_value_info *info)
{
    TRY(need(model));
    const struct attn_graph *graph = model_of(model)->graph;
    return give_value(graph, graph->outputs, graph->n_outputs, index, info);
}

attnrun_status attnrun_model_value(const attnrun_model *model, const char *name,
                                   attnrun_value_info *info)
{
    TRY(need(model));
    return attnrun_graph_value(graph_of(model_of(model)->graph), name, info);
}

static int32_t find_operand(const struct attn_graph *graph, const int32_t *ids, int32_t n,
                            const char *name)
{
    for (int32_t i = 0; name != NULL && i < n; i++)
        if (strcmp(graph->values[ids[i]].name, name) == 0)
            return i;
    return -1;
}

int32_t attnrun_model_find_input(const attnrun_model *model, const char *name)
{
    if (model == NULL)
        return -1;
    const struct attn_graph *graph = model_of(model)->graph;
    return find_operand(graph, graph->inputs, graph->n_inputs, name);
}

int32_t attnrun_model_find_output(const attnrun_model *model, const char *name)
{
    if (model == NULL)
        return -1;
    const struct attn_graph *graph = model_of(model)->graph;
    return find_operand(graph, graph->outputs, graph->n_outputs, name);
}

/* ---- graphs and their nodes ---- */

static attn_status find_node(const attnrun_graph *of, int32_t index,
                             const struct attn_node **node)
{
    if (of == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the graph is NULL");
    const struct attn_graph *graph = inner_of(of);
    if (index < 0 || index >= graph->n_nodes)
        return attn_fail(ATTNRUN_E_USAGE, "node %d is not in 0..%lld", index,
                         (long long)graph->n_nodes - 1);
    *node = graph->nodes[index];
    return ATTNRUN_OK;
}

attnrun_status attnrun_model_graph(const attnrun_model *model,
                                   const attnrun_graph **graph)
{
    TRY(need(model));
    if (graph == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_graph: graph is NULL");
    *graph = graph_of(model_of(model)->graph);
    return ATTNRUN_OK;
}

attnrun_status attnrun_graph_query(const attnrun_graph *graph, attnrun_graph_info *info)
{
    if (graph == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the graph is NULL");
    const struct attn_graph *inner = inner_of(graph);
    attnrun_graph_info filled = { .n_nodes = (int32_t)inner->n_nodes,
                                  .n_inputs = inner->n_inputs,
                                  .n_outputs = inner->n_outputs,
                                  .name = inner->name != NULL ? inner->name : "" };
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_graph_info");
}

attnrun_status attnrun_graph_value(const attnrun_graph *graph, const char *name,
                                   attnrun_value_info *info)
{
    if (graph == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the graph is NULL");
    int32_t id = name ? attn_graph_find(inner_of(graph), name) : -1;
    if (id < 0)
        return attn_fail(ATTNRUN_E_USAGE, "there is no value '%s'",
                         attn_quote(name ? name : ""));
    return give_value(inner_of(graph), &id, 1, 0, info);
}

attnrun_status attnrun_graph_node(const attnrun_graph *graph, int32_t index,
                                  attnrun_node_info *info)
{
    const struct attn_node *node;
    TRY(find_node(graph, index, &node));
    attnrun_node_info filled = {
        .coverage = node->pub.op == NULL                           ? ATTNRUN_MISSING
                    : node->pub.function[0] != 0 && !node->formula ? ATTNRUN_BODY
                                                                   : ATTNRUN_NATIVE,
        .opset = node->pub.opset,
        .n_inputs = node->pub.n_in,
        .n_outputs = node->pub.n_out,
        .name = node->pub.name,
        .op_type = node->pub.op_type,
        .domain = node->pub.domain,
        .function = node->pub.function,
        .inputs = node->pub.inputs,
        .outputs = node->pub.outputs,
        .n_attributes = node->n_attrs,
        .n_graphs = node->n_graphs,
    };
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_node_info");
}

attnrun_status attnrun_model_node(const attnrun_model *model, int32_t index,
                                  attnrun_node_info *info)
{
    TRY(need(model));
    return attnrun_graph_node(graph_of(model_of(model)->graph), index, info);
}

/* The attribute that holds graph `index` of the node. */
static const char *attribute_of(const struct attn_node *node, int32_t index)
{
    for (int32_t i = 0; i < node->n_attrs; i++) {
        const struct attn_attr *attr = &node->attrs[i];
        const int64_t n = attr->kind == ATTN_ATTR_GRAPH    ? 1
                          : attr->kind == ATTN_ATTR_GRAPHS ? attr->i
                                                           : 0;
        if (index >= attr->graph && index - attr->graph < n)
            return attr->name;
    }
    return "";
}

attnrun_status attnrun_subgraph(const attnrun_graph *graph, int32_t node, int32_t index,
                                const char **attribute, const attnrun_graph **subgraph)
{
    const struct attn_node *of;
    TRY(find_node(graph, node, &of));
    if (index < 0 || index >= of->n_graphs || attribute == NULL || subgraph == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "subgraph %d is not in 0..%d", index,
                         of->n_graphs - 1);
    *attribute = attribute_of(of, index);
    *subgraph = graph_of(of->graphs[index]);
    return ATTNRUN_OK;
}

attnrun_status attnrun_graph_attribute(const attnrun_graph *graph, int32_t node,
                                       int32_t index, attnrun_attribute_info *info)
{
    static const int32_t kinds[] = {
        [ATTN_ATTR_INT] = ATTNRUN_ATTR_INT,
        [ATTN_ATTR_FLOAT] = ATTNRUN_ATTR_FLOAT,
        [ATTN_ATTR_STRING] = ATTNRUN_ATTR_STRING,
        [ATTN_ATTR_INTS] = ATTNRUN_ATTR_INTS,
        [ATTN_ATTR_FLOATS] = ATTNRUN_ATTR_FLOATS,
        [ATTN_ATTR_STRINGS] = ATTNRUN_ATTR_STRINGS,
        [ATTN_ATTR_TENSOR] = ATTNRUN_ATTR_TENSOR,
        [ATTN_ATTR_GRAPH] = ATTNRUN_ATTR_GRAPH,
        [ATTN_ATTR_TYPE_PROTO] = ATTNRUN_ATTR_TYPE,
    };
    const struct attn_node *of;
    TRY(find_node(graph, node, &of));
    if (index < 0 || index >= of->n_attrs)
        return attn_fail(ATTNRUN_E_USAGE, "attribute %d is not in 0..%d", index,
                         of->n_attrs - 1);
    const struct attn_attr *attr = &of->attrs[index];
    const bool known = attr->kind >= 0 &&
                       attr->kind < (int32_t)(sizeof kinds / sizeof *kinds) &&
                       kinds[attr->kind] != 0;
    attnrun_attribute_info filled = {
        .kind = known ? kinds[attr->kind] : ATTNRUN_ATTR_IGNORED,
        .name = attr->name,
        .i = attr->i,
        .f = (double)attr->f,
        .s = attr->s,
        .ints = attr->ints,
        .floats = attr->floats,
        .strings = attr->strings,
    };
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_attribute_info");
}

attnrun_status attnrun_model_attribute(const attnrun_model *model, int32_t node,
                                       int32_t index, attnrun_attribute_info *info)
{
    TRY(need(model));
    return attnrun_graph_attribute(graph_of(model_of(model)->graph), node, index, info);
}

/* ---- texts ---- */

attnrun_status attnrun_model_metadata(const attnrun_model *model, int32_t index,
                                      const char **key, const char **value)
{
    TRY(need(model));
    const struct attn_model *m = model_of(model);
    if (index < 0 || index >= m->n_metadata || key == NULL || value == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "metadata %d is not in 0..%d", index,
                         m->n_metadata - 1);
    *key = m->metadata[index].key;
    *value = m->metadata[index].value;
    return ATTNRUN_OK;
}

attnrun_status attnrun_model_opset(const attnrun_model *model, int32_t index,
                                   const char **domain, int64_t *version)
{
    TRY(need(model));
    const struct attn_model *m = model_of(model);
    if (index < 0 || index >= m->n_opsets || domain == NULL || version == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "opset %d is not in 0..%d", index,
                         m->n_opsets - 1);
    *domain = m->opsets[index].domain;
    *version = m->opsets[index].version;
    return ATTNRUN_OK;
}

attnrun_status attnrun_model_pass(const attnrun_model *model, int32_t index,
                                  const char **name, int32_t *applied)
{
    TRY(need(model));
    const struct attn_model *m = model_of(model);
    if (index < 0 || index >= m->n_passes || name == NULL || applied == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "pass %d is not in 0..%d", index,
                         m->n_passes - 1);
    *name = attn_passes[index]->name;
    *applied = m->applied[index];
    return ATTNRUN_OK;
}

attnrun_status attnrun_model_note(const attnrun_model *model, int32_t index,
                                  const char **pass, const char **node, const char **why)
{
    TRY(need(model));
    const struct attn_model *m = model_of(model);
    if (index < 0 || index >= m->n_notes || pass == NULL || node == NULL || why == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "note %d is not in 0..%d", index,
                         m->n_notes - 1);
    *pass = m->notes[index].pass;
    *node = m->notes[index].node;
    *why = m->notes[index].why;
    return ATTNRUN_OK;
}

static void see_rows(const struct attn_graph *graph,
                     void (*see)(void *user, const attnrun_op_def *op), void *user)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        if (node == NULL || node->pub.op == NULL)
            continue;
        see(user, node->pub.op);
        for (int32_t g = 0; g < node->n_graphs;
             g++) /* as deep as the limit subgraph_depth */
            see_rows(node->graphs[g], see, user);
    }
}

attnrun_status attnrun_model_ops(const attnrun_model *model,
                                 void (*see)(void *user, const attnrun_op_def *op),
                                 void *user)
{
    TRY(need(model));
    if (see == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_ops: see is NULL");
    see_rows(model_of(model)->graph, see, user);
    return ATTNRUN_OK;
}
