/* promote.c - regions of f16 and bf16 compute in f32.
 *
 * in:  a graph with the types of its file; operators whose rows list f32, but neither f16 nor
 *      bf16, are "computing" nodes where an operand has one of these types
 * out: the same graph where these nodes take and give f32
 *
 *      x f16 ─Cast─▶ x' ─MatMul─▶ y' ─Transpose─▶ z' ─Add─▶ s' ─Cast─▶ s f16
 *                          ▲ w f16, stored as it is        ▲ b' f32, cast at load
 *
 * A value that a computing node gives has an f32 twin (x', y' above). The nodes behind it that
 * only move elements take the twin too, and a Cast of the file between the types falls out, so
 * a region has casts at its borders alone: at inputs and outputs of the graph, at subgraphs, at
 * operators whose row takes the narrow type. What is stored is rounded once, at the end.
 *
 * A constant operand keeps its type where the operator's row says that it reads such storage
 * (attnrun_op_def.storage_in: the weights of products and convolutions). Others are cast, and the
 * cast is computed at load. Elements that nodes move out of a constant (a row of an embedding) are
 * cast behind that node.
 *
 * This runs before the rewrite passes, and without fusion too: they see f32 alone. After them,
 * operators that read 16-bit storage at run (the mask of FusedAttention) get what a Cast at a
 * border reads, so that its f32 copy needs no memory. */
#include "promote.h"

#include "infer.h"
#include "node.h"
#include "step.h"

struct promotion {
    struct attn_graph *graph;
    struct attn_pool scratch;
    int64_t n_values; /* of the graph as it was */
    int32_t *twin;    /* of a value: the f32 one, or -1 */
    int32_t *source;  /* of a value that a Cast gives: what it casts, or -1 */
};

static bool is_narrow(const attnrun_type *type)
{
    return type->kind == ATTNRUN_TENSOR && attn_dtype_is_narrow(type->dtype);
}

static bool value_is_narrow(const struct attn_graph *graph, int32_t id)
{
    return id >= 0 && is_narrow(&graph->values[id].type);
}

/* ---- casts ---- */

static attn_status add_cast(struct attn_graph *graph, const char *name, int32_t from,
                            int32_t to, int32_t dtype)
{
    struct attn_attr attr = { .name = "to", .kind = ATTN_ATTR_INT, .i = dtype };
    struct attn_node *cast;
    TRY(attn_graph_add_node(graph, "", "Cast", name, 1, &from, 1, &to, &cast));
    TRY(attn_node_set_attrs(graph, cast, 1, &attr));
    cast->pub.opset = 13;
    cast->internal = true;
    TRY(attn_node_link(graph, cast));
    return attn_node_resolve(graph, cast);
}

static attn_status make_twin(struct promotion *p, int32_t of, int32_t *twin)
{
    struct attn_graph *graph = p->graph;
    const char *name =
        attn_pool_printf(&graph->model->pool, "%s (f32)", graph->values[of].name);
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_graph_add_value(graph, name, twin));
    graph->values[*twin].type = graph->values[of].type;
    graph->values[*twin].type.dtype = ATTNRUN_F32;
    p->twin[of] = *twin;
    return ATTNRUN_OK;
}

/* The f32 twin of a value; where nothing gives it yet, a Cast does. */
static attn_status twin_of(struct promotion *p, const struct attn_node *user, int32_t of,
                           int32_t *twin)
{
    *twin = p->twin[of];
    if (*twin >= 0)
        return ATTNRUN_OK;
    TRY(make_twin(p, of, twin));
    int32_t from = p->source[of] >= 0 ? p->source[of] : of;
    return add_cast(p->graph, user->pub.name, from, *twin, ATTNRUN_F32);
}

/* Operand `in` of a node becomes the twin of what it was. */
static attn_status promote_input(struct promotion *p, struct attn_node *node, int32_t in)
{
    int32_t twin;
    TRY(twin_of(p, node, node->in[in], &twin));
    attn_node_set_input(p->graph, node, in, twin);
    return ATTNRUN_OK;
}

/* Output `out` of a node becomes the twin of what it was. */
static attn_status promote_output(struct promotion *p, struct attn_node *node,
                                  int32_t out)
{
    int32_t twin;
    TRY(make_twin(p, node->out[out], &twin));
    attn_node_set_output(p->graph, node, out, twin);
    return ATTNRUN_OK;
}

/* ---- nodes ---- */

static attn_status ask_types(struct promotion *p, struct attn_node *node,
                             struct attn_promotion *operands)
{
    struct attn_step *step = attn_step_create(&p->scratch, p->graph, node,
                                              attn_model_kernels(p->graph->model));
    attn_status status = ATTNRUN_E_MEMORY;
    if (step != NULL) {
        step->dims = p->graph->model->dims;
        attn_step_load_inputs(step);
        status = attn_node_check_types(&step->pub, operands);
    }
    attn_pool_free(&p->scratch);
    return status;
}

static bool keeps_storage(const struct promotion *p, const struct attn_node *node,
                          int32_t in)
{
    return in < 32 && (node->pub.op->storage_in >> in & 1) &&
           p->graph->values[node->in[in]].data.data != NULL;
}

static attn_status promote_computing(struct promotion *p, struct attn_node *node,
                                     const struct attn_promotion *operands)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const int32_t in = node->in[i];
        if (in >= 0 &&
            attn_promotes_input(operands, i, p->graph->values[in].type.dtype) &&
            !keeps_storage(p, node, i))
            TRY(promote_input(p, node, i));
    }
    for (int32_t i = 0; i < node->pub.n_out && i < 64; i++)
        if (((operands->outputs | operands->open) >> i & 1) &&
            value_is_narrow(p->graph, node->out[i]))
            TRY(promote_output(p, node, i));
    return ATTNRUN_OK;
}

/* The type variable of an operand of rows that take the narrow types as they are; "" where it
 * has none, or need not be one type. */
static const char *variable_of(const struct attn_operand *operand)
{
    bool bound = operand != NULL && !operand->mixed && operand->kind == ATTNRUN_TENSOR &&
                 dtype_in(ATTNRUN_F32, operand->dtypes);
    return bound ? operand->type_variable : "";
}

static const char *input_variable(const struct attn_node *node, int32_t in)
{
    return variable_of(row_operand(node->row->in, node->row->n_in, in));
}

static const char *output_variable(const struct attn_node *node, int32_t out)
{
    return variable_of(row_operand(node->row->out, node->row->n_out, out));
}

static bool gives_variable(const struct attn_node *node, const char *variable)
{
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        if (node->out[i] >= 0 && strcmp(output_variable(node, i), variable) == 0)
            return true;
    }
    return false;
}

static attn_status promote_variable(struct promotion *p, struct attn_node *node,
                                    const char *variable)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        if (strcmp(input_variable(node, i), variable) == 0 && node->in[i] < p->n_values &&
            value_is_narrow(p->graph, node->in[i]))
            TRY(promote_input(p, node, i));
    }
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        if (strcmp(output_variable(node, i), variable) == 0 &&
            value_is_narrow(p->graph, node->out[i]))
            TRY(promote_output(p, node, i));
    }
    return ATTNRUN_OK;
}

/* Whether the types of all outputs are the same whatever type `variable` stands for: listed in
 * the row, or those of other operands. */
static bool gives_others(const struct attn_node *node, const char *variable)
{
    const struct attn_row *row = node->row;
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        const struct attn_operand *out = row_operand(row->out, row->n_out, i), *in;
        bool bound = false;
        if (out == NULL || strcmp(out->type_variable, variable) == 0)
            return false;
        for (int32_t k = 0; k < node->pub.n_in && !bound; k++) {
            in = row_operand(row->in, row->n_in, k);
            bound = node->in[k] >= 0 && in != NULL &&
                    strcmp(in->type_variable, out->type_variable) == 0;
        }
        if (out->type_variable[0] != 0 && !bound)
            return false;
    }
    return true;
}

/* Whether all narrow operands of this type are small constants: a mask's two numbers. */
static bool chooses_constants(const struct promotion *p, const struct attn_node *node,
                              const char *variable)
{
    enum { SMALL_ELEMENTS = 1024 };
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        if (strcmp(input_variable(node, i), variable) != 0 || node->in[i] < 0)
            continue;
        const attnrun_tensor *data = &p->graph->values[node->in[i]].data;
        if (data->data == NULL || tensor_count(data) > SMALL_ELEMENTS)
            return false;
    }
    return true;
}

/* A node that takes f16 as it is, and moves or looks at it, follows its operands. */
static attn_status promote_moving(struct promotion *p, struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        if (node->in[i] >= p->n_values || !value_is_narrow(p->graph, node->in[i]))
            continue;
        const char *variable = input_variable(node, i);
        if (variable[0] == 0 ||
            (p->twin[node->in[i]] < 0 && !chooses_constants(p, node, variable)))
            continue;
        if (gives_variable(node, variable) || gives_others(node, variable))
            TRY(promote_variable(p, node, variable));
    }
    return ATTNRUN_OK;
}

/* Casts of the file between the types of a region fall out, but for one that gives an output of
 * the graph where the region has no value for its name; the narrow result of others stays for
 * those that read it. */
static attn_status promote_cast(struct promotion *p, struct attn_node *node)
{
    struct attn_graph *graph = p->graph;
    const int32_t from = node->in[0], to = node->out[0];
    const int32_t twin = from < p->n_values ? p->twin[from] : -1;
    if (graph->values[to].type.dtype == ATTNRUN_F32 && twin >= 0 &&
        attn_graph_can_replace(graph, to, twin)) {
        attn_graph_replace(graph, to, twin);
        attn_graph_remove(graph, node);
    } else if (value_is_narrow(graph, to) && graph->values[to].data.data == NULL) {
        if (twin >= 0)
            p->twin[to] = twin;
        else if (graph->values[from].type.kind == ATTNRUN_TENSOR &&
                 graph->values[from].type.dtype == ATTNRUN_F32)
            p->twin[to] = from;
        else if (graph->values[from].type.dtype != ATTNRUN_STRING)
            p->source[to] = from;
    }
    return ATTNRUN_OK;
}

static attn_status promote_node(struct promotion *p, struct attn_node *node)
{
    struct attn_promotion operands;
    if (node == NULL || node->pub.op == NULL)
        return ATTNRUN_OK;
    if (node_is(node, "Cast"))
        return promote_cast(p, node);
    if (node_is(node,
                "CastLike")) /* gives the type that its second operand has in the file */
        return ATTNRUN_OK;
    TRY(ask_types(p, node, &operands));
    if (operands.inputs != 0)
        return promote_computing(p, node, &operands);
    return node->n_graphs > 0 ? ATTNRUN_OK : promote_moving(p, node);
}

/* ---- the graph ---- */

static attn_status computes_narrow(struct promotion *p, bool *found)
{
    struct attn_graph *graph = p->graph;
    *found = false;
    for (int64_t n = 0; n < graph->n_nodes && !*found; n++) {
        struct attn_node *node = graph->nodes[n];
        struct attn_promotion operands = { .inputs = 0 };
        bool narrow = false;
        for (int32_t i = 0; i < node->pub.n_in && !narrow; i++)
            narrow = value_is_narrow(graph, node->in[i]);
        if (narrow && node->pub.op != NULL)
            TRY(ask_types(p, node, &operands));
        *found = operands.inputs != 0;
    }
    return ATTNRUN_OK;
}

/* Casts the twins of what is still read in the narrow type, and is given by nothing now. */
static attn_status cast_at_borders(struct promotion *p)
{
    struct attn_graph *graph = p->graph;
    uint8_t *read = attn_pool_alloc(&p->scratch, graph->n_values + 1);
    uint8_t *given = attn_pool_alloc(&p->scratch, graph->n_values + 1);
    if (read == NULL || given == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; node != NULL && i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] >= 0)
                read[node->in[i]] = 1;
        for (int32_t i = 0; node != NULL && i < node->pub.n_out; i++)
            if (node->out[i] >= 0)
                given[node->out[i]] = 1;
    }
    for (int32_t i = 0; i < graph->n_outputs; i++)
        read[graph->outputs[i]] = 1;
    for (int64_t v = 0; v < p->n_values; v++) {
        const struct attn_value *value = &graph->values[v];
        if (p->twin[v] < 0 || !read[v] || given[v] || value->data.data != NULL ||
            (value->flags & (ATTN_VALUE_INPUT | ATTN_VALUE_CAPTURE)))
            continue;
        TRY(add_cast(graph, value->name, p->twin[v], (int32_t)v, value->type.dtype));
    }
    return ATTNRUN_OK;
}

static attn_status promote_nodes(struct promotion *p)
{
    const int64_t n_nodes = p->graph->n_nodes; /* casts come behind them */
    p->n_values = p->graph->n_values;
    struct attn_pool maps;
    attn_pool_init(&maps, p->graph->model->pool.memory, ATTN_MEM_MODEL);
    p->twin = attn_pool_alloc(&maps, p->n_values * (int64_t)sizeof *p->twin + 1);
    p->source = attn_pool_alloc(&maps, p->n_values * (int64_t)sizeof *p->source + 1);
    attn_status status = p->twin && p->source ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < p->n_values && status == ATTNRUN_OK; v++)
        p->twin[v] = p->source[v] = -1;
    for (int64_t n = 0; n < n_nodes && status == ATTNRUN_OK; n++)
        status = promote_node(p, p->graph->nodes[n]);
    if (status == ATTNRUN_OK)
        status = cast_at_borders(p);
    attn_pool_free(&maps);
    attn_pool_free(&p->scratch);
    return status;
}

static attn_status promote_graph(struct attn_graph *graph, bool *changed)
{
    attn_graph_close_gaps(graph); /* of nodes that inference has folded */
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            TRY(promote_graph(graph->nodes[n]->graphs[g], changed));
    struct promotion p = { .graph = graph };
    bool found;
    attn_pool_init(&p.scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    TRY(computes_narrow(&p, &found));
    if (!found)
        return ATTNRUN_OK;
    *changed = true;
    graph->promoted = true;
    TRY(promote_nodes(&p));
    return attn_graph_order(graph);
}

/* Whether a constant may stay in 16 bits is another question since graph->promoted. */
static void touch_all(struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        attn_node_touch(graph, graph->nodes[n]);
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            touch_all(graph->nodes[n]->graphs[g]);
    }
}

attn_status attn_graph_promote(struct attn_graph *graph)
{
    bool changed = false;
    TRY(promote_graph(graph, &changed));
    if (!changed)
        return ATTNRUN_OK;
    touch_all(graph);
    return attn_graph_infer(graph);
}

/* ---- after the rewrite passes ---- */

/* What the Cast that gives a value at a border of a region reads, or -1. Constants were cast at
 * load. */
static int32_t border_source(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *cast = attn_graph_producer(graph, value);
    if (cast == NULL || !cast->internal || !node_is(cast, "Cast") ||
        !value_is_narrow(graph, cast->in[0]) ||
        graph->values[cast->in[0]].data.data != NULL)
        return -1;
    return cast->in[0];
}

static bool reads_narrow(const struct attn_graph *graph, const struct attn_node *node,
                         int32_t in, int32_t source)
{
    const struct attn_operand *operand = row_operand(node->row->in, node->row->n_in, in);
    return (node->pub.op->storage_in >> in & 1) && operand != NULL &&
           dtype_in(graph->values[source].type.dtype, operand->dtypes);
}

attn_status attn_graph_read_borders(struct attn_graph *graph)
{
    bool changed = false;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        for (int32_t g = 0; g < node->n_graphs; g++)
            if (attn_graph_is_inferred(node->graphs[g]))
                TRY(attn_graph_read_borders(node->graphs[g]));
        for (int32_t i = 0; node->pub.op != NULL && node->pub.op->storage_in != 0 &&
                            i < node->pub.n_in && i < 32;
             i++) {
            const int32_t source = border_source(graph, node->in[i]);
            if (source < 0 || !reads_narrow(graph, node, i, source))
                continue;
            attn_node_set_input(graph, node, i, source);
            changed = true;
        }
    }
    if (!changed)
        return ATTNRUN_OK;
    TRY(attn_graph_order(graph));
    return attn_graph_infer(graph);
}
