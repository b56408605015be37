/* expand_node.c - puts formulas in the place of nodes whose rows have expand().
 *
 * In: an inferred and promoted graph. Out: the same without such nodes, inferred again:
 *
 *   x ──SwiGLU──▶ y      becomes      x ──Swish──▶ · ──Mul──▶ y
 *
 * infer() of the row has checked the node before, with the name that the file has for it; nodes
 * of a formula name the operator that they are a part of. This runs behind promotion, which so
 * sees the row (what computes f16 in f32 does so as a whole, rounding once), and before the
 * passes, which fuse the nodes of formulas as they fuse those of files. Formulas may use
 * operators that are formulas. Cost: O(nodes), and infer() for those that are new. */
#include "body.h"
#include "infer.h"
#include "poll.h"
#include "step.h"

enum { MAX_DEPTH = 8 }; /* of formulas in formulas */

static attn_status write_body(struct attnrun_body *body, struct attn_node *node)
{
    struct attn_graph *graph = body->graph;
    struct attn_step *step =
        attn_step_create(body->scratch, graph, node, attn_model_kernels(graph->model));
    if (step == NULL)
        return ATTNRUN_E_MEMORY;
    step->dims = graph->model->dims;
    attn_step_load_inputs(step);
    TRY(attn_step_infer(step));
    const uint64_t errors = attn_error_count();
    TRY(attn_fail_quietly(node->pub.op->expand(&step->pub, body), errors, &node->pub,
                          "expand"));
    if (body->n_nodes > 0 || node->pub.op->run != NULL ||
        step->known_outputs[0].view_of >= 0)
        return ATTNRUN_OK;
    return attn_fail_node(ATTNRUN_E_INTERNAL, &node->pub,
                          "its row has no run(), and expand() wrote nothing");
}

static attn_status expand_node(struct attn_graph *graph, struct attn_node *node,
                               struct attn_pool *scratch, bool *expanded)
{
    struct attnrun_body body;
    TRY(attn_body_begin(&body, graph, node, scratch));
    TRY(write_body(&body, node));
    TRY(attn_body_end(&body));
    if (body.n_nodes == 0)
        return ATTNRUN_OK;
    attn_graph_remove(graph, node);
    *expanded = true;
    return ATTNRUN_OK;
}

/* One formula for each node; the nodes that are written are not inferred yet. */
static attn_status expand_nodes(struct attn_graph *graph, bool *expanded)
{
    const int64_t n_nodes = graph->n_nodes;
    attn_status status = ATTNRUN_OK;
    for (int64_t n = 0; n < n_nodes && status == ATTNRUN_OK; n++) {
        struct attn_node *node = graph->nodes[n];
        struct attn_pool scratch;
        if (node == NULL || node->pub.op == NULL || node->pub.op->expand == NULL)
            continue;
        attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
        status = expand_node(graph, node, &scratch, expanded);
        attn_pool_free(&scratch);
    }
    return status;
}

static bool has_formulas(const struct attn_graph *graph, const struct attn_node **first)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        *first = graph->nodes[n];
        if (*first != NULL && (*first)->pub.op != NULL &&
            (*first)->pub.op->expand != NULL)
            return true;
    }
    return false;
}

attn_status attn_graph_expand(struct attn_graph *graph, bool *changed)
{
    const struct attn_node *first = NULL;
    for (int depth = 0; has_formulas(graph, &first); depth++) {
        bool expanded = false;
        if (depth == MAX_DEPTH)
            return attn_fail_node(ATTNRUN_E_LIMIT, &first->pub,
                                  "formulas are nested more than %d deep", MAX_DEPTH);
        TRY(expand_nodes(graph, &expanded));
        if (!expanded)
            return ATTNRUN_OK;
        *changed = true;
        TRY(attn_graph_order(graph));
        TRY(attn_graph_infer(graph));
    }
    return ATTNRUN_OK;
}
