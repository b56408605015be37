/* align.c - aligned copies of constants in mapped files; see align.h.
 *
 * In: a graph and its constants. Out: a copy, in memory of the model, of each one whose
 * address does not fit its elements and that some step reads by elements. */
#include "align.h"

#include "pack.h"
#include "poll.h"

/* Of all types of as many bits: BitCast shows c64 as f64 and i64. */
int64_t attn_dtype_align(int32_t dtype)
{
    switch (dtype) {
    case ATTNRUN_STRING:
    case ATTNRUN_C128:
        return 8;
    default:
        return dtype_bits(dtype) >= 16 ? dtype_bits(dtype) / 8 : 1;
    }
}

bool attn_tensor_is_aligned(const attnrun_tensor *tensor)
{
    return tensor->kind != ATTNRUN_TENSOR || tensor->data == NULL ||
           (uintptr_t)tensor->data % (uintptr_t)attn_dtype_align(tensor->dtype) == 0;
}

attn_status attn_tensor_align(struct attn_pool *pool, attnrun_tensor *tensor)
{
    if (attn_tensor_is_aligned(tensor))
        return ATTNRUN_OK;
    void *data = attn_pool_room(pool, tensor_bytes(tensor) + 1);
    if (data == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_poll_copy(data, tensor->data, tensor_bytes(tensor)));
    tensor->data = data;
    return ATTNRUN_OK;
}

/* The pages of the file that were copied have no reader any more. */
static attn_status align_value(struct attn_graph *graph, int32_t id)
{
    if (id < 0)
        return ATTNRUN_OK;
    const attnrun_tensor before = graph->values[id].data;
    TRY(attn_tensor_align(&graph->model->weights, &graph->values[id].data));
    if (graph->values[id].data.data != before.data)
        attn_files_drop(graph->model->files, &before);
    return ATTNRUN_OK;
}

/* Bit i: a run reads the constant input i at any address, or not at all. */
static uint32_t not_read_by_elements(const struct attn_node *node)
{
    return node->pack_replaces | node->pub.in_place | node->pub.op->unaligned_in;
}

attn_status attn_graph_align(struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        TRY(attn_poll_work(1024));
        int32_t n_in = node->pub.n_in + node->n_captures;
        const uint32_t skip = not_read_by_elements(node);
        for (int32_t i = 0; i < n_in; i++)
            if (i >= 32 || !(skip >> i & 1))
                TRY(align_value(graph, node->in[i]));
    }
    for (int32_t i = 0; i < graph->n_outputs; i++)
        TRY(align_value(graph, graph->outputs[i]));
    return ATTNRUN_OK;
}

static void fill_value(const struct attn_graph *graph, int32_t id, uint8_t *seen,
                       struct attn_pool_fill *fill)
{
    if (id < 0 || seen[id] || attn_tensor_is_aligned(&graph->values[id].data))
        return;
    seen[id] = 1;
    attn_pool_fill_add(fill, tensor_bytes(&graph->values[id].data) + 1);
}

attn_status attn_graph_align_fill(const struct attn_graph *graph,
                                  struct attn_pool *scratch, struct attn_pool_fill *fill)
{
    uint8_t *seen = attn_pool_alloc(scratch, graph->n_values + 1);
    if (seen == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        TRY(attn_poll_work(1024));
        const uint32_t skip = not_read_by_elements(node);
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (i >= 32 || !(skip >> i & 1))
                fill_value(graph, node->in[i], seen, fill);
    }
    for (int32_t i = 0; i < graph->n_outputs; i++)
        fill_value(graph, graph->outputs[i], seen, fill);
    return ATTNRUN_OK;
}
