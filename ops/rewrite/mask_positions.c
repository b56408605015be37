/* mask_positions.c - follows nodes that move axes, and finds the values of a mask that count
 * positions. In: a value. Out: whether it is made of a Range that counts up by one, with as many
 * elements as there are queries or keys, by elementwise nodes with single numbers and by nodes that
 * move axes. A mask program then holds positions in the place of an input, so that what it shows is
 * known before a run. */
#include "write_mask.h"

enum { MAX_NODES = 8 };

static bool is_one_number(const struct attn_graph *graph, int32_t value)
{
    if (value < 0)
        return false;
    const attnrun_type *t = &graph->values[value].type;
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            return false;
    return t->kind == ATTNRUN_TENSOR && t->rank >= 0;
}

/* The only input that has more elements than one; -1: none, or several. */
static int32_t main_input(const struct attn_graph *graph, const struct attn_node *node,
                          int32_t n_in)
{
    int32_t found = -1;
    for (int32_t i = 0; i < n_in; i++) {
        if (is_one_number(graph, node->in[i]))
            continue;
        if (found >= 0 || node->in[i] < 0)
            return -1;
        found = node->in[i];
    }
    return found;
}

static bool moves_axes(const struct attn_node *node)
{
    return node_is(node, "Unsqueeze") || node_is(node, "Squeeze") ||
           node_is(node, "Reshape") || node_is(node, "Transpose");
}

bool attn_mask_moved_axes(const struct attn_graph *graph, const struct attn_node *node,
                          const int8_t *axes, int8_t *moved)
{
    const attnrun_type *from = &graph->values[node->in[0]].type,
                       *to = &graph->values[node->out[0]].type;
    if (node_is(node, "Transpose")) {
        const struct attn_attr *perm = attn_node_attr(node, "perm");
        if (perm == NULL || perm->kind != ATTN_ATTR_INTS || perm->ints.n != to->rank)
            return false;
        for (int32_t i = 0; i < to->rank; i++)
            moved[perm->ints.v[i]] = axes[i];
        return true;
    }
    if (!moves_axes(node))
        return false;
    /* The dims that are not 1 are the same, in the same order. */
    int32_t i = 0;
    for (int32_t k = 0; k < from->rank; k++) {
        moved[k] = -1;
        if (dim_is(from->dims[k], 1))
            continue;
        while (i < to->rank && dim_is(to->dims[i], 1))
            i++;
        if (i == to->rank || !dim_equal(from->dims[k], to->dims[i]))
            return false;
        moved[k] = axes[i++];
    }
    while (i < to->rank && dim_is(to->dims[i], 1))
        i++;
    return i == to->rank;
}

bool attn_mask_is_range(const struct attn_graph *graph, const struct attn_node *node)
{
    double delta;
    return node_is(node, "Range") && node->pub.n_in == 3 && node->in[0] >= 0 &&
           (graph->values[node->out[0]].type.dtype == ATTNRUN_I64 ||
            graph->values[node->out[0]].type.dtype == ATTNRUN_I32) &&
           attn_value_scalar(graph, node->in[2], &delta) && delta == 1;
}

bool attn_mask_is_positions(const struct attn_graph *graph, int32_t value, attnrun_dim n)
{
    for (int k = 0; k < MAX_NODES && value >= 0; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (node == NULL || node->pub.n_in < 1)
            return false;
        if (attn_mask_is_range(graph, node))
            return dim_equal(graph->values[value].type.dims[0], n);
        if (attn_mask_opcode(graph, node) >= 0)
            value = main_input(graph, node, node->pub.n_in);
        else
            value = moves_axes(node) ? node->in[0] : -1;
    }
    return false;
}
