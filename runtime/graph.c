/* graph.c - building graphs; graph_edit.c changes them, graph_order.c sorts the nodes, and
 * graph_names.c finds values by name.
 *
 * In: values and nodes, from the loader and from rewrite passes. Out: a graph whose nodes are
 * in an order of execution, whose values know their producer and the list of their users.
 *
 *   graph->values    [0] x       [1] w       [2] m          [3] y
 *                    INPUT       data        producer 0     producer 1, OUTPUT
 *                                n_uses 1    n_uses 1       n_uses 1
 *                      │ in        │ in     out ▲ │ in    out ▲
 *                      ▼           ▼            │ ▼           │
 *   graph->nodes     [0] MatMul (in 0, 1; out 2)   [1] Relu (in 2; out 3)
 *
 * Values are named by index and never move; the table of names finds them by name. A node
 * that was removed leaves NULL in nodes[]. An edit keeps the users right at once, and marks
 * the nodes that are to be inferred again; the order of nodes and their indices are right
 * again after attn_graph_order(), which sorts stably, so a graph in order stays as it is.
 *
 * A subgraph (the branch of an If, the body of a Loop) hangs at its node: node->graphs[]. A
 * value that it reads from around it is a CAPTURE there: a value of the subgraph whose
 * `outer` is an index into the values of graph->outer, and one more operand of the node
 * (behind pub.n_in), so that lifetimes and uses of the outer graph include it.
 *
 * Cost: adding is O(1) amortised, finishing O(values + operands). All memory is in the pool
 * of the model and goes with it. */
#include "graph.h"
#include "graph_names.h"
#include "operator.h"
#include "poll.h"

enum {
    RESERVE_MORE = 8 /* an eighth more values and nodes than the file has, for passes */
};

struct attn_graph *attn_graph_create(struct attn_model *model, struct attn_graph *outer)
{
    struct attn_graph *graph = attn_pool_alloc(&model->pool, (int64_t)sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->model = model;
    graph->names = attn_names_create(graph);
    if (graph->names == NULL)
        return NULL;
    graph->outer = outer;
    graph->name = "";
    graph->depth = outer ? outer->depth + 1 : 0;
    return graph;
}

/* Room for values, behind one that stands for absent operands: values[-1] has no type, is made and
 * read by no node, and is no constant. */
static struct attn_value *room_for_values(struct attn_pool *pool, int64_t room)
{
    struct attn_value *values =
        attn_pool_room(pool, (room + 1) * (int64_t)sizeof *values);
    if (values == NULL)
        return NULL;
    *values = (struct attn_value){
        .name = "", .producer = -1, .outer = -1, .type = { .rank = -1 }
    };
    return values + 1;
}

attn_status attn_graph_reserve(struct attn_graph *graph, int64_t n_values,
                               int64_t n_nodes)
{
    struct attn_pool *pool = &graph->model->pool;
    if (graph->n_values == 0 && n_values > 0 && n_values < INT32_MAX) {
        const int64_t room = n_values + n_values / RESERVE_MORE;
        TRY(attn_names_reserve(graph, n_values));
        graph->values = room_for_values(pool, room);
        graph->values_capacity = graph->values != NULL ? room : 0;
    }
    if (graph->n_nodes == 0 && n_nodes > 0 && n_nodes < INT32_MAX) {
        const int64_t room = n_nodes + n_nodes / RESERVE_MORE;
        graph->nodes = attn_pool_room(pool, room * (int64_t)sizeof *graph->nodes);
        graph->nodes_capacity = graph->nodes != NULL ? room : 0;
    }
    return pool->failed != 0 ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}

static attn_status grow_values(struct attn_graph *graph)
{
    const int64_t n = graph->n_values, room = n + n / 2 + 8;
    struct attn_value *grown = room_for_values(&graph->model->pool, room);
    if (grown == NULL)
        return ATTNRUN_E_MEMORY;
    if (n > 0)
        memcpy(grown, graph->values, (size_t)n * sizeof *grown);
    graph->values = grown;
    graph->values_capacity = room;
    return ATTNRUN_OK;
}

attn_status attn_graph_add_value(struct attn_graph *graph, const char *name, int32_t *id)
{
    struct attn_pool *pool = &graph->model->pool;
    if (graph->n_values >= INT32_MAX - 1)
        return attn_fail(ATTNRUN_E_LIMIT, "the graph has more than %d values",
                         INT32_MAX - 1);
    if (graph->n_values == graph->values_capacity)
        TRY(grow_values(graph));
    TRY(attn_names_reserve(graph, graph->n_values + 1));
    const bool named = name != NULL && name[0] != 0;
    const char *own = named ? attn_pool_string(pool, name)
                            : attn_pool_printf(pool, "%%%d.%lld", graph->depth,
                                               (long long)graph->n_values);
    while (!named && own != NULL && attn_graph_find(graph, own) >= 0)
        own = attn_pool_printf(pool, "%s~", own); /* the file may have such a name */
    if (own == NULL)
        return ATTNRUN_E_MEMORY;
    int32_t made = (int32_t)graph->n_values++;
    graph->values[made] = (struct attn_value){
        .name = own, .producer = -1, .outer = -1, .type = { .rank = -1 }
    };
    attn_names_put(graph, made);
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
    tensor.data = attn_pool_room(&graph->model->weights, bytes > 0 ? bytes : 1);
    if (tensor.data == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_poll_fill(tensor.data, 0, bytes));
    graph->model->folded_bytes += bytes;
    TRY(attn_graph_add_constant(graph, NULL, &tensor, id));
    graph->values[*id].flags |= ATTN_VALUE_FOLDED;
    *data = tensor.data;
    return ATTNRUN_OK;
}

/* Where the arrays of a node lie behind it, in one block of memory. */
struct node_block {
    struct attn_node node;
    /* const char *inputs[n_in + 1], *outputs[n_out + 1]; int32_t in[n_in], out[n_out + 1] */
    const char *names[];
};

static void set_operands(struct attn_graph *graph, struct node_block *block, int32_t n_in,
                         const int32_t *in, int32_t n_out, const int32_t *out)
{
    struct attn_node *node = &block->node;
    node->pub.inputs = block->names;
    node->pub.outputs = block->names + n_in + 1;
    node->in = (int32_t *)(void *)(block->names + n_in + n_out + 2);
    node->out = node->in + n_in;
    node->pub.n_in = n_in;
    node->pub.n_out = n_out;
    if (n_in > 0)
        memcpy(node->in, in, (size_t)n_in * sizeof *in);
    if (n_out > 0)
        memcpy(node->out, out, (size_t)n_out * sizeof *out);
    node->out[n_out] =
        -1; /* passes look at out[0], which a node of a branch may be without */
    attn_graph_rename(graph, node);
}

static struct attn_node *make_node(struct attn_graph *graph, const char *domain,
                                   const char *op_type, const char *name, int32_t n_in,
                                   const int32_t *in, int32_t n_out, const int32_t *out)
{
    struct attn_pool *pool = &graph->model->pool;
    const int64_t n = (int64_t)n_in + n_out;
    struct node_block *block = attn_pool_alloc(
        pool, (int64_t)sizeof *block + (n + 2) * (int64_t)sizeof(const char *) +
                  (n + 1) * (int64_t)sizeof *in);
    const struct attn_operator *names =
        attn_operator_find(graph->model, domain, op_type, 0);
    const char *own = attn_pool_string(pool, name);
    if (block == NULL || names == NULL || own == NULL)
        return NULL;
    block->node.pub = (attnrun_node){
        .name = own, .op_type = names->op_type, .domain = names->domain, .function = ""
    };
    set_operands(graph, block, n_in, in, n_out, out);
    return &block->node;
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
    attn_node_touch(graph, node);
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
struct attn_node *attn_graph_producer(const struct attn_graph *graph, int32_t value)
{
    if (value < 0 || graph->values[value].producer < 0)
        return NULL;
    return graph->nodes[graph->values[value].producer];
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
