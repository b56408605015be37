/* subgraph.c - subgraphs of If, Loop and Scan: types while planning, results while running.
 *
 * In: the types or tensors that a subgraph is called with. Out: those of its outputs. Each
 * subgraph of a node has one frame in the frame of the graph around it, so its plans and its
 * arena serve all iterations of a loop. A subgraph that runs itself is refused. */
#include "frame.h"
#include "infer.h"

/* Lists what the child reads of the graph around. `slots`: room for a number for each value of
 * that, of which those that the node captures are used. */
static attn_status list_captures(struct attn_frame *child, const struct attn_node *node,
                                 int32_t *slots)
{
    const struct attn_graph *graph = child->graph;
    const int32_t end = node->pub.n_in + node->n_captures;
    int32_t n = 0;
    for (int32_t slot = end - 1; slot >= node->pub.n_in; slot--)
        slots[node->in[slot]] = slot;
    for (int64_t v = 0; v < graph->n_values; v++) {
        if (!(graph->values[v].flags & ATTN_VALUE_CAPTURE) || graph->values[v].data.data)
            continue;
        const int32_t slot = slots[graph->values[v].outer];
        if (slot < node->pub.n_in || slot >= end ||
            node->in[slot] != graph->values[v].outer)
            return attn_fail_node(ATTNRUN_E_INTERNAL, &node->pub,
                                  "captured value '%s' is not among its inputs",
                                  attn_quote(graph->values[v].name));
        child->capture_ids[n] = (int32_t)v;
        child->capture_slots[n++] = slot;
    }
    return ATTNRUN_OK;
}

static attn_status collect_captures(struct attn_frame *child,
                                    const struct attn_node *node)
{
    const struct attn_graph *graph = child->graph;
    int32_t n = 0;
    for (int64_t v = 0; v < graph->n_values; v++)
        n += (graph->values[v].flags & ATTN_VALUE_CAPTURE) && !graph->values[v].data.data;
    if (n == 0)
        return ATTNRUN_OK;
    child->capture_ids =
        attn_alloc(child->memory, ATTN_MEM_PLAN, n * (int64_t)(2 * sizeof(int32_t)));
    if (child->capture_ids == NULL)
        return ATTNRUN_E_MEMORY;
    child->capture_slots = child->capture_ids + n;
    child->n_captures = n;
    const int64_t bytes = child->outer->graph->n_values * (int64_t)sizeof(int32_t);
    int32_t *slots = attn_alloc(child->memory, ATTN_MEM_PLAN, bytes);
    attn_status status =
        slots != NULL ? list_captures(child, node, slots) : ATTNRUN_E_MEMORY;
    attn_free(child->memory, ATTN_MEM_PLAN, slots, bytes);
    return status;
}

static attn_status make_child(struct attn_frame *frame, const struct attn_node *node,
                              int32_t graph, struct attn_frame **made)
{
    struct attn_frame *child;
    TRY(attn_frame_create(frame->runtime, frame->memory, node->graphs[graph],
                          frame->control, &child));
    child->outer = frame;
    child->node = node;
    child->graph_index = graph;
    attn_status status = collect_captures(child, node);
    if (status == ATTNRUN_OK) {
        child->call = attn_alloc_zeroed(frame->memory, ATTN_MEM_PLAN,
                                        (attn_frame_n_inputs(child) + 1) *
                                            (int64_t)sizeof *child->call);
        status = child->call ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
    }
    if (status != ATTNRUN_OK) {
        attn_frame_destroy(child);
        return status;
    }
    child->next = frame->children;
    frame->children = child;
    child->sibling = frame->of_nodes[node->pub.index];
    frame->of_nodes[node->pub.index] = child;
    *made = child;
    return ATTNRUN_OK;
}

static attn_status child_frame(struct attn_frame *frame, const struct attn_node *node,
                               int32_t graph, struct attn_frame **found)
{
    if (frame->of_nodes == NULL)
        frame->of_nodes =
            attn_alloc_zeroed(frame->memory, ATTN_MEM_PLAN,
                              frame->graph->n_nodes * (int64_t)sizeof *frame->of_nodes);
    if (frame->of_nodes == NULL)
        return ATTNRUN_E_MEMORY;
    *found = frame->of_nodes[node->pub.index];
    while (*found != NULL && (*found)->graph_index != graph)
        *found = (*found)->sibling;
    return *found != NULL ? ATTNRUN_OK : make_child(frame, node, graph, found);
}

/* Formal inputs and captures of a call, in child->call. */
static attn_status fill_call(struct attn_frame *child, const attnrun_step *step,
                             int n_inputs, const attnrun_tensor *inputs)
{
    if (n_inputs != child->graph->n_inputs)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "its subgraph takes %s, but the node gives %d",
                       attn_plural(child->graph->n_inputs, "input"), n_inputs);
    for (int i = 0; i < n_inputs; i++)
        child->call[i] = inputs[i];
    for (int32_t k = 0; k < child->n_captures; k++)
        child->call[n_inputs + k] = step->x[child->capture_slots[k]];
    return ATTNRUN_OK;
}

/* While planning: the plan of the subgraph for these types tells the shapes, where all
 * are known; else only what load time knew. */
static attn_status infer_planned(const attnrun_step *step, int graph, int n_inputs,
                                 const attnrun_type *inputs, int n_outputs,
                                 attnrun_type *outputs)
{
    struct attn_step *full = step_of(step);
    struct attn_frame *child;
    struct attn_plan *plan;
    TRY(child_frame(full->frame, full->node, graph, &child));
    bool known = n_inputs == child->graph->n_inputs;
    for (int i = 0; known && i < n_inputs; i++)
        known = attn_type_is_concrete(&inputs[i]);
    for (int32_t k = 0; known && k < child->n_captures; k++)
        known = attn_type_is_concrete(&step->in[child->capture_slots[k]]);
    for (int i = 0; i < n_outputs; i++) {
        outputs[i] = child->graph->values[child->graph->outputs[i]].type;
        if (outputs[i].kind == ATTNRUN_ABSENT) /* load time found nothing out */
            outputs[i] = (attnrun_type){ .kind = ATTNRUN_TENSOR, .rank = -1 };
        for (int d = 0; d < outputs[i].rank; d++)
            if (outputs[i].dims[d].expr != 0)
                outputs[i].dims[d] = (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    }
    if (!known) {
        full->inner_bytes = -1;
        return ATTNRUN_OK;
    }
    for (int i = 0; i < n_inputs; i++)
        TRY(attn_type_to_tensor(&inputs[i], &child->call[i]));
    for (int32_t k = 0; k < child->n_captures; k++)
        TRY(attn_type_to_tensor(&step->in[child->capture_slots[k]],
                                &child->call[n_inputs + k]));
    TRY(attn_frame_plan(child, child->call, &plan));
    if (plan->n_unbounded > 0 || full->inner_bytes < 0 ||
        !ck_add(full->inner_bytes, max64(plan->arena_bytes, ATTN_ARENA_ALIGN),
                &full->inner_bytes) ||
        !ck_add(full->inner_bytes, plan->heap_bytes, &full->inner_bytes))
        full->inner_bytes = -1;
    for (int i = 0; i < n_outputs; i++)
        outputs[i] = plan->values[child->graph->outputs[i]].type;
    return ATTNRUN_OK;
}

attn_status op_graph_infer(attnrun_step *step, int graph, int n_inputs,
                           const attnrun_type *inputs, int n_outputs,
                           attnrun_type *outputs)
{
    struct attn_step *full = step_of(step);
    if (graph < 0 || graph >= full->node->n_graphs ||
        n_outputs != full->node->graphs[graph]->n_outputs ||
        n_inputs != full->node->graphs[graph]->n_inputs)
        return op_fail(step, ATTNRUN_E_MODEL, "its subgraph does not have %s and %s",
                       attn_plural(n_inputs, "input"), attn_plural(n_outputs, "output"));
    if (full->dims != NULL)
        return attn_graph_infer_inner(step, graph, n_inputs, inputs, n_outputs, outputs);
    return infer_planned(step, graph, n_inputs, inputs, n_outputs, outputs);
}

attn_status op_graph_run(const attnrun_step *step, const attnrun_work *work, int graph,
                         int n_inputs, const attnrun_tensor *inputs, int n_outputs,
                         attnrun_tensor *outputs)
{
    struct attn_step *full = step_of(step);
    struct attn_frame *child;
    (void)work;
    TRY(attn_poll());
    if (full->frame == NULL)
        return op_fail(step, ATTNRUN_E_INTERNAL, "a subgraph outside a run");
    TRY(child_frame(full->frame, full->node, graph, &child));
    TRY(fill_call(child, step, n_inputs, inputs));
    TRY(attn_frame_run(child, child->call));
    for (int i = 0; i < n_outputs; i++)
        TRY(attn_frame_output(child, i, &outputs[i]));
    return ATTNRUN_OK;
}
