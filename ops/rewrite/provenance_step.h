/* provenance_step.h - one step of provenance.c: a grid of elements of a node's output as a grid of
 * one input. What provenance.c, provenance_scatter.c and provenance_box.c share. */
#ifndef ATTN_PROVENANCE_STEP_H
#define ATTN_PROVENANCE_STEP_H

#include "provenance.h"

enum { MAX_RANK = ATTNRUN_MAX_RANK };

struct moved_shape {
    int rank;
    int64_t dim[MAX_RANK], stride[MAX_RANK];
};

/* Indices that lead to a box of their data: index a is start[a] + step[a] times the place along
 * axis axis[a] of the updates, or start[a] where axis[a] is -1. Each axis of the updates that is
 * longer than 1 is that of one index. */
struct moved_box {
    int n; /* indices */
    int64_t start[MAX_RANK], step[MAX_RANK], count[MAX_RANK];
    int axis[MAX_RANK];
};

/* What is known of the indices of a scatter. Of a ScatterND: the box that they lead to, or which
 * update is written to a slot, which is an element of the first axes of its data. */
struct attn_scatter_table {
    struct attn_scatter_table *next;
    const struct attn_node *node;
    struct moved_box box;
    int32_t *update; /* of each slot; -1: none; NULL where there is a box */
    int64_t slots, slot_elements;
    bool right; /* the indices are those of a scatter that can be followed */
};

/* A grid within a shape: the indices of its first element, and the axis that each direction moves
 * along, by how much; count: as far as it stays within that axis. axis -1: it does not move. */
struct moved_place {
    int64_t index[MAX_RANK], by[2], count[2];
    int axis[2];
};

/* Each step sets the value or the number of the part, its grid, and at.count. */
struct moved_question {
    struct attn_provenance *p;
    const struct attn_node *node;
    int32_t value; /* that the node gives */
    const struct attn_grid *grid;
    struct moved_shape out;
    struct moved_place at; /* in the output */
    struct attn_grid_part *part;
};

/* The dims of a value, all of them constants above 0; else false. */
bool attn_moved_shape(const struct attn_graph *graph, int32_t value,
                      struct moved_shape *s);
void attn_moved_strides(struct moved_shape *s); /* from the dims */
bool attn_moved_place(const struct moved_shape *s, const struct attn_grid *g,
                      struct moved_place *at);
/* The part of a place that lies in an input whose strides are `stride`, one for each axis of the
 * output. */
void attn_moved_take(struct attn_grid_part *part, const struct moved_place *at, int rank,
                     const int64_t *stride);
/* Input `in` as the value of the part. */
bool attn_moved_source(struct moved_question *q, int in, struct moved_shape *s);
/* The box of `data` that indices (…, n) lead to: a constant, or a Concat of constants that are
 * broadcast, which loading does not compute where it is large. false where they are none. */
bool attn_moved_read_box(const struct attn_graph *graph, int32_t indices,
                         const struct moved_shape *data, struct moved_box *box);
bool attn_through_scatter_nd(struct moved_question *q);
bool attn_through_scatter_elements(struct moved_question *q);

static inline int64_t moved_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline bool moved_has(const struct attn_node *node, int in)
{
    return in < node->pub.n_in && node->in[in] >= 0;
}
static inline bool moved_are_indices(const attnrun_tensor *t)
{
    return t->dtype == ATTNRUN_I64 || t->dtype == ATTNRUN_I32;
}
/* Element k of indices into an axis of n; false where it is outside. */
static inline bool moved_index(const attnrun_tensor *t, int64_t k, int64_t n,
                               int64_t *index)
{
    *index = tensor_get_int(t, k);
    *index += *index < 0 ? n : 0;
    return *index >= 0 && *index < n;
}

#endif
