/* fold.h - constants computed at load, and their release once only packing has read them. */
#ifndef ATTN_FOLD_H
#define ATTN_FOLD_H

#include "step.h"

/* Whether nodes stay although what they give is known: the model is written as it is. */
static inline bool attn_fold_keeps_nodes(const struct attn_graph *graph)
{
    return graph->model->origin != NULL && graph->model->origin->keep_nodes;
}
/* Whether a step whose infer() was called may be computed at load: its inputs are
 * constant, it has no effects, and the results are small enough. Large indices that are made
 * of few numbers are postponed: passes read what they are made of, and rarely leave them. */
bool attn_fold_is_possible(struct attn_graph *graph, const struct attn_step *step);
/* Computes the outputs of such a step and makes them constants: *done. A step that fails
 * stays as it is, to fail when it is run; one that has no memory is E_MEMORY, since others
 * need to know what it gives. */
attn_status attn_fold_node(struct attn_graph *graph, struct attn_step *step, bool *done);
/* After packing: releases the constants computed at load that no node reads any more. */
attn_status attn_fold_release(struct attn_model *model);
/* The bytes that it would release, with what nodes replace now. `memory`: of its lists. */
attn_status attn_fold_unread(struct attn_model *model, struct attn_memory *memory,
                             int64_t *bytes);
/* The same constant: type, shape and address of the bytes are equal. */
bool attn_tensor_is_same(const attnrun_tensor *a, const attnrun_tensor *b);
/* The same attribute. Those with tensors, graphs and types are taken as different. */
bool attn_attr_is_same(const struct attn_attr *a, const struct attn_attr *b);
/* Whether two nodes give the same of the same inputs: one row, equal attributes, outputs in the
 * same places; and one opset, where both are of the file: functions may be of others, and operators
 * look at theirs. */
bool attn_node_is_alike(const struct attn_node *a, const struct attn_node *b);
/* *hash: from it on, that of the attributes of a node. False where they are taken as different
 * from all others. */
bool attn_attrs_hash(const struct attn_node *node, uint64_t *hash);

#endif
