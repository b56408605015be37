/* node.h - checks of a node's operands against its row, and which of them are promoted. */
#ifndef ATTN_NODE_H
#define ATTN_NODE_H

#include "graph.h"

/* Operands that are f16 or bf16 where the row computes in f32: bit i, input or output i.
 */
struct attn_promotion {
    uint64_t inputs, outputs;
    uint64_t open; /* outputs in f32 whose type variable no input has */
    int32_t dtype; /* the narrow type */
};

/* Kinds and element types of the inputs of a step against the row's operand lists. */
attn_status attn_node_check_types(const attnrun_step *step,
                                  struct attn_promotion *promotion);

#endif
