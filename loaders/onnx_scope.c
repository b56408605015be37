/* onnx_scope.c - names: which value a name means where, and how values reach subgraphs.
 *
 * In: a name and the scope (onnx_load.h) that reads it. Out: a value of that scope's graph;
 * for a name of a graph around, a capture is made in every graph in between. */
#include <string.h>

#include "onnx_load.h"

enum { MAX_SUBGRAPHS = ATTN_SCAN_SUBGRAPHS /* of any limit */, MAX_PREFIX = 256 };

attn_status attn_load_place(struct attn_load *load, struct attn_load_place *outer,
                            struct attn_node *owner, struct attn_name_map *owner_inputs,
                            struct attn_load_place **made)
{
    struct attn_load_place *place = attn_pool_alloc(load->pool, (int64_t)sizeof *place);
    if (place == NULL)
        return ATTNRUN_E_MEMORY;
    if (outer != NULL && outer->graph->depth >= load->model->limits.subgraph_depth)
        return attn_fail_limit(
            ATTN_LIMIT_SUBGRAPH_DEPTH,
            "subgraphs are nested more than %d deep, functions included",
            (int)load->model->limits.subgraph_depth);
    place->graph =
        outer != NULL ? attn_graph_create(load->model, outer->graph) : load->model->graph;
    place->outer = outer;
    place->owner = owner;
    place->owner_inputs = owner_inputs;
    place->captures.pool = load->pool;
    *made = place;
    return place->graph != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

struct attn_load_scope *attn_load_scope(struct attn_load *load,
                                        struct attn_load_place *place,
                                        struct attn_load_scope *around)
{
    struct attn_load_scope *scope = attn_pool_alloc(load->pool, (int64_t)sizeof *scope);
    if (scope == NULL)
        return NULL;
    scope->place = place;
    scope->around = around;
    scope->caller = around;
    scope->prefix = "";
    scope->names.pool = load->pool;
    scope->targets.pool = load->pool;
    if (around != NULL) {
        scope->function = around->function;
        scope->opsets = around->opsets;
        scope->n_opsets = around->n_opsets;
        scope->calls = around->calls;
        scope->prefix = around->prefix;
    }
    return scope;
}

int64_t attn_load_opset(const struct attn_opset *opsets, int32_t n_opsets,
                        const char *domain)
{
    for (int32_t k = 0; k < n_opsets; k++)
        if (strcmp(opsets[k].domain, domain) == 0)
            return opsets[k].version;
    return 0;
}

/* Whether the value becomes an input, so that nothing is to be known of it. */
static bool is_input_of_part(const struct attn_graph *graph, const char *name)
{
    const struct attn_origin *origin = graph->model->origin;
    const int64_t n = origin != NULL && graph->outer == NULL ? origin->n_inputs : 0;
    for (int64_t k = 0; k < n; k++)
        if (strcmp(origin->inputs[k], name) == 0)
            return true;
    return false;
}

void attn_load_set_constant(struct attn_graph *graph, int32_t id,
                            const attnrun_tensor *data)
{
    struct attn_value *value = &graph->values[id];
    if (is_input_of_part(graph, value->name))
        value->flags |= ATTN_VALUE_INPUT;
    else
        value->data = *data;
    value->type =
        (attnrun_type){ .kind = data->kind, .dtype = data->dtype, .rank = data->rank };
    for (int32_t k = 0; k < data->rank; k++)
        value->type.dims[k] = dim_of(data->dims[k]);
}

/* ---- captures ---- */

/* Adds an outer value to what the owner of a subgraph reads. */
static attn_status add_owner_input(struct attn_load *load, struct attn_load_place *place,
                                   const int32_t *outer)
{
    struct attn_node *node = place->owner;
    if (attn_map_find(place->owner_inputs, outer, (int64_t)sizeof *outer) != NULL)
        return ATTNRUN_OK;
    TRY(attn_map_add(place->owner_inputs, outer, (int64_t)sizeof *outer, 1));
    int32_t used = node->pub.n_in + node->n_captures, n = node->n_captures;
    if ((n & (n - 1)) == 0) { /* 0, or a power of two: full */
        int64_t capacity = used + (n > 0 ? n : 1);
        int32_t *in = attn_pool_alloc(&load->model->pool, capacity * (int64_t)sizeof *in);
        if (in == NULL)
            return ATTNRUN_E_MEMORY;
        if (used > 0)
            memcpy(in, node->in, (size_t)used * sizeof *in);
        node->in = in;
    }
    node->in[used] = *outer;
    node->n_captures++;
    return ATTNRUN_OK;
}

/* The value of `place` that stands for value `outer` of the graph around it. */
static attn_status capture(struct attn_load *load, struct attn_load_place *place,
                           int32_t outer, int32_t *id)
{
    int64_t *known = attn_map_find(&place->captures, &outer, (int64_t)sizeof outer);
    if (known != NULL) {
        *id = (int32_t)*known;
        return ATTNRUN_OK;
    }
    int32_t *key = attn_pool_alloc(load->pool, (int64_t)sizeof *key);
    if (key == NULL)
        return ATTNRUN_E_MEMORY;
    *key = outer;
    const struct attn_value *from = &place->outer->graph->values[outer];
    const char *name = attn_graph_find(place->graph, from->name) < 0 ? from->name : NULL;
    if (from->data.data != NULL) {
        TRY(attn_graph_add_constant(place->graph, name, &from->data, id));
    } else {
        TRY(attn_graph_add_value(place->graph, name, id));
        struct attn_value *value = &place->graph->values[*id];
        value->flags = ATTN_VALUE_CAPTURE;
        value->outer = outer;
        value->type = from->type;
        TRY(add_owner_input(load, place, key));
    }
    return attn_map_add(&place->captures, key, (int64_t)sizeof *key, *id);
}

/* Brings value *id of `from` down into `to`, a place within it. */
static attn_status carry(struct attn_load *load, struct attn_load_place *from,
                         struct attn_load_place *to, int32_t *id)
{
    struct attn_load_place *way[MAX_SUBGRAPHS + 2];
    int n = 0;
    for (struct attn_load_place *p = to; p != from && p != NULL; p = p->outer)
        way[n++] = p; /* at most MAX_SUBGRAPHS: attn_load_place() */
    while (n-- > 0)
        TRY(capture(load, way[n], *id, id));
    return ATTNRUN_OK;
}

attn_status attn_load_find(struct attn_load *load, struct attn_load_scope *scope,
                           const char *name, int32_t *id)
{
    *id = -1;
    if (name[0] == 0)
        return ATTNRUN_OK;
    int64_t length = (int64_t)strlen(name);
    for (const struct attn_load_scope *s = scope; s != NULL; s = s->around) {
        const int64_t *found = attn_map_find(&s->names, name, length);
        if (found == NULL)
            continue;
        *id = (int32_t)*found;
        return *id < 0 ? ATTNRUN_OK : carry(load, s->place, scope->place, id);
    }
    return attn_fail(ATTNRUN_E_MODEL,
                     "it reads '%s', which no input, initializer or node defines",
                     attn_quote(name));
}

/* ---- definitions ---- */

static attn_status make_name(struct attn_load *load, const struct attn_load_scope *scope,
                             const char *name, const char **made)
{
    const struct attn_graph *graph = scope->place->graph;
    *made = name;
    if (scope->prefix[0] == 0)
        return ATTNRUN_OK;
    *made = attn_pool_printf(load->pool, "%s%s", scope->prefix, name);
    while (*made != NULL && attn_graph_find(graph, *made) >= 0)
        *made = attn_pool_printf(load->pool, "%s%s~%lld", scope->prefix, name,
                                 (long long)++load->made_names);
    return *made != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

attn_status attn_load_define(struct attn_load *load, struct attn_load_scope *scope,
                             const char *name, int32_t *id)
{
    int64_t length = (int64_t)strlen(name);
    if (name[0] == 0)
        return attn_fail(ATTNRUN_E_MODEL, "a value has no name");
    if (attn_map_find(&scope->names, name, length) != NULL)
        return attn_fail(ATTNRUN_E_MODEL,
                         "the name '%s' is defined twice: inputs, initializers and node "
                         "outputs need names of their own",
                         attn_quote(name));
    const int64_t *target = attn_map_find(&scope->targets, name, length);
    if (target != NULL) {
        *id = (int32_t)*target;
    } else {
        const char *made;
        TRY(make_name(load, scope, name, &made));
        TRY(attn_graph_add_value(scope->place->graph, made, id));
    }
    return attn_map_add(&scope->names, name, length, *id);
}
