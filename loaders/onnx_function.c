/* onnx_function.c - model-local functions: lists those of a file, and puts the body of one in the
 * place of a call.
 *
 * In: a FunctionProto and the node that calls it. Out: the nodes of the body, in the graph of the
 * call. Formal inputs stand for the values of the call, or for nothing where the call has fewer;
 * outputs are the values of the call; all other names get the name of the call as a prefix. An
 * attribute that refers to one of the function takes its value from the call, else from the
 * function's default, else it is left out. Operators of a body have the versions of the function's
 * own opset_import. Cost: linear in the nodes of the body, for each call. */
#include <string.h>

#include "onnx_load.h"

enum { MAX_PREFIX = 200 };

/* ---- opsets ---- */

static attn_status check_opset(const struct attn_load *load,
                               const struct attn_opset *opset)
{
    if (opset->version < 1)
        return attn_fail(ATTNRUN_E_MODEL,
                         "the opset version of domain '%s' is %lld, expected 1 or more",
                         attn_quote(opset->domain), (long long)opset->version);
    if (opset->domain[0] == 0 && opset->version > ATTN_LOAD_OPSET &&
        !(load->model->flags & ATTNRUN_ALLOW_NEWER))
        return attn_fail(
            ATTNRUN_E_VERSION,
            "the model imports opset %lld of ai.onnx, but the newest known one is %d",
            (long long)opset->version, ATTN_LOAD_OPSET);
    return ATTNRUN_OK;
}

attn_status attn_read_opsets(struct attn_load *load, size_t n,
                             PB(OperatorSetIdProto) *const *pb,
                             const struct attn_opset **opsets, int32_t *n_opsets)
{
    struct attn_pool *pool = &load->model->pool;
    if (n > ATTN_LOAD_OPSETS)
        return attn_fail(ATTNRUN_E_LIMIT,
                         "there are %zu opset imports, expected at most %d", n,
                         ATTN_LOAD_OPSETS);
    struct attn_opset *list =
        attn_pool_alloc(pool, ((int64_t)n + 1) * (int64_t)sizeof *list);
    if (list == NULL)
        return ATTNRUN_E_MEMORY;
    int32_t kept = 0; /* an import that is repeated is one */
    for (size_t k = 0; k < n; k++) {
        struct attn_opset *opset = &list[kept];
        *opset = (struct attn_opset){ attn_pool_string(pool, attn_domain(pb[k]->domain)),
                                      pb[k]->version };
        if (opset->domain == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(check_opset(load, opset));
        int32_t same = 0;
        while (strcmp(list[same].domain, opset->domain) != 0)
            same++;
        if (list[same].version != opset->version)
            return attn_fail(ATTNRUN_E_MODEL, "domain '%s' has two opset versions",
                             attn_quote(opset->domain));
        kept += same == kept;
    }
    *opsets = list;
    *n_opsets = kept;
    return ATTNRUN_OK;
}

/* ---- the functions of a model ---- */

/* Domain, name and overload as one key; NUL is in none of them. */
static char *function_key(struct attn_pool *pool, const char *domain, const char *name,
                          const char *overload, int64_t *length)
{
    size_t a = strlen(domain) + 1, b = strlen(name) + 1, c = strlen(overload);
    char *key = attn_pool_alloc(pool, (int64_t)(a + b + c + 1));
    if (key == NULL)
        return NULL;
    memcpy(key, domain, a);
    memcpy(key + a, name, b);
    memcpy(key + a + b, overload, c);
    *length = (int64_t)(a + b + c);
    return key;
}

static attn_status add_function(struct attn_load *load, const PB(FunctionProto) * pb,
                                int64_t index)
{
    struct attn_function *function = &load->functions[index];
    const char *name = pb_text(pb->name);
    int64_t length = 0;
    if (name[0] == 0)
        return attn_fail(ATTNRUN_E_MODEL, "function %lld has no name", (long long)index);
    char *key = function_key(load->pool, attn_domain(pb->domain), name,
                             pb_text(pb->overload), &length);
    function->pb = pb;
    function->name = attn_pool_string(&load->model->pool, name);
    if (key == NULL || function->name == NULL)
        return ATTNRUN_E_MEMORY;
    if (attn_map_find(&load->by_name, key, length) != NULL)
        return attn_fail(ATTNRUN_E_MODEL, "function '%s' of domain '%s' appears twice",
                         attn_quote(name), attn_quote(attn_domain(pb->domain)));
    TRY(attn_map_add(&load->by_name, key, length, index));
    return attn_read_opsets(load, pb->n_opset_import, pb->opset_import, &function->opsets,
                            &function->n_opsets);
}

attn_status attn_load_functions(struct attn_load *load, const PB(ModelProto) * pb)
{
    load->model->n_functions = (int32_t)pb->n_functions;
    load->functions = attn_pool_alloc(load->pool, ((int64_t)pb->n_functions + 1) *
                                                      (int64_t)sizeof *load->functions);
    if (load->functions == NULL)
        return ATTNRUN_E_MEMORY;
    for (size_t k = 0; k < pb->n_functions; k++)
        TRY(add_function(load, pb->functions[k], (int64_t)k));
    return ATTNRUN_OK;
}

const struct attn_function *attn_load_find_function(const struct attn_load *load,
                                                    const PB(NodeProto) * pb)
{
    char key[3 * (ATTN_SCAN_NAME + 1)]; /* names are no longer: wire_scan.c */
    const char *domain = attn_domain(pb->domain), *overload = pb_text(pb->overload);
    size_t a = strlen(domain) + 1, b = strlen(pb->op_type) + 1, c = strlen(overload);
    if (load->by_name.used == 0 || a + b + c > sizeof key)
        return NULL;
    memcpy(key, domain, a);
    memcpy(key + a, pb->op_type, b);
    memcpy(key + a + b, overload, c);
    const int64_t *index = attn_map_find(&load->by_name, key, (int64_t)(a + b + c));
    return index != NULL ? &load->functions[*index] : NULL;
}

/* ---- calls ---- */

static attn_status check_call(struct attn_load *load,
                              const struct attn_load_scope *caller,
                              const struct attn_function *function, int32_t n_in,
                              int32_t n_out)
{
    const PB(FunctionProto) *pb = function->pb;
    if ((size_t)n_in > pb->n_input || (size_t)n_out > pb->n_output)
        return attn_fail(ATTNRUN_E_MODEL,
                         "it has %s and %s, but the function '%s' has %zu and %zu",
                         attn_plural(n_in, "input"), attn_plural(n_out, "output"),
                         attn_quote(function->name), pb->n_input, pb->n_output);
    const attnrun_limits *limits = &load->model->limits;
    if (caller->calls >= limits->function_depth)
        return attn_fail_limit(ATTN_LIMIT_FUNCTION_DEPTH,
                               "functions call each other more than %d deep",
                               (int)limits->function_depth);
    for (const struct attn_load_scope *s = caller; s != NULL; s = s->caller)
        if (s->function == function)
            return attn_fail(ATTNRUN_E_MODEL, "the function '%s' calls itself",
                             attn_quote(function->name));
    if (caller->function == NULL) { /* what it calls is counted with it */
        TRY(attn_function_count(load, function));
        load->expanded += function->size;
    }
    if (load->expanded > attn_load_max_expanded(load))
        return attn_fail_limit(
            ATTN_LIMIT_EXPANDED_NODES,
            "functions expand to more than %lld nodes (%lld, and %d for each of "
            "the %lld in the file)",
            (long long)attn_load_max_expanded(load), (long long)limits->expanded_nodes,
            ATTN_LOAD_EXPANDED_EACH, (long long)load->reader.scan->n_nodes);
    return ATTNRUN_OK;
}

static attn_status bind_inputs(struct attn_load_scope *scope,
                               const PB(FunctionProto) * pb, int32_t n_in,
                               const int32_t *in)
{
    for (size_t k = 0; k < pb->n_input; k++) {
        const char *name = pb_text(pb->input[k]);
        int64_t length = (int64_t)strlen(name);
        if (length == 0 || attn_map_find(&scope->names, name, length) != NULL)
            return attn_fail(ATTNRUN_E_MODEL, "function '%s': two inputs are named '%s'",
                             attn_quote(scope->function->name), attn_quote(name));
        TRY(attn_map_add(&scope->names, name, length, k < (size_t)n_in ? in[k] : -1));
    }
    return ATTNRUN_OK;
}

static attn_status bind_outputs(struct attn_load_scope *scope,
                                const PB(FunctionProto) * pb, int32_t n_out,
                                const int32_t *out)
{
    for (size_t k = 0; k < pb->n_output && k < (size_t)n_out; k++) {
        const char *name = pb_text(pb->output[k]);
        int64_t length = (int64_t)strlen(name);
        if (out[k] >= 0 && attn_map_find(&scope->targets, name, length) == NULL)
            TRY(attn_map_add(&scope->targets, name, length, out[k]));
    }
    return ATTNRUN_OK;
}

static bool is_bound(const struct attn_load_scope *scope, const char *name)
{
    for (int64_t k = 0; k < scope->n_bindings; k++)
        if (strcmp(scope->bindings[k].name, name) == 0)
            return true;
    return false;
}

static attn_status bind_attributes(struct attn_load *load, struct attn_load_scope *scope,
                                   const PB(NodeProto) * call)
{
    const PB(FunctionProto) *pb = scope->function->pb;
    int64_t room = (int64_t)(call->n_attribute + pb->n_attribute_proto + 1);
    scope->bindings =
        attn_pool_alloc(load->pool, room * (int64_t)sizeof *scope->bindings);
    if (scope->bindings == NULL)
        return ATTNRUN_E_MEMORY;
    for (size_t k = 0; k < call->n_attribute; k++) {
        struct attn_binding *binding = &scope->bindings[scope->n_bindings];
        TRY(attn_attr_resolve(scope->caller, call->attribute[k], binding));
        scope->n_bindings += binding->pb != NULL;
    }
    for (size_t k = 0; k < pb->n_attribute_proto; k++)
        if (!is_bound(scope, pb->attribute_proto[k]->name))
            scope->bindings[scope->n_bindings++] =
                (struct attn_binding){ pb->attribute_proto[k]->name,
                                       pb->attribute_proto[k], scope };
    return ATTNRUN_OK;
}

static attn_status make_prefix(struct attn_load *load, struct attn_load_scope *scope,
                               const PB(NodeProto) * call)
{
    const char *name = pb_text(call->name);
    int64_t number = ++load->made_names;
    if (strlen(scope->caller->prefix) + strlen(name) > MAX_PREFIX)
        scope->prefix = attn_pool_printf(load->pool, "f%lld/", (long long)number);
    else if (name[0] != 0)
        scope->prefix =
            attn_pool_printf(load->pool, "%s%s/", scope->caller->prefix, name);
    else
        scope->prefix =
            attn_pool_printf(load->pool, "%s%.100s_%lld/", scope->caller->prefix,
                             call->op_type, (long long)number);
    return scope->prefix != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* Outputs that no node of the body gives: inputs passed through, and one value twice. */
static attn_status pass_through(struct attn_load *load, struct attn_load_scope *scope,
                                int32_t n_out, const int32_t *out)
{
    const PB(FunctionProto) *pb = scope->function->pb;
    struct attn_graph *graph = scope->place->graph;
    for (size_t k = 0; k < pb->n_output && k < (size_t)n_out; k++) {
        const char *name = pb_text(pb->output[k]);
        const int64_t *id = attn_map_find(&scope->names, name, (int64_t)strlen(name));
        if (out[k] < 0 || (id != NULL && *id == out[k]))
            continue;
        if (id == NULL || *id < 0)
            return attn_fail(ATTNRUN_E_MODEL,
                             "function '%s': no node or input gives output '%s'",
                             attn_quote(scope->function->name), attn_quote(name));
        int32_t from = (int32_t)*id;
        const char *label = attn_pool_printf(load->pool, "%s%s", scope->prefix, name);
        struct attn_node *node;
        if (label == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(attn_graph_add_node(graph, "", "Identity", label, 1, &from, 1, &out[k],
                                &node));
        node->pub.opset = 1;
        node->internal = true;
        node->pub.function = scope->function->name;
    }
    return ATTNRUN_OK;
}

attn_status attn_load_call(struct attn_load *load, struct attn_load_scope *caller,
                           const struct attn_function *function, const PB(NodeProto) * pb,
                           int32_t n_in, const int32_t *in, int32_t n_out,
                           const int32_t *out)
{
    TRY(check_call(load, caller, function, n_in, n_out));
    TRY(attn_load_count(load, 0, function->pb->n_input));
    struct attn_load_scope *scope = attn_load_scope(load, caller->place, NULL);
    if (scope == NULL)
        return ATTNRUN_E_MEMORY;
    scope->caller = caller;
    scope->calls = caller->calls + 1;
    scope->function = function;
    scope->opsets = function->opsets;
    scope->n_opsets = function->n_opsets;
    TRY(make_prefix(load, scope, pb));
    TRY(bind_attributes(load, scope, pb));
    TRY(bind_inputs(scope, function->pb, n_in, in));
    TRY(bind_outputs(scope, function->pb, n_out, out));
    TRY(attn_load_outputs(load, scope, function->pb->node, function->pb->n_node));
    TRY(pass_through(load, scope, n_out, out));
    return attn_load_push(load, scope, function->pb->node, function->pb->n_node, NULL);
}
