/* graph_names.h - the values of a graph by name. */
#ifndef ATTN_GRAPH_NAMES_H
#define ATTN_GRAPH_NAMES_H

#include "graph.h"

/* An empty table in the model's memory, or NULL. */
struct attn_names *attn_names_create(struct attn_graph *graph);
/* Makes room for `n_values` values in all. */
attn_status attn_names_reserve(struct attn_graph *graph, int64_t n_values);
/* Enters value `id` under its name; there is room. */
void attn_names_put(struct attn_graph *graph, int32_t id);
/* Makes the table once more, of values with other names. */
attn_status attn_names_renew(struct attn_graph *graph);
/* Values a and b exchange their names: before they do. */
void attn_names_swap(struct attn_graph *graph, int32_t a, int32_t b);

#endif
