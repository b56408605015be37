/* save_graph.c - struct attn_graph to GraphProto.
 *
 * In: a graph, and which of its nodes and constants stay. Out: bytes of the message, without
 * the constants of the main graph, which save_onnx.c writes from where they lie.
 *
 * A subgraph says no shapes of its inputs and outputs: what was inferred of them holds for
 * the call as it is now. Only single numbers keep theirs, since runtimes want the shapes
 * of a Loop's counter and condition, and outputs the ranks that the file declares, which they want
 * of the body of a Scan. */
#include "../runtime/dim_table.h"
#include "../runtime/poll.h"
#include "onnx_load.h"
#include "save_onnx.h"

enum {
    TENSOR_STRING_DATA = 6,
    IDENTITY_OPSET = 16 /* has one of all kinds: the node that the loader makes */
};

/* ---- types ---- */

/* The name of a dim: that of the file where it is one name, else the text of the expression. NULL
 * where a part of that is cut off or escaped, since two dims might get one name. */
static const char *name_of_dim(const struct attn_dims *dims, attnrun_dim dim,
                               char text[DIM_TEXT])
{
    const struct dim_expression expression = dim_expression_of(dims, dim);
    const struct dim_term *term = expression.terms;
    if (expression.n_terms == 1 && term->k == 1 && expression.constant == 0 &&
        dims->symbols[term->symbol].kind == SYMBOL_PLAIN)
        return dims->symbols[term->symbol].name;
    attn_dim_format(dims, dim, text, DIM_TEXT);
    return strlen(text) < DIM_TEXT - 1 && strstr(text, "...") == NULL &&
                   !strchr(text, '\\')
               ? text
               : NULL;
}

/* The dims of ONNX: a number, a name, or nothing. */
static void save_put_dim(struct wire_buffer *shape, const struct attn_dims *dims,
                         attnrun_dim dim)
{
    enum { DIM = 1, VALUE = 1, PARAM = 2 };
    struct wire_buffer one = wire_beside(shape);
    char text[DIM_TEXT];
    const char *name = NULL;
    if (dim_is_const(dim))
        wire_int(&one, VALUE, dim.value);
    else if (dim.expr > 0 && !attn_dim_is_vague(dims, dim))
        name = name_of_dim(dims, dim, text);
    if (name != NULL)
        wire_text(&one, PARAM, name);
    wire_message(shape, DIM, &one);
}

static void put_tensor_type(struct wire_buffer *type, const struct attn_dims *dims,
                            const attnrun_type *value, bool shaped)
{
    enum { TENSOR = 1, ELEMENT = 1, SHAPE = 2 };
    struct wire_buffer tensor = wire_beside(type), shape = wire_beside(type);
    wire_int(&tensor, ELEMENT, value->dtype);
    for (int i = 0; shaped && i < value->rank; i++)
        save_put_dim(&shape, dims, value->dims[i]);
    if (shaped && value->rank >= 0)
        wire_message(&tensor, SHAPE, &shape);
    wire_message(type, TENSOR, &tensor);
}

/* `type` becomes that of a sequence or an optional of what it was. */
static void wrap_type(struct wire_buffer *type, int field)
{
    struct wire_buffer inner = *type, holder = wire_beside(type);
    *type = wire_beside(type);
    wire_message(&holder, 1, &inner);
    wire_message(type, field, &holder);
}

static void put_type(struct wire_buffer *type, const struct attn_dims *dims,
                     const attnrun_type *value, bool shaped)
{
    enum { SEQUENCE = 4, MAP = 5, OPTIONAL = 9, KEY = 1, VALUE = 2 };
    const int32_t kind = value->kind;
    put_tensor_type(type, dims, value, shaped && kind == ATTNRUN_TENSOR);
    if (kind == ATTNRUN_MAP || kind == ATTNRUN_MAP_SEQUENCE) {
        struct wire_buffer element = *type, map = wire_beside(type);
        *type = wire_beside(type);
        wire_int(&map, KEY, value->key_dtype);
        wire_message(&map, VALUE, &element);
        wire_message(type, MAP, &map);
    }
    if (kind == ATTNRUN_SEQUENCE || kind == ATTNRUN_OPTIONAL_SEQUENCE ||
        kind == ATTNRUN_MAP_SEQUENCE)
        wrap_type(type, SEQUENCE);
    if (kind == ATTNRUN_OPTIONAL || kind == ATTNRUN_OPTIONAL_SEQUENCE)
        wrap_type(type, OPTIONAL);
}

static void put_value(struct wire_buffer *graph, int field, const struct attn_graph *of,
                      const char *name, const attnrun_type *type, bool shaped)
{
    struct wire_buffer value = wire_beside(graph), message = wire_beside(graph);
    wire_text(&value, WIRE_VALUE_NAME, name);
    if (type->kind != ATTNRUN_ABSENT && type->dtype != 0) {
        put_type(&message, of->model->dims, type, shaped);
        wire_message(&value, WIRE_VALUE_TYPE, &message);
    }
    wire_message(graph, field, &value);
}

/* ---- constants ---- */

void attn_save_tensor(struct wire_buffer *b, const attnrun_tensor *tensor,
                      const char *name, bool apart)
{
    for (int i = 0; i < tensor->rank; i++)
        wire_int(b, WIRE_TENSOR_DIMS, tensor->dims[i]);
    wire_int(b, WIRE_TENSOR_DATA_TYPE, tensor->dtype);
    if (name[0] != 0)
        wire_text(b, WIRE_TENSOR_NAME, name);
    if (tensor->dtype == ATTNRUN_STRING) {
        const attnrun_string *texts = tensor->data;
        for (int64_t i = 0; i < tensor_count(tensor); i++)
            wire_bytes(b, TENSOR_STRING_DATA, texts[i].data, (size_t)texts[i].n);
    } else if (!apart) {
        wire_bytes(b, WIRE_TENSOR_RAW_DATA, tensor->data, (size_t)tensor_bytes(tensor));
    }
}

static void put_tensor(struct wire_buffer *b, int field, const attnrun_tensor *tensor,
                       const char *name)
{
    struct wire_buffer message = wire_beside(b);
    attn_save_tensor(&message, tensor, name, false);
    wire_message(b, field, &message);
}

/* ---- nodes ---- */

/* Where a node stands: names of a subgraph may be those of a graph around it. */
static const char *name_of(const struct attn_graph *graph, int32_t id)
{
    while (id >= 0 && (graph->values[id].flags & ATTN_VALUE_CAPTURE)) {
        id = graph->values[id].outer;
        graph = graph->outer;
    }
    return id < 0 ? "" : graph->values[id].name;
}

static attn_status put_subgraph(struct wire_buffer *b, int field,
                                const struct attn_graph *graph);

static attn_status put_graphs(struct wire_buffer *attr, const struct attn_node *node,
                              const struct attn_attr *from)
{
    const bool one = from->kind == ATTN_ATTR_GRAPH;
    for (int64_t k = 0; k < (one ? 1 : from->i); k++)
        TRY(put_subgraph(attr, one ? WIRE_ATTR_G : WIRE_ATTR_GRAPHS,
                         node->graphs[from->graph + k]));
    return ATTNRUN_OK;
}

static void put_lists(struct wire_buffer *attr, const struct attn_attr *from)
{
    const attnrun_tensor *tensors = from->tensor.data;
    for (int64_t i = 0; from->kind == ATTN_ATTR_FLOATS && i < from->floats.n; i++)
        wire_float(attr, WIRE_ATTR_FLOATS, from->floats.v[i]);
    for (int64_t i = 0; from->kind == ATTN_ATTR_INTS && i < from->ints.n; i++)
        wire_int(attr, WIRE_ATTR_INTS, from->ints.v[i]);
    for (int64_t i = 0; from->kind == ATTN_ATTR_STRINGS && i < from->strings.n; i++)
        wire_bytes(attr, WIRE_ATTR_STRINGS, from->strings.v[i].data,
                   (size_t)from->strings.v[i].n);
    for (int64_t i = 0; from->kind == ATTN_ATTR_TENSORS && i < from->tensor.dims[0]; i++)
        put_tensor(attr, WIRE_ATTR_TENSORS, &tensors[i], "");
}

static attn_status put_attr(struct wire_buffer *b, const struct attn_graph *graph,
                            const struct attn_node *node, const struct attn_attr *from)
{
    struct wire_buffer attr = wire_beside(b), type = wire_beside(b);
    int32_t kind = from->kind;
    attn_status status = ATTNRUN_OK;
    wire_text(&attr, WIRE_ATTR_NAME, from->name);
    if (kind == ATTN_ATTR_FLOAT)
        wire_float(&attr, WIRE_ATTR_F, from->f);
    else if (kind == ATTN_ATTR_INT)
        wire_int(&attr, WIRE_ATTR_I, from->i);
    else if (kind == ATTN_ATTR_STRING)
        wire_bytes(&attr, WIRE_ATTR_S, from->s.data, (size_t)from->s.n);
    else if (kind == ATTN_ATTR_TENSOR)
        put_tensor(&attr, WIRE_ATTR_T, &from->tensor, "");
    else if (kind == ATTN_ATTR_GRAPH || kind == ATTN_ATTR_GRAPHS)
        status = put_graphs(&attr, node, from);
    else if (kind == ATTN_ATTR_TYPE_PROTO) {
        put_type(&type, graph->model->dims, &from->type, true);
        wire_message(&attr, WIRE_ATTR_TYPE_PROTO, &type);
    } else if (kind >= ATTN_ATTR_FLOATS && kind <= ATTN_ATTR_TENSORS)
        put_lists(&attr, from);
    else
        status = attn_fail_node(
            ATTNRUN_E_UNSUPPORTED, &node->pub,
            "attribute '%s' holds sparse tensors or a list of types, which "
            "cannot be written",
            attn_quote(from->name));
    wire_int(&attr, WIRE_ATTR_TYPE, kind);
    wire_message(b, WIRE_NODE_ATTRIBUTE, &attr);
    return status;
}

/* Nodes of a body may be of a domain that the model does not import; that of com.microsoft is
 * implied. */
static attn_status add_opset(struct attn_model *model, const char *domain,
                             int64_t version)
{
    const int32_t n = model->n_opsets;
    if (n >= ATTN_LOAD_OPSETS)
        return attn_fail(ATTNRUN_E_LIMIT, "there are nodes of more than %d domains",
                         ATTN_LOAD_OPSETS);
    struct attn_opset *opsets =
        attn_pool_alloc(&model->pool, (n + 1) * (int64_t)sizeof *opsets);
    if (opsets == NULL)
        return ATTNRUN_E_MEMORY;
    if (n > 0)
        memcpy(opsets, model->opsets, (size_t)n * sizeof *opsets);
    opsets[n] = (struct attn_opset){ domain, version };
    model->opsets = opsets;
    model->n_opsets = n + 1;
    return ATTNRUN_OK;
}

/* A model has one opset of a domain; nodes that come out of bodies may have another one. */
static attn_status check_opset(const struct attn_graph *graph,
                               const struct attn_node *node)
{
    struct attn_model *model = graph->model;
    const int64_t version =
        attn_load_opset(model->opsets, model->n_opsets, node->pub.domain);
    if (node->internal)
        return ATTNRUN_OK;
    if (version == 0)
        return add_opset(model, node->pub.domain, node->pub.opset);
    if (version == node->pub.opset || node->pub.op == NULL ||
        attn_runtime_find_op(model->runtime, node->pub.domain, node->pub.op_type,
                             version) == node->pub.op)
        return ATTNRUN_OK;
    return attn_fail_node(ATTNRUN_E_UNSUPPORTED, &node->pub,
                          "the node is of opset %d and the model of opset %lld, "
                          "which defines this operator differently",
                          node->pub.opset, (long long)version);
}

/* Nodes of a body without names are called after their operators; other runtimes want no two nodes
 * of a graph to have one name. `names`: those of the nodes before. */
static attn_status put_node_name(struct wire_buffer *message,
                                 const struct attn_node *node,
                                 struct attn_name_map *names)
{
    const char *name = node->pub.name;
    const int64_t length = (int64_t)strlen(name);
    if (length == 0 || attn_map_find(names, name, length) != NULL)
        return ATTNRUN_OK;
    wire_text(message, WIRE_NODE_NAME, name);
    return attn_map_add(names, name, length, 1);
}

static attn_status save_node(struct wire_buffer *b, const struct attn_graph *graph,
                             const struct attn_node *node, struct attn_name_map *names)
{
    struct wire_buffer message = wire_beside(b);
    attn_status status = check_opset(graph, node);
    for (int32_t i = 0; i < node->pub.n_in; i++)
        wire_text(&message, WIRE_NODE_INPUT, name_of(graph, node->in[i]));
    for (int32_t i = node->pub.n_in; i < 2 && node_is(node, "Loop"); i++)
        wire_text(&message, WIRE_NODE_INPUT, ""); /* ONNX wants both in their places */
    for (int32_t i = 0; i < node->pub.n_out; i++)
        wire_text(&message, WIRE_NODE_OUTPUT, name_of(graph, node->out[i]));
    if (status == ATTNRUN_OK)
        status = put_node_name(&message, node, names);
    wire_text(&message, WIRE_NODE_OP_TYPE, attn_node_file_type(node));
    if (node->pub.domain[0] != 0)
        wire_text(&message, WIRE_NODE_DOMAIN, node->pub.domain);
    if (node->overload != NULL)
        wire_text(&message, WIRE_NODE_OVERLOAD, node->overload);
    for (int32_t i = 0; i < node->n_attrs && status == ATTNRUN_OK; i++)
        status = put_attr(&message, graph, node, &node->attrs[i]);
    wire_message(b, WIRE_GRAPH_NODE, &message);
    return status == ATTNRUN_OK ? attn_poll_work(4096) : status;
}

/* ---- graphs ---- */

static bool is_number(const attnrun_type *type)
{
    return type->rank == 0 || (type->rank == 1 && dim_is(type->dims[0], 1));
}

static void put_inner_output(struct wire_buffer *b, const struct attn_graph *graph,
                             int32_t k)
{
    const int32_t id = graph->outputs[k];
    attnrun_type type = graph->values[id].type;
    type.rank = graph->output_ranks[k];
    for (int i = 0; i < type.rank; i++)
        type.dims[i].expr = ATTN_DIM_UNKNOWN;
    put_value(b, WIRE_GRAPH_OUTPUT, graph, name_of(graph, id), &type, true);
}

static attn_status put_subgraph(struct wire_buffer *b, int field,
                                const struct attn_graph *graph)
{
    struct wire_buffer message = wire_beside(b);
    struct attn_name_map names = { .pool = &graph->model->pool };
    attn_status status = ATTNRUN_OK;
    wire_text(&message, WIRE_GRAPH_NAME, graph->name[0] != 0 ? graph->name : "graph");
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        const attnrun_type *type = &graph->values[graph->inputs[i]].type;
        put_value(&message, WIRE_GRAPH_INPUT, graph, name_of(graph, graph->inputs[i]),
                  type, is_number(type));
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        const struct attn_value *value = &graph->values[v];
        if (value->data.data != NULL && value->uses != NULL &&
            !(value->flags & (ATTN_VALUE_CAPTURE | ATTN_VALUE_INPUT)))
            put_tensor(&message, WIRE_GRAPH_INITIALIZER, &value->data, value->name);
    }
    for (int64_t n = 0; n < graph->n_nodes && status == ATTNRUN_OK; n++)
        if (graph->nodes[n] != NULL)
            status = save_node(&message, graph, graph->nodes[n], &names);
    for (int32_t k = 0; k < graph->n_outputs; k++)
        put_inner_output(&message, graph, k);
    wire_message(b, field, &message);
    return status;
}

/* The type of an output; what the file says of it where its rank is not known. */
static const attnrun_type *output_type(const struct attn_onnx_save *save, int32_t k)
{
    const struct attn_graph *graph = save->model->graph;
    const struct attn_origin *origin = save->model->origin;
    const attnrun_type *type = &graph->values[save->outputs[k]].type;
    for (int32_t i = 0; i < origin->n_outputs && type->rank < 0; i++) {
        const int32_t at = (int32_t)(((int64_t)k + i) % origin->n_outputs);
        if (graph->outputs[at] != save->outputs[k])
            continue;
        type = &origin->output_types[at];
        break; /* the first one that is looked at, unless outputs were chosen */
    }
    return type;
}

attn_status attn_save_graph(struct attn_onnx_save *save)
{
    struct attn_model *model = save->model;
    const struct attn_graph *graph = model->graph;
    struct wire_buffer *b = &save->graph;
    struct attn_name_map names = { .pool = &save->pool };
    wire_text(b, WIRE_GRAPH_NAME, graph->name[0] != 0 ? graph->name : "graph");
    if (graph->model->graph_doc[0] != 0)
        wire_text(b, WIRE_GRAPH_DOC, graph->model->graph_doc);
    for (int32_t i = 0; i < save->n_inputs; i++)
        put_value(b, WIRE_GRAPH_INPUT, graph, name_of(graph, save->inputs[i]),
                  &graph->values[save->inputs[i]].type, true);
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        if (!save->live[n])
            continue;
        TRY(save_node(b, graph, graph->nodes[n], &names));
        save->n_nodes++;
    }
    for (int32_t i = 0; i < save->n_outputs; i++)
        put_value(b, WIRE_GRAPH_OUTPUT, graph, name_of(graph, save->outputs[i]),
                  output_type(save, i), true);
    if (attn_load_opset(model->opsets, model->n_opsets, "") == 0)
        TRY(add_opset(model, "", IDENTITY_OPSET));
    return b->failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}
