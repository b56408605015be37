/* node.h - checks of a node's operands against its row, and which of them are promoted. */
#ifndef ATTN_NODE_H
#define ATTN_NODE_H

#include "graph.h"

/* Operands that are f16 or bf16 where the row computes in f32: bit i, input or output i. The last
 * bit stands for all inputs from there on, which are of one variadic operand. */
struct attn_promotion {
    uint64_t inputs, outputs;
    uint64_t bf16; /* outputs that are bf16, others are f16 */
    uint64_t open; /* outputs in f32 whose type variable no input has */
};

static inline bool attn_dtype_is_narrow(int32_t dtype)
{
    return dtype == ATTNRUN_F16 || dtype == ATTNRUN_BF16;
}

/* Whether input `in`, of this type, is promoted. */
static inline bool attn_promotes_input(const struct attn_promotion *promotion, int32_t in,
                                       int32_t dtype)
{
    return (promotion->inputs >> (in < 63 ? in : 63) & 1) && attn_dtype_is_narrow(dtype);
}

/* Kinds and element types of the inputs of a step against the row's operand lists. */
attn_status attn_node_check_types(const attnrun_step *step,
                                  struct attn_promotion *promotion);

#endif
