/* rewrite.c - expands formulas and runs the rewrite passes, over a graph and its subgraphs.
 *
 * In: an inferred graph and the passes of ops/rewrite/, which know operators. Out: the graph
 * after all passes that are not switched off, until none of them finds anything more (a
 * bounded number of rounds); it is finished and inferred again after each that applied. */
#include <stdio.h>

#include "graph.h"
#include "poll.h"

enum {
    MAX_ROUNDS = 8, /* one pass may open the way for another; real models take 2 or 3 */
    MAX_NOTES = 64
};

static bool is_pass(const char *name, size_t length)
{
    for (int i = 0; attn_passes[i] != NULL; i++)
        if (strlen(attn_passes[i]->name) == length &&
            memcmp(attn_passes[i]->name, name, length) == 0)
            return true;
    return false;
}

attn_status attn_pass_check_names(const char *list)
{
    while (list != NULL && *list != 0) {
        size_t n = strcspn(list, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), list);
        if (n > 0 && !is_pass(list, n)) {
            const char *names[64];
            int known = 0;
            for (; attn_passes[known] != NULL && known < 64; known++)
                names[known] = attn_passes[known]->name;
            attn_fail(ATTNRUN_E_USAGE, "there is no rewrite pass '%s'", attn_quote(name));
            attn_suggest(name, names, known);
            return ATTNRUN_E_USAGE;
        }
        list += n + (list[n] == ',');
    }
    return ATTNRUN_OK;
}

const char *attnrun_get_pass(int32_t index)
{
    for (int32_t i = 0; i <= index && attn_passes[i] != NULL; i++)
        if (i == index)
            return attn_passes[i]->name;
    return NULL;
}

bool attn_graph_has_note(const struct attn_graph *graph, const struct attn_node *node)
{
    for (int32_t k = 0; k < graph->model->n_notes; k++)
        if (strcmp(graph->model->notes[k].node, node->pub.name) == 0)
            return true;
    return false;
}

attn_status attn_graph_note(struct attn_graph *graph, const struct attn_node *node,
                            const char *pass, const char *why)
{
    struct attn_model *model = graph->model;
    struct attn_pass_note *notes = model->notes;
    int32_t k = 0;
    while (k < model->n_notes && (strcmp(notes[k].pass, pass) != 0 ||
                                  strcmp(notes[k].node, node->pub.name) != 0))
        k++;
    if (why == NULL) {
        if (k < model->n_notes)
            notes[k] = notes[--model->n_notes];
        return ATTNRUN_OK;
    }
    /* Later rounds see what the last passes left. */
    if (k < model->n_notes || k == MAX_NOTES)
        return ATTNRUN_OK;
    if (notes == NULL) {
        notes = attn_pool_alloc(&model->pool, MAX_NOTES * (int64_t)sizeof *notes);
        model->notes = notes;
    }
    char *name = notes != NULL ? attn_pool_string(&model->pool, node->pub.name) : NULL;
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    notes[k] = (struct attn_pass_note){ pass, name, why };
    model->n_notes++;
    return ATTNRUN_OK;
}

static bool is_disabled(const struct attn_model *model, const struct attn_pass *pass)
{
    if ((model->flags & ATTNRUN_NO_FUSION) && !pass->lowering)
        return true;
    if (model->origin != NULL && !pass->portable)
        return true;
    const char *list = model->disable_passes;
    size_t length = strlen(pass->name);
    while (list != NULL && *list != 0) {
        size_t n = strcspn(list, ",");
        if (n == length && memcmp(list, pass->name, n) == 0)
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static attn_status try_nodes(struct attn_graph *graph, const struct attn_pass *pass,
                             int32_t *applied)
{
    const int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        if (node != NULL && (pass->op_type == NULL || node_is(node, pass->op_type)) &&
            node->pub.n_out > 0 && node->out[0] >= 0 &&
            graph->values[node->out[0]].n_uses > 0)
            TRY(pass->try_node(graph, node, applied));
    }
    return ATTNRUN_OK;
}

static attn_status run_pass(struct attn_graph *graph, int32_t index, bool *changed)
{
    const struct attn_pass *pass = attn_passes[index];
    int32_t applied = 0;
    if (is_disabled(graph->model, pass))
        return ATTNRUN_OK;
    attn_status status =
        pass->run != NULL ? pass->run(graph, &applied) : try_nodes(graph, pass, &applied);
    if (status == ATTNRUN_E_UNSUPPORTED && attn_ops_listed)
        graph->model->failed_pass = pass->name;
    TRY(status);
    TRY(attn_poll());
    if (applied == 0)
        return ATTNRUN_OK;
    *changed = true;
    graph->model->applied[index] += applied;
    TRY(attn_graph_order(graph));
    return attn_graph_infer(graph);
}

static attn_status run_passes(struct attn_graph *graph, bool last, bool *changed)
{
    for (int32_t i = 0; i < graph->model->n_passes; i++)
        if (attn_passes[i]->last == last)
            TRY(run_pass(graph, i, changed));
    return ATTNRUN_OK;
}

static attn_status rewrite_inner(struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            if (attn_graph_is_inferred(graph->nodes[n]->graphs[g]))
                TRY(attn_graph_rewrite(graph->nodes[n]->graphs[g]));
    return ATTNRUN_OK;
}

attn_status attn_graph_rewrite(struct attn_graph *graph)
{
    const bool expands = graph->model->origin == NULL;
    bool changed = true, expanded;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        if (expands)
            TRY(attn_graph_expand(graph, &changed));
        TRY(run_passes(graph, false, &changed));
        if (!changed)
            TRY(attn_graph_fold_rest(graph, &changed));
        if (!changed)
            TRY(run_passes(graph, true, &changed));
    }
    if (expands) /* what the last round may have written */
        TRY(attn_graph_expand(graph, &expanded));
    for (int64_t n = 0; n < graph->n_nodes; n++)
        attn_graph_rename(graph, graph->nodes[n]);
    return rewrite_inner(graph);
}
