/* onnx_node.c - NodeProto to struct attn_node, or to the body of a function in its place.
 *
 * In: a node and the scope in which its names mean values. Out: a node of the graph; of a
 * Constant node nothing is left, and the nodes of a function's body are put on the stack. */
#include <string.h>

#include "../runtime/operator.h"
#include "onnx_load.h"

enum { HASH_DIGITS = 8 };

const char *attn_domain(const char *domain)
{
    return domain == NULL || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

bool attn_load_is_constant(const PB(NodeProto) * pb)
{
    return attn_domain(pb->domain)[0] == 0 && strcmp(pb->op_type, "Constant") == 0;
}

/* ---- operands ---- */

static attn_status find_operands(struct attn_load *load, struct attn_load_scope *scope,
                                 const PB(NodeProto) * pb, int32_t *n_in, int32_t *in,
                                 int32_t *n_out, int32_t *out)
{
    for (size_t k = 0; k < pb->n_input; k++)
        TRY(attn_load_find(load, scope, pb_text(pb->input[k]), &in[k]));
    for (size_t k = 0; k < pb->n_output; k++) {
        const char *name = pb_text(pb->output[k]);
        const int64_t *id = attn_map_find(&scope->names, name, (int64_t)strlen(name));
        out[k] = name[0] != 0 && id != NULL ? (int32_t)*id : -1;
    }
    *n_in = (int32_t)pb->n_input;
    *n_out = (int32_t)pb->n_output;
    while (*n_in > 0 && in[*n_in - 1] < 0)
        --*n_in;
    /* Graphs, or those of the call, have one output for each of the node's, named or not; so has
     * a Split parts. */
    bool counted = strcmp(pb->op_type, "Split") == 0;
    for (size_t k = 0; k < pb->n_attribute; k++)
        counted = counted || pb->attribute[k]->g != NULL ||
                  (int)pb->attribute[k]->type == ATTN_ATTR_GRAPH;
    while (*n_out > 0 && out[*n_out - 1] < 0 && !counted)
        --*n_out;
    return ATTNRUN_OK;
}

/* ---- the operator ---- */

/* "Op__0123abcd" of the domain attnrun stands for operator Op, with a function of its own
 * as the fallback. Writes "Op" and returns true. */
static bool base_name(const char *domain, const char *op_type, char *base, size_t bytes)
{
    size_t length = strlen(op_type);
    if (strcmp(domain, "attnrun") != 0 || length <= HASH_DIGITS + 2 || length >= bytes)
        return false;
    size_t at = length - HASH_DIGITS - 2;
    if (op_type[at] != '_' || op_type[at + 1] != '_')
        return false;
    for (size_t k = at + 2; k < length; k++)
        if (!(op_type[k] >= '0' && op_type[k] <= '9') &&
            !(op_type[k] >= 'a' && op_type[k] <= 'f'))
            return false;
    memcpy(base, op_type, at);
    base[at] = 0;
    return true;
}

struct choice {
    const struct attn_function *function; /* NULL: an operator */
    const char *domain;
    const char *op_type;
    int64_t opset;
    char base[ATTN_SCAN_NAME + 1];
};

/* *native: there is an operator row for it; choice->function is what the model has. */
static attn_status look_up(const struct attn_load *load, const struct attn_opset *opsets,
                           int32_t n_opsets, const PB(NodeProto) * pb,
                           struct choice *choice, bool *native)
{
    choice->domain = attn_domain(pb->domain);
    choice->op_type = pb->op_type;
    choice->opset = attn_load_opset(opsets, n_opsets, choice->domain);
    choice->function = attn_load_find_function(load, pb);
    const char *name = pb->op_type;
    if (base_name(choice->domain, pb->op_type, choice->base, sizeof choice->base))
        name = choice->base;
    int64_t opset = choice->opset > 0 ? choice->opset : 1;
    const struct attn_operator *found =
        attn_operator_find(load->model, choice->domain, name, opset);
    if (found == NULL)
        return ATTNRUN_E_MEMORY;
    *native = found->op != NULL;
    if (*native && (load->model->flags & ATTNRUN_FORCE_BODIES) == 0)
        choice->function = NULL;
    if (*native && choice->function == NULL)
        choice->op_type = name;
    return ATTNRUN_OK;
}

attn_status attn_load_body(const struct attn_load *load, const struct attn_opset *opsets,
                           int32_t n_opsets, const PB(NodeProto) * pb,
                           const struct attn_function **function)
{
    struct choice choice;
    bool native;
    *function = NULL;
    if (load->by_name.used == 0)
        return ATTNRUN_OK;
    TRY(look_up(load, opsets, n_opsets, pb, &choice, &native));
    *function = choice.function;
    return ATTNRUN_OK;
}

static attn_status choose(const struct attn_load *load,
                          const struct attn_load_scope *scope, const PB(NodeProto) * pb,
                          struct choice *choice)
{
    bool native;
    if (pb->op_type[0] == 0)
        return attn_fail(ATTNRUN_E_MODEL, "its op_type is empty");
    TRY(look_up(load, scope->opsets, scope->n_opsets, pb, choice, &native));
    /* ONNX Runtime's optimizer writes such nodes into models that do not import it. */
    bool implied = strcmp(choice->domain, "com.microsoft") == 0;
    if (choice->opset == 0 && choice->function == NULL && !implied)
        return attn_fail(ATTNRUN_E_MODEL, "the model imports no opset of domain '%s'",
                         choice->domain[0] != 0 ? attn_quote(choice->domain) : "ai.onnx");
    if (choice->opset == 0)
        choice->opset = 1;
    return ATTNRUN_OK;
}

/* ---- attributes and subgraphs ---- */

static attn_status check_names(const PB(NodeProto) * pb)
{
    for (size_t k = 1; k < pb->n_attribute; k++)
        for (size_t j = 0; j < k; j++)
            if (strcmp(pb->attribute[k]->name, pb->attribute[j]->name) == 0)
                return attn_fail(ATTNRUN_E_MODEL, "attribute '%s' appears twice",
                                 attn_quote(pb->attribute[k]->name));
    return ATTNRUN_OK;
}

static attn_status add_graphs(struct attn_load *load, struct attn_load_scope *scope,
                              const struct attn_binding *binding, struct attn_node *node,
                              struct attn_name_map *inputs, struct attn_attr *attr)
{
    const PB(AttributeProto) *pb = binding->pb;
    bool one = attr->kind == ATTN_ATTR_GRAPH;
    PB(GraphProto) *const *graphs = one ? &pb->g : pb->graphs;
    size_t n = one ? 1 : pb->n_graphs;
    attr->graph = node->n_graphs;
    attr->i = (int64_t)n;
    struct attn_graph **list = attn_pool_alloc(
        &load->model->pool, (node->n_graphs + (int64_t)n) * (int64_t)sizeof *list);
    if (list == NULL)
        return ATTNRUN_E_MEMORY;
    if (node->n_graphs > 0)
        memcpy(list, node->graphs, (size_t)node->n_graphs * sizeof *list);
    node->graphs = list;
    for (size_t k = 0; k < n; k++) {
        TRY(attn_load_subgraph(load, scope->place, binding->scope, node, inputs,
                               graphs[k], &list[node->n_graphs]));
        node->n_graphs++;
    }
    return ATTNRUN_OK;
}

/* As many as the scan has let through; the nodes of subgraphs are read later. */
static attn_status reserve_attrs(struct attn_load *load, size_t n)
{
    if (n <= load->attrs_room)
        return ATTNRUN_OK;
    const size_t room = n < 4 ? 4 : 2 * n;
    load->attrs = attn_pool_alloc(load->pool, (int64_t)(room * sizeof *load->attrs));
    load->attrs_room = load->attrs != NULL ? room : 0;
    return load->attrs != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status add_attrs(struct attn_load *load, struct attn_load_scope *scope,
                             const PB(NodeProto) * pb, struct attn_node *node)
{
    int32_t n = 0;
    struct attn_name_map *inputs = NULL; /* what the subgraphs of the node read */
    TRY(check_names(pb));
    TRY(reserve_attrs(load, pb->n_attribute));
    for (size_t k = 0; k < pb->n_attribute; k++) {
        struct attn_binding binding;
        struct attn_attr *attr = &load->attrs[n];
        TRY(attn_attr_resolve(scope, pb->attribute[k], &binding));
        if (binding.pb == NULL) /* refers to what the call does not have */
            continue;
        TRY(attn_read_attr(load, binding.pb, attr));
        TRY(attn_tensor_align(&load->model->weights, &attr->tensor));
        attr->name = attn_pool_string(&load->model->pool, binding.name);
        if (attr->name == NULL)
            return ATTNRUN_E_MEMORY;
        n++;
        if (attr->kind != ATTN_ATTR_GRAPH && attr->kind != ATTN_ATTR_GRAPHS)
            continue;
        if (inputs == NULL)
            inputs = attn_pool_alloc(load->pool, (int64_t)sizeof *inputs);
        if (inputs == NULL)
            return ATTNRUN_E_MEMORY;
        inputs->pool = load->pool;
        TRY(add_graphs(load, scope, &binding, node, inputs, attr));
    }
    return attn_node_set_attrs(scope->place->graph, node, n, load->attrs);
}

/* ---- the node ---- */

static attn_status onnx_add_node(struct attn_load *load, struct attn_load_scope *scope,
                                 const PB(NodeProto) * pb, const struct choice *choice,
                                 int32_t n_in, const int32_t *in, int32_t n_out,
                                 const int32_t *out)
{
    const char *name = pb_text(pb->name);
    if (scope->prefix[0] != 0)
        name = attn_pool_printf(load->pool, "%s%s", scope->prefix,
                                name[0] != 0 ? name : pb->op_type);
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    struct attn_node *node;
    TRY(attn_graph_add_node(scope->place->graph, choice->domain, choice->op_type, name,
                            n_in, in, n_out, out, &node));
    node->pub.opset = (int32_t)(choice->opset < INT32_MAX ? choice->opset : INT32_MAX);
    node->has_body = attn_load_find_function(load, pb) != NULL;
    if (scope->function != NULL)
        node->pub.function = scope->function->name;
    if (strcmp(choice->op_type, pb->op_type) != 0) {
        node->file_type = attn_pool_string(&load->model->pool, pb->op_type);
        if (node->file_type == NULL)
            return ATTNRUN_E_MEMORY;
    }
    if (pb_text(pb->overload)[0] != 0) {
        node->overload = attn_pool_string(&load->model->pool, pb->overload);
        if (node->overload == NULL)
            return ATTNRUN_E_MEMORY;
    }
    return add_attrs(load, scope, pb, node);
}

static attn_status load_node(struct attn_load *load, struct attn_load_scope *scope,
                             const PB(NodeProto) * pb, struct choice *choice)
{
    int32_t n_in, n_out;
    int64_t room = (int64_t)(pb->n_input + pb->n_output + 1) * (int64_t)sizeof(int32_t);
    int32_t *in = attn_pool_alloc(load->pool, room);
    if (in == NULL)
        return ATTNRUN_E_MEMORY;
    int32_t *out = in + pb->n_input;
    TRY(find_operands(load, scope, pb, &n_in, in, &n_out, out));
    TRY(choose(load, scope, pb, choice));
    if (choice->function != NULL)
        return attn_load_call(load, scope, choice->function, pb, n_in, in, n_out, out);
    return onnx_add_node(load, scope, pb, choice, n_in, in, n_out, out);
}

attn_status attn_load_node(struct attn_load *load, struct attn_load_scope *scope,
                           const PB(NodeProto) * pb)
{
    if (attn_load_is_constant(pb))
        return ATTNRUN_OK; /* is one already: attn_load_outputs() */
    struct choice choice;
    attn_status status = load_node(load, scope, pb, &choice);
    return status == ATTNRUN_OK ? status : attn_load_fail(load, status, pb);
}
