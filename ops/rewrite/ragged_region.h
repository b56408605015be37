/* ragged_region.h - what ragged_pass.c and ragged_members.c share: the region of an
 * encoder that works on the tokens of a batch one by one, or by attention under a mask of
 * them. */
#ifndef ATTN_RAGGED_REGION_H
#define ATTN_RAGGED_REGION_H

#include "match.h"

struct region {
    struct attn_graph *graph;
    int32_t mask;              /* value: the input (batch, tokens) */
    attnrun_dim batch, tokens; /* its dims */
    uint8_t *member;           /* per node: in the region */
    int32_t *packed;           /* per value: its tokens alone, or -1 */
};

/* How a node of the region reads an operand. */
enum region_operand {
    REGION_REFUSED,
    REGION_AS_IS, /* nothing of it belongs to one token */
    REGION_PACKED /* its rows are tokens: (batch, tokens, …), one of the first dims may be 1 */
};

enum { REGION_MAX_IN = 32 }; /* inputs of a node of the region */

/* Whether each row of the node's output depends only on the same rows of its inputs. */
bool attn_region_takes(const struct region *r, const struct attn_node *node);
enum region_operand attn_region_operand(const struct region *r,
                                        const struct attn_node *node, int32_t in);
/* Whether a node is an attention that can become RaggedAttention. */
bool attn_region_attends(const struct region *r, const struct attn_node *node);
/* FusedAttention: the number of inputs before the leaves of its mask program, and numbers
 * of `layouts`. */
enum { REGION_MASK = 3, REGION_LEAVES = 7, REGION_BY_TOKEN = 1, REGION_JOINED = 3 };
/* Whether the value is 0 wherever the mask is 0. */
bool attn_region_is_masked(const struct region *r, int32_t value);
/* The only input (batch, tokens) of 0 and 1 that the mask of an attention is made of, or -1. */
attn_status attn_region_find_mask(struct attn_graph *graph, const struct attn_node *node,
                                  int32_t *mask);

static inline const attnrun_type *region_type(const struct region *r, int32_t value)
{
    return &r->graph->values[value].type;
}
static inline bool region_is_attention(const struct attn_node *node)
{
    return node_is_of(node, "attnrun.fused", "FusedAttention");
}

#endif
