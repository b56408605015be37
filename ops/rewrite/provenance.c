/* provenance.c - where the elements of a value come from: see provenance.h.
 *
 * A node is asked for the longest part of a grid, from its first element on, that is one grid of
 * one input. What is left is asked again, so that a part never depends on where another one ends.
 */
#include "../../runtime/poll.h"
#include "provenance_step.h"

/* A part has this many elements at most, so that a call is stopped in time and rows of parts nest
 * no deeper than nodes do. */
enum { MAX_DEPTH = 400, PART_ELEMENTS = 1 << 16, PER_UNIT = 64 };

void attn_moved_strides(struct moved_shape *s)
{
    int64_t stride = 1;
    for (int a = s->rank - 1; a >= 0; a--) {
        s->stride[a] = stride;
        stride *= s->dim[a];
    }
}

bool attn_moved_shape(const struct attn_graph *graph, int32_t value,
                      struct moved_shape *s)
{
    const attnrun_type *t = match_type(graph, value);
    if (t->kind != ATTNRUN_TENSOR || t->rank < 0)
        return false;
    s->rank = t->rank;
    for (int a = 0; a < s->rank; a++) {
        if (!dim_is_const(t->dims[a]) || t->dims[a].value < 1)
            return false;
        s->dim[a] = t->dims[a].value;
    }
    attn_moved_strides(s);
    return true;
}

bool attn_provenance_is_static(const struct attn_graph *graph, int32_t value)
{
    struct moved_shape s;
    return value >= 0 && match_type(graph, value)->dtype == ATTNRUN_F32 &&
           attn_moved_shape(graph, value, &s);
}

/* The axis with the largest stride that divides the step; of equal strides the one that is not
 * 1. */
static int axis_of(const struct moved_shape *s, int64_t step)
{
    int found = -1;
    for (int a = 0; a < s->rank; a++)
        if (s->stride[a] <= step && step % s->stride[a] == 0 &&
            (found < 0 || (s->stride[a] == s->stride[found] && s->dim[found] == 1)))
            found = a;
    return found;
}

bool attn_moved_place(const struct moved_shape *s, const struct attn_grid *g,
                      struct moved_place *at)
{
    int64_t left = g->from;
    for (int a = 0; a < s->rank; a++) {
        at->index[a] = left / s->stride[a];
        left %= s->stride[a];
    }
    for (int d = 0; d < 2; d++) {
        at->count[d] = g->count[d];
        at->axis[d] = -1;
        at->by[d] = 0;
        if (g->count[d] == 1 || g->step[d] == 0)
            continue;
        const int a = g->step[d] > 0 ? axis_of(s, g->step[d]) : -1;
        if (a < 0)
            return false;
        at->axis[d] = a;
        at->by[d] = g->step[d] / s->stride[a];
        at->count[d] =
            moved_min(g->count[d], (s->dim[a] - 1 - at->index[a]) / at->by[d] + 1);
    }
    if (at->axis[1] >= 0 && at->axis[1] == at->axis[0])
        at->count[1] = 1;
    return true;
}

/* The part of a place that lies in an input whose strides are `stride`, one for each axis of the
 * output. */
void attn_moved_take(struct attn_grid_part *part, const struct moved_place *at, int rank,
                     const int64_t *stride)
{
    part->grid.from = 0;
    for (int a = 0; a < rank; a++)
        part->grid.from += at->index[a] * stride[a];
    for (int d = 0; d < 2; d++)
        part->grid.step[d] = at->axis[d] >= 0 ? at->by[d] * stride[at->axis[d]] : 0;
}

/* ---- nodes ---- */

bool attn_moved_source(struct moved_question *q, int in, struct moved_shape *s)
{
    q->part->value = in < q->node->pub.n_in ? q->node->in[in] : -1;
    return q->part->value >= 0 && attn_moved_shape(q->p->graph, q->part->value, s);
}

static bool through_transpose(struct moved_question *q)
{
    struct moved_shape s;
    int64_t stride[MAX_RANK];
    const struct attn_attr *perm = attn_node_attr(q->node, "perm");
    if (!attn_moved_source(q, 0, &s))
        return false;
    for (int a = 0; a < s.rank; a++) {
        const int64_t from = perm != NULL ? perm->ints.v[a] : s.rank - 1 - a;
        if (from < 0 || from >= s.rank)
            return false;
        stride[a] = s.stride[from];
    }
    attn_moved_take(q->part, &q->at, s.rank, stride);
    return true;
}

/* Numbers of a constant of integers; false where it is none. */
static bool read_ints(const struct moved_question *q, int in, int64_t n, int64_t *numbers)
{
    if (in >= q->node->pub.n_in || !match_is_constant(q->p->graph, q->node->in[in]))
        return false;
    const attnrun_tensor *t = &q->p->graph->values[q->node->in[in]].data;
    if (!moved_are_indices(t) || tensor_count(t) != n)
        return false;
    for (int64_t i = 0; i < n; i++)
        numbers[i] = tensor_get_int(t, i);
    return true;
}

static bool through_slice(struct moved_question *q)
{
    struct moved_shape s;
    int64_t starts[MAX_RANK], axes[MAX_RANK], steps[MAX_RANK], stride[MAX_RANK];
    if (q->node->pub.opset < 10 || !attn_moved_source(q, 0, &s) ||
        !moved_has(q->node, 1) || !match_is_constant(q->p->graph, q->node->in[1]))
        return false;
    const int64_t n = tensor_count(&q->p->graph->values[q->node->in[1]].data);
    if (n > s.rank || !read_ints(q, 1, n, starts))
        return false;
    for (int a = 0; a < s.rank; a++) {
        axes[a] = a;
        steps[a] = 1;
        stride[a] = s.stride[a];
    }
    if ((moved_has(q->node, 3) && !read_ints(q, 3, n, axes)) ||
        (moved_has(q->node, 4) && !read_ints(q, 4, n, steps)))
        return false;
    struct moved_place at = q->at;
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = axes[i] < 0 ? axes[i] + s.rank : axes[i];
        if (a < 0 || a >= s.rank || steps[i] < 1)
            return false;
        const int64_t start = starts[i] < 0 ? starts[i] + s.dim[a] : starts[i];
        at.index[a] = moved_min(start < 0 ? 0 : start, s.dim[a]) + at.index[a] * steps[i];
        for (int d = 0; d < 2; d++)
            at.by[d] *= at.axis[d] == a ? steps[i] : 1;
    }
    attn_moved_take(q->part, &at, s.rank, stride);
    return true;
}

enum { MAX_TERMS = 4 };

/* The indices of a Gather: a constant, or a sum of constants that are broadcast, which loading does
 * not compute where it is large. Of each: the first element, and the steps of both directions. */
struct index_terms {
    int n;
    const attnrun_tensor *t[MAX_TERMS];
    int64_t at[MAX_TERMS], step[MAX_TERMS][2];
};

static bool read_term(const struct moved_question *q, int32_t value,
                      const struct moved_shape *x, int axis, struct index_terms *terms)
{
    const struct attn_graph *graph = q->p->graph;
    struct moved_shape s;
    const attnrun_tensor *t = &graph->values[value].data;
    if (!match_is_constant(graph, value) || !attn_moved_shape(graph, value, &s) ||
        s.rank > x->rank || !moved_are_indices(t))
        return false;
    const int more = x->rank - s.rank, k = terms->n++;
    terms->t[k] = t;
    terms->at[k] = terms->step[k][0] = terms->step[k][1] = 0;
    for (int a = 0; a < s.rank; a++) {
        const int64_t stride = s.dim[a] == 1 ? 0 : s.stride[a];
        const int out = axis + more + a;
        terms->at[k] += q->at.index[out] * stride;
        for (int d = 0; d < 2; d++)
            if (q->at.axis[d] == out)
                terms->step[k][d] = q->at.by[d] * stride;
    }
    return true;
}

/* A list replaces recursion: a file may have a sum of any depth. */
static bool read_terms(const struct moved_question *q, int32_t value,
                       const struct moved_shape *x, int axis, struct index_terms *terms)
{
    int32_t values[MAX_TERMS] = { value };
    for (int n = 1; terms->n < n;) {
        const struct attn_node *add = attn_graph_producer(q->p->graph, values[terms->n]);
        if (read_term(q, values[terms->n], x, axis, terms))
            continue;
        if (!node_is(add, "Add") || n == MAX_TERMS)
            return false;
        values[terms->n] = add->in[0];
        values[n++] = add->in[1];
    }
    return true;
}

static bool index_of(const struct index_terms *terms, int64_t i, int64_t j, int64_t n,
                     int64_t *index)
{
    *index = 0;
    for (int k = 0; k < terms->n; k++)
        *index += tensor_get_int(terms->t[k], terms->at[k] + i * terms->step[k][0] +
                                                  j * terms->step[k][1]);
    *index += *index < 0 ? n : 0;
    return *index >= 0 && *index < n;
}

/* Cuts the grid to indices that change by equal steps, which are by[0] and by[1]. */
static bool cut_indices(struct moved_question *q, const struct index_terms *terms,
                        int64_t n, int64_t *first, int64_t by[2])
{
    int64_t index;
    bool moves[2] = { false, false };
    if (!index_of(terms, 0, 0, n, first))
        return false;
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < terms->n; k++)
            moves[d] = moves[d] || terms->step[k][d] != 0;
        by[d] = 0;
        moves[d] = moves[d] && q->at.count[d] > 1;
        if (moves[d] && !index_of(terms, d == 0, d == 1, n, &index))
            return false;
        if (moves[d])
            by[d] = index - *first;
    }
    for (int64_t j = 0; j < (moves[1] ? q->at.count[1] : 1); j++)
        for (int64_t i = 0; i < (moves[0] ? q->at.count[0] : 1); i++) {
            if (!index_of(terms, i, j, n, &index))
                return false;
            if (index == *first + i * by[0] + j * by[1])
                continue;
            q->at.count[j == 0 ? 0 : 1] = j == 0 ? i : j;
            break;
        }
    return true;
}

static bool through_gather(struct moved_question *q)
{
    struct moved_shape s, x;
    struct index_terms terms = { 0 };
    int64_t stride[MAX_RANK], first, by[2];
    int64_t g = attn_match_int(q->node, "axis", 0);
    if (!attn_moved_source(q, 0, &s) || !moved_has(q->node, 1) ||
        !attn_moved_shape(q->p->graph, q->node->in[1], &x))
        return false;
    g += g < 0 ? s.rank : 0;
    if (g < 0 || g >= s.rank || s.rank - 1 + x.rank != q->out.rank ||
        !read_terms(q, q->node->in[1], &x, (int)g, &terms) ||
        !cut_indices(q, &terms, s.dim[g], &first, by))
        return false;
    for (int a = 0; a < q->out.rank; a++)
        stride[a] = a < g ? s.stride[a] : a < g + x.rank ? 0 : s.stride[a - x.rank + 1];
    attn_moved_take(q->part, &q->at, q->out.rank, stride);
    q->part->grid.from += first * s.stride[g];
    for (int d = 0; d < 2; d++)
        q->part->grid.step[d] += by[d] * s.stride[g];
    return true;
}

static bool through_pad(struct moved_question *q)
{
    struct moved_shape s;
    int64_t pads[2 * MAX_RANK];
    double number;
    if (!attn_moved_source(q, 0, &s) ||
        !attn_match_pads(q->p->graph, q->node, s.rank, pads, &number))
        return false;
    struct moved_place *at = &q->at;
    for (int a = 0; a < s.rank; a++) {
        at->index[a] -= pads[a];
        bool outside = at->index[a] < 0 || at->index[a] >= s.dim[a];
        for (int d = 0; d < 2; d++)
            if (at->axis[d] == a && at->index[a] < 0)
                at->count[d] =
                    moved_min(at->count[d], (-at->index[a] + at->by[d] - 1) / at->by[d]);
            else if (at->axis[d] == a && !outside)
                at->count[d] = moved_min(at->count[d],
                                         (s.dim[a] - 1 - at->index[a]) / at->by[d] + 1);
        if (outside) {
            q->part->value = -1;
            q->part->number = number;
        }
    }
    if (q->part->value >= 0)
        attn_moved_take(q->part, at, s.rank, s.stride);
    return true;
}

/* ---- broadcasts ---- */

/* Strides of an input over the axes of the output; 0 where it is broadcast. */
static bool broadcast_strides(const struct moved_question *q, const struct moved_shape *s,
                              int64_t stride[MAX_RANK])
{
    const int more = q->out.rank - s->rank;
    for (int a = 0; a < q->out.rank && more >= 0; a++)
        stride[a] = a < more || s->dim[a - more] == 1 ? 0 : s->stride[a - more];
    return more >= 0;
}

/* Cuts the grid to elements that choose as the first one does. */
static void cut_condition(struct moved_place *at, const uint8_t *data, int64_t first,
                          const int64_t *step)
{
    for (int d = 0; d < 2; d++)
        for (int64_t i = 1; i < at->count[d] && step[d] != 0; i++)
            if ((data[first + i * step[d]] != 0) != (data[first] != 0))
                at->count[d] = i;
    if (step[0] == 0 || step[1] == 0)
        return;
    for (int64_t j = 1; j < at->count[1]; j++)
        for (int64_t i = 1; i < at->count[0]; i++)
            if ((data[first + i * step[0] + j * step[1]] != 0) != (data[first] != 0))
                at->count[1] = j;
}

static bool through_where(struct moved_question *q)
{
    struct moved_shape c, s;
    int64_t stride[MAX_RANK];
    if (!match_is_constant(q->p->graph, q->node->in[0]) ||
        !attn_moved_shape(q->p->graph, q->node->in[0], &c) ||
        !broadcast_strides(q, &c, stride))
        return false;
    const uint8_t *data = q->p->graph->values[q->node->in[0]].data.data;
    attn_moved_take(q->part, &q->at, q->out.rank, stride);
    const int64_t first = q->part->grid.from;
    cut_condition(&q->at, data, first, q->part->grid.step);
    if (!attn_moved_source(q, data[first] != 0 ? 1 : 2, &s) ||
        !broadcast_strides(q, &s, stride))
        return false;
    attn_moved_take(q->part, &q->at, q->out.rank, stride);
    return true;
}

static bool through_expand(struct moved_question *q)
{
    struct moved_shape s;
    int64_t stride[MAX_RANK];
    if (!attn_match_expands(q->p->graph, q->node) || !attn_moved_source(q, 0, &s) ||
        !broadcast_strides(q, &s, stride))
        return false;
    attn_moved_take(q->part, &q->at, q->out.rank, stride);
    return true;
}

static bool through_concat(struct moved_question *q)
{
    struct moved_shape s;
    int64_t axis = attn_match_int(q->node, "axis", 0), from = 0;
    axis += axis < 0 ? q->out.rank : 0;
    if (axis < 0 || axis >= q->out.rank)
        return false;
    for (int in = 0; in < q->node->pub.n_in; in++, from += s.dim[axis]) {
        if (!attn_moved_source(q, in, &s) || s.rank != q->out.rank)
            return false;
        const int64_t index = q->at.index[axis] - from;
        if (index >= s.dim[axis])
            continue;
        q->at.index[axis] = index;
        for (int d = 0; d < 2; d++)
            if (q->at.axis[d] == axis)
                q->at.count[d] = moved_min(q->at.count[d],
                                           (s.dim[axis] - 1 - index) / q->at.by[d] + 1);
        attn_moved_take(q->part, &q->at, s.rank, s.stride);
        return true;
    }
    return false;
}

static bool through_split(struct moved_question *q)
{
    struct moved_shape s, part;
    int64_t axis = attn_match_int(q->node, "axis", 0), from = 0;
    axis += axis < 0 ? q->out.rank : 0;
    if (axis < 0 || axis >= q->out.rank || !attn_moved_source(q, 0, &s))
        return false;
    for (int32_t k = 0; k < q->node->pub.n_out && q->node->out[k] != q->value; k++) {
        if (q->node->out[k] < 0 || !attn_moved_shape(q->p->graph, q->node->out[k], &part))
            return false;
        from += part.dim[axis];
    }
    q->at.index[axis] += from;
    attn_moved_take(q->part, &q->at, s.rank, s.stride);
    return true;
}

static bool through_same(struct moved_question *q)
{
    struct moved_shape s;
    if (!attn_moved_source(q, 0, &s))
        return false;
    q->part->grid = *q->grid;
    memcpy(q->at.count, q->grid->count, sizeof q->at.count);
    return true;
}

static const struct move {
    const char *op_type;
    bool (*through)(struct moved_question *q);
} moves[] = {
    { "Reshape", through_same },
    { "Unsqueeze", through_same },
    { "Squeeze", through_same },
    { "Flatten", through_same },
    { "Identity", through_same },
    { "Transpose", through_transpose },
    { "Slice", through_slice },
    { "Gather", through_gather },
    { "Pad", through_pad },
    { "ScatterND", attn_through_scatter_nd },
    { "ScatterElements", attn_through_scatter_elements },
    { "Where", through_where },
    { "Expand", through_expand },
    { "Concat", through_concat },
    { "Split", through_split },
};

/* One part of the grid, through the node that gives a value; false where it ends here. */
static bool go_through(struct attn_provenance *p, int32_t value,
                       const struct attn_grid *grid, struct attn_grid_part *part)
{
    struct moved_question q = { .p = p, .value = value, .grid = grid, .part = part };
    q.node = attn_graph_producer(p->graph, value);
    if (value == p->stop || q.node == NULL ||
        !attn_moved_shape(p->graph, value, &q.out) ||
        !attn_moved_place(&q.out, grid, &q.at))
        return false;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++)
        if (node_is(q.node, moves[i].op_type)) {
            if (!moves[i].through(&q))
                return false;
            memcpy(part->grid.count, q.at.count, sizeof q.at.count);
            return true;
        }
    return false;
}

/* One number of a constant, and as many equal ones as follow it. */
static void take_number(const struct attn_graph *graph, int32_t value,
                        const struct attn_grid *grid, struct attn_grid_part *part)
{
    const attnrun_tensor *t = &graph->values[value].data;
    const float x = match_f32_at(t, grid->from);
    int64_t n[2] = { 1, 1 };
    while (n[0] < grid->count[0] &&
           match_f32_at(t, grid->from + n[0] * grid->step[0]) == x)
        n[0]++;
    for (bool equal = true; n[1] < grid->count[1] && equal; n[1] += equal)
        for (int64_t i = 0; i < n[0] && equal; i++)
            equal = match_f32_at(t, grid->from + i * grid->step[0] +
                                        n[1] * grid->step[1]) == x;
    part->value = -1;
    part->number = (double)x;
    memcpy(part->grid.count, n, sizeof n);
}

static attn_status ask(struct attn_provenance *p, int32_t value, struct attn_grid grid,
                       const int64_t at[2], int depth, bool *known);

/* The part that comes next, as far as it can be followed. */
static attn_status ask_part(struct attn_provenance *p, int32_t value,
                            const struct attn_grid *grid, const int64_t at[2], int depth,
                            int64_t count[2], bool *known)
{
    struct attn_grid_part part = { .at = { at[0], at[1] },
                                   .value = value,
                                   .grid = *grid };
    bool goes_on = false;
    if (match_is_constant(p->graph, value) &&
        p->graph->values[value].data.dtype == ATTNRUN_F32)
        take_number(p->graph, value, grid, &part);
    else if (go_through(p, value, grid, &part))
        goes_on = part.value >= 0;
    else
        part = (struct attn_grid_part){ { at[0], at[1] }, value, 0, *grid };
    memcpy(count, part.grid.count, sizeof part.grid.count);
    if (p->no_memory)
        return ATTNRUN_E_MEMORY;
    TRY(attn_poll_work(grid->count[0] * grid->count[1]));
    if (goes_on)
        return ask(p, part.value, part.grid, at, depth + 1, known);
    *known = p->take(p->user, &part);
    return ATTNRUN_OK;
}

/* The first elements of a grid, as many as a part may have. */
static struct attn_grid first_of(const struct attn_grid *grid)
{
    struct attn_grid first = *grid;
    first.count[0] = moved_min(first.count[0], PART_ELEMENTS);
    first.count[1] = moved_min(first.count[1], PART_ELEMENTS / first.count[0]);
    return first;
}

static attn_status ask(struct attn_provenance *p, int32_t value, struct attn_grid grid,
                       const int64_t at[2], int depth, bool *known)
{
    int64_t place[2] = { at[0], at[1] };
    while (grid.count[0] > 0 && *known) {
        const struct attn_grid first = first_of(&grid);
        int64_t count[2];
        p->left -= 1 + first.count[0] * first.count[1] / PER_UNIT;
        if (depth == MAX_DEPTH || p->left < 0) {
            *known = false;
            break;
        }
        TRY(ask_part(p, value, &first, place, depth, count, known));
        if (count[1] < grid.count[1] && *known) { /* the rows below, of these columns */
            const int64_t below[2] = { place[0], place[1] + count[1] };
            const struct attn_grid rest = { grid.from + count[1] * grid.step[1],
                                            { grid.step[0], grid.step[1] },
                                            { count[0], grid.count[1] - count[1] } };
            TRY(ask(p, value, rest, below, depth + 1, known));
        }
        place[0] += count[0];
        grid.from += count[0] * grid.step[0];
        grid.count[0] -= count[0];
    }
    return ATTNRUN_OK;
}

attn_status attn_provenance_ask(struct attn_provenance *p, int32_t value,
                                const struct attn_grid *grid, bool *known)
{
    const int64_t at[2] = { 0, 0 };
    *known = true;
    return ask(p, value, *grid, at, 0, known);
}
