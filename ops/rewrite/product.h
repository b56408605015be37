/* product.h - reads MatMul and Einsum as one form: a product whose axes have labels.
 *
 * In: a value. Out: the operands and the result of its product, each with a label for every axis,
 * as in the equation of an Einsum. The product sums the labels that are missing in the result. A
 * Transpose only changes the order of labels, so passes look through it. */
#ifndef ATTN_PRODUCT_H
#define ATTN_PRODUCT_H

#include "match.h"

enum { PRODUCT_RANK = 6 };

/* A value of rank 6 or less with a label for each axis; 0 behind them. */
struct attn_labelled {
    int32_t value;
    int n;
    char labels[PRODUCT_RANK + 1];
};

struct attn_product {
    struct attn_labelled in[3], out;
    int n_in;
};

/* `value` as the result of MatMul (of matrices, the axes before them from the last on) or Einsum
 * of f32, where no operand has a label twice; else false. */
bool attn_product_read(const struct attn_graph *graph, int32_t value,
                       struct attn_product *product);
/* The same of a product that is written by broadcasting (product_broadcast.c); sizes are not
 * compared. */
bool attn_product_read_broadcast(const struct attn_graph *graph, int32_t value,
                                 struct attn_product *product);
/* The same of an Einsum of any type. */
bool attn_einsum_read(const struct attn_graph *graph, const struct attn_node *node,
                      struct attn_product *product);
/* Puts a MatMul of Transposes, and a Transpose of it, in the place of an Einsum of two operands;
 * counts in *applied where it did (einsum_matmul.c). */
attn_status attn_einsum_to_matmul(struct attn_graph *graph, struct attn_node *einsum,
                                  int32_t *applied);
/* The product that a value is made of by scalars, masks, sums and caps (Tanh): an Einsum where
 * there is one, else a MatMul or FusedMatMul; NULL: none. */
struct attn_node *attn_product_behind(const struct attn_graph *graph, int32_t value);
/* Through Transposes, with the labels in the order of what they read. */
void attn_labelled_untranspose(const struct attn_graph *graph, struct attn_labelled *x);
/* *value, whose `n` axes have the labels `from`, with its axes in the order of `to`, by a
 * Transpose in front of `before`; as it is where nothing moves. */
attn_status attn_labels_transpose(struct attn_graph *graph, struct attn_node *before,
                                  const char *from, const char *to, int n,
                                  int32_t *value);

static inline bool attn_labelled_has(const struct attn_labelled *x, char label)
{
    return memchr(x->labels, label, (size_t)x->n) != NULL;
}
/* The one label of x that `other` has not; 0: none, or several. */
char attn_labelled_own(const struct attn_labelled *x, const struct attn_labelled *other);
/* The axis of a label that it has. */
static inline int attn_labelled_place(const struct attn_labelled *x, char label)
{
    return (int)((const char *)memchr(x->labels, label, (size_t)x->n) - x->labels);
}
static inline attnrun_dim attn_labelled_dim(const struct attn_graph *graph,
                                            const struct attn_labelled *x, char label)
{
    return graph->values[x->value].type.dims[attn_labelled_place(x, label)];
}

#endif
