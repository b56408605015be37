/* graph.c - building and editing graphs.
 *
 * In: values and nodes, from the loader and from rewrite passes. Out: a graph whose nodes are
 * in an order of execution, whose values know their producer and how often they are read.
 *
 *   graph->values    [0] x       [1] w       [2] m          [3] y
 *                    INPUT       data        producer 0     producer 1, OUTPUT
 *                                n_uses 1    n_uses 1       n_uses 1
 *                      │ in        │ in     out ▲ │ in    out ▲
 *                      ▼           ▼            │ ▼           │
 *   graph->nodes     [0] MatMul (in 0, 1; out 2)   [1] Relu (in 2; out 3)
 *
 * Values are named by index and never move; the table of names finds them by name. A node
 * that was removed leaves NULL in nodes[]. An edit keeps n_uses right at once; the order of
 * nodes, their indices, producers and the table of names are right again after
 * attn_graph_finish(), which sorts stably, so a graph in order stays as it is.
 *
 * A subgraph (the branch of an If, the body of a Loop) hangs at its node: node->graphs[]. A
 * value that it reads from around it is a CAPTURE there: a value of the subgraph whose
 * `outer` is an index into the values of graph->outer, and one more operand of the node
 * (behind pub.n_in), so that lifetimes and uses of the outer graph include it.
 *
 * Cost: adding is O(1) amortised, finishing O(values + operands). All
 * memory is in the pool of the model and goes with it. */
#include "graph.h"
#include "poll.h"

#include <stdio.h>

/* ---- values by name: open addressing over value ids ---- */

struct attn_names {
    int32_t *slots;   /* value id + 1; 0: free */
    int64_t capacity; /* a power of two */
};

static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *name != 0; name++)
        hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return hash;
}

static void names_put(struct attn_graph *graph, int32_t id)
{
    struct attn_names *names = graph->names;
    uint64_t i = hash_name(graph->values[id].name);
    while (names->slots[i & (uint64_t)(names->capacity - 1)] != 0)
        i++;
    names->slots[i & (uint64_t)(names->capacity - 1)] = id + 1;
}

static attn_status names_grow(struct attn_graph *graph)
{
    struct attn_names *names = graph->names;
    int64_t capacity = names->capacity > 0 ? names->capacity * 2 : 64;
    int32_t *slots =
        attn_pool_alloc(&graph->model->pool, capacity * (int64_t)sizeof *slots);
    if (slots == NULL)
        return ATTNRUN_E_MEMORY;
    names->slots = slots;
    names->capacity = capacity;
    for (int64_t id = 0; id < graph->n_values; id++)
        names_put(graph, (int32_t)id);
    return ATTNRUN_OK;
}

int32_t attn_graph_find(const struct attn_graph *graph, const char *name)
{
    const struct attn_names *names = graph->names;
    if (names->capacity == 0)
        return -1;
    for (uint64_t i = hash_name(name);; i++) {
        int32_t slot = names->slots[i & (uint64_t)(names->capacity - 1)];
        if (slot == 0)
            return -1;
        if (strcmp(graph->values[slot - 1].name, name) == 0)
            return slot - 1;
    }
}

/* ---- building ---- */

struct attn_graph *attn_graph_create(struct attn_model *model, struct attn_graph *outer)
{
    struct attn_graph *graph = attn_pool_alloc(&model->pool, (int64_t)sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->names = attn_pool_alloc(&model->pool, (int64_t)sizeof *graph->names);
    if (graph->names == NULL)
        return NULL;
    graph->model = model;
    graph->outer = outer;
    graph->name = "";
    graph->depth = outer ? outer->depth + 1 : 0;
    return graph;
}

attn_status attn_graph_add_value(struct attn_graph *graph, const char *name, int32_t *id)
{
    struct attn_pool *pool = &graph->model->pool;
    if (graph->n_values >= INT32_MAX - 1)
        return attn_fail(ATTNRUN_E_LIMIT, "a graph of more than %d values",
                         INT32_MAX - 1);
    if (graph->n_values == graph->values_capacity)
        TRY(attn_pool_grow(pool, (void **)&graph->values, &graph->values_capacity,
                           graph->n_values, (int64_t)sizeof *graph->values));
    if (graph->n_values * 2 >= graph->names->capacity)
        TRY(names_grow(graph));
    const char *own = NULL;
    if (name != NULL && name[0] != 0)
        own = attn_pool_string(pool, name);
    else
        own =
            attn_pool_printf(pool, "%%%d.%lld", graph->depth, (long long)graph->n_values);
    if (own == NULL)
        return ATTNRUN_E_MEMORY;
    int32_t made = (int32_t)graph->n_values++;
    graph->values[made] = (struct attn_value){
        .name = own, .producer = -1, .outer = -1, .type = { .rank = -1 }
    };
    names_put(graph, made);
    *id = made;
    return ATTNRUN_OK;
}

attn_status attn_graph_add_constant(struct attn_graph *graph, const char *name,
                                    const attnrun_tensor *tensor, int32_t *id)
{
    TRY(attn_graph_add_value(graph, name, id));
    struct attn_value *value = &graph->values[*id];
    static int64_t
        nothing; /* of an empty constant: data NULL would mean "not constant" */
    value->data = *tensor;
    if (value->data.data == NULL)
        value->data.data = &nothing;
    value->type = (attnrun_type){ .kind = tensor->kind,
                                  .dtype = tensor->dtype,
                                  .rank = tensor->rank };
    for (int i = 0; i < tensor->rank; i++)
        value->type.dims[i] = dim_of(tensor->dims[i]);
    return ATTNRUN_OK;
}

attn_status attn_graph_new_constant(struct attn_graph *graph, int32_t dtype, int rank,
                                    const int64_t *dims, int32_t *id, void **data)
{
    attnrun_tensor tensor;
    TRY(attnrun_tensor_make(dtype, rank, dims, NULL, &tensor));
    int64_t bytes = tensor_bytes(&tensor);
    tensor.data = attn_pool_alloc(&graph->model->weights, bytes > 0 ? bytes : 1);
    if (tensor.data == NULL)
        return ATTNRUN_E_MEMORY;
    graph->model->folded_bytes += bytes;
    TRY(attn_graph_add_constant(graph, NULL, &tensor, id));
    graph->values[*id].flags |= ATTN_VALUE_FOLDED;
    *data = tensor.data;
    return ATTNRUN_OK;
}

static const char *const *value_names(struct attn_graph *graph, int32_t n,
                                      const int32_t *ids)
{
    const char **names =
        attn_pool_alloc(&graph->model->pool, (n + 1) * (int64_t)sizeof *names);
    for (int32_t i = 0; names != NULL && i < n; i++)
        names[i] = ids[i] >= 0 ? graph->values[ids[i]].name : "";
    return names;
}

static struct attn_node *make_node(struct attn_graph *graph, const char *domain,
                                   const char *op_type, const char *name, int32_t n_in,
                                   const int32_t *in, int32_t n_out, const int32_t *out)
{
    struct attn_pool *pool = &graph->model->pool;
    struct attn_node *node = attn_pool_alloc(pool, (int64_t)sizeof *node);
    if (node == NULL)
        return NULL;
    node->in = attn_pool_alloc(pool, (n_in + 1) * (int64_t)sizeof *in);
    node->out = attn_pool_alloc(pool, (n_out + 1) * (int64_t)sizeof *out);
    node->pub = (attnrun_node){ .name = attn_pool_string(pool, name),
                                .op_type = attn_pool_string(pool, op_type),
                                .domain = attn_pool_string(pool, domain),
                                .n_in = n_in,
                                .n_out = n_out,
                                .inputs = value_names(graph, n_in, in),
                                .outputs = value_names(graph, n_out, out) };
    node->function = "";
    if (!node->in || !node->out || !node->pub.name || !node->pub.op_type ||
        !node->pub.domain || !node->pub.inputs || !node->pub.outputs)
        return NULL;
    if (n_in > 0)
        memcpy(node->in, in, (size_t)n_in * sizeof *in);
    if (n_out > 0)
        memcpy(node->out, out, (size_t)n_out * sizeof *out);
    return node;
}

static attn_status append_node(struct attn_graph *graph, struct attn_node *node)
{
    if (graph->n_nodes == graph->nodes_capacity)
        TRY(attn_pool_grow(&graph->model->pool, (void **)&graph->nodes,
                           &graph->nodes_capacity, graph->n_nodes,
                           (int64_t)sizeof *graph->nodes));
    node->pub.index = (int32_t)graph->n_nodes;
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            graph->values[node->out[i]].producer = node->pub.index;
    graph->nodes[graph->n_nodes++] = node;
    return ATTNRUN_OK;
}

attn_status attn_graph_add_node(struct attn_graph *graph, const char *domain,
                                const char *op_type, const char *name, int32_t n_in,
                                const int32_t *in, int32_t n_out, const int32_t *out,
                                struct attn_node **made)
{
    *made = make_node(graph, domain, op_type, name, n_in, in, n_out, out);
    return *made ? append_node(graph, *made) : ATTNRUN_E_MEMORY;
}

attn_status attn_node_set_attrs(struct attn_graph *graph, struct attn_node *node,
                                int32_t n_attrs, const struct attn_attr *attrs)
{
    node->n_attrs = n_attrs;
    if (n_attrs == 0)
        return ATTNRUN_OK;
    node->attrs =
        attn_pool_copy(&graph->model->pool, attrs, n_attrs * (int64_t)sizeof *attrs);
    return node->attrs ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

const struct attn_attr *attn_node_attr(const struct attn_node *node, const char *name)
{
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    return NULL;
}

/* ---- editing ---- */

struct attn_node *attn_graph_producer(const struct attn_graph *graph, int32_t value)
{
    if (value < 0 || graph->values[value].producer < 0)
        return NULL;
    return graph->nodes[graph->values[value].producer];
}

static int32_t count_reads(const struct attn_node *node, int32_t value)
{
    int32_t reads = 0;
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        reads += node->in[i] == value;
    return reads;
}

struct attn_node *attn_graph_only_user(const struct attn_graph *graph, int32_t value)
{
    if (value < 0 || graph->values[value].n_uses != 1 ||
        (graph->values[value].flags & ATTN_VALUE_OUTPUT))
        return NULL;
    for (int64_t i = graph->values[value].producer + 1; i < graph->n_nodes; i++)
        if (graph->nodes[i] != NULL && count_reads(graph->nodes[i], value) > 0)
            return graph->nodes[i];
    for (int64_t i = 0; i < graph->n_nodes; i++) /* inserted nodes are not in order */
        if (graph->nodes[i] != NULL && count_reads(graph->nodes[i], value) > 0)
            return graph->nodes[i];
    return NULL;
}

static void rename_node(struct attn_graph *graph, struct attn_node *node)
{
    const char **inputs = (const char **)(uintptr_t)node->pub.inputs;
    const char **outputs = (const char **)(uintptr_t)node->pub.outputs;
    for (int32_t i = 0; i < node->pub.n_in; i++)
        inputs[i] = node->in[i] >= 0 ? graph->values[node->in[i]].name : "";
    for (int32_t i = 0; i < node->pub.n_out; i++)
        outputs[i] = node->out[i] >= 0 ? graph->values[node->out[i]].name : "";
}

/* Captures of subgraphs follow a value that is replaced in the graph around them. */
static void replace_captures(struct attn_node *node, int32_t from, int32_t to)
{
    for (int32_t g = 0; g < node->n_graphs; g++)
        for (int64_t v = 0; v < node->graphs[g]->n_values; v++) {
            struct attn_value *value = &node->graphs[g]->values[v];
            if ((value->flags & ATTN_VALUE_CAPTURE) && value->outer == from)
                value->outer = to;
        }
}

static void swap_output(struct attn_graph *graph, int32_t from, int32_t to)
{
    struct attn_value *a = &graph->values[from], *b = &graph->values[to];
    for (int32_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == from) {
            graph->outputs[i] = to;
            a->n_uses--;
            b->n_uses++;
        }
    a->flags &= ~(uint32_t)ATTN_VALUE_OUTPUT;
    bool keeps = (b->flags & (ATTN_VALUE_OUTPUT | ATTN_VALUE_INPUT)) != 0;
    b->flags |= ATTN_VALUE_OUTPUT;
    if (!keeps) {
        const char *name = a->name;
        a->name = b->name;
        b->name = name; /* the table of names follows in attn_graph_finish() */
    }
}

void attn_graph_replace(struct attn_graph *graph, int32_t from, int32_t to)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        if (node == NULL)
            continue;
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] == from) {
                node->in[i] = to;
                graph->values[from].n_uses--;
                graph->values[to].n_uses++;
            }
        replace_captures(node, from, to);
    }
    if (graph->values[from].flags & ATTN_VALUE_OUTPUT)
        swap_output(graph, from, to);
}

void attn_graph_remove(struct attn_graph *graph, struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        if (node->in[i] >= 0)
            graph->values[node->in[i]].n_uses--;
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && graph->values[node->out[i]].producer == node->pub.index)
            graph->values[node->out[i]].producer = -1;
    graph->nodes[node->pub.index] = NULL;
}

/* A node is a list of this many things. NOLINTNEXTLINE(readability-function-size) */
attn_status attn_graph_insert(struct attn_graph *graph, struct attn_node *before,
                              const char *domain, const char *op_type, int32_t n_in,
                              const int32_t *in, int32_t n_out, const int32_t *out,
                              int32_t n_attrs, const struct attn_attr *attrs,
                              struct attn_node **made)
{
    struct attn_node *node = make_node(
        graph, domain, op_type, before ? before->pub.name : "", n_in, in, n_out, out);
    if (node == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_node_set_attrs(graph, node, n_attrs, attrs));
    node->internal = true;
    node->pub.opset =
        domain[0] == 0 ? ATTN_NEWEST_OPSET : 1; /* passes write newest forms */
    if (before != NULL)
        node->function = before->function;
    TRY(append_node(graph, node));
    for (int32_t i = 0; i < n_in; i++)
        if (in[i] >= 0)
            graph->values[in[i]].n_uses++;
    *made = node;
    return attn_node_resolve(graph, node);
}

bool attn_value_scalar(const struct attn_graph *graph, int32_t value, double *x)
{
    if (value < 0)
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    if (t->data == NULL || t->kind != ATTNRUN_TENSOR || t->dtype == ATTNRUN_STRING ||
        t->dtype == ATTNRUN_C64 || t->dtype == ATTNRUN_C128 || tensor_count(t) != 1)
        return false;
    *x = tensor_get_real(t, 0);
    return true;
}

/* ---- finishing: order, producers, use counts ---- */

static void count_uses(struct attn_graph *graph)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        graph->values[i].n_uses = 0;
        graph->values[i].producer = -1;
        graph->values[i].flags &= ~(uint32_t)ATTN_VALUE_OUTPUT;
    }
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        node->pub.index = (int32_t)n;
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] >= 0)
                graph->values[node->in[i]].n_uses++;
        for (int32_t i = 0; i < node->pub.n_out; i++)
            if (node->out[i] >= 0)
                graph->values[node->out[i]].producer = (int32_t)n;
        rename_node(graph, node);
    }
    for (int32_t i = 0; i < graph->n_outputs; i++) {
        struct attn_value *value = &graph->values[graph->outputs[i]];
        value->n_uses++;
        value->flags |= ATTN_VALUE_OUTPUT;
    }
}

/* Values whose content exists before any node runs. */
static bool value_is_given(const struct attn_value *value)
{
    return value->data.data != NULL || value->data.kind != ATTNRUN_ABSENT ||
           (value->flags & (ATTN_VALUE_INPUT | ATTN_VALUE_CAPTURE)) != 0;
}

static attn_status fail_missing(const struct attn_node *node, int32_t in,
                                const struct attn_graph *graph)
{
    return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                          "input %d '%s' is given by nothing", in,
                          attn_quote(graph->values[node->in[in]].name));
}

enum { NODE_NEW, NODE_OPEN, NODE_PLACED };

struct sorting {
    struct attn_graph *graph;
    const uint8_t *given;     /* per value */
    struct attn_node **stack; /* nodes whose inputs are being placed */
    int32_t *next;            /* per stack entry: the input to look at next */
    struct attn_node **order;
    uint8_t *state; /* per node index */
    int64_t n_order;
};

/* Depth first along the producers of `root`, without recursion. */
static attn_status place_node(struct sorting *sorting, struct attn_node *root)
{
    struct attn_graph *graph = sorting->graph;
    int64_t depth = 0;
    sorting->stack[0] = root;
    sorting->next[0] = 0;
    sorting->state[root->pub.index] = NODE_OPEN;
    while (depth >= 0) {
        TRY(attn_poll_work(128));
        struct attn_node *node = sorting->stack[depth];
        int32_t i = sorting->next[depth]++;
        if (i == node->pub.n_in + node->n_captures) {
            sorting->state[node->pub.index] = NODE_PLACED;
            sorting->order[sorting->n_order++] = node;
            depth--;
            continue;
        }
        if (node->in[i] < 0 || sorting->given[node->in[i]])
            continue;
        int32_t producer = graph->values[node->in[i]].producer;
        if (producer < 0 || graph->nodes[producer] == NULL)
            return fail_missing(node, i, graph);
        if (sorting->state[producer] == NODE_OPEN)
            return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                                  "the graph has a cycle through this node");
        if (sorting->state[producer] == NODE_NEW) {
            sorting->state[producer] = NODE_OPEN;
            sorting->stack[++depth] = graph->nodes[producer];
            sorting->next[depth] = 0;
        }
    }
    return ATTNRUN_OK;
}

/* Stable where the order was right already. */
static attn_status sort_nodes(struct sorting *sorting)
{
    struct attn_graph *graph = sorting->graph;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        TRY(attn_poll_work(256));
        if (node == NULL)
            continue;
        node->pub.index = (int32_t)n;
        for (int32_t o = 0; o < node->pub.n_out; o++)
            if (node->out[o] >= 0)
                graph->values[node->out[o]].producer = (int32_t)n;
    }
    for (int64_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n] != NULL && sorting->state[n] == NODE_NEW)
            TRY(place_node(sorting, graph->nodes[n]));
    for (int64_t n = 0; n < sorting->n_order; n++)
        graph->nodes[n] = sorting->order[n];
    graph->n_nodes = sorting->n_order;
    return ATTNRUN_OK;
}

static attn_status check_outputs(const struct sorting *sorting)
{
    const struct attn_graph *graph = sorting->graph;
    for (int32_t i = 0; i < graph->n_outputs; i++) {
        int32_t id = graph->outputs[i];
        if (!sorting->given[id] && graph->values[id].producer < 0)
            return attn_fail(ATTNRUN_E_MODEL, "graph output '%s' is given by nothing",
                             attn_quote(graph->values[id].name));
    }
    return ATTNRUN_OK;
}

static attn_status finish_inner(struct attn_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++)
        for (int32_t g = 0; graph->nodes[i] && g < graph->nodes[i]->n_graphs; g++)
            TRY(attn_graph_finish(graph->nodes[i]->graphs[g]));
    return ATTNRUN_OK;
}

static attn_status order_graph(struct attn_graph *graph, struct attn_pool *scratch)
{
    int64_t n = graph->n_nodes + 1;
    uint8_t *given = attn_pool_alloc(scratch, graph->n_values + 1);
    struct sorting sorting = { .graph = graph, .given = given };
    sorting.stack = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.stack);
    sorting.next = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.next);
    sorting.order = attn_pool_alloc(scratch, n * (int64_t)sizeof *sorting.order);
    sorting.state = attn_pool_alloc(scratch, n);
    if (!given || !sorting.stack || !sorting.next || !sorting.order || !sorting.state)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < graph->n_values; i++) {
        given[i] = value_is_given(&graph->values[i]);
        graph->values[i].producer = -1;
    }
    TRY(sort_nodes(&sorting));
    return check_outputs(&sorting);
}

attn_status attn_graph_finish(struct attn_graph *graph)
{
    struct attn_pool scratch;
    TRY(finish_inner(graph));
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = order_graph(graph, &scratch);
    attn_pool_free(&scratch);
    TRY(status);
    if (graph->names->capacity > 0)
        memset(graph->names->slots, 0, (size_t)graph->names->capacity * sizeof(int32_t));
    for (int64_t id = 0; id < graph->n_values; id++) {
        TRY(attn_poll_work(256));
        names_put(graph, (int32_t)id);
    }
    count_uses(graph);
    return ATTNRUN_OK;
}
