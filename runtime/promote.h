/* promote.h - f16 and bf16 as types of storage: their regions compute in f32. */
#ifndef ATTN_PROMOTE_H
#define ATTN_PROMOTE_H

#include "graph.h"

/* Lets the regions of a graph and of its subgraphs that compute in f16 or bf16 compute in f32,
 * with casts at their borders only: see promote.c. Once, after the first inference. */
attn_status attn_graph_promote(struct attn_graph *graph);
/* Lets operators that read 16 bits at run read what a Cast at a border of a region reads. After
 * the rewrite passes. */
attn_status attn_graph_read_borders(struct attn_graph *graph);

#endif
