/* linear_quotient.h - what the passes to LinearAttention share (fuse_linear_attention.c,
 * fuse_causal_linear.c, fuse_softmax_features.c): how a quotient is written, and the node that
 * takes its place. */
#ifndef ATTN_LINEAR_QUOTIENT_H
#define ATTN_LINEAR_QUOTIENT_H

#include "product.h"

/* Whether operands q and kv of a product, over a denominator, are what the pass looks for;
 * what it found goes to `found`. `factor`: the denominator's reciprocal is multiplied. The
 * denominator has the labels of the product's result, or, as an operand of an Einsum of
 * three, its own. */
typedef bool attn_quotient_roles(const struct attn_graph *graph,
                                 const struct attn_product *product, int q, int kv,
                                 struct attn_labelled denominator, bool factor,
                                 void *found);

static inline bool attn_quotient_may_be(const struct attn_node *node)
{
    return node_is(node, "Div") || node_is(node, "Einsum") ||
           (node_is(node, "Mul") && node->pub.n_in == 2);
}

/* Tries all ways to read a node that may be one, f32 of rank 4, as
 *   N / D,   N * F,   F * N,   Einsum of the operands of N and F, in any order
 * until `roles` accepts one. N is read by this node alone. */
bool attn_quotient_read(const struct attn_graph *graph, const struct attn_node *node,
                        attn_quotient_roles *roles, void *found);

/* Q, K and V of rank 4, heads before tokens or behind them, or of rank 3 without heads, and what
 * the node says of them. */
struct attn_linear {
    int32_t in[3];
    const char *map_q, *map_k, *denominator;
    double epsilon, scale;
    bool by_token, causal;
};
/* LinearAttention in the place of `node`; heads and head sizes are constants. */
attn_status attn_linear_replace(struct attn_graph *graph, struct attn_node *node,
                                const struct attn_linear *linear);

#endif
