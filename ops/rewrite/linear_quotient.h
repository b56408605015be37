/* linear_quotient.h - what the passes to LinearAttention share (fuse_linear_attention.c,
 * fuse_linear_ones.c, fuse_causal_linear.c, fuse_softmax_features.c).
 *
 * In: a node that may be the quotient of a product and a denominator, in one of the ways in which
 * exporters write it. Out: the operands of the product and the denominator, which the callback of
 * the pass accepts or refuses; then the LinearAttention that replaces the node. */
#ifndef ATTN_LINEAR_QUOTIENT_H
#define ATTN_LINEAR_QUOTIENT_H

#include "linear_roles.h"

/* Whether operands q and kv of a product, over a denominator, are what the pass looks for;
 * what it found goes to `found`. `factor`: the denominator's reciprocal is multiplied. The
 * denominator has the labels of the product's result, or, as an operand of an Einsum of
 * three, its own. */
typedef bool attn_quotient_roles(const struct attn_graph *graph,
                                 const struct attn_product *product, int q, int kv,
                                 struct attn_labelled denominator, bool factor,
                                 void *found);

/* Tries all ways to read a node, f32 of rank 4, as
 *   N / D,   N * F,   F * N,   Einsum of the operands of N and F, in any order
 * until `roles` accepts one. N is read by this node alone. */
bool attn_quotient_read(const struct attn_graph *graph, const struct attn_node *node,
                        attn_quotient_roles *roles, void *found);

/* What a LinearAttention says of its operands, Q, K and V of rank 4, or of rank 3 without heads. */
struct attn_linear {
    struct attn_linear_order order;
    const char *map_q, *map_k, *denominator;
    double epsilon, scale;
    bool causal;
};
/* What made the features *value, by the words of the operator: "identity" where they are whatever
 * the graph made. *value becomes what they are made of, of the same axes. */
const char *attn_linear_map_of(const struct attn_graph *graph, int32_t *value);
/* The same through Transposes. */
const char *attn_linear_feature_map(const struct attn_graph *graph,
                                    struct attn_labelled *x);
/* LinearAttention in front of `node`, in the place of order.y; heads and head sizes are
 * constants. */
attn_status attn_linear_replace(struct attn_graph *graph, struct attn_node *node,
                                const struct attn_linear *linear);
/* The same of a quotient `node` whose operands have these roles; its denominator is the sum of
 * features plus epsilon. Says as a note of `pass` why it is left, else counts it in *applied. */
attn_status attn_linear_replace_quotient(struct attn_graph *graph, struct attn_node *node,
                                         const char *pass,
                                         struct attn_linear_roles *roles, double epsilon,
                                         int32_t *applied);

#endif
