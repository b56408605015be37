/* sliding_rows.h - attention over windows that a file cuts out of a sequence as overlapping
 * chunks, expressed by the rows of the sequence. fuse_sliding_chunks.c and sliding_rows.c share it.
 *
 * In: a value of the graph that is a product of chunks. Out: which row of which value each element
 * was multiplied from, and whether these rows are a dense tensor. All sizes are constants.
 * Cost: linear in the number of elements of the product. */
#ifndef ATTN_SLIDING_ROWS_H
#define ATTN_SLIDING_ROWS_H

#include "product.h"
#include "provenance.h"

/* The rows that an operand of a product of chunks multiplies, [outer][rows] of them: the first
 * element of each in `value`, whose next one is `step` further. */
struct attn_sliding_rows {
    int64_t outer, rows, dim;
    int32_t value; /* -1: none yet */
    int64_t step;
    int64_t *from;  /* -1: a row of one number … */
    double *number; /* … which is this */
};

/* value[o, x, y] = sum over d of a[o, x, d] b[o, y, d]: `a` has the rows [o][x], b [o][y]. Axes o
 * and x may come in any order, y is the last one: the value has `rank` axes of `dim`, whose index
 * counts row[] in the rows of `a`, and column[] in those of b. */
struct attn_sliding_product {
    int32_t value;
    struct attn_sliding_rows a, b;
    int64_t outer, x, y;
    int rank;
    int64_t dim[PRODUCT_RANK], row[PRODUCT_RANK], column[PRODUCT_RANK];
    bool in_order; /* o, x, y */
};
/* The rows of `a` and of `b` whose product element `at` of the value is. */
static inline void attn_sliding_pair(const struct attn_sliding_product *p, int64_t at,
                                     int64_t *row, int64_t *column)
{
    *row = at / p->y;
    *column = *row / p->x * p->y + at % p->y;
    if (p->in_order)
        return;
    *row = *column = 0;
    for (int a = p->rank - 1; a >= 0; a--) {
        *row += at % p->dim[a] * p->row[a];
        *column += at % p->dim[a] * p->column[a];
        at /= p->dim[a];
    }
}
/* Reads a product whose `a` and `b` come from values by moves of elements. *done: false where it
 * is none. */
attn_status attn_sliding_read_product(struct attn_provenance *p, int32_t value,
                                      struct attn_sliding_product *product, bool *done);
/* Reads out[o, x, d] = sum over y of w[o, x, y] v[o, y, d] that gives `value`: product->value is w,
 * dense in that order, and product->b has the rows of v, one for each y. */
attn_status attn_sliding_read_values(struct attn_provenance *p, int32_t value,
                                     struct attn_sliding_product *product, bool *done);

/* Where (sample and head, token) lies in an operand: [batch * heads * tokens], -1: not known. */
struct attn_sliding_places {
    int64_t *at;
    int64_t heads, tokens, n;
    int axes
        [4]; /* of (batch, heads, tokens, dim), in the order of the operand's; once dense */
};
/* Sets a place that is not known; false where another one is. */
static inline bool attn_sliding_put(struct attn_sliding_places *places, int64_t which,
                                    int64_t at)
{
    if (places->at[which] < 0)
        places->at[which] = at;
    return places->at[which] == at;
}
/* Whether all are known, and are those of a dense tensor with axes batch, heads, tokens, dim in
 * any order, which places->axes says then. */
bool attn_sliding_is_dense(struct attn_sliding_places *places, int64_t dim, int64_t step,
                           int64_t elements);

#endif
