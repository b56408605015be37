/* align.h - constants that lie in a mapped file at addresses that do not fit their elements.
 *
 * A file may put tensor data at any byte. The loader leaves large data where it is, so that opening
 * a model copies nothing. Code that reads elements must have them aligned: folding and packing use
 * copies that they free at their end, and the steps of a run use one copy, which the first context
 * makes of those constants that steps still read. Cost: one copy of each such constant. */
#ifndef ATTN_ALIGN_H
#define ATTN_ALIGN_H

#include "graph.h"

/* Bytes to which elements of a dtype must be aligned. */
int64_t attn_dtype_align(int32_t dtype);
bool attn_tensor_is_aligned(const attnrun_tensor *tensor);
/* Lets `tensor` show a copy of its elements in `pool` where they are not aligned. */
attn_status attn_tensor_align(struct attn_pool *pool, attnrun_tensor *tensor);
/* Aligns for good, in the model's memory, the constants of a graph that some step reads.
 * To be called once packing is done. */
attn_status attn_graph_align(struct attn_graph *graph);
/* What that would take of a pool like the model's. `scratch` ends with the caller. */
attn_status attn_graph_align_fill(const struct attn_graph *graph,
                                  struct attn_pool *scratch, struct attn_pool_fill *fill);

#endif
