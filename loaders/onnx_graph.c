/* onnx_graph.c - GraphProto to struct attn_graph.
 *
 * A graph is entered first: its inputs, initializers, the outputs of all its nodes and
 * the constants of its Constant nodes get their values, so that nodes may come in any
 * order. Then its nodes are made, one by one, from the stack of work; at the end its
 * outputs are looked up. Initializers that are also inputs are constants and no inputs.
 */
#include <string.h>

#include "../runtime/poll.h"
#include "onnx_load.h"

static attn_status set_name(struct attn_load *load, struct attn_graph *graph,
                            const char *name)
{
    graph->name = attn_pool_string(&load->model->pool, pb_text(name));
    return graph->name != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* ---- initializers ---- */

static void count_weights(struct attn_load *load, const attnrun_tensor *tensor)
{
    load->model->n_parameters += tensor_count(tensor);
    load->model->weights_bytes += tensor_bytes(tensor);
}

static attn_status add_initializer(struct attn_load *load, struct attn_load_scope *scope,
                                   const char *name, const attnrun_tensor *tensor)
{
    int32_t id;
    if (name[0] == 0)
        return attn_fail(ATTNRUN_E_MODEL, "an initializer has no name");
    TRY(attn_load_define(load, scope, name, &id));
    attn_load_set_constant(scope->place->graph, id, tensor);
    count_weights(load, tensor);
    return ATTNRUN_OK;
}

static attn_status add_initializers(struct attn_load *load, struct attn_load_scope *scope,
                                    const PB(GraphProto) * pb)
{
    attnrun_tensor tensor;
    for (size_t k = 0; k < pb->n_initializer; k++) {
        TRY(attn_poll_work(1024));
        TRY(attn_read_tensor(&load->reader, pb->initializer[k], &tensor));
        TRY(add_initializer(load, scope, pb_text(pb->initializer[k]->name), &tensor));
    }
    for (size_t k = 0; k < pb->n_sparse_initializer; k++) {
        const PB(SparseTensorProto) *sparse = pb->sparse_initializer[k];
        TRY(attn_read_sparse(&load->reader, sparse, &tensor));
        TRY(add_initializer(load, scope, pb_text(sparse->values->name), &tensor));
    }
    return ATTNRUN_OK;
}

/* ---- inputs ---- */

/* The input is an initializer: returns true in *given. In a subgraph that is no default.
 */
static attn_status is_initializer(const struct attn_load_scope *scope, const char *name,
                                  bool *given)
{
    const int64_t *known = attn_map_find(&scope->names, name, (int64_t)strlen(name));
    *given = known != NULL; /* as yet the scope has nothing else */
    if (*given && scope->place->owner != NULL)
        return attn_fail(ATTNRUN_E_MODEL,
                         "'%s' is an input and an initializer of a subgraph",
                         attn_quote(name));
    return ATTNRUN_OK;
}

static void trust_dims(const struct attn_model *model, const char *input,
                       attnrun_type *type)
{
    const bool separate = (model->flags & ATTNRUN_SEPARATE_DIMS) != 0;
    for (int32_t d = 0; d < type->rank; d++)
        type->dims[d] =
            attn_dim_trusted(model->dims, type->dims[d], separate ? input : NULL);
}

static attn_status input_type(struct attn_load *load, struct attn_graph *graph,
                              const PB(ValueInfoProto) * pb, attnrun_type *type)
{
    bool main = graph->outer == NULL;
    attn_status status =
        attn_read_type(&load->model->limits, load->model->dims, pb->type, main, type);
    if (status == ATTNRUN_OK && main &&
        (type->kind == ATTNRUN_ABSENT ||
         (type->kind == ATTNRUN_TENSOR && type->dtype == 0)))
        status = attn_fail(ATTNRUN_E_MODEL, "it has no type");
    if (status == ATTNRUN_OK && main)
        trust_dims(load->model, pb_text(pb->name), type);
    if (status == ATTNRUN_OK)
        return ATTNRUN_OK;
    attn_load_fail_in(load, status, "graph input", pb_text(pb->name));
    attn_fail_tensor(pb_text(pb->name));
    return status;
}

static attn_status add_inputs(struct attn_load *load, struct attn_load_scope *scope,
                              const PB(GraphProto) * pb)
{
    struct attn_graph *graph = scope->place->graph;
    graph->inputs = attn_pool_alloc(
        &load->model->pool, ((int64_t)pb->n_input + 1) * (int64_t)sizeof *graph->inputs);
    if (graph->inputs == NULL)
        return ATTNRUN_E_MEMORY;
    struct attn_name_map seen = { .pool = load->pool };
    for (size_t k = 0; k < pb->n_input; k++) {
        TRY(attn_poll_work(1024));
        const char *name = pb_text(pb->input[k]->name);
        int64_t length = (int64_t)strlen(name);
        bool given;
        if (attn_map_find(&seen, name, length) != NULL)
            return attn_fail(ATTNRUN_E_MODEL, "two graph inputs are named '%s'",
                             attn_quote(name));
        TRY(attn_map_add(&seen, name, length, 1));
        TRY(is_initializer(scope, name, &given));
        if (given)
            continue;
        int32_t id;
        attnrun_type type;
        TRY(input_type(load, graph, pb->input[k], &type));
        TRY(attn_load_define(load, scope, name, &id));
        graph->values[id].type = type;
        graph->values[id].flags |= ATTN_VALUE_INPUT;
        graph->inputs[graph->n_inputs++] = id;
    }
    return ATTNRUN_OK;
}

/* ---- outputs of nodes, and what the file says of inner values ---- */

attn_status attn_load_outputs(struct attn_load *load, struct attn_load_scope *scope,
                              PB(NodeProto) *const *nodes, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const PB(NodeProto) *pb = nodes[k];
        attn_status status = attn_poll_work(1024);
        int32_t id = -1;
        load->at = (int32_t)k;
        for (size_t o = 0; status == ATTNRUN_OK && o < pb->n_output; o++)
            if (pb_text(pb->output[o])[0] != 0)
                status = attn_load_define(load, scope, pb->output[o], &id);
        attnrun_tensor tensor;
        if (status == ATTNRUN_OK && attn_load_is_constant(pb)) {
            status = attn_load_constant(load, scope, pb, &tensor);
            if (status == ATTNRUN_OK && id >= 0) {
                attn_load_set_constant(scope->place->graph, id, &tensor);
                if (scope->function == NULL) /* a body is loaded once for each call */
                    count_weights(load, &tensor);
            }
        }
        if (status != ATTNRUN_OK)
            return attn_load_fail(load, status, pb);
    }
    return ATTNRUN_OK;
}

/* What a graph gives that no node makes: an input or a constant of its declared type. */
static attn_status check_given(const struct attn_value *value, const attnrun_type *type)
{
    if (value->type.kind == type->kind && value->type.dtype == type->dtype)
        return ATTNRUN_OK;
    return attn_fail(ATTNRUN_E_DTYPE, "graph output '%s' is declared %s, but is %s",
                     attn_quote(value->name), attnrun_dtype_name(type->dtype),
                     attnrun_dtype_name(value->type.dtype));
}

/* Kinds and element types must come true; shapes are of use only where an operator is missing:
 * inference forgets them. */
static attn_status set_hints(struct attn_load *load, struct attn_load_scope *scope,
                             size_t n, PB(ValueInfoProto) *const *infos, bool outputs)
{
    struct attn_graph *graph = scope->place->graph;
    for (size_t k = 0; k < n && !attn_stops_node((int64_t)k); k++) {
        const char *name = pb_text(infos[k]->name);
        const int64_t *id = attn_map_find(&scope->names, name, (int64_t)strlen(name));
        attnrun_type type;
        if (id == NULL || *id < 0)
            continue;
        struct attn_value *value = &graph->values[*id];
        if (attn_read_type(&load->model->limits, load->model->dims, infos[k]->type, false,
                           &type) != ATTNRUN_OK ||
            type.dtype == 0)
            continue;
        if (value->type.kind != ATTNRUN_ABSENT) {
            if (outputs && value->type.dtype != 0)
                TRY(check_given(value, &type));
            continue;
        }
        value->type = type;
        value->flags |= ATTN_VALUE_DECLARED;
    }
    return ATTNRUN_OK;
}

/* ---- a whole graph ---- */

attn_status attn_load_count(struct attn_load *load, size_t nodes, size_t parts)
{
    const int64_t max = attn_load_max_expanded(load);
    load->made_nodes += (int64_t)nodes;
    load->made_parts += (int64_t)parts;
    return load->made_nodes <= load->reader.scan->n_nodes + max &&
                   load->made_parts <= load->file_parts + ATTN_LOAD_PARTS_EACH * max
               ? ATTNRUN_OK
               : attn_fail_limit(ATTN_LIMIT_EXPANDED_NODES,
                                 "functions expand to more than %lld nodes of %d parts",
                                 (long long)max, ATTN_LOAD_PARTS_EACH);
}

attn_status attn_load_push(struct attn_load *load, struct attn_load_scope *scope,
                           PB(NodeProto) *const *nodes, size_t n,
                           const PB(GraphProto) * graph)
{
    /* A graph that is an attribute of calls comes again with each use of it in a body. */
    size_t parts = graph == NULL
                       ? 0
                       : graph->n_input + graph->n_output + graph->n_initializer +
                             graph->n_sparse_initializer + graph->n_value_info;
    for (size_t k = 0; k < n; k++)
        parts += nodes[k]->n_input + nodes[k]->n_output + nodes[k]->n_attribute;
    TRY(attn_load_count(load, n, parts));
    if (load->n_works == load->works_capacity)
        TRY(attn_pool_grow(load->pool, (void **)&load->works, &load->works_capacity,
                           load->n_works, (int64_t)sizeof *load->works));
    load->works[load->n_works++] =
        (struct attn_load_work){ .scope = scope, .nodes = nodes, .n = n, .graph = graph };
    return ATTNRUN_OK;
}

static attn_status reserve_values(struct attn_load_scope *scope,
                                  const PB(GraphProto) * pb)
{
    size_t n = pb->n_input + pb->n_initializer + pb->n_sparse_initializer;
    for (size_t k = 0; k < pb->n_node; k++)
        n += pb->node[k]->n_output;
    TRY(attn_map_reserve(&scope->names, (int64_t)n));
    return attn_graph_reserve(scope->place->graph, (int64_t)n, (int64_t)pb->n_node);
}

static attn_status enter(struct attn_load *load, struct attn_load_scope *scope,
                         const PB(GraphProto) * pb)
{
    TRY(set_name(load, scope->place->graph, pb->name));
    TRY(reserve_values(scope, pb));
    TRY(add_initializers(load, scope, pb));
    TRY(add_inputs(load, scope, pb));
    TRY(attn_load_outputs(load, scope, pb->node, pb->n_node));
    TRY(set_hints(load, scope, pb->n_value_info, pb->value_info, false));
    TRY(set_hints(load, scope, pb->n_output, pb->output, true));
    return attn_load_push(load, scope, pb->node, pb->n_node, pb);
}

/* E_USAGE, with the value of the graph that `name` most likely means. */
static attn_status unknown_value(struct attn_load *load, const struct attn_graph *graph,
                                 const char *name)
{
    enum { MAX = 10000 };
    int64_t n = graph->n_values < MAX ? graph->n_values : MAX;
    const char **names = attn_pool_alloc(load->pool, (n + 1) * (int64_t)sizeof *names);
    if (names == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        names[i] = graph->values[i].name;
    attn_fail(ATTNRUN_E_USAGE, "the model has no value '%s'", attn_quote(name));
    attn_suggest(name, names, n);
    return ATTNRUN_E_USAGE;
}

/* Inner values that the caller wants to see. */
static attn_status add_more_outputs(struct attn_load *load, struct attn_load_scope *scope)
{
    struct attn_graph *graph = scope->place->graph;
    for (int64_t k = 0; k < load->source->n_more_outputs; k++) {
        const char *name = load->source->more_outputs[k];
        const int64_t *known = attn_map_find(&scope->names, name, (int64_t)strlen(name));
        TRY(attn_poll_work(1024));
        if (known == NULL || *known < 0)
            return unknown_value(load, graph, name);
        if (graph->values[*known].flags & ATTN_VALUE_OUTPUT)
            continue;
        graph->values[*known].flags |= ATTN_VALUE_OUTPUT;
        graph->outputs[graph->n_outputs++] = (int32_t)*known;
    }
    return ATTNRUN_OK;
}

/* What the file says of its outputs, for a model that is written again: of an unknown rank
 * that is more than what is inferred. */
static attn_status keep_declared(struct attn_load *load, const PB(GraphProto) * pb)
{
    struct attn_origin *origin = load->model->origin;
    origin->n_outputs = (int32_t)pb->n_output;
    origin->output_types =
        attn_pool_alloc(&load->model->pool, ((int64_t)pb->n_output + 1) *
                                                (int64_t)sizeof *origin->output_types);
    if (origin->output_types == NULL)
        return ATTNRUN_E_MEMORY;
    for (size_t k = 0; k < pb->n_output; k++)
        TRY(attn_read_type(&load->model->limits, load->model->dims, pb->output[k]->type,
                           false, &origin->output_types[k]));
    return ATTNRUN_OK;
}

static attn_status add_graph_outputs(struct attn_load *load,
                                     struct attn_load_scope *scope,
                                     const PB(GraphProto) * pb)
{
    struct attn_graph *graph = scope->place->graph;
    const bool main = graph->outer == NULL;
    int64_t more = main ? load->source->n_more_outputs : 0, places;
    if (!ck_add(more, (int64_t)pb->n_output + 1, &places) || places > INT32_MAX)
        return attn_fail(ATTNRUN_E_LIMIT, "over %d outputs", INT32_MAX);
    graph->outputs =
        attn_pool_alloc(&load->model->pool, places * (int64_t)sizeof *graph->outputs);
    graph->output_ranks = attn_pool_alloc(&load->model->pool,
                                          places * (int64_t)sizeof *graph->output_ranks);
    if (graph->outputs == NULL || graph->output_ranks == NULL)
        return ATTNRUN_E_MEMORY;
    for (size_t k = 0; k < pb->n_output; k++) {
        TRY(attn_poll_work(1024));
        const char *name = pb_text(pb->output[k]->name);
        int32_t id = -1;
        attn_status status = ATTNRUN_OK;
        if (name[0] != 0)
            status = attn_load_find(load, scope, name, &id);
        if (id < 0 && (status == ATTNRUN_OK || status == ATTNRUN_E_MODEL))
            return attn_fail(
                ATTNRUN_E_MODEL,
                "the graph output '%s' is defined by no input, initializer or node",
                attn_quote(name));
        TRY(status);
        graph->values[id].flags |= ATTN_VALUE_OUTPUT;
        graph->output_ranks[graph->n_outputs] = graph->values[id].type.rank;
        graph->outputs[graph->n_outputs++] = id;
    }
    if (main && load->model->origin != NULL)
        TRY(keep_declared(load, pb));
    return main ? add_more_outputs(load, scope) : ATTNRUN_OK;
}

/* Works through the stack. What a node adds lies on top and is done before its successor.
 */
static attn_status do_works(struct attn_load *load)
{
    while (load->n_works > 0) {
        struct attn_load_work *work = &load->works[load->n_works - 1];
        struct attn_load_scope *scope = work->scope;
        TRY(attn_poll_work(4096));
        if (work->next < work->n) {
            load->at = (int32_t)work->next;
            TRY(attn_load_node(load, scope, work->nodes[work->next++]));
            continue;
        }
        const PB(GraphProto) *graph = work->graph;
        load->n_works--;
        if (graph != NULL)
            TRY(add_graph_outputs(load, scope, graph));
    }
    return ATTNRUN_OK;
}

attn_status attn_load_subgraph(struct attn_load *load, struct attn_load_place *outer,
                               struct attn_load_scope *around, struct attn_node *owner,
                               struct attn_name_map *owner_inputs,
                               const PB(GraphProto) * pb, struct attn_graph **graph)
{
    struct attn_load_place *place;
    TRY(attn_load_place(load, outer, owner, owner_inputs, &place));
    struct attn_load_scope *scope = attn_load_scope(load, place, around);
    if (scope == NULL)
        return ATTNRUN_E_MEMORY;
    *graph = place->graph;
    return enter(load, scope, pb);
}

attn_status attn_load_main(struct attn_load *load, const PB(GraphProto) * pb,
                           const struct attn_opset *opsets, int32_t n_opsets)
{
    struct attn_load_place *place;
    TRY(attn_load_place(load, NULL, NULL, NULL, &place));
    struct attn_load_scope *scope = attn_load_scope(load, place, NULL);
    if (scope == NULL)
        return ATTNRUN_E_MEMORY;
    scope->opsets = opsets;
    scope->n_opsets = n_opsets;
    load->model->n_file_nodes = (int32_t)pb->n_node;
    TRY(enter(load, scope, pb));
    return do_works(load);
}
