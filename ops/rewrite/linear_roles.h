/* linear_roles.h - which axis is which in attention by associativity, Y = Q (K' V), whose products
 * are MatMul or Einsum. The passes to LinearAttention share it (fuse_linear_attention.c,
 * fuse_softmax_features.c).
 *
 * In: the two products, with a label for each axis (product.h).
 * Out: the values of Q, K, V and Y, and which label is the batch, the head, the query, the key, the
 * feature and the column of V; then the order of axes that needs the fewest Transposes.
 * Q and K are features, as the graph computes them. */
#ifndef ATTN_LINEAR_ROLES_H
#define ATTN_LINEAR_ROLES_H

#include "product.h"

/* Operands of rank 4, or of 3 without heads (head 0), each axis with a label. */
struct attn_linear_roles {
    struct attn_labelled q, k, v, y;
    char batch, head, query, key, dim, v_dim;
};

/* `product` as operand `q_in` times operand `kv_in`, which is a product of K and V that is summed
 * over keys alone; through Transposes. */
bool attn_linear_roles_read(const struct attn_graph *graph,
                            const struct attn_product *product, int q_in, int kv_in,
                            struct attn_linear_roles *roles);
/* The sizes of all operands are provably equal, nothing is broadcast, heads and dims are numbers,
 * and few operands must be transposed. NULL, or the first condition that fails. */
const char *attn_linear_roles_fit(const struct attn_graph *graph,
                                  struct attn_linear_roles *roles);

/* The orders of axes that LinearAttention reads; without heads, the last two. */
enum attn_linear_axes {
    ATTN_AXES_HEADS_FIRST,  /* (batch, head, token, dim) */
    ATTN_AXES_TOKENS_FIRST, /* (batch, token, head, dim), as (batch, token, head * dim) */
    ATTN_AXES_DIMS_FIRST,   /* (batch, head, dim, token) */
    ATTN_AXES_N
};

/* The operands in one order of axes. */
struct attn_linear_order {
    int32_t in[3];             /* Q, K, V */
    int32_t y;                 /* the result goes in the place of this value, ... */
    char made[4], y_labels[4]; /* ... once its axes, which are `made`, are in its order */
    enum attn_linear_axes axes;
};
/* The order that moves the fewest operands: those that are in another
 * order are transposed in front of `node`, whose result is Y. A Transpose that alone reads it
 * counts as its order, too. */
attn_status attn_linear_roles_arrange(struct attn_graph *graph, struct attn_node *node,
                                      const struct attn_linear_roles *roles,
                                      struct attn_linear_order *order);

#endif
