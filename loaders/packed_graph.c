/* packed_graph.c - the graph part of a packed file becomes the graph of a model.
 *
 * In: words in the order of packed_write.c, all of them hostile. Out: graphs with their values
 * and nodes, not yet resolved; the list of nodes whose weights lie packed in the data. What
 * holds of each graph that a loader builds is checked here: each value is given once, each
 * subgraph belongs to one node of the graph around it, and what it captures is among that
 * node's operands. */
#include <string.h>

#include "../runtime/graph.h"
#include "../runtime/poll.h"
#include "packed_format.h"

static const char *keep_text(struct attn_packed_reader *r)
{
    return attn_pool_string(&r->model->pool, attn_packed_text(r, NULL));
}

/* ---- the model ---- */

static attn_status read_model(struct attn_packed_reader *r)
{
    struct attn_model *model = r->model;
    struct attn_pool *pool = &model->pool;
    model->producer = keep_text(r);
    model->producer_version = keep_text(r);
    model->domain = keep_text(r);
    model->doc = keep_text(r);
    model->graph_name = keep_text(r);
    model->graph_doc = keep_text(r);
    model->ir_version = attn_packed_word(r);
    model->model_version = attn_packed_word(r);
    model->n_parameters = attn_packed_number(r, 0, ATTN_MAX_ELEMENTS);
    model->weights_bytes = attn_packed_number(r, 0, INT64_MAX / 2);
    model->n_functions = (int32_t)attn_packed_number(r, 0, INT32_MAX);
    model->n_file_nodes = (int32_t)attn_packed_number(r, 0, INT32_MAX);
    const int64_t n_opsets = attn_packed_number(r, 0, r->n_words);
    TRY(attn_packed_check(r));
    model->opsets =
        attn_pool_alloc(pool, (n_opsets + 1) * (int64_t)sizeof *model->opsets);
    for (int64_t i = 0; model->opsets != NULL && i < n_opsets && !r->failed; i++) {
        model->opsets[i].domain = keep_text(r);
        model->opsets[i].version = attn_packed_word(r);
        model->n_opsets = (int32_t)i + 1;
    }
    const int64_t n_metadata = attn_packed_number(r, 0, r->n_words);
    TRY(attn_packed_check(r));
    model->metadata =
        attn_pool_alloc(pool, (n_metadata + 1) * (int64_t)sizeof *model->metadata);
    for (int64_t i = 0; model->metadata != NULL && i < n_metadata && !r->failed; i++) {
        model->metadata[i].key = keep_text(r);
        model->metadata[i].value = keep_text(r);
        model->n_metadata = (int32_t)i + 1;
    }
    /* A program that has its model in itself (attnrun compile) has no passes. */
    const bool passes = model->n_passes > 0;
    const int64_t n_passes =
        attn_packed_number(r, model->n_passes, passes ? model->n_passes : r->n_words);
    for (int64_t i = 0; i < n_passes && !r->failed; i++) {
        const int64_t applied = attn_packed_number(r, 0, INT32_MAX);
        if (passes)
            model->applied[i] = (int32_t)applied;
    }
    return attn_packed_check(r);
}

/* ---- values ---- */

static attn_status packed_read_value(struct attn_packed_reader *r,
                                     struct attn_graph *graph)
{
    int32_t id;
    attnrun_type type;
    attnrun_tensor data;
    bool released;
    const char *name = attn_packed_text(r, NULL);
    const int64_t outer =
        attn_packed_number(r, -1, graph->outer != NULL ? graph->outer->n_values - 1 : -1);
    attn_packed_type(r, &type);
    TRY(attn_packed_constant(r, &type, &data, &released));
    TRY(attn_packed_check(r));
    TRY(attn_graph_add_value(graph, name, &id));
    struct attn_value *value = &graph->values[id];
    value->type = type;
    value->outer = (int32_t)outer;
    value->data = data;
    if (outer >= 0)
        value->flags |= ATTN_VALUE_CAPTURE;
    if (released)
        value->flags |= ATTN_VALUE_RELEASED;
    r->failed = r->failed || (outer >= 0 && data.kind != ATTNRUN_ABSENT);
    return attn_poll_work(512);
}

static int32_t read_id(struct attn_packed_reader *r, const struct attn_graph *graph,
                       int64_t low)
{
    return (int32_t)attn_packed_number(r, low, graph->n_values - 1);
}

/* Inputs are given by nobody else, and only once. */
static attn_status read_inputs(struct attn_packed_reader *r, struct attn_graph *graph)
{
    const int64_t n = attn_packed_number(r, 0, graph->n_values);
    graph->inputs =
        attn_pool_alloc(&r->model->pool, (n + 1) * (int64_t)sizeof *graph->inputs);
    if (graph->inputs == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n && !r->failed; i++) {
        const int32_t id = read_id(r, graph, 0);
        if (r->failed)
            break;
        struct attn_value *value = &graph->values[id];
        r->failed = value->data.kind != ATTNRUN_ABSENT ||
                    (value->flags & (ATTN_VALUE_INPUT | ATTN_VALUE_CAPTURE)) != 0 ||
                    (graph->outer == NULL &&
                     (value->type.kind == ATTNRUN_ABSENT ||
                      (value->type.kind == ATTNRUN_TENSOR && value->type.dtype == 0)));
        value->flags |= ATTN_VALUE_INPUT;
        graph->inputs[graph->n_inputs++] = id;
    }
    return attn_packed_check(r);
}

static attn_status read_outputs(struct attn_packed_reader *r, struct attn_graph *graph)
{
    const int64_t n = attn_packed_number(r, 0, r->n_words - r->at);
    TRY(attn_packed_check(r));
    graph->outputs =
        attn_pool_alloc(&r->model->pool, 2 * (n + 1) * (int64_t)sizeof *graph->outputs);
    if (graph->outputs == NULL)
        return ATTNRUN_E_MEMORY;
    graph->output_ranks = graph->outputs + n;
    for (int64_t i = 0; i < n && n < INT32_MAX; i++)
        graph->outputs[graph->n_outputs++] = read_id(r, graph, 0);
    for (int32_t i = 0; i < graph->n_outputs; i++)
        graph->output_ranks[i] = (int32_t)attn_packed_number(r, 0, ATTNRUN_MAX_RANK);
    return attn_packed_check(r);
}

/* ---- attributes ---- */

static attn_status read_strings(struct attn_packed_reader *r, attnrun_strings *strings)
{
    const int64_t n = attn_packed_number(r, 0, r->n_words - r->at);
    attnrun_string *texts =
        attn_pool_alloc(&r->model->pool, n * (int64_t)sizeof *texts + 1);
    if (texts == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n && !r->failed; i++)
        texts[i].data = attn_packed_text(r, &texts[i].n);
    *strings = (attnrun_strings){ .v = texts, .n = n };
    return ATTNRUN_OK;
}

static attn_status read_tensor(struct attn_packed_reader *r, attnrun_tensor *tensor)
{
    attnrun_type type;
    bool released;
    attn_packed_type(r, &type);
    TRY(attn_packed_constant(r, &type, tensor, &released));
    r->failed = r->failed || released || tensor->kind == ATTNRUN_ABSENT;
    return ATTNRUN_OK;
}

static attn_status read_attr_value(struct attn_packed_reader *r, int64_t n_graphs,
                                   struct attn_attr *attr)
{
    const void *at;
    switch (attr->kind) {
    case ATTN_ATTR_INT:
        attr->i = attn_packed_word(r);
        break;
    case ATTN_ATTR_FLOAT:
        at = attn_packed_array(r, 1, 8);
        if (at != NULL)
            memcpy(&attr->f, at, sizeof attr->f);
        break;
    case ATTN_ATTR_STRING:
        attr->s.data = attn_packed_text(r, &attr->s.n);
        break;
    case ATTN_ATTR_INTS:
        attr->ints.n = attn_packed_number(r, 0, r->n_words);
        attr->ints.v = attn_packed_array(r, attr->ints.n, sizeof *attr->ints.v);
        break;
    case ATTN_ATTR_FLOATS:
        attr->floats.n = attn_packed_number(r, 0, 2 * r->n_words);
        attr->floats.v = attn_packed_array(r, attr->floats.n, sizeof *attr->floats.v);
        break;
    case ATTN_ATTR_STRINGS:
        return read_strings(r, &attr->strings);
    case ATTN_ATTR_TENSOR:
    case ATTN_ATTR_SPARSE_TENSOR:
        return read_tensor(r, &attr->tensor);
    case ATTN_ATTR_GRAPH:
        attr->graph = (int32_t)attn_packed_number(r, 0, n_graphs - 1);
        break;
    case ATTN_ATTR_TYPE_PROTO:
        attn_packed_type(r, &attr->type);
        break;
    default:
        break;
    }
    return ATTNRUN_OK;
}

static attn_status read_attrs(struct attn_packed_reader *r, struct attn_graph *graph,
                              struct attn_node *node)
{
    const int64_t n = attn_packed_number(r, 0, r->model->limits.attributes);
    struct attn_attr *attrs = attn_pool_alloc(r->pool, (n + 1) * (int64_t)sizeof *attrs);
    if (attrs == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n && !r->failed; i++) {
        attrs[i].name = keep_text(r);
        attrs[i].kind =
            (int32_t)attn_packed_number(r, ATTN_ATTR_FLOAT, ATTN_ATTR_TYPE_PROTOS);
        TRY(read_attr_value(r, node->n_graphs, &attrs[i]));
    }
    TRY(attn_packed_check(r));
    return attn_node_set_attrs(graph, node, (int32_t)n, attrs);
}

/* ---- nodes ---- */

static attn_status read_subgraphs(struct attn_packed_reader *r, int64_t around,
                                  struct attn_node *node)
{
    const int64_t n = attn_packed_number(r, 0, r->n_graphs - 1);
    node->graphs = attn_pool_alloc(&r->model->pool, (n + 1) * (int64_t)sizeof(void *));
    if (node->graphs == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n && !r->failed; i++) {
        const int64_t g = attn_packed_number(r, around + 1, r->n_graphs - 1);
        if (r->failed || g >= r->n_graphs || r->outer[g] != around || r->taken[g]) {
            r->failed = true;
            break;
        }
        r->taken[g] = 1;
        node->graphs[node->n_graphs++] = r->graphs[g];
    }
    return attn_packed_check(r);
}

static attn_status add_job(struct attn_packed_reader *r, struct attn_graph *graph,
                           struct attn_node *node)
{
    const int64_t offset = attn_packed_number(r, PACKED_NONE, r->data_bytes);
    const int64_t bytes = attn_packed_number(r, 0, r->data_bytes);
    if (offset == PACKED_NONE)
        return attn_packed_check(r);
    r->failed = r->failed || offset % PACKED_ALIGN != 0 || bytes > r->data_bytes - offset;
    TRY(attn_packed_check(r));
    if (r->n_jobs == r->jobs_capacity)
        TRY(attn_pool_grow(r->pool, (void **)&r->jobs, &r->jobs_capacity, r->n_jobs,
                           (int64_t)sizeof *r->jobs));
    r->jobs[r->n_jobs++] = (struct attn_packed_job){
        .graph = graph, .node = node, .packed = r->data + offset, .bytes = bytes
    };
    return ATTNRUN_OK;
}

/* A value that a node gives is given by nothing else. What the file says of it is compared
 * with what infer() says. */
static void take_output(struct attn_packed_reader *r, struct attn_graph *graph,
                        int32_t id)
{
    if (id < 0)
        return;
    struct attn_value *value = &graph->values[id];
    if (value->producer >= 0 || value->data.kind != ATTNRUN_ABSENT ||
        (value->flags & (ATTN_VALUE_INPUT | ATTN_VALUE_CAPTURE | ATTN_VALUE_RELEASED)))
        r->failed = true;
    value->producer = 0; /* attn_graph_add_node() knows better */
    if (value->type.kind != ATTNRUN_ABSENT && value->type.dtype != 0)
        value->flags |= ATTN_VALUE_DECLARED;
}

static attn_status read_node(struct attn_packed_reader *r, int64_t g)
{
    struct attn_graph *graph = r->graphs[g];
    struct attn_node *node;
    const char *domain = attn_packed_text(r, NULL), *op_type = attn_packed_text(r, NULL),
               *name = attn_packed_text(r, NULL), *function = attn_packed_text(r, NULL);
    const int32_t opset = (int32_t)attn_packed_number(r, 1, INT32_MAX);
    const int64_t flags = attn_packed_number(r, 0, 3);
    const int64_t n_in = attn_packed_number(r, 0, r->model->limits.operands),
                  n_captures = attn_packed_number(r, 0, graph->n_values),
                  n_out = attn_packed_number(r, 0, r->model->limits.operands),
                  n = n_in + n_captures;
    TRY(attn_packed_check(r));
    int32_t *ids = attn_pool_alloc(r->pool, (n + n_out + 1) * (int64_t)sizeof *ids);
    if (ids == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        ids[i] = read_id(r, graph, i < n_in ? -1 : 0);
    for (int64_t i = n; i < n + n_out && !r->failed; i++) {
        ids[i] = read_id(r, graph, -1);
        take_output(r, graph, ids[i]);
    }
    TRY(attn_packed_check(r));
    TRY(attn_graph_add_node(graph, domain, op_type, name, (int32_t)n, ids, (int32_t)n_out,
                            ids + n, &node));
    node->pub.n_in = (int32_t)n_in;
    node->n_captures = (int32_t)n_captures;
    node->pub.opset = opset;
    node->internal = (flags & 1) != 0;
    node->formula = (flags & 2) != 0;
    node->pub.function = attn_pool_string(&r->model->pool, function);
    TRY(read_subgraphs(r, g, node));
    TRY(read_attrs(r, graph, node));
    TRY(add_job(r, graph, node));
    return attn_poll_work(4096);
}

/* ---- graphs ---- */

static attn_status read_graph(struct attn_packed_reader *r, int64_t g)
{
    struct attn_graph *graph = r->graphs[g];
    graph->name = keep_text(r);
    graph->promoted = attn_packed_number(r, 0, 1) != 0;
    const int64_t n_values = attn_packed_number(r, 0, (r->n_words - r->at) / 4);
    TRY(attn_packed_check(r));
    TRY(attn_graph_reserve(graph, n_values, 0));
    for (int64_t v = 0; v < n_values; v++)
        TRY(packed_read_value(r, graph));
    TRY(read_inputs(r, graph));
    TRY(read_outputs(r, graph));
    const int64_t n_nodes = attn_packed_number(r, 0, r->model->limits.nodes);
    TRY(attn_packed_check(r));
    for (int64_t n = 0; n < n_nodes; n++)
        TRY(read_node(r, g));
    return ATTNRUN_OK;
}

/* The values that a node's subgraphs capture are among its operands. */
static attn_status check_captures(struct attn_packed_reader *r,
                                  const struct attn_graph *graph)
{
    int32_t *seen =
        attn_pool_alloc(r->pool, (graph->n_values + 1) * (int64_t)sizeof *seen);
    if (seen == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; i < node->n_captures; i++)
            seen[node->in[node->pub.n_in + i]] = (int32_t)n + 1;
        for (int32_t s = 0; s < node->n_graphs; s++)
            for (int64_t v = 0; v < node->graphs[s]->n_values; v++) {
                const struct attn_value *value = &node->graphs[s]->values[v];
                if ((value->flags & ATTN_VALUE_CAPTURE) &&
                    seen[value->outer] != (int32_t)n + 1)
                    r->failed = true;
            }
        TRY(attn_poll_work(256));
    }
    return attn_packed_check(r);
}

static attn_status make_graphs(struct attn_packed_reader *r)
{
    r->n_graphs = attn_packed_number(r, 1, 1 + (r->n_words - r->at) / 8);
    TRY(attn_packed_check(r));
    r->graphs = attn_pool_alloc(r->pool, r->n_graphs * (int64_t)sizeof(void *));
    r->outer = attn_pool_alloc(r->pool, r->n_graphs * (int64_t)sizeof *r->outer);
    r->taken = attn_pool_alloc(r->pool, r->n_graphs);
    if (r->graphs == NULL || r->outer == NULL || r->taken == NULL)
        return ATTNRUN_E_MEMORY;
    r->outer[0] = (int32_t)attn_packed_number(r, -1, -1);
    r->graphs[0] = r->model->graph;
    for (int64_t g = 1; g < r->n_graphs && !r->failed; g++) {
        r->outer[g] = (int32_t)attn_packed_number(r, 0, g - 1);
        struct attn_graph *outer = r->graphs[r->outer[g]];
        if (outer->depth >= r->model->limits.subgraph_depth)
            r->failed = true;
        r->graphs[g] = attn_graph_create(r->model, outer);
        if (r->graphs[g] == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(attn_poll_work(1024));
    }
    return attn_packed_check(r);
}

attn_status attn_packed_read_graph(struct attn_packed_reader *r)
{
    TRY(read_model(r));
    TRY(attn_packed_symbols(r));
    TRY(make_graphs(r));
    for (int64_t g = 0; g < r->n_graphs; g++)
        TRY(read_graph(r, g));
    for (int64_t g = 0; g < r->n_graphs; g++) {
        r->failed = r->failed || (g > 0 && !r->taken[g]);
        TRY(check_captures(r, r->graphs[g]));
    }
    r->failed = r->failed || r->at != r->n_words;
    return attn_packed_check(r);
}
