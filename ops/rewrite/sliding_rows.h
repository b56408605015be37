/* sliding_rows.h - attention over windows that are cut out of a sequence as chunks, in words of
 * the sequence: what fuse_sliding_chunks.c and sliding_rows.c share. All sizes are constants. */
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

/* out[o, x, y] = sum over d of a[o, x, d] b[o, y, d]. Labels of `out` in that order of roles. */
struct attn_sliding_product {
    int32_t value;
    struct attn_sliding_rows a, b; /* b: [outer][y] */
    int64_t outer, x, y;
    int64_t outer_stride, x_stride, y_stride; /* of `value`, and `outer` axes are dense */
};
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
};
/* Sets a place that is not known; false where another one is. */
static inline bool sliding_put(struct attn_sliding_places *places, int64_t which,
                               int64_t at)
{
    if (places->at[which] < 0)
        places->at[which] = at;
    return places->at[which] == at;
}
/* Whether all are known, and are those of a dense tensor with axes batch, heads, tokens, dim in
 * any order; then perm[i] is the axis of (batch, heads, tokens, dim) that is axis i there. */
bool attn_sliding_is_dense(const struct attn_sliding_places *places, int64_t dim,
                           int64_t step, int64_t elements, int perm[4]);

#endif
