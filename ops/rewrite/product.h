/* product.h - MatMul and Einsum as products whose axes have letters: what the letters of two
 * operands share decides what is summed, so that transposes cost nothing and prove nothing
 * wrong. In: a value. Out: its operands and itself, each with a letter for every axis. */
#ifndef ATTN_PRODUCT_H
#define ATTN_PRODUCT_H

#include "match.h"

enum { PRODUCT_RANK = 6 };

/* A value of rank 6 or less with a letter for each axis; 0 behind them. */
struct attn_lettered {
    int32_t value;
    int n;
    char letters[PRODUCT_RANK + 1];
};

struct attn_product {
    struct attn_lettered in[3], out;
    int n_in;
};

/* `value` as the result of MatMul (of matrices, the axes before them from the last on) or Einsum
 * of f32, where no operand has a letter twice; else false. */
bool attn_product_read(const struct attn_graph *graph, int32_t value,
                       struct attn_product *product);
/* Through Transposes, with the letters in the order of what they read. */
void attn_lettered_untranspose(const struct attn_graph *graph, struct attn_lettered *x);

static inline bool attn_lettered_has(const struct attn_lettered *x, char letter)
{
    return memchr(x->letters, letter, (size_t)x->n) != NULL;
}
/* The axis of a letter that it has. */
static inline int attn_lettered_place(const struct attn_lettered *x, char letter)
{
    return (int)((const char *)memchr(x->letters, letter, (size_t)x->n) - x->letters);
}

#endif
