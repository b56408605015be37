/* selection.c - which outputs a run computes and in whose memory; see selection.h.
 *
 * A plan that leaves outputs out has only the nodes that the others need: values are followed
 * from the outputs back to the inputs, once. Cost: O(nodes + operands) of a plan that leaves
 * something out; O(outputs * (inputs + outputs)) of a run with memory of the caller. */
#include "selection.h"

#include "align.h"
#include "state.h"

/* ---- life ---- */

attn_status attn_selection_create(struct attn_memory *memory, int32_t n,
                                  struct attn_selection *selection)
{
    selection->modes = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, n + 1);
    selection->chosen = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, n + 1);
    if (selection->modes == NULL || selection->chosen == NULL)
        return ATTNRUN_E_MEMORY;
    memset(selection->chosen, 1, (size_t)n);
    return ATTNRUN_OK;
}

static int64_t watched_bytes(int32_t n_values)
{
    return 2 * (int64_t)n_values * (int64_t)sizeof(int32_t);
}

void attn_selection_free(struct attn_memory *memory, int32_t n,
                         struct attn_selection *selection)
{
    attn_free(memory, ATTN_MEM_PLAN, selection->modes, n + 1);
    attn_free(memory, ATTN_MEM_PLAN, selection->chosen, n + 1);
    attn_free(memory, ATTN_MEM_PLAN, selection->watched,
              watched_bytes(selection->n_values));
}

int32_t attn_selection_find(const struct attn_selection *selection, int32_t id)
{
    return selection->n_values > 0 ? selection->watched[selection->n_values + id] - 1
                                   : -1;
}

attn_status attn_selection_watch(struct attn_memory *memory,
                                 struct attn_selection *selection, int32_t n_values,
                                 int32_t id)
{
    if (selection->n_values == 0) {
        selection->watched =
            attn_alloc_zeroed(memory, ATTN_MEM_PLAN, watched_bytes(n_values));
        if (selection->watched == NULL)
            return ATTNRUN_E_MEMORY;
        selection->n_values = n_values;
    }
    if (attn_selection_find(selection, id) >= 0)
        return ATTNRUN_OK;
    selection->watched[selection->n_watched++] = id;
    selection->watched[n_values + id] = selection->n_watched;
    return ATTNRUN_OK;
}

/* ---- memory of the caller ---- */

/* The first byte of a tensor and the one behind its last; false where it is none of numbers:
 * its strings and elements may lie anywhere. */
static bool extent(const attnrun_tensor *t, uintptr_t *first, uintptr_t *end)
{
    if (t->kind != ATTNRUN_TENSOR || t->dtype == ATTNRUN_STRING)
        return false;
    int64_t below = 0, above = 0;
    *first = *end = (uintptr_t)t->data;
    if (tensor_count(t) <= 0)
        return true;
    if (tensor_is_dense(t)) {
        *end += (uintptr_t)tensor_bytes(t);
        return true;
    }
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t reach = (t->dims[i] - 1) * t->strides[i];
        below += reach < 0 ? reach : 0;
        above += reach > 0 ? reach : 0;
    }
    *first -= (uintptr_t)-below;
    *end += (uintptr_t)(above + dtype_bits(t->dtype) / 8);
    return true;
}

static bool apart(const attnrun_tensor *a, const attnrun_tensor *b)
{
    uintptr_t a_first, a_end, b_first, b_end;
    if (b->kind == ATTNRUN_ABSENT)
        return true;
    return extent(a, &a_first, &a_end) && extent(b, &b_first, &b_end) &&
           (a_end <= b_first || b_end <= a_first || a_first == a_end || b_first == b_end);
}

static bool may_be_written(const struct attn_frame *frame, int32_t index,
                           const attnrun_tensor *inputs)
{
    const attnrun_tensor *given = &frame->outputs[index];
    if (given->kind != ATTNRUN_TENSOR || !attn_tensor_is_aligned(given))
        return false;
    for (int32_t i = 0; i < frame->graph->n_inputs; i++)
        if (!apart(given, &inputs[i]))
            return false;
    for (int32_t i = 0; i < frame->graph->n_outputs; i++)
        if (i != index && !apart(given, &frame->outputs[i]))
            return false;
    return true;
}

static bool is_state(const struct attn_frame *frame, int32_t index)
{
    for (const struct attn_state *s = frame->states; s != NULL; s = s->next)
        if (s->output == index)
            return true;
    return false;
}

void attn_selection_set(struct attn_frame *frame, const attnrun_tensor *inputs)
{
    struct attn_selection *selection = frame->selection;
    for (int32_t i = 0; i < frame->graph->n_outputs; i++) {
        bool wanted = selection->chosen[i] || is_state(frame, i);
        selection->modes[i] = !wanted                            ? ATTN_OUTPUT_SKIPPED
                              : may_be_written(frame, i, inputs) ? ATTN_OUTPUT_GIVEN
                                                                 : ATTN_OUTPUT_OWN;
    }
}

/* ---- plans ---- */

static void need(bool *needed, int32_t id)
{
    if (id >= 0)
        needed[id] = true;
}

bool attn_selection_needs(const bool *needed, const struct attn_node *node)
{
    bool some = needed == NULL;
    for (int32_t i = 0; i < node->pub.n_out && !some; i++)
        some = node->out[i] >= 0 && needed[node->out[i]];
    return some;
}

static void follow(const struct attn_frame *frame, const struct attn_plan *plan,
                   bool *needed)
{
    const struct attn_graph *graph = frame->graph;
    for (int32_t i = 0; i < graph->n_outputs; i++)
        if (plan->modes[i] != ATTN_OUTPUT_SKIPPED)
            need(needed, graph->outputs[i]);
    for (int32_t i = 0; i < frame->selection->n_watched; i++)
        need(needed, frame->selection->watched[i]);
    for (int64_t n = graph->n_nodes - 1; n >= 0; n--) {
        const struct attn_node *node = graph->nodes[n];
        if (!attn_selection_needs(needed, node))
            continue;
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            need(needed, node->in[i]);
    }
}

attn_status attn_selection_read(const struct attn_frame *frame, struct attn_plan *plan,
                                const bool **needed)
{
    const struct attn_selection *selection = frame->selection;
    const int32_t n = frame->graph->n_outputs;
    bool *flags = NULL;
    *needed = NULL;
    plan->modes = attn_pool_alloc(&plan->pool, n + 1);
    if (plan->modes == NULL)
        return ATTNRUN_E_MEMORY;
    if (selection == NULL)
        return ATTNRUN_OK;
    memcpy(plan->modes, selection->modes, (size_t)n);
    plan->n_watched = selection->n_watched;
    if (memchr(plan->modes, ATTN_OUTPUT_SKIPPED, (size_t)n) == NULL)
        return ATTNRUN_OK;
    flags = attn_pool_alloc(&plan->pool,
                            (frame->graph->n_values + 1) * (int64_t)sizeof *flags);
    if (flags == NULL)
        return ATTNRUN_E_MEMORY;
    follow(frame, plan, flags);
    *needed = flags;
    return ATTNRUN_OK;
}

bool attn_selection_fits(const struct attn_frame *frame, const struct attn_plan *plan)
{
    const struct attn_selection *selection = frame->selection;
    return selection == NULL ||
           (plan->n_watched == selection->n_watched &&
            memcmp(plan->modes, selection->modes, (size_t)frame->graph->n_outputs) == 0);
}

/* What a state holds is gone when the run ends: its memory then holds what the run made. */
static void copy_state(const struct attn_frame *frame, struct attn_plan *plan, int32_t id)
{
    const struct attn_plan_value *value = &plan->values[id];
    const int32_t input = value->input;
    for (const struct attn_state *s = frame->states; s != NULL; s = s->next)
        if (value->place == ATTN_PLACE_INPUT && value->type.kind == ATTNRUN_TENSOR &&
            s->input == input) {
            attn_plan_copy_input(plan, input, id);
            plan->key[input].strides[0] = ATTN_KEY_ANY;
        }
}

void attn_selection_keep(const struct attn_frame *frame, struct attn_plan *plan)
{
    for (int32_t i = 0; frame->selection != NULL && i < frame->selection->n_watched;
         i++) {
        struct attn_plan_value *value = &plan->values[frame->selection->watched[i]];
        value->last_use = plan->n_steps;
        value->keep = true;
        copy_state(frame, plan, frame->selection->watched[i]);
    }
}

static void note_shown(struct attn_plan *plan, int32_t id)
{
    if (plan->values[id].place != ATTN_PLACE_ARENA)
        return;
    struct attn_plan_value *root = &plan->values[plan->values[id].root];
    root->shared = root->shown;
    root->shown = true;
}

/* What another output or a watched value shows, too, stays in the arena: it lives until the next
 * run, but the caller's memory only until this one returns. */
void attn_selection_place(const struct attn_frame *frame, struct attn_plan *plan)
{
    for (int32_t i = 0; i < plan->graph->n_outputs; i++)
        if (plan->modes[i] != ATTN_OUTPUT_SKIPPED)
            note_shown(plan, plan->graph->outputs[i]);
    for (int32_t i = 0; i < plan->n_watched; i++)
        note_shown(plan, frame->selection->watched[i]);
    for (int32_t i = 0; i < plan->graph->n_outputs; i++) {
        const struct attn_plan_value *value = &plan->values[plan->graph->outputs[i]];
        if (plan->modes[i] != ATTN_OUTPUT_GIVEN || value->place != ATTN_PLACE_ARENA ||
            value->type.kind != ATTNRUN_TENSOR || value->offset != 0)
            continue;
        struct attn_plan_value *root = &plan->values[value->root];
        if (root->producer >= 0 && !root->shared &&
            tensor_bytes(&root->tensor) == tensor_bytes(&value->tensor))
            root->given = i;
    }
}

/* ---- runs ---- */

attn_status attn_selection_check_output(const struct attn_graph *graph, int32_t index,
                                        const attnrun_tensor *made,
                                        const attnrun_tensor *given)
{
    if (given->kind == ATTNRUN_ABSENT ||
        (given->kind == made->kind && given->dtype == made->dtype &&
         given->rank == made->rank &&
         memcmp(given->dims, made->dims, (size_t)made->rank * sizeof made->dims[0]) == 0))
        return ATTNRUN_OK;
    const char *name = graph->values[graph->outputs[index]].name;
    const attn_status status =
        attn_fail(given->dtype != made->dtype ? ATTNRUN_E_DTYPE : ATTNRUN_E_SHAPE,
                  "output %d '%s' is %s, but the memory bound to it is %s", index,
                  attn_quote(name), attn_tensor_format(made), attn_tensor_format(given));
    attn_fail_tensor(name);
    return status;
}

attn_status attn_selection_check(const struct attn_frame *frame,
                                 const struct attn_plan *plan)
{
    for (int32_t i = 0; i < plan->graph->n_outputs; i++) {
        const struct attn_plan_value *value = &plan->values[plan->graph->outputs[i]];
        if (plan->modes[i] != ATTN_OUTPUT_SKIPPED && value->place != ATTN_PLACE_DYNAMIC &&
            value->type.kind == ATTNRUN_TENSOR)
            TRY(attn_selection_check_output(plan->graph, i, &value->tensor,
                                            &frame->outputs[i]));
    }
    return ATTNRUN_OK;
}
