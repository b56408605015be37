/* whole_scatter.c - finds a ScatterND that writes each element of its data once, in order, as
 * TorchScript's exporter writes x[:, :, 0:, 0:] = y: the result is what it writes.
 *
 * In: a ScatterND. Its indices are a constant, or a Concat of columns (d0, d1, …, 1) that each
 * count the places along one axis of the data and are repeated along the others. Out: whether they
 * are. Cost: one look at each element of the constants. */
#include "../../runtime/meter.h"
#include "match.h"

enum { MAX_VIEWS = 8 };

static bool is_view(const struct attn_node *node)
{
    return node_is(node, "Reshape") || node_is(node, "Unsqueeze") ||
           node_is(node, "Squeeze") || node_is(node, "Identity");
}

static bool is_integers(const attnrun_type *t)
{
    return t->kind == ATTNRUN_TENSOR && t->rank >= 0 &&
           (t->dtype == ATTNRUN_I64 || t->dtype == ATTNRUN_I32);
}

/* The numbers 0, 1, … n - 1, in whatever shape. */
static bool counts_up(const struct attn_graph *graph, int32_t value, attnrun_dim n)
{
    for (int k = 0; k < MAX_VIEWS; k++) {
        double first, step;
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (!is_integers(match_type(graph, value)))
            return false;
        if (match_is_constant(graph, value)) {
            const attnrun_tensor *t = &graph->values[value].data;
            const int64_t count = tensor_count(t);
            for (int64_t i = 0; i < count; i++)
                if (attn_stops(i) || tensor_get_int(t, i) != i)
                    return false;
            return dim_is(n, count);
        }
        if (node_is(node, "Range"))
            return attn_value_scalar(graph, node->in[0], &first) && first == 0 &&
                   attn_value_scalar(graph, node->in[2], &step) && step == 1 &&
                   dim_equal(match_type(graph, value)->dims[0], n);
        if (!is_view(node))
            return false;
        value = node->in[0];
    }
    return false;
}

/* The indices (d0, d1, …, 1) of axis `axis`. */
static bool is_place_along(const struct attn_graph *graph, int32_t value, int axis,
                           const attnrun_type *data)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    while (is_view(node) && match_type(graph, value)->rank != data->rank) {
        value = node->in[0];
        node = attn_graph_producer(graph, value);
    }
    const attnrun_type *t = match_type(graph, value);
    if (t->rank != data->rank)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (!dim_equal(t->dims[i], data->dims[i]))
            return false;
    if (attn_match_expands(graph, node))
        value = node->in[0];
    t = match_type(graph, value);
    const int more = data->rank - t->rank;
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1) && i + more != axis)
            return false;
    return counts_up(graph, value, data->dims[axis]);
}

static bool lists_all(const attnrun_tensor *indices, const attnrun_type *data)
{
    int64_t place[ATTNRUN_MAX_RANK] = { 0 };
    const int64_t n = tensor_count(indices);
    const int rank = data->rank;
    for (int64_t i = 0; i < n; i += rank) {
        for (int a = 0; a < rank; a++)
            if (attn_stops(i + a) || tensor_get_int(indices, i + a) != place[a])
                return false;
        for (int a = rank - 1; a >= 0 && ++place[a] == data->dims[a].value; a--)
            place[a] = 0;
    }
    return true;
}

bool attn_match_scatters_all(const struct attn_graph *graph, const struct attn_node *node)
{
    const attnrun_type *data = match_type(graph, node->in[0]),
                       *t = match_type(graph, node->in[1]);
    const struct attn_node *concat = attn_graph_producer(graph, node->in[1]);
    const int rank = data->rank;
    const bool adds = attn_node_attr(node, "reduction") != NULL &&
                      !attn_match_string(node, "reduction", "none");
    if (adds || !attn_match_same_shape(graph, node->in[2], node->out[0]) ||
        data->kind != ATTNRUN_TENSOR || rank < 1 || t->rank != rank + 1 ||
        !is_integers(t) || !dim_is(t->dims[rank], rank))
        return false;
    for (int a = 0; a < rank; a++)
        if (!dim_equal(t->dims[a], data->dims[a]))
            return false;
    if (match_is_constant(graph, node->in[1]))
        return lists_all(&graph->values[node->in[1]].data, data);
    const int64_t axis =
        node_is(concat, "Concat") ? attn_match_int(concat, "axis", 0) : 0;
    if (!node_is(concat, "Concat") || concat->pub.n_in != rank ||
        (axis != rank && axis != -1))
        return false;
    for (int a = 0; a < rank; a++)
        if (!is_place_along(graph, concat->in[a], a, data))
            return false;
    return true;
}
