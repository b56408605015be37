/* block_window.c - recognizes keys in blocks with their neighbours, as exporters write
 * them, on a tensor of blocks that Pad made longer by whole blocks:
 *
 *   Reshape(Gather(Pad(X), [[0, 1, 2], [1, 2, 3], …]))                unfold
 *   Concat(Slice(Pad(X), 0), Slice(Pad(X), 1), Slice(Pad(X), 2))      slices
 *
 * The indexes are constants, which are compared one by one, or Range(blocks) + (0, 1, 2).
 * In: a value. Out: X, the number of blocks before and behind, and the number that Pad
 * writes outside. */
#include "../../runtime/poll.h"
#include "block_window.h"

static bool is_known(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *t = match_type(graph, value);
    return t->kind == ATTNRUN_TENSOR && t->rank >= 2;
}

/* Reads constant pads of whole blocks on only one axis. */
static bool read_pad(const struct attn_graph *graph, const struct attn_node *pad,
                     struct attn_block_window *window)
{
    const struct attn_attr *mode = attn_node_attr(pad, "mode");
    window->pad = 0;
    if (!node_is(pad, "Pad") || pad->pub.opset < 11 || pad->pub.n_in < 2 ||
        !match_is_constant(graph, pad->in[1]) || !is_known(graph, pad->in[0]) ||
        (mode != NULL && !attn_match_string(pad, "mode", "constant")) ||
        (pad->pub.n_in > 2 && pad->in[2] >= 0 &&
         !attn_value_scalar(graph, pad->in[2], &window->pad)) ||
        (pad->pub.n_in > 3 && pad->in[3] >= 0))
        return false;
    const attnrun_tensor *t = &graph->values[pad->in[1]].data;
    const int rank = match_type(graph, pad->in[0])->rank;
    window->source = pad->in[0];
    window->padded = pad->out[0];
    if (t->dtype != ATTNRUN_I64 || tensor_count(t) != 2 * (int64_t)rank)
        return false;
    for (int i = 0; i < rank; i++) {
        const int64_t before = tensor_get_int(t, i), after = tensor_get_int(t, i + rank);
        if (i != window->axis && (before != 0 || after != 0))
            return false;
        if (i == window->axis) {
            window->before = before;
            window->after = after;
        }
    }
    return window->before >= 0 && window->after >= 0 && window->before < 1024 &&
           window->after < 1024;
}

/* ---- unfold ---- */

/* Whether a value is 0, 1, 2, … along the last of the axes, and the other axes are 1. */
static bool counts_up(const struct attn_graph *graph, int32_t value, int64_t n)
{
    if (!match_is_constant(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    bool right = t->dtype == ATTNRUN_I64 && tensor_count(t) == n && t->rank > 0 &&
                 t->dims[t->rank - 1] == n;
    for (int64_t i = 0; i < n && right; i++)
        right = tensor_get_int(t, i) == i;
    return right;
}

/* Whether a value is Unsqueeze(Range(0, …, 1), 1), with as many numbers as blocks. */
static bool is_range(const struct attn_graph *graph, int32_t value)
{
    double first = 1, step = 0;
    const struct attn_node *column = attn_graph_producer(graph, value);
    const attnrun_type *t = match_type(graph, value);
    if (!node_is(column, "Unsqueeze") || t->rank != 2 || !dim_is(t->dims[1], 1))
        return false;
    const struct attn_node *range = attn_match_in(graph, column, 0, "Range");
    return range != NULL && attn_value_scalar(graph, range->in[0], &first) &&
           attn_value_scalar(graph, range->in[2], &step) && first >= 0 && first <= 0 &&
           step >= 1 && step <= 1;
}

/* Whether a value is indexes (blocks, n) that are block + k. */
static bool are_neighbours(const struct attn_graph *graph, int32_t value, int64_t n)
{
    const attnrun_type *t = match_type(graph, value);
    if (t->rank != 2 || !dim_is(t->dims[1], n) || t->dtype != ATTNRUN_I64)
        return false;
    if (!match_is_constant(graph, value)) {
        const struct attn_node *add = attn_graph_producer(graph, value);
        if (!node_is(add, "Add"))
            return false;
        for (int side = 0; side < 2; side++)
            if (is_range(graph, add->in[side]) && counts_up(graph, add->in[1 - side], n))
                return true;
        return false;
    }
    const attnrun_tensor *index = &graph->values[value].data;
    for (int64_t w = 0; w < index->dims[0] && !attn_stops_node(w); w++)
        for (int64_t k = 0; k < n; k++)
            if (tensor_get_int(index, w * n + k) != w + k)
                return false;
    return true;
}

/* Stores the axes of `t` that are not 1, except `apart` (-1: none), in `dims`; returns
 * their number. */
static int squeezed(const attnrun_type *t, int apart, attnrun_dim *dims)
{
    int n = 0;
    for (int i = 0; i < t->rank; i++)
        if (i != apart && !dim_is(t->dims[i], 1))
            dims[n++] = t->dims[i];
    return n;
}

/* `value` has the axes of the gathered one, with axis + 1 and axis + 2 in one. Both hold
 * the same number of elements in the same order, so nothing else must be checked. */
static bool joins_blocks(const struct attn_graph *graph, int32_t value, int32_t gathered,
                         int axis)
{
    const attnrun_type *v = match_type(graph, value), *g = match_type(graph, gathered);
    attnrun_dim a[ATTNRUN_MAX_RANK], b[ATTNRUN_MAX_RANK];
    const int n = squeezed(v, -1, a), m = squeezed(g, -1, b);
    int joined = 0;
    for (int i = 0; i <= axis; i++)
        joined += !dim_is(g->dims[i], 1);
    if (n + 1 != m || dim_is(g->dims[axis + 1], 1) || dim_is(g->dims[axis + 2], 1))
        return false;
    for (int i = 0; i < n; i++)
        if (i != joined && !dim_equal(a[i], b[i < joined ? i : i + 1]))
            return false;
    return true;
}

static bool read_unfold(const struct attn_graph *graph, int32_t value,
                        struct attn_block_window *window)
{
    const struct attn_node *reshape = attn_graph_producer(graph, value);
    if (!node_is(reshape, "Reshape"))
        return false;
    const struct attn_node *gather = attn_match_in(graph, reshape, 0, "Gather");
    const struct attn_node *pad = gather ? attn_match_in(graph, gather, 0, "Pad") : NULL;
    if (pad == NULL || !is_known(graph, pad->in[0]) || !is_known(graph, gather->out[0]))
        return false;
    const int rank = match_type(graph, pad->in[0])->rank;
    const int64_t axis = attn_match_int(gather, "axis", 0);
    window->axis = (int)(axis < 0 ? axis + rank : axis);
    if (window->axis < 0 || window->axis + 1 >= rank || !read_pad(graph, pad, window) ||
        !are_neighbours(graph, gather->in[1], window->before + 1 + window->after))
        return false;
    const attnrun_type *g = match_type(graph, gather->out[0]);
    return g->rank == rank + 1 &&
           dim_equal(g->dims[window->axis],
                     match_type(graph, window->source)->dims[window->axis]) &&
           joins_blocks(graph, value, gather->out[0], window->axis);
}

/* ---- slices ---- */

static bool has_number(const struct attn_graph *graph, int32_t value, int64_t x)
{
    if (!match_is_constant(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    return tensor_count(t) == 1 && tensor_get_int(t, 0) == x;
}

/* Whether a value is block k of all windows: from block k on of the padded ones, as many
 * as there are blocks. */
static bool is_slice(const struct attn_graph *graph, const struct attn_node *slice,
                     const struct attn_block_window *window, int64_t k)
{
    const int rank = match_type(graph, window->source)->rank;
    if (slice->pub.n_in < 4 ||
        (!has_number(graph, slice->in[3], window->axis) &&
         !has_number(graph, slice->in[3], window->axis - rank)) ||
        (slice->pub.n_in > 4 && slice->in[4] >= 0 &&
         !has_number(graph, slice->in[4], 1)) ||
        !has_number(graph, slice->in[1], k))
        return false;
    return attn_match_same_shape(graph, slice->out[0], window->source);
}

static bool read_slices(const struct attn_graph *graph, int32_t value,
                        struct attn_block_window *window)
{
    const struct attn_node *concat = attn_graph_producer(graph, value);
    if (!node_is(concat, "Concat") || concat->pub.n_in < 1 || !is_known(graph, value))
        return false;
    const int64_t axis = attn_match_int(concat, "axis", 0);
    const struct attn_node *first = attn_match_in(graph, concat, 0, "Slice");
    const struct attn_node *pad = first ? attn_match_in(graph, first, 0, "Pad") : NULL;
    window->axis = (int)(axis < 0 ? axis + match_type(graph, value)->rank : axis) - 1;
    if (pad == NULL || window->axis < 0 || !read_pad(graph, pad, window) ||
        concat->pub.n_in != window->before + 1 + window->after)
        return false;
    for (int k = 0; k < concat->pub.n_in; k++) {
        const struct attn_node *slice = attn_match_in(graph, concat, k, "Slice");
        if (slice == NULL || slice->in[0] != pad->out[0] ||
            !is_slice(graph, slice, window, k))
            return false;
    }
    return true;
}

bool attn_block_window_read(const struct attn_graph *graph, int32_t value,
                            struct attn_block_window *window)
{
    window->wraps = false;
    return read_unfold(graph, value, window) || read_slices(graph, value, window);
}
