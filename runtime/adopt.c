/* adopt.c - packed weights that come from a packed file.
 *
 * In: an inferred graph, and the bytes that a node's pack() wrote once. Out: the node uses them
 * where they lie, or E_MODEL. The bytes may be hostile, so what pack() would state for the
 * operands is compared, and the operator looks at what is not a mere number (check_packed() of
 * its row). No weight is read. */
#include "adopt.h"

#include "poll.h"

void attn_pack_fill(const struct attn_graph *graph, const struct attn_node *node,
                    attnrun_type *types, attnrun_tensor *x, attnrun_pack *pack)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const struct attn_value *value =
            node->in[i] >= 0 ? &graph->values[node->in[i]] : NULL;
        types[i] = value != NULL ? value->type : (attnrun_type){ .kind = ATTNRUN_ABSENT };
        x[i] = value != NULL ? value->data : (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
    }
    *pack = (attnrun_pack){ .node = &node->pub,
                            .args = node->pub.args,
                            .n_in = node->pub.n_in,
                            .in = types,
                            .kernels = attn_model_kernels(graph->model),
                            .x = x,
                            .may_stay = graph->outer == NULL &&
                                        (graph->model->flags & ATTNRUN_IN_PLACE) != 0 };
}

attn_status attn_pack_describe(const struct attn_graph *graph,
                               const struct attn_node *node, struct attn_pool *scratch,
                               attnrun_pack *pack)
{
    const int32_t n = node->pub.n_in;
    attnrun_type *types = attn_pool_alloc(scratch, (n + 1) * (int64_t)sizeof *types);
    attnrun_tensor *x = attn_pool_alloc(scratch, (n + 1) * (int64_t)sizeof *x);
    if (!types || !x)
        return ATTNRUN_E_MEMORY;
    attn_pack_fill(graph, node, types, x, pack);
    return ATTNRUN_OK;
}

static attn_status adopt(struct attn_graph *graph, struct attn_node *node,
                         const void *packed, int64_t bytes, struct attn_pool *scratch)
{
    const attnrun_op_def *op = node->pub.op;
    const uint64_t errors = attn_error_count();
    attnrun_pack pack;
    int64_t wanted = 0;
    if (op->pack == NULL || op->check_packed == NULL)
        return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                              "has packed weights that its operator does not take");
    if (node->stale)
        return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                              "has packed weights in a branch that is not inferred");
    TRY(attn_pack_describe(graph, node, scratch, &pack));
    pack.may_stay = 0; /* what is packed is used as it was packed */
    TRY(attn_fail_quietly(op->pack(&pack, &wanted, NULL), errors, &node->pub, "pack"));
    if (wanted <= 0 || wanted != bytes)
        return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                              "has %s of packed weights, expected %lld",
                              attn_plural(bytes, "byte"), (long long)wanted);
    TRY(attn_fail_quietly(op->check_packed(&pack, bytes, packed), errors, &node->pub,
                          "check_packed"));
    node->pub.packed = packed;
    node->packed_bytes = bytes;
    node->pack_replaces = pack.replaces;
    node->adopted = true;
    return ATTNRUN_OK;
}

attn_status attn_node_adopt(struct attn_graph *graph, struct attn_node *node,
                            const void *packed, int64_t bytes)
{
    struct attn_pool scratch;
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = adopt(graph, node, packed, bytes, &scratch);
    attn_pool_free(&scratch);
    return status;
}

static bool is_replaced(const struct attn_use *use)
{
    return use->node != NULL && use->inner == NULL && use->index < 32 &&
           use->node->adopted && (use->node->pack_replaces >> use->index & 1);
}

attn_status attn_graph_check_released(const struct attn_graph *graph)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        const struct attn_value *value = &graph->values[v];
        TRY(attn_poll_work(256));
        if (!(value->flags & ATTN_VALUE_RELEASED))
            continue;
        for (const struct attn_use *use = value->uses; use != NULL; use = use->next)
            if (!is_replaced(use))
                return attn_fail(
                    ATTNRUN_E_MODEL,
                    "the constant '%s' is read, but the file does not hold it",
                    attn_quote(value->name));
    }
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            TRY(attn_graph_check_released(graph->nodes[n]->graphs[g]));
    return ATTNRUN_OK;
}
