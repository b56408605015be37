/* infer.c - the types of all values at load, with symbolic dims.
 *
 * In: a graph in order whose nodes have their operator rows; types of inputs and constants;
 * what the file declares of other values. Out: a type for each value, the elements of small
 * integer tensors where they are known, nodes with constant inputs computed and taken out
 * (fold.c), nodes without a reader taken out.
 *
 *   x f32[B,S,64] ──Shape──▶ s i64[3]      ──Gather(1)──▶ n i64[]    ──Concat──▶ …
 *                            known {B,S,64}               known {S}
 *
 *   for each node, in order:
 *     values ──▶ step->in (types), x (constants), known ──▶ infer() of the row
 *     values ◀── step->out, known_outputs: known, view_of, in place ◀──┘
 *
 * So a chain of Shape, Gather, Concat and Reshape gives a symbolic shape instead of an
 * unknown one. Dims that the file declares of what nodes give are not used, even where nothing else
 * is known: they may be stale, and no run would notice. A type that contradicts the file is an
 * error.
 *
 * Where an operator computes f16 and bf16 in f32, it is asked as if its operands were f32,
 * and its outputs keep the types of the file: promote.c puts conversions around regions later.
 * A subgraph is inferred from its node, for the types that it is called with.
 *
 * Cost: one infer() a node; what steps need is in a pool that is emptied every 64 nodes. */
#include "infer.h"

#include "fold.h"
#include "node.h"
#include "poll.h"
#include "step.h"

enum {
    NODES_PER_POOL = 64,
    NODE_BYTES = 16384 /* about what a node costs here, for the polls */
};

struct inference {
    struct attn_graph *graph;
    struct attn_pool scratch;
    const struct attn_kernels *kernels;
    int nodes_in_pool;
};

/* ---- values into a step, and back ---- */

void attn_step_load_inputs(struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        int32_t id = step->node->in[i];
        if (id < 0)
            continue;
        const struct attn_value *value = &step->graph->values[id];
        attn_step_in(step)[i] = value->type;
        attn_step_x(step)[i] = value->data;
        step->known[i] = value->known;
        step->n_known[i] = value->n_known;
    }
}

/* The same as a description: two dims of which nothing is known are no equal dims. */
static bool same_dims(const attnrun_dim *a, const attnrun_dim *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i].expr != b[i].expr || (a[i].expr == 0 && a[i].value != b[i].value))
            return false;
    return true;
}

static bool same_type(const attnrun_type *a, const attnrun_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
           a->key_dtype == b->key_dtype && same_dims(a->dims, b->dims, a->rank);
}

static bool same_known(const struct attn_value *value, const attnrun_dim *known,
                       int64_t n_known)
{
    return value->known == known ||
           (value->known != NULL && known != NULL && value->n_known == n_known &&
            same_dims(value->known, known, n_known));
}

static attn_status keep_known(struct attn_graph *graph, struct attn_value *value,
                              const struct attn_out_known *known_outputs)
{
    if (known_outputs->known == NULL ||
        same_known(value, known_outputs->known, known_outputs->n_known))
        return ATTNRUN_OK;
    value->known = attn_pool_copy(&graph->model->pool, known_outputs->known,
                                  known_outputs->n_known * (int64_t)sizeof(attnrun_dim));
    value->n_known = known_outputs->n_known;
    return value->known ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* All elements known and constant, in a value of known size: its tensor. */
static bool known_tensor(const attnrun_type *type,
                         const struct attn_out_known *known_outputs)
{
    if (known_outputs->known == NULL || !attn_type_is_concrete(type) ||
        (type->dtype != ATTNRUN_I64 && type->dtype != ATTNRUN_I32 &&
         type->dtype != ATTNRUN_BOOL) ||
        op_count(type, 0, type->rank) != known_outputs->n_known)
        return false;
    for (int64_t k = 0; k < known_outputs->n_known; k++)
        if (!dim_is_const(known_outputs->known[k]))
            return false;
    return true;
}

bool attn_step_known_tensor(const struct attn_step *step, int out, struct attn_pool *pool,
                            attnrun_tensor *tensor)
{
    const struct attn_out_known *known_outputs = &step->known_outputs[out];
    attnrun_tensor made;
    if (!known_tensor(&step->pub.out[out], known_outputs) ||
        attn_type_to_tensor(&step->pub.out[out], &made) != ATTNRUN_OK)
        return false;
    made.data = attn_pool_alloc(pool, tensor_bytes(&made) + 1);
    if (made.data == NULL)
        return false;
    for (int64_t k = 0; k < known_outputs->n_known; k++) {
        int64_t k_value = known_outputs->known[k].value;
        if (made.dtype == ATTNRUN_I64)
            ((int64_t *)made.data)[k] = k_value;
        else if (made.dtype == ATTNRUN_I32)
            ((int32_t *)made.data)[k] = (int32_t)k_value;
        else
            ((uint8_t *)made.data)[k] = k_value != 0;
    }
    *tensor = made;
    return true;
}

/* What was inferred before, maybe of nodes that are gone now, stays for dims of which nothing is
 * known. */
static void merge_type(const struct attn_graph *graph, const attnrun_type *inferred,
                       attnrun_type *before)
{
    const struct attn_dims *dims = graph->model->dims;
    attnrun_type merged = *inferred;
    if (graph->depth > 0) { /* inferred several times, for other types each time */
        *before = merged;
        return;
    }
    for (int i = 0; i < merged.rank && before->rank == merged.rank; i++)
        if (attn_dim_is_vague(dims, merged.dims[i]) && before->dims[i].expr > 0 &&
            !attn_dim_is_vague(dims, before->dims[i]))
            merged.dims[i] = before->dims[i];
    *before = merged;
}

static const char *kind_name(int32_t kind)
{
    return kind == ATTNRUN_TENSOR         ? ""
           : kind == ATTNRUN_SEQUENCE     ? "a sequence of "
           : kind == ATTNRUN_MAP          ? "a map to "
           : kind == ATTNRUN_MAP_SEQUENCE ? "a sequence of maps to "
                                          : "an optional of ";
}

/* Output `out` of a node against what the file says of value `id`. */
static attn_status check_declared(struct attn_graph *graph, const struct attn_node *node,
                                  int32_t out, int32_t id, int32_t kind, int32_t dtype)
{
    struct attn_value *value = &graph->values[id];
    if (!(value->flags & ATTN_VALUE_DECLARED) || kind == ATTNRUN_ABSENT || dtype == 0)
        return ATTNRUN_OK;
    value->flags &= ~(uint32_t)ATTN_VALUE_DECLARED;
    if (!graph->model->rewritten)
        value->type.rank =
            -1; /* no promise, but in a packed file, where inference found it */
    if (value->type.kind == kind && value->type.dtype == dtype)
        return ATTNRUN_OK;
    return attn_fail_node(
        ATTNRUN_E_DTYPE, &node->pub, "output %d '%s' is %s%s, but is declared %s%s", out,
        attn_quote(value->name), kind_name(kind), attnrun_dtype_name(dtype),
        kind_name(value->type.kind), attnrun_dtype_name(value->type.dtype));
}

static attn_status check_outputs(struct attn_graph *graph, const struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_out; i++)
        if (step->node->out[i] >= 0)
            TRY(check_declared(graph, step->node, i, step->node->out[i],
                               step->pub.out[i].kind, step->pub.out[i].dtype));
    return ATTNRUN_OK;
}

static attn_status store_output(struct attn_graph *graph, const struct attn_step *step,
                                int32_t out)
{
    struct attn_value *value = &graph->values[step->node->out[out]];
    const attnrun_type *type = &step->pub.out[out];
    const struct attn_value before = *value;
    bool inferred = value->type.kind == type->kind && value->type.dtype == type->dtype &&
                    value->type.rank >= 0;
    if (!inferred)
        value->type = *type;
    else if (type->rank >= 0) /* else what was known before is better than nothing */
        merge_type(graph, type, &value->type);
    TRY(keep_known(graph, value, &step->known_outputs[out]));
    attnrun_tensor tensor;
    if (graph->depth == 0 && !attn_fold_keeps_nodes(graph) &&
        attn_step_known_tensor(step, out, &graph->model->pool, &tensor))
        value->data = tensor;
    if (!same_type(&before.type, &value->type) || before.data.data != value->data.data ||
        !same_known(&before, value->known, value->n_known))
        attn_value_touch_users(graph, step->node->out[out]);
    return ATTNRUN_OK;
}

static attn_status store_outputs(struct inference *inference, struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_out; i++)
        if (step->node->out[i] >= 0)
            TRY(store_output(inference->graph, step, i));
    return ATTNRUN_OK;
}

/* ---- f16 and bf16 where the row computes in f32 ---- */

/* Shows the operator f32 in their place. Its infer() must not read their elements. */
static void show_promoted(struct attn_step *step, const struct attn_promotion *promotion)
{
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (attn_promotes_input(promotion, i, step->pub.in[i].dtype)) {
            attn_step_in(step)[i].dtype = ATTNRUN_F32;
            attn_step_x(step)[i] = (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
        }
}

/* Gives its outputs the type that the file means. */
static void narrow_outputs(struct attn_step *step, const struct attn_promotion *promotion)
{
    const struct attn_graph *graph = step->graph;
    for (int32_t i = 0; i < step->pub.n_out && i < 64; i++) {
        const int32_t id = step->node->out[i];
        const int32_t declared = id >= 0 ? graph->values[id].type.dtype : 0;
        if (promotion->outputs >> i & 1)
            step->pub.out[i].dtype =
                promotion->bf16 >> i & 1 ? ATTNRUN_BF16 : ATTNRUN_F16;
        else if ((promotion->open >> i & 1) && attn_dtype_is_narrow(declared))
            step->pub.out[i].dtype = declared;
    }
}

/* ---- the walk ---- */

static struct attn_step *next_step(struct inference *inference, struct attn_node *node)
{
    if (inference->nodes_in_pool++ == NODES_PER_POOL) {
        inference->nodes_in_pool = 0;
        attn_pool_reset(&inference->scratch);
    }
    struct attn_step *step =
        attn_step_create(&inference->scratch, inference->graph, node, inference->kernels);
    if (step != NULL) {
        step->dims = inference->graph->model->dims;
        attn_step_load_inputs(step);
    }
    return step;
}

static bool all_outputs_constant(const struct attn_graph *graph,
                                 const struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && graph->values[node->out[i]].data.data == NULL)
            return false;
    return true;
}

static attn_status infer_plain(struct inference *inference, struct attn_step *step)
{
    struct attn_graph *graph = inference->graph;
    TRY(attn_step_infer(step));
    TRY(check_outputs(graph, step));
    bool folded = false;
    if (attn_fold_is_possible(graph, step))
        TRY(attn_fold_node(graph, step, &folded));
    if (!folded)
        TRY(store_outputs(inference, step));
    for (int32_t i = 0; folded && i < step->pub.n_out; i++)
        if (step->node->out[i] >= 0)
            attn_value_touch_users(graph, step->node->out[i]);
    TRY(attn_step_check_memory(step));
    if (all_outputs_constant(graph, step->node))
        attn_graph_remove(graph, step->node);
    return ATTNRUN_OK;
}

static attn_status infer_node(struct inference *inference, struct attn_node *node)
{
    struct attn_promotion promotion;
    struct attn_step *step = next_step(inference, node);
    if (step == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_node_check_types(&step->pub, &promotion));
    if (promotion.inputs == 0)
        return infer_plain(inference, step);
    show_promoted(step, &promotion);
    TRY(attn_step_infer(step));
    narrow_outputs(step, &promotion);
    TRY(check_outputs(inference->graph, step));
    return store_outputs(inference, step);
}

/* Nothing is known of its outputs but what the file declares. */
static void forget_outputs(struct attn_graph *graph, const struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && graph->values[node->out[i]].type.kind == ATTNRUN_ABSENT)
            graph->values[node->out[i]].type = (attnrun_type){ .rank = -1 };
}

/* Whether it reads a value of no known type, which comes from a node without an operator (the model
 * is open for inspection only). */
static bool reads_unknown(const struct attn_graph *graph, const struct attn_node *node)
{
    if (graph->model->n_missing == 0)
        return false;
    for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
        if (node->in[i] >= 0 && graph->values[node->in[i]].type.kind == ATTNRUN_ABSENT)
            return true;
    return false;
}

static attn_status infer_nodes(struct inference *inference)
{
    struct attn_graph *graph = inference->graph;
    for (int64_t i = 0; i < graph->n_nodes && graph->n_stale > 0; i++) {
        struct attn_node *node = graph->nodes[i];
        if (node == NULL || !node->stale)
            continue;
        TRY(attn_poll_work(NODE_BYTES));
        graph->model->counts.inferred++;
        attn_graph_rename(graph, node);
        if (node->pub.op == NULL || reads_unknown(graph, node))
            forget_outputs(graph, node);
        else
            TRY(infer_node(inference, node));
        graph->n_stale -=
            graph->nodes[i] != NULL; /* else it was constant, and is removed */
        node->stale = false;
    }
    return ATTNRUN_OK;
}

/* Operators look for their optional outputs alone; others they write in any case. */
static bool is_optional_output(const struct attn_node *node, int32_t out)
{
    const struct attn_operand *operand =
        row_operand(node->row->out, node->row->n_out, out);
    return operand != NULL && operand->optional;
}

/* Takes out what nobody reads. *dropped: an output of a node that stays, so the node is stale. */
static void sweep(struct attn_graph *graph, bool *dropped)
{
    *dropped = false;
    for (int64_t n = graph->n_nodes - 1; n >= 0 && !attn_stops_node(n); n--) {
        struct attn_node *node = graph->nodes[n];
        bool used = node == NULL;
        for (int32_t i = 0; !used && i < node->pub.n_out; i++)
            used = node->out[i] >= 0 && graph->values[node->out[i]].n_uses > 0;
        if (!used)
            attn_graph_remove(graph, node);
    }
    const int64_t n_nodes = /* others want all outputs of a Loop, a Split, a classifier */
        graph->model->origin == NULL ? graph->n_nodes : 0;
    for (int64_t n = 0; n < n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; node && node->pub.op && i < node->pub.n_out; i++)
            if (node->out[i] >= 0 && graph->values[node->out[i]].n_uses == 0 &&
                is_optional_output(node, i)) {
                attn_node_set_output(graph, node, i, -1);
                *dropped = true;
            }
    }
}

static attn_status infer_once(struct attn_graph *graph, bool *again)
{
    struct inference inference = { .graph = graph };
    inference.kernels = attn_kernels_for(graph->model->isa, false);
    attn_pool_init(&inference.scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = infer_nodes(&inference);
    attn_pool_free(&inference.scratch);
    if (status !=
        ATTNRUN_OK) { /* of a branch that does not fit: the model may still run */
        attn_graph_close_gaps(graph);
        return status;
    }
    sweep(graph, again);
    TRY(attn_poll());
    attn_graph_close_gaps(graph);
    graph->edited = graph->n_stale > 0;
    return ATTNRUN_OK;
}

/* Again where outputs were dropped: a subgraph with stale nodes would not be rewritten. */
attn_status attn_graph_infer(struct attn_graph *graph)
{
    for (bool again = graph->edited; again;)
        TRY(infer_once(graph, &again));
    return ATTNRUN_OK;
}

attn_status attn_graph_fold_rest(struct attn_graph *graph, bool *changed)
{
    if (!graph->postponed || graph->folds_all)
        return ATTNRUN_OK;
    graph->folds_all = *changed = true;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        bool constant = node->pub.n_in > 0;
        for (int32_t i = 0; i < node->pub.n_in && constant; i++)
            constant = node->in[i] < 0 || graph->values[node->in[i]].data.data != NULL;
        if (constant)
            attn_node_touch(graph, graph->nodes[n]);
    }
    return attn_graph_infer(graph);
}

/* ---- subgraphs ---- */

int op_graph_n_inputs(const attnrun_step *step, int graph)
{
    return step_of(step)->node->graphs[graph]->n_inputs;
}

int op_graph_n_outputs(const attnrun_step *step, int graph)
{
    return step_of(step)->node->graphs[graph]->n_outputs;
}

int op_graph_input_rank(const attnrun_step *step, int graph, int input)
{
    const struct attn_graph *inner = step_of(step)->node->graphs[graph];
    return inner->values[inner->inputs[input]].type.rank;
}

int op_graph_declared_rank(const attnrun_step *step, int graph, int output)
{
    const int32_t *ranks = step_of(step)->node->graphs[graph]->output_ranks;
    return ranks != NULL && ranks[output] > 0 ? ranks[output] : 0;
}

static void set_type(struct attn_graph *inner, int32_t id, const attnrun_type *type)
{
    struct attn_value *value = &inner->values[id];
    if (same_type(&value->type, type))
        return;
    value->type = *type;
    attn_value_touch_users(inner, id);
}

/* Gives value `id` of a subgraph what is known of the one that it stands for. */
static void set_captured(struct attn_graph *inner, int32_t id,
                         const struct attn_value *outer)
{
    struct attn_value *value = &inner->values[id];
    bool constant = outer->data.data != NULL && outer->data.data != value->data.data;
    if (constant) /* outside, and so here */
        value->data = outer->data;
    bool same = !constant && same_known(value, outer->known, outer->n_known);
    value->known = outer->known;
    value->n_known = outer->n_known;
    set_type(inner, id, &outer->type);
    if (!same)
        attn_value_touch_users(inner, id);
}

attn_status attn_graph_infer_inner(const attnrun_step *step, int graph, int n_inputs,
                                   const attnrun_type *inputs, int n_outputs,
                                   attnrun_type *outputs)
{
    struct attn_step *full = step_of(step);
    struct attn_graph *inner = full->node->graphs[graph];
    for (int i = 0; i < n_inputs; i++)
        set_type(inner, inner->inputs[i], &inputs[i]);
    for (int32_t c = 0; c < inner->n_captures; c++) {
        const int32_t id = inner->capture_uses[c].index;
        set_captured(inner, id, &full->graph->values[inner->values[id].outer]);
    }
    TRY(attn_graph_infer(inner));
    for (int i = 0; i < n_outputs; i++)
        outputs[i] = inner->values[inner->outputs[i]].type;
    return ATTNRUN_OK;
}
