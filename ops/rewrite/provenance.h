/* provenance.h - where the elements of a value come from, through nodes that only move elements:
 * Reshape, Squeeze, Unsqueeze, Flatten, Identity, Expand, Transpose, Slice, Gather, Pad, ScatterND,
 * ScatterElements, Where, Split and Concat, whose indices, pads and conditions are constants.
 *
 * A question is a grid of elements: `from` is an element's number in row-major order, and step[0]
 * and step[1] lead to the next one in a row and to the next row. The answer is a list of parts of
 * the grid, each of which is a grid of another value, or one number. It is exact for each element:
 * nothing is sampled.
 *
 * All dims must be constants. Cost: some 100 ns for each node and part, since parts that move alike
 * move together. */
#ifndef ATTN_PROVENANCE_H
#define ATTN_PROVENANCE_H

#include "match.h"

struct attn_grid {
    int64_t from, step[2], count[2];
};

/* Elements at[0] … of rows at[1] … of the question. */
struct attn_grid_part {
    int64_t at[2];
    int32_t value; /* -1: each of them is `number` */
    double number;
    struct attn_grid grid; /* of `value`; count is that of the part in any case */
};

struct attn_provenance {
    const struct attn_graph *graph;
    struct attn_pool *pool; /* of tables, which live as long as it */
    struct attn_scatter_table *tables;
    int32_t stop;   /* a value that ends parts, whatever gives it; -1: none */
    bool no_memory; /* a table did not fit: attn_provenance_ask() fails */
    int64_t left;   /* parts that may still be looked at; what needs more is not known */
    /* Takes a part; false ends the question. */
    bool (*take)(void *user, const struct attn_grid_part *part);
    void *user;
};
/* *known: all parts were taken. A node that does more than move elements, and one that moves them
 * in a way that is not known here, ends a part: its output is the value. */
attn_status attn_provenance_ask(struct attn_provenance *p, int32_t value,
                                const struct attn_grid *grid, bool *known);
/* Whether a value is a tensor of f32 with constant dims and at least one element. */
bool attn_provenance_is_static(const struct attn_graph *graph, int32_t value);

#endif
