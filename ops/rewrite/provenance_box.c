/* provenance_box.c - the indices of a ScatterND that replaces a box of its data, as slices are
 * replaced: see provenance_step.h. Index a of the update at (i, j, …) is then a function of one of
 * these, or a number.
 *
 * In: a constant (…, n), or a Concat of columns (…, 1) that are ranges in their axis, which Expand
 * repeats along all others. Cost: one look at each element of the constants; nothing is made. */
#include "provenance_step.h"

/* One index as it lies in a constant: element `from`, and strides along the axes of the updates. */
struct index_column {
    const attnrun_tensor *t;
    int64_t from, stride[MAX_RANK];
};

/* Maps the axes of the input of a Squeeze, Unsqueeze or Reshape to those of its output if the two
 * shapes differ only by axes of 1: axis_of[b] is the output's axis for axis b of the input, -1 for
 * an axis of 1. */
static bool drop_ones(const struct moved_shape *out, const struct moved_shape *s,
                      int axis_of[MAX_RANK])
{
    int a = 0;
    for (int b = 0; b < s->rank; b++) {
        axis_of[b] = -1;
        if (s->dim[b] == 1)
            continue;
        while (a < out->rank && out->dim[a] == 1)
            a++;
        if (a == out->rank || out->dim[a] != s->dim[b])
            return false;
        axis_of[b] = a++;
    }
    while (a < out->rank && out->dim[a] == 1)
        a++;
    return a == out->rank;
}

/* The same for Expand: axis b of the input is axis b + more of the output, or is repeated (-1). */
static bool expand_axes(const struct moved_shape *out, const struct moved_shape *s,
                        int axis_of[MAX_RANK])
{
    const int more = out->rank - s->rank;
    for (int b = 0; b < s->rank && more >= 0; b++)
        axis_of[b] = s->dim[b] == 1 ? -1 : b + more;
    return more >= 0;
}

/* The constant that a column (…, 1) repeats; at[a] is the axis of `value` that axis a of the
 * updates moves along, -1 where it does not move. */
static bool read_column(const struct attn_graph *graph, int32_t value, int rank,
                        struct index_column *column)
{
    struct moved_shape out, s;
    int at[MAX_RANK];
    if (!attn_moved_shape(graph, value, &out))
        return false;
    for (int a = 0; a < rank; a++)
        at[a] = a;
    while (!match_is_constant(graph, value)) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        int axis_of[MAX_RANK];
        if (node == NULL || node->pub.n_in < 1 ||
            !attn_moved_shape(graph, node->in[0], &s))
            return false;
        const bool same = node_is(node, "Unsqueeze") || node_is(node, "Squeeze") ||
                          node_is(node, "Reshape") || node_is(node, "Identity");
        if (!(same ? drop_ones(&out, &s, axis_of)
                   : attn_match_expands(graph, node) && expand_axes(&out, &s, axis_of)))
            return false;
        for (int a = 0; a < rank; a++) {
            int b = 0;
            while (at[a] >= 0 && b < s.rank && axis_of[b] != at[a])
                b++;
            at[a] = at[a] >= 0 && b < s.rank ? b : -1;
        }
        value = node->in[0];
        out = s;
    }
    column->t = &graph->values[value].data;
    column->from = 0;
    for (int a = 0; a < rank; a++)
        column->stride[a] = at[a] < 0 ? 0 : out.stride[at[a]];
    return moved_are_indices(column->t);
}

/* Finds the axis that an index of n moves along, and by how much; false: it moves along two. */
static bool find_axis(const struct index_column *column,
                      const struct moved_shape *updates, int64_t n, struct moved_box *box,
                      int a)
{
    const int64_t first = tensor_get_int(column->t, column->from);
    box->start[a] = first + (first < 0 ? n : 0);
    box->step[a] = box->count[a] = 1;
    box->axis[a] = -1;
    if (first < -n || first >= n)
        return false;
    for (int d = 0; d < updates->rank; d++) {
        if (updates->dim[d] == 1 || column->stride[d] == 0)
            continue;
        const int64_t next = tensor_get_int(column->t, column->from + column->stride[d]);
        if (next == first)
            continue;
        if (box->axis[a] >= 0 || next < first || next >= n)
            return false;
        box->axis[a] = d;
        box->step[a] = next - first;
        box->count[a] = updates->dim[d];
    }
    return box->step[a] <= n / box->count[a] + 1 &&
           box->start[a] + (box->count[a] - 1) * box->step[a] < n;
}

/* Whether all elements of the index are those that its first ones say. */
static bool is_linear(const struct index_column *column,
                      const struct moved_shape *updates, const struct moved_box *box,
                      int a)
{
    const int64_t first = tensor_get_int(column->t, column->from);
    int64_t place[MAX_RANK] = { 0 }, at = column->from;
    for (int d = 0; d >= 0;) {
        const int64_t along = box->axis[a] < 0 ? 0 : place[box->axis[a]];
        if (tensor_get_int(column->t, at) != first + along * box->step[a])
            return false;
        for (d = updates->rank - 1; d >= 0; d--) { /* the next one, over axes that move */
            const int64_t stride = column->stride[d];
            if (stride != 0 && ++place[d] < updates->dim[d]) {
                at += stride;
                break;
            }
            at -= stride != 0 ? (updates->dim[d] - 1) * stride : 0;
            place[d] = 0;
        }
    }
    return true;
}

/* The columns of the indices, one after the other. */
static bool read_columns(const struct attn_graph *graph, int32_t indices,
                         const struct moved_shape *s, struct index_column *columns)
{
    const int rank = s->rank - 1, n = (int)s->dim[rank];
    const struct attn_node *concat = attn_graph_producer(graph, indices);
    if (match_is_constant(graph, indices)) {
        for (int a = 0; a < n; a++) {
            columns[a].t = &graph->values[indices].data;
            columns[a].from = a;
            memcpy(columns[a].stride, s->stride, sizeof s->stride);
        }
        return moved_are_indices(columns[0].t);
    }
    const int64_t axis =
        node_is(concat, "Concat") ? attn_match_int(concat, "axis", 0) : 0;
    if (!node_is(concat, "Concat") || (axis != rank && axis != -1) ||
        concat->pub.n_in != n)
        return false;
    for (int a = 0; a < n; a++)
        if (!read_column(graph, concat->in[a], rank, &columns[a]))
            return false;
    return true;
}

bool attn_moved_read_box(const struct attn_graph *graph, int32_t indices,
                         const struct moved_shape *data, struct moved_box *box)
{
    struct moved_shape s;
    struct index_column columns[MAX_RANK];
    bool taken[MAX_RANK] = { false };
    if (!attn_moved_shape(graph, indices, &s) || s.rank < 1 ||
        s.dim[s.rank - 1] > data->rank || !read_columns(graph, indices, &s, columns))
        return false;
    box->n = (int)s.dim[s.rank - 1];
    s.rank--;
    for (int a = 0; a < box->n; a++) {
        if (!find_axis(&columns[a], &s, data->dim[a], box, a) ||
            !is_linear(&columns[a], &s, box, a) ||
            (box->axis[a] >= 0 && taken[box->axis[a]]))
            return false;
        if (box->axis[a] >= 0)
            taken[box->axis[a]] = true;
    }
    for (int d = 0; d < s.rank; d++)
        if (s.dim[d] > 1 && !taken[d])
            return false;
    return true;
}
