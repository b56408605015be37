/* save_share.c - constants of subgraphs become constants of the main graph, each once, nodes of a
 * subgraph give its outputs, and no name of a subgraph hides one that is around it.
 *
 * In: a model that is opened to be written. Out: the same model, in which a subgraph takes its
 * large constants from around it, as the standard allows:
 *
 *   If  then: w [512,128], u       main: w [512,128], u
 *       else: w [512,128]     ->   If  then: (w), (u)
 *                                      else: (w)
 *
 * Two branches that compute the same from one constant share the result (runtime/fold.c), so the
 * new file holds it once. Constants of the main graph can also lie in a file beside the model.
 *
 * Names within a subgraph hide those around it, so the name of a constant that moves is one that
 * no graph has, but for the one that it comes from. So it is with values of a subgraph whose name
 * a graph around it has, too: bodies of functions make names that the file does not have. */
#include "../runtime/fold.h"
#include "../runtime/graph_names.h"
#include "../runtime/poll.h"
#include "onnx_load.h"
#include "save_onnx.h"

enum { SHARED_BYTES = 1024 }; /* smaller constants stay in their subgraph */

struct sharing {
    struct attn_graph *main;
    struct attn_pool *pool; /* of the slots */
    int32_t *slots; /* values of the main graph by the address of their bytes, -1: none */
    int64_t n_slots, n; /* n_slots: a power of two, over 2 n */
    /* Of all graphs, once they are needed: 0 where one value has the name, else the number to try
     * behind it. */
    struct attn_name_map names;
};

static bool is_large(const struct attn_value *value)
{
    const attnrun_tensor *tensor = &value->data;
    return tensor->data != NULL && tensor->kind == ATTNRUN_TENSOR &&
           tensor->dtype != ATTNRUN_STRING && tensor_bytes(tensor) >= SHARED_BYTES;
}

/* Finds the slot of a constant: the one that it has, or a free one. */
static int32_t *find_slot(const struct sharing *s, const attnrun_tensor *tensor)
{
    uint64_t at = (uint64_t)(uintptr_t)tensor->data * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    for (;; at++) {
        int32_t *slot = &s->slots[at & (uint64_t)(s->n_slots - 1)];
        if (*slot < 0 || attn_tensor_is_same(&s->main->values[*slot].data, tensor))
            return slot;
    }
}

static attn_status make_slots(struct sharing *s, int64_t n_slots)
{
    const int32_t *old = s->slots;
    const int64_t n_old = s->n_slots;
    s->slots = attn_pool_alloc(s->pool, n_slots * (int64_t)sizeof *s->slots);
    if (s->slots == NULL)
        return ATTNRUN_E_MEMORY;
    s->n_slots = n_slots;
    for (int64_t i = 0; i < n_slots; i++)
        s->slots[i] = -1;
    for (int64_t i = 0; i < n_old; i++)
        if (old[i] >= 0)
            *find_slot(s, &s->main->values[old[i]].data) = old[i];
    return attn_poll_work(4 * n_slots);
}

static attn_status add_slot(struct sharing *s, int32_t id)
{
    if (2 * s->n >= s->n_slots)
        TRY(make_slots(s, s->n_slots > 0 ? 4 * s->n_slots : 64));
    int32_t *slot = find_slot(s, &s->main->values[id].data);
    s->n += *slot < 0;
    *slot = *slot < 0 ? id : *slot;
    return ATTNRUN_OK;
}

/* Enters the names of `graph` and of the graphs within it. The limit subgraph_depth bounds the
 * recursion. */
static attn_status enter_names(struct sharing *s, const struct attn_graph *graph)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        const char *name = graph->values[v].name;
        int64_t *number = attn_map_find(&s->names, name, (int64_t)strlen(name));
        if (number != NULL)
            *number = 1;
        else
            TRY(attn_map_add(&s->names, name, (int64_t)strlen(name), 0));
        TRY(attn_poll_work(64));
    }
    for (int64_t i = 0; i < graph->n_nodes; i++)
        for (int32_t g = 0; graph->nodes[i] && g < graph->nodes[i]->n_graphs; g++)
            TRY(enter_names(s, graph->nodes[i]->graphs[g]));
    return attn_poll_work(16 * graph->n_nodes);
}

/* A name that no graph has. `stays`: it is `wanted` where only one value has that. */
static attn_status free_name(struct sharing *s, const char *wanted, bool stays,
                             const char **name)
{
    int64_t first = 0;
    *name = wanted;
    if (s->names.used == 0)
        TRY(enter_names(s, s->main));
    int64_t *number = attn_map_find(&s->names, wanted, (int64_t)strlen(wanted));
    if (number == NULL) /* of a value that was made since */
        number = &first;
    if (stays && *number == 0)
        return ATTNRUN_OK;
    do {
        *number += *number == 0;
        *name = attn_pool_printf(&s->main->model->pool, "%s_%lld", wanted,
                                 (long long)(*number)++);
        if (*name == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(attn_poll_work(64));
    } while (attn_map_find(&s->names, *name, (int64_t)strlen(*name)) != NULL);
    return attn_map_add(&s->names, *name, (int64_t)strlen(*name), 0);
}

/* Finds the equal constant of the main graph, or adds it there. */
static attn_status move_up(struct sharing *s, const struct attn_value *value, int32_t *id)
{
    const int32_t *slot = s->n_slots > 0 ? find_slot(s, &value->data) : NULL;
    const char *name;
    if (slot != NULL && *slot >= 0) {
        *id = *slot;
        return ATTNRUN_OK;
    }
    TRY(free_name(s, value->name, true, &name));
    TRY(attn_graph_add_constant(s->main, name, &value->data, id));
    return add_slot(s, *id);
}

/* Makes value *id of the main graph a captured value of `graph` and of all graphs between. */
static attn_status take_from_around(struct attn_graph *graph, int32_t *id)
{
    if (graph->outer == NULL)
        return ATTNRUN_OK;
    TRY(take_from_around(graph->outer, id));
    const int32_t outer = *id;
    TRY(attn_graph_add_value(graph, NULL, id));
    graph->values[*id].flags |= ATTN_VALUE_CAPTURE;
    graph->values[*id].outer = outer;
    return ATTNRUN_OK;
}

static attn_status share_values(struct sharing *s, struct attn_graph *graph)
{
    const int64_t n = graph->n_values; /* without those that are added */
    for (int64_t v = 0; v < n; v++) {
        const struct attn_value *value = &graph->values[v];
        int32_t id;
        if (!is_large(value) || value->uses == NULL ||
            (value->flags & (ATTN_VALUE_CAPTURE | ATTN_VALUE_INPUT)))
            continue;
        TRY(move_up(s, value, &id));
        TRY(take_from_around(graph->outer, &id));
        graph->values[v].flags |= ATTN_VALUE_CAPTURE;
        graph->values[v].outer = id;
    }
    return attn_poll_work(16 * n);
}

/* Whether Identity of the model's opset takes a value of this type. */
static bool has_identity(const struct attn_model *model, const attnrun_type *type)
{
    const int64_t opset = attn_load_opset(model->opsets, model->n_opsets, "");
    return type->kind <= ATTNRUN_TENSOR || opset == 0 ||
           opset >= (type->kind == ATTNRUN_SEQUENCE ? 14 : 16);
}

/* Other runtimes want a node of the subgraph to give each output, and a value for each: what is an
 * input, a constant, a value around it or an output before goes through an Identity. */
static attn_status give_outputs(struct attn_graph *graph)
{
    for (int32_t k = 0; k < graph->n_outputs; k++) {
        const int32_t id = graph->outputs[k];
        const attnrun_type type = graph->values[id].type;
        bool own = graph->values[id].producer >= 0 &&
                   graph->values[id].data.data == NULL &&
                   !(graph->values[id].flags & ATTN_VALUE_CAPTURE);
        for (int32_t i = 0; i < k; i++)
            own = own && graph->outputs[i] != id;
        if (own || !has_identity(graph->model, &type))
            continue;
        struct attn_node *node;
        TRY(attn_graph_add_value(graph, NULL, &graph->outputs[k]));
        graph->values[graph->outputs[k]].type = type;
        TRY(attn_graph_add_node(graph, "", "Identity", "", 1, &id, 1, &graph->outputs[k],
                                &node));
        node->internal = true;
    }
    return ATTNRUN_OK;
}

/* A copy of a constant may have its name. */
static bool hides_another(const struct attn_graph *graph, const struct attn_value *value)
{
    bool hides = false;
    for (graph = graph->outer; graph != NULL && !hides; graph = graph->outer) {
        const int32_t id = attn_graph_find(graph, value->name);
        hides = id >= 0 && (value->data.data == NULL ||
                            !attn_tensor_is_same(&graph->values[id].data, &value->data));
    }
    return hides;
}

static attn_status rename_values(struct sharing *s, struct attn_graph *graph)
{
    bool renamed = false;
    for (int64_t v = 0; v < graph->n_values; v++) {
        struct attn_value *value = &graph->values[v];
        if ((value->flags & ATTN_VALUE_CAPTURE) || !hides_another(graph, value))
            continue;
        const char *name;
        TRY(free_name(s, value->name, false, &name));
        value->name = name;
        renamed = true;
    }
    TRY(attn_poll_work(16 * graph->n_values));
    return renamed ? attn_names_renew(graph) : ATTNRUN_OK;
}

static attn_status share_inner(struct sharing *s, struct attn_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++)
        for (int32_t g = 0; graph->nodes[i] && g < graph->nodes[i]->n_graphs; g++) {
            TRY(share_values(s, graph->nodes[i]->graphs[g]));
            TRY(give_outputs(graph->nodes[i]->graphs[g]));
            TRY(rename_values(s, graph->nodes[i]->graphs[g]));
            TRY(share_inner(s, graph->nodes[i]->graphs[g]));
        }
    return attn_poll_work(16 * graph->n_nodes);
}

attn_status attn_save_share(struct attn_model *model, struct attn_pool *scratch)
{
    struct sharing s = { .main = model->graph,
                         .pool = scratch,
                         .names = { .pool = scratch } };
    for (int64_t v = 0; v < s.main->n_values; v++)
        if (is_large(&s.main->values[v]))
            TRY(add_slot(&s, (int32_t)v));
    return share_inner(&s, s.main);
}
