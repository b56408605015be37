/* provenance_scatter.c - where the elements of ScatterND and ScatterElements come from: see
 * provenance_step.h. In: constant indices, of which tables are made once. */
#include "provenance_step.h"

static bool fill_table(struct attn_scatter_table *table, const attnrun_tensor *t,
                       const struct moved_shape *data, int64_t k)
{
    const int64_t n = tensor_count(t) / k;
    for (int64_t i = 0; i < table->slots; i++)
        table->update[i] = -1;
    for (int64_t u = 0; u < n; u++) {
        int64_t slot = 0;
        for (int64_t a = 0; a < k; a++) {
            int64_t index;
            if (!moved_index(t, u * k + a, data->dim[a], &index))
                return false;
            slot = slot * data->dim[a] + index;
        }
        table->update[slot] = (int32_t)u;
    }
    return n <= INT32_MAX;
}

/* The table of the node; *made: it is new and to be filled. NULL where there is no memory. */
static struct attn_scatter_table *table_of(struct moved_question *q, bool *made)
{
    struct attn_scatter_table *table = q->p->tables;
    while (table != NULL && table->node != q->node)
        table = table->next;
    *made = table == NULL;
    if (*made)
        table = attn_pool_alloc(q->p->pool, sizeof *table);
    if (table == NULL)
        q->p->no_memory = true;
    if (!*made || table == NULL)
        return table;
    *table = (struct attn_scatter_table){ .next = q->p->tables, .node = q->node };
    q->p->tables = table;
    return table;
}

/* Makes the table of a ScatterND from its indices, where they are no box. */
static void make_table(struct moved_question *q, const struct moved_shape *data,
                       struct attn_scatter_table *table)
{
    if (attn_moved_read_box(q->p->graph, q->node->in[1], data, &table->box)) {
        table->right = true;
        return;
    }
    if (!match_is_constant(q->p->graph, q->node->in[1]))
        return;
    const attnrun_tensor *t = &q->p->graph->values[q->node->in[1]].data;
    const int64_t k = t->rank > 0 ? t->dims[t->rank - 1] : 0;
    if (!moved_are_indices(t) || k < 1 || k > data->rank)
        return;
    table->slots = 1;
    for (int64_t a = 0; a < k; a++)
        table->slots *= data->dim[a];
    table->slot_elements = data->stride[k - 1];
    table->update =
        attn_pool_alloc(q->p->pool, table->slots * (int64_t)sizeof *table->update);
    if (table->update == NULL)
        q->p->no_memory = true;
    else
        table->right = fill_table(table, t, data, k);
}

/* Cuts direction d to the slots from `slot` on that come from the data, or from updates that
 * follow each other in equal steps; returns the step. */
static int64_t cut_slots(const struct attn_scatter_table *table, int64_t slot, int64_t by,
                         int64_t *count)
{
    const int32_t *update = table->update;
    const int64_t first = update[slot];
    const int64_t next = *count > 1 ? update[slot + by] : -1;
    const int64_t step = first >= 0 && next >= 0 ? next - first : 0;
    int64_t n = 1;
    while (n < *count && (update[slot + n * by] < 0) == (first < 0) &&
           (first < 0 || update[slot + n * by] == first + n * step))
        n++;
    *count = n;
    return step;
}

static bool reduces(const struct attn_node *node)
{
    return attn_node_attr(node, "reduction") != NULL &&
           !attn_match_string(node, "reduction", "none");
}

/* Whether the first element of the place is in the box along index a. Cuts a direction along it to
 * elements of which that is true as of the first one. */
static bool cut_box(struct moved_place *at, const struct moved_box *box, int a)
{
    const int64_t from = at->index[a] - box->start[a], step = box->step[a];
    const int64_t end = (box->count[a] - 1) * step + 1; /* of what the box may have */
    const bool inside = from >= 0 && from < end && from % step == 0;
    for (int d = 0; d < 2; d++) {
        if (at->axis[d] != a)
            continue;
        const int64_t by = at->by[d];
        if (step > 1 && by % step != 0)
            at->count[d] = 1; /* in and out again */
        else if (inside || from < 0)
            at->count[d] = moved_min(at->count[d], inside ? (end - 1 - from) / by + 1
                                                          : (-from + by - 1) / by);
    }
    return inside;
}

/* What a ScatterND of a box takes a place from: its updates, or its data. */
static bool through_box(struct moved_question *q, const struct moved_box *box)
{
    struct moved_shape u;
    struct moved_place in = q->at;
    const int rank = q->out.rank;
    const int32_t updates = q->node->in[2];
    bool inside = true;
    if (!attn_moved_shape(q->p->graph, updates, &u))
        return false;
    for (int a = 0; a < box->n && inside; a++) {
        struct moved_place cut = q->at;
        inside = cut_box(&cut, box, a);
        for (int d = 0; d < 2; d++) /* outside along one index: wherever the others are */
            in.count[d] = inside ? moved_min(in.count[d], cut.count[d]) : cut.count[d];
    }
    memcpy(q->at.count, in.count, sizeof in.count);
    if (!inside) {
        q->part->grid.from = q->grid->from;
        memcpy(q->part->grid.step, q->grid->step, sizeof q->grid->step);
        return true;
    }
    int64_t stride[MAX_RANK];
    for (int a = 0; a < rank; a++) {
        if (a >= box->n) {
            stride[a] = u.stride[u.rank - rank + a];
            continue;
        }
        stride[a] = box->axis[a] < 0 ? 0 : u.stride[box->axis[a]];
        in.index[a] = (in.index[a] - box->start[a]) / box->step[a];
        for (int d = 0; d < 2; d++)
            if (in.axis[d] == a)
                in.by[d] /= box->step[a];
    }
    q->part->value = updates;
    attn_moved_take(q->part, &in, rank, stride);
    return true;
}

static bool through_table(struct moved_question *q,
                          const struct attn_scatter_table *table)
{
    struct moved_place at;
    struct moved_shape flat = { .rank = 2,
                                .dim = { table->slots, table->slot_elements } };
    attn_moved_strides(&flat);
    if (!attn_moved_place(&flat, q->grid, &at))
        return false;
    int64_t step[2] = { 0, 0 };
    for (int d = 0; d < 2; d++)
        if (at.axis[d] == 0)
            step[d] = cut_slots(table, at.index[0], at.by[d], &at.count[d]);
    q->at = at;
    const int64_t update = table->update[at.index[0]];
    if (update < 0) {
        q->part->grid.from = q->grid->from;
        memcpy(q->part->grid.step, q->grid->step, sizeof q->grid->step);
        return true;
    }
    q->part->value = q->node->in[2];
    q->part->grid.from = update * table->slot_elements + at.index[1];
    for (int d = 0; d < 2; d++)
        q->part->grid.step[d] =
            at.axis[d] == 0 ? step[d] * table->slot_elements : at.by[d];
    return true;
}

bool attn_through_scatter_nd(struct moved_question *q)
{
    struct moved_shape s;
    if (!attn_moved_source(q, 0, &s) || reduces(q->node) || !moved_has(q->node, 2))
        return false;
    bool made;
    struct attn_scatter_table *table = table_of(q, &made);
    if (made && table != NULL)
        make_table(q, &s, table);
    if (table == NULL || !table->right)
        return false;
    return table->update == NULL ? through_box(q, &table->box) : through_table(q, table);
}

/* Where all indices of a ScatterElements are one number, and the updates are whole but for the
 * axis: a slice is replaced. */
static bool one_slice(struct moved_question *q, const struct moved_shape *s, int64_t axis,
                      int64_t *to)
{
    struct moved_shape u;
    const int32_t indices = q->node->in[1];
    if (!match_is_constant(q->p->graph, indices) ||
        !attn_moved_shape(q->p->graph, q->node->in[2], &u) || u.rank != s->rank)
        return false;
    const attnrun_tensor *t = &q->p->graph->values[indices].data;
    for (int a = 0; a < s->rank; a++)
        if (u.dim[a] != (a == axis ? 1 : s->dim[a]) || t->rank != s->rank ||
            t->dims[a] != u.dim[a])
            return false;
    if (!moved_are_indices(t) || !moved_index(t, 0, s->dim[axis], to))
        return false;
    bool made;
    struct attn_scatter_table *table = table_of(q, &made);
    if (made && table != NULL) {
        int64_t i = 0, index;
        while (i < tensor_count(t) && moved_index(t, i, s->dim[axis], &index) &&
               index == *to)
            i++;
        table->right = i == tensor_count(t);
    }
    return table != NULL && table->right;
}

bool attn_through_scatter_elements(struct moved_question *q)
{
    struct moved_shape s;
    int64_t to, stride[MAX_RANK];
    int64_t axis = attn_match_int(q->node, "axis", 0);
    if (!attn_moved_source(q, 0, &s) || reduces(q->node) || !moved_has(q->node, 2))
        return false;
    axis += axis < 0 ? s.rank : 0;
    if (axis < 0 || axis >= s.rank || !one_slice(q, &s, axis, &to))
        return false;
    const int64_t index = q->at.index[axis];
    for (int d = 0; d < 2; d++)
        if (q->at.axis[d] == axis && index <= to)
            q->at.count[d] =
                index == to ? 1
                            : moved_min(q->at.count[d],
                                        (to - index + q->at.by[d] - 1) / q->at.by[d]);
    memcpy(stride, s.stride, sizeof stride);
    if (index == to) {
        struct moved_shape u;
        if (!attn_moved_source(q, 2, &u))
            return false;
        memcpy(stride, u.stride, sizeof stride);
        stride[axis] = 0;
    }
    attn_moved_take(q->part, &q->at, s.rank, stride);
    return true;
}
