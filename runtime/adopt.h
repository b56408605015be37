/* adopt.h - packed weights that come from a packed file, where they are. */
#ifndef ATTN_ADOPT_H
#define ATTN_ADOPT_H

#include "graph.h"

/* What pack() is given for a node; types and tensors live in `scratch`. */
attn_status attn_pack_describe(const struct attn_graph *graph,
                               const struct attn_node *node, struct attn_pool *scratch,
                               attnrun_pack *pack);
/* The same with room for pub.n_in operands. */
void attn_pack_fill(const struct attn_graph *graph, const struct attn_node *node,
                    attnrun_type *types, attnrun_tensor *x, attnrun_pack *pack);
/* Lets an inferred node use `bytes` packed bytes, 64-byte aligned, that live as long as the
 * model. E_MODEL where its operator would not have packed that much, or finds them wrong. */
attn_status attn_node_adopt(struct attn_graph *graph, struct attn_node *node,
                            const void *packed, int64_t bytes);
/* Constants whose bytes are not there (ATTN_VALUE_RELEASED) are read by nodes alone that have
 * adopted their packed form: in this graph and below. E_MODEL else. */
attn_status attn_graph_check_released(const struct attn_graph *graph);

#endif
