/* context_choice.c - what a context's runs compute besides or instead of all outputs: outputs that
 * are chosen, inner values that are kept.
 *
 * In: indices of outputs, names of values. Out: the choice in the context's selection
 * (selection.h), and views of what the last run kept. */
#include "context.h"

attn_status attn_context_choose_outputs(struct attnrun_context *context,
                                        const int32_t *indices, int32_t n)
{
    if (indices == NULL && n != 0)
        return attn_fail(ATTNRUN_E_USAGE, "indices is NULL and n is %d, expected 0", n);
    for (int32_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= context->n_outputs)
            return attn_fail(ATTNRUN_E_USAGE, "output %d does not exist", indices[i]);
    if (n < 0)
        return attn_fail(ATTNRUN_E_USAGE, "n is %d, expected 0 or more", n);
    memset(context->selection.chosen, indices == NULL, (size_t)context->n_outputs);
    for (int32_t i = 0; i < n; i++)
        context->selection.chosen[indices[i]] = 1;
    return ATTNRUN_OK;
}

/* Not so once a rewrite pass has taken in the node that gave it, or where only the packed form of a
 * constant is left. */
static bool is_given(const struct attn_value *value)
{
    if (value->flags & ATTN_VALUE_RELEASED)
        return false;
    return value->producer >= 0 || value->data.kind != ATTNRUN_ABSENT ||
           (value->flags & ATTN_VALUE_INPUT) != 0;
}

static attn_status find_value(const struct attnrun_context *context, const char *name,
                              int32_t *id)
{
    const struct attn_graph *graph = context->model->graph;
    *id = name != NULL && name[0] != 0 ? attn_graph_find(graph, name) : -1;
    if (*id >= 0 && is_given(&graph->values[*id]))
        return ATTNRUN_OK;
    attn_fail(ATTNRUN_E_USAGE, "there is no value '%s' in the graph as it is run",
              attn_quote(name != NULL ? name : ""));
    attn_hint("rewriting may remove a value of the file; more_outputs of attnrun_source "
              "keeps it");
    return ATTNRUN_E_USAGE;
}

attn_status attn_context_watch(struct attnrun_context *context, const char *name)
{
    int32_t id;
    TRY(find_value(context, name, &id));
    attn_context_note_shown(context, &context->model->graph->values[id].type);
    return attn_selection_watch(context->frame->memory, &context->selection,
                                (int32_t)context->model->graph->n_values, id);
}

attn_status attn_context_value(const struct attnrun_context *context, const char *name,
                               attnrun_tensor *tensor)
{
    int32_t id;
    const struct attn_plan *plan = context->frame->current;
    TRY(find_value(context, name, &id));
    const int32_t place = attn_selection_find(&context->selection, id);
    if (place < 0)
        return attn_fail(ATTNRUN_E_USAGE, "value '%s' is not watched", attn_quote(name));
    if (plan == NULL || place >= plan->n_watched ||
        plan->values[id].tensor.kind == ATTNRUN_ABSENT)
        return attn_fail(ATTNRUN_E_USAGE,
                         "there was no successful run since '%s' has been watched",
                         attn_quote(name));
    *tensor = plan->values[id].tensor;
    return ATTNRUN_OK;
}
