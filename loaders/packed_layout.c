/* packed_layout.c - what goes into a packed file, and where.
 *
 * In: a model whose weights are packed. Out: the numbers of graphs and of values that anything
 * refers to, and the regions of the data: constants that somebody still reads, tensors of
 * attributes, packed weights. Constants that lie over each other (views, copies by Identity)
 * are one region. */
#include <stdlib.h>

#include "../runtime/poll.h"
#include "packed_format.h"

/* ---- graphs, those around before those within ---- */

static attn_status add_graph(struct attn_packed_writer *writer, struct attn_graph *graph)
{
    if (writer->n_graphs == writer->graphs_capacity)
        TRY(attn_pool_grow(&writer->pool, (void **)&writer->graphs,
                           &writer->graphs_capacity, writer->n_graphs,
                           (int64_t)sizeof(void *)));
    writer->graphs[writer->n_graphs++] = graph;
    return ATTNRUN_OK;
}

static attn_status list_graphs(struct attn_packed_writer *writer)
{
    TRY(add_graph(writer, writer->model->graph));
    for (int64_t g = 0; g < writer->n_graphs; g++) {
        const struct attn_graph *graph = writer->graphs[g];
        for (int64_t n = 0; n < graph->n_nodes; n++)
            for (int32_t i = 0; i < graph->nodes[n]->n_graphs; i++)
                TRY(add_graph(writer, graph->nodes[n]->graphs[i]));
    }
    return ATTNRUN_OK;
}

/* ---- values ---- */

static void number_all(int32_t *ids, const int32_t *used, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (used[i] >= 0)
            ids[used[i]] = 0;
}

/* Values in their order, without those that nothing refers to any more. */
static attn_status number_values(struct attn_packed_writer *writer, int64_t g)
{
    const struct attn_graph *graph = writer->graphs[g];
    int32_t *ids =
        attn_pool_alloc(&writer->pool, (graph->n_values + 1) * (int64_t)sizeof *ids);
    int32_t number = 0;
    if (ids == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < graph->n_values; v++)
        ids[v] = graph->values[v].flags & ATTN_VALUE_CAPTURE ? 0 : -1;
    number_all(ids, graph->inputs, graph->n_inputs);
    number_all(ids, graph->outputs, graph->n_outputs);
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        number_all(ids, node->in, node->pub.n_in + node->n_captures);
        number_all(ids, node->out, node->pub.n_out);
    }
    for (int64_t v = 0; v < graph->n_values; v++)
        if (ids[v] == 0)
            ids[v] = number++;
    writer->ids[g] = ids;
    return ATTNRUN_OK;
}

/* ---- regions ---- */

static attn_status add_region(struct attn_packed_writer *writer, const void *start,
                              int64_t bytes)
{
    if (bytes <= 0)
        return ATTNRUN_OK;
    if (writer->n_regions == writer->regions_capacity)
        TRY(attn_pool_grow(&writer->pool, (void **)&writer->regions,
                           &writer->regions_capacity, writer->n_regions,
                           (int64_t)sizeof *writer->regions));
    writer->regions[writer->n_regions] = (struct attn_packed_region){
        .start = start, .bytes = bytes, .offset = writer->n_regions
    };
    writer->n_regions++;
    return ATTNRUN_OK;
}

static attn_status add_tensor(struct attn_packed_writer *writer,
                              const attnrun_tensor *tensor, const char *name)
{
    if (tensor->kind != ATTNRUN_TENSOR ||
        (dtype_bits(tensor->dtype) >= 8 && !tensor_is_dense(tensor)))
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the constant '%s' is not a dense tensor, and cannot be written",
                         attn_quote(name));
    if (tensor->dtype == ATTNRUN_STRING)
        return ATTNRUN_OK; /* its texts are in the graph part */
    return add_region(writer, tensor->data, tensor_bytes(tensor));
}

bool attn_packed_is_constant(const struct attn_value *value)
{
    return value->data.data != NULL && !(value->flags & ATTN_VALUE_CAPTURE) &&
           value->uses != NULL && value->producer < 0;
}

bool attn_packed_is_read(const struct attn_value *value)
{
    for (const struct attn_use *use = value->uses; use != NULL; use = use->next) {
        const struct attn_node *node = use->node;
        const bool replaced = node != NULL && use->inner == NULL && use->index < 32 &&
                              node->pub.packed != NULL &&
                              node->pub.op->check_packed != NULL &&
                              (node->pack_replaces >> use->index & 1);
        if (!replaced)
            return true;
    }
    return false;
}

static attn_status add_constant(struct attn_packed_writer *writer,
                                const struct attn_value *value)
{
    if (!attn_packed_is_constant(value))
        return ATTNRUN_OK;
    if (!attn_packed_is_read(value)) {
        const int64_t bytes = tensor_bytes(&value->data);
        if (bytes > writer->released_bytes)
            writer->released_bytes = bytes;
        return ATTNRUN_OK;
    }
    if (value->flags & ATTN_VALUE_RELEASED)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the constant '%s' was released when a registered operator "
                         "packed it, and its row has no check_packed()",
                         attn_quote(value->name));
    return add_tensor(writer, &value->data, value->name);
}

static attn_status packed_add_node(struct attn_packed_writer *writer,
                                   const struct attn_node *node)
{
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].tensor.kind != ATTNRUN_ABSENT)
            TRY(add_tensor(writer, &node->attrs[i].tensor, node->attrs[i].name));
    if (node->pub.packed != NULL && node->pub.op->check_packed != NULL)
        TRY(add_region(writer, node->pub.packed, node->packed_bytes));
    return attn_poll_work(1024);
}

static int by_start(const void *a, const void *b)
{
    const struct attn_packed_region *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_offset(const void *a, const void *b)
{
    const struct attn_packed_region *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void sort_regions(struct attn_packed_writer *writer,
                         int (*by)(const void *, const void *))
{
    if (writer->n_regions > 0)
        qsort(writer->regions, (size_t)writer->n_regions, sizeof *writer->regions, by);
}

void attn_packed_order_data(struct attn_packed_writer *writer)
{
    sort_regions(writer, by_offset);
}

/* Regions that share bytes become one; each begins at a multiple of 64. They are placed in the
 * order in which they were added, so that the file does not depend on addresses. */
static attn_status place_regions(struct attn_packed_writer *writer)
{
    int64_t n = 0;
    sort_regions(writer, by_start);
    for (int64_t i = 0; i < writer->n_regions; i++) {
        const struct attn_packed_region region = writer->regions[i];
        struct attn_packed_region *last = n > 0 ? &writer->regions[n - 1] : NULL;
        if (last == NULL || region.start >= last->start + last->bytes)
            writer->regions[n++] = region;
        else {
            last->bytes = max64(last->bytes, region.start + region.bytes - last->start);
            last->offset = min64(last->offset, region.offset);
        }
    }
    writer->n_regions = n;
    attn_packed_order_data(writer);
    for (int64_t i = 0; i < n; i++) {
        writer->regions[i].offset = writer->data_bytes;
        if (!ck_add(writer->data_bytes, writer->regions[i].bytes, &writer->data_bytes) ||
            !ck_align(writer->data_bytes, PACKED_ALIGN, &writer->data_bytes))
            return attn_fail(ATTNRUN_E_LIMIT,
                             "the constants need more than 2^63 - 1 bytes");
    }
    sort_regions(writer, by_start);
    return ATTNRUN_OK;
}

int64_t attn_packed_offset(const struct attn_packed_writer *writer, const void *start)
{
    int64_t low = 0,
            high = writer->n_regions; /* the last that does not begin behind it */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (writer->regions[middle].start <= (const char *)start)
            low = middle;
        else
            high = middle;
    }
    if (writer->n_regions == 0)
        return 0; /* of no bytes */
    const struct attn_packed_region *region = &writer->regions[low];
    const char *at = start;
    if (at < region->start || at >= region->start + region->bytes)
        return 0;
    return region->offset + (at - region->start);
}

attn_status attn_packed_lay_out(struct attn_packed_writer *writer)
{
    TRY(list_graphs(writer));
    writer->ids =
        attn_pool_alloc(&writer->pool, writer->n_graphs * (int64_t)sizeof *writer->ids);
    if (writer->ids == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t g = 0; g < writer->n_graphs; g++) {
        const struct attn_graph *graph = writer->graphs[g];
        TRY(number_values(writer, g));
        for (int64_t v = 0; v < graph->n_values; v++)
            if (writer->ids[g][v] >= 0)
                TRY(add_constant(writer, &graph->values[v]));
        for (int64_t n = 0; n < graph->n_nodes; n++)
            TRY(packed_add_node(writer, graph->nodes[n]));
    }
    TRY(place_regions(writer));
    if (writer->released_bytes / PACKED_MAX_SHRINK > writer->data_bytes)
        return attn_fail(
            ATTNRUN_E_UNSUPPORTED,
            "a constant of %lld bytes is packed to less than 1 / %d of them, "
            "which packed files do not allow",
            (long long)writer->released_bytes, PACKED_MAX_SHRINK);
    return ATTNRUN_OK;
}
