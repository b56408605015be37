/* block_wrap.c - recognizes keys in blocks whose neighbours wrap around the end, as
 * transformers' and lucidrains' Reformer write them. The blocks before the first one are then the
 * last ones.
 *
 *   Concat(Concat(Slice(X, -1:), Slice(X, :-1)), X)     a window of one block before its
 *                                                       own
 *   Concat(X, Concat(Slice(X, -1:), Slice(X, :-1)))     the same in another order
 *
 * In: a value. Out: X, the number of blocks before and behind, and X with those blocks at
 * both ends. The number of blocks must be a constant above the number of each side, or any number
 * with one block to each side. With fewer blocks a rotation would not bring a neighbour to its
 * place. In another order, each block may be there once only. A softmax does not ask for the order
 * of its keys, but its mask does: the keys of each leaf of the mask program come into the order of
 * the window, and a program that counts keys is refused. */
#include "block_window.h"
#include "write_mask.h"

enum { MAX_WINDOW = 64 };

/* Whether a value is blocks from … to - 1 of `source`. Where the number of blocks is a symbol, the
 * bounds are those that the file has. */
static bool is_part(const struct attn_graph *graph, int32_t value,
                    const struct attn_block_window *window, int64_t from, int64_t to)
{
    int64_t first, end;
    const struct attn_node *slice = attn_graph_producer(graph, value);
    const bool read =
        dim_is_const(match_type(graph, window->source)->dims[window->axis])
            ? attn_match_slice(graph, slice, window->axis, &first, &end)
            : attn_match_slice_bounds(graph, slice, window->axis, &first, &end);
    return read && slice->in[0] == window->source && first == from && end == to;
}

static int64_t wrapped_axis(const struct attn_graph *graph,
                            const struct attn_node *concat)
{
    const int64_t axis = attn_match_int(concat, "axis", 0);
    return axis < 0 ? axis + match_type(graph, concat->out[0])->rank : axis;
}

/* Whether block w of `value` is block w + by of `source`, counted around the end. n -1: for any
 * number of blocks, which holds for one block to either side only. */
static bool is_rotated(const struct attn_graph *graph, int32_t value,
                       const struct attn_block_window *window, int64_t n, int64_t by)
{
    const struct attn_node *concat = attn_graph_producer(graph, value);
    const int64_t first = by < 0 && n >= 0 ? n + by : by, end = n < 0 ? INT64_MAX : n;
    return (n >= 0 || by == 1 || by == -1) && node_is(concat, "Concat") &&
           concat->pub.n_in == 2 && wrapped_axis(graph, concat) == window->axis &&
           is_part(graph, concat->in[0], window, first, end) &&
           is_part(graph, concat->in[1], window, 0, first);
}

/* The number of blocks of the source; -1: any. False where it is none. */
static bool read_blocks(const struct attn_graph *graph,
                        const struct attn_block_window *window, int64_t *n)
{
    const attnrun_type *t = match_type(graph, window->source);
    if (t->kind != ATTNRUN_TENSOR || t->rank <= window->axis + 1)
        return false;
    const attnrun_dim dim = t->dims[window->axis];
    *n = dim_is_const(dim) ? dim.value : -1;
    return true;
}

/* Whether the operands are neighbours of operand `own`. */
static bool are_neighbours(const struct attn_graph *graph, const struct attn_node *concat,
                           int own, struct attn_block_window *window)
{
    int64_t n;
    window->source = concat->in[own];
    window->before = own;
    window->after = concat->pub.n_in - 1 - own;
    if (!read_blocks(graph, window, &n) ||
        (n >= 0 && (window->before >= n || window->after >= n)))
        return false;
    for (int k = 0; k < concat->pub.n_in; k++)
        if (k != own && !is_rotated(graph, concat->in[k], window, n, k - own))
            return false;
    return true;
}

/* Finds how many blocks `value` is rotated by: from 0 to n - 1, or for any number of blocks from
 * -1 to 1; false where it is no rotation of `source`. */
static bool read_rotation(const struct attn_graph *graph, int32_t value,
                          const struct attn_block_window *window, int64_t n, int64_t *by)
{
    int64_t first = -1, end;
    const struct attn_node *concat = attn_graph_producer(graph, value);
    *by = 0;
    if (value == window->source)
        return true;
    if (!node_is(concat, "Concat"))
        return false;
    if (n >= 0 && !attn_match_slice(graph, attn_graph_producer(graph, concat->in[0]),
                                    window->axis, &first, &end))
        return false;
    for (*by = n < 0 ? 1 : first; *by >= (n < 0 ? -1 : first); *by -= 2)
        if (is_rotated(graph, value, window, n, *by))
            return true;
    return false;
}

/* Places the operands in a window with `before` blocks; false where two are at one place. */
static bool place_all(const int64_t *rotations, int n_in, int64_t n, int64_t before,
                      int8_t *places)
{
    uint32_t taken = 0;
    for (int k = 0; k < n_in; k++) {
        const int64_t place = n < 0 ? rotations[k] + before : (rotations[k] + before) % n;
        if (place < 0 || place >= n_in || (taken >> place & 1) != 0)
            return false;
        taken |= UINT32_C(1) << place;
        places[k] = (int8_t)place;
    }
    return true;
}

/* Whether the operands are operand `own` and its neighbours, in any order. */
static bool are_reordered(const struct attn_graph *graph, const struct attn_node *concat,
                          int own, struct attn_block_window *window)
{
    int64_t rotations[ATTN_BLOCK_ORDER], n;
    const int n_in = concat->pub.n_in;
    window->source = concat->in[own];
    if (n_in > ATTN_BLOCK_ORDER || !read_blocks(graph, window, &n) ||
        (n >= 0 && n < n_in))
        return false;
    for (int k = 0; k < n_in; k++)
        if (!read_rotation(graph, concat->in[k], window, n, &rotations[k]))
            return false;
    window->reordered = true;
    for (window->before = 0; window->before < n_in; window->before++) {
        window->after = n_in - 1 - window->before;
        if (place_all(rotations, n_in, n, window->before, window->places))
            return true;
    }
    return false;
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
    for (int own = 0; own < concat->pub.n_in; own++)
        if (are_reordered(graph, concat, own, window))
            return true;
    return false;
}

bool attn_block_window_same(const struct attn_block_window *a,
                            const struct attn_block_window *b)
{
    const int64_t n = a->before + 1 + a->after;
    return a->before == b->before && a->after == b->after && a->wraps == b->wraps &&
           a->reordered == b->reordered &&
           (!a->reordered || memcmp(a->places, b->places, (size_t)n) == 0);
}

/* ---- the blocks at both ends ---- */

/* Adds blocks from … to - 1 as an operand of a Concat. */
static attn_status add_part(struct attn_graph *graph, struct attn_node *before,
                            const struct attn_block_window *window, int64_t from,
                            int64_t to, int32_t *part)
{
    int32_t in[4] = { window->source };
    TRY(attn_match_ints(graph, 1, &from, &in[1]));
    TRY(attn_match_ints(graph, 1, &to, &in[2]));
    TRY(attn_match_ints(graph, 1, &(int64_t){ window->axis }, &in[3]));
    return attn_match_add(graph, before, "Slice", 4, in, 0, NULL, part);
}

static attn_status make_padded(struct attn_graph *graph, struct attn_node *before,
                               struct attn_block_window *window)
{
    const struct attn_attr axis = MATCH_INT("axis", window->axis);
    int32_t parts[3], n_parts = 0;
    if (window->before > 0)
        TRY(add_part(graph, before, window, -window->before, INT64_MAX,
                     &parts[n_parts++]));
    parts[n_parts++] = window->source;
    if (window->after > 0)
        TRY(add_part(graph, before, window, 0, window->after, &parts[n_parts++]));
    return attn_match_add(graph, before, "Concat", n_parts, parts, 1, &axis,
                          &window->padded);
}

/* ---- masks of windows in another order ---- */

/* The axis of keys of a leaf; -1: none, or of one element. */
static int key_axis(const struct attn_graph *graph,
                    const struct attn_mask_written *program, int32_t leaf)
{
    const int64_t axis = program->axes[(int64_t)leaf * MASK_AXES + MASK_KEY];
    const attnrun_type *t = match_type(graph, program->leaves[leaf]);
    return axis < 0 || dim_is(t->dims[axis], 1) ? -1 : (int)axis;
}

bool attn_block_wrap_serves(const struct attn_graph *graph,
                            const struct attn_block_window *window,
                            const struct attn_mask_written *program, int64_t chunk)
{
    const int64_t keys = (window->before + 1 + window->after) * chunk;
    for (int32_t k = 0; k < program->n_code && window->reordered; k++)
        if (program->code[(int64_t)k * MASK_WORDS] == MASK_AT_KEY)
            return false;
    for (int32_t leaf = 0; leaf < program->n_leaves && window->reordered; leaf++) {
        const int axis = key_axis(graph, program, leaf);
        if (axis >= 0 &&
            !dim_is(match_type(graph, program->leaves[leaf])->dims[axis], keys))
            return false;
    }
    return true;
}

/* Block `place` of the window, as the leaf has it. */
static attn_status add_block(struct attn_graph *graph, struct attn_node *before,
                             const struct attn_block_window *window, int place,
                             int64_t chunk, int axis, int32_t leaf, int32_t *part)
{
    int k = 0;
    while (window->places[k] != place)
        k++;
    const int64_t from = k * chunk, to = from + chunk;
    int32_t in[4] = { leaf };
    TRY(attn_match_ints(graph, 1, &from, &in[1]));
    TRY(attn_match_ints(graph, 1, &to, &in[2]));
    TRY(attn_match_ints(graph, 1, &(int64_t){ axis }, &in[3]));
    return attn_match_add(graph, before, "Slice", 4, in, 0, NULL, part);
}

static attn_status reorder_leaves(struct attn_graph *graph, struct attn_node *before,
                                  const struct attn_block_window *window,
                                  struct attn_mask_written *program, int64_t chunk)
{
    const int n = (int)(window->before + 1 + window->after);
    for (int32_t leaf = 0; leaf < program->n_leaves; leaf++) {
        int32_t parts[ATTN_BLOCK_ORDER];
        const int axis = key_axis(graph, program, leaf);
        const struct attn_attr attr = MATCH_INT("axis", axis);
        for (int place = 0; place < n && axis >= 0; place++)
            TRY(add_block(graph, before, window, place, chunk, axis,
                          program->leaves[leaf], &parts[place]));
        if (axis >= 0)
            TRY(attn_match_add(graph, before, "Concat", n, parts, 1, &attr,
                               &program->leaves[leaf]));
    }
    return ATTNRUN_OK;
}

attn_status attn_block_wrap_make(struct attn_graph *graph, struct attn_node *before,
                                 struct attn_block_window windows[2],
                                 struct attn_mask_written *program, int64_t chunk)
{
    if (!windows[0].wraps)
        return ATTNRUN_OK;
    for (int i = 0; i < 2; i++)
        TRY(make_padded(graph, before, &windows[i]));
    return windows[0].reordered
               ? reorder_leaves(graph, before, &windows[0], program, chunk)
               : ATTNRUN_OK;
}
