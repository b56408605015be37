/* block_wrap.c - recognizes keys in blocks whose neighbours wrap around the end, as
 * transformers' Reformer writes them. The blocks before the first one are then the last
 * ones.
 *
 *   Concat(Concat(Slice(X, -1:), Slice(X, :-1)), X)     a window of one block before its
 *                                                       own
 *
 * In: a value. Out: X, the number of blocks before and behind, and X with those blocks at
 * both ends. The number of blocks must be a constant above the number of each side. With
 * fewer blocks a rotation would not bring a neighbour to its place. */
#include "block_window.h"

enum { MAX_WINDOW = 64 };

/* Whether a value is blocks from … to - 1 of `source`. */
static bool is_part(const struct attn_graph *graph, int32_t value,
                    const struct attn_block_window *window, int64_t from, int64_t to)
{
    int64_t first, end;
    const struct attn_node *slice = attn_graph_producer(graph, value);
    return attn_match_slice(graph, slice, window->axis, &first, &end) &&
           slice->in[0] == window->source && first == from && end == to;
}

static int64_t wrapped_axis(const struct attn_graph *graph,
                            const struct attn_node *concat)
{
    const int64_t axis = attn_match_int(concat, "axis", 0);
    return axis < 0 ? axis + match_type(graph, concat->out[0])->rank : axis;
}

/* Whether block w of `value` is block w + by of `source`, counted around the end. */
static bool is_rotated(const struct attn_graph *graph, int32_t value,
                       const struct attn_block_window *window, int64_t n, int64_t by)
{
    const struct attn_node *concat = attn_graph_producer(graph, value);
    const int64_t first = by < 0 ? n + by : by;
    return node_is(concat, "Concat") && concat->pub.n_in == 2 &&
           wrapped_axis(graph, concat) == window->axis &&
           is_part(graph, concat->in[0], window, first, n) &&
           is_part(graph, concat->in[1], window, 0, first);
}

/* Whether the operands are neighbours of operand `own`. */
static bool are_neighbours(const struct attn_graph *graph, const struct attn_node *concat,
                           int own, struct attn_block_window *window)
{
    window->source = concat->in[own];
    window->before = own;
    window->after = concat->pub.n_in - 1 - own;
    const attnrun_type *t = match_type(graph, window->source);
    if (t->kind != ATTNRUN_TENSOR || t->rank <= window->axis + 1 ||
        !dim_is_const(t->dims[window->axis]))
        return false;
    const int64_t n = t->dims[window->axis].value;
    if (window->before >= n || window->after >= n)
        return false;
    for (int k = 0; k < concat->pub.n_in; k++)
        if (k != own && !is_rotated(graph, concat->in[k], window, n, k - own))
            return false;
    return true;
}

bool attn_block_wrap_read(const struct attn_graph *graph, int32_t value,
                          struct attn_block_window *window)
{
    const struct attn_node *concat = attn_graph_producer(graph, value);
    if (!node_is(concat, "Concat") || concat->pub.n_in < 2 ||
        concat->pub.n_in > MAX_WINDOW || match_type(graph, value)->rank < 2 ||
        wrapped_axis(graph, concat) < 1)
        return false;
    *window = (struct attn_block_window){ .padded = -1,
                                          .axis = (int)wrapped_axis(graph, concat) - 1,
                                          .wraps = true };
    for (int own = 0; own < concat->pub.n_in; own++)
        if (are_neighbours(graph, concat, own, window))
            return true;
    return false;
}

/* ---- the blocks at both ends ---- */

/* Adds blocks from … to - 1 as an operand of a Concat; nothing where there are none. */
static attn_status add_part(struct attn_graph *graph, struct attn_node *before,
                            const struct attn_block_window *window, int64_t from,
                            int64_t to, int32_t *parts, int32_t *n_parts)
{
    int32_t in[4] = { window->source };
    if (from == to)
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, 1, &from, &in[1]));
    TRY(attn_match_ints(graph, 1, &to, &in[2]));
    TRY(attn_match_ints(graph, 1, &(int64_t){ window->axis }, &in[3]));
    TRY(attn_match_add(graph, before, "Slice", 4, in, 0, NULL, &parts[*n_parts]));
    ++*n_parts;
    return ATTNRUN_OK;
}

attn_status attn_block_wrap_make(struct attn_graph *graph, struct attn_node *before,
                                 struct attn_block_window *window)
{
    const int64_t n = match_type(graph, window->source)->dims[window->axis].value;
    const struct attn_attr axis = MATCH_INT("axis", window->axis);
    int32_t parts[3], n_parts = 0;
    TRY(add_part(graph, before, window, n - window->before, n, parts, &n_parts));
    parts[n_parts++] = window->source;
    TRY(add_part(graph, before, window, 0, window->after, parts, &n_parts));
    return attn_match_add(graph, before, "Concat", n_parts, parts, 1, &axis,
                          &window->padded);
}
