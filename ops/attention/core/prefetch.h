/* prefetch.h - lists of rows to prefetch (struct attn_prefetch). Heads that are computed
 * in turns begin with attn_prefetch_now() and give the list of the next head to their
 * products. A loop over one head alone waits for each of its rows; products that prefetch
 * these rows do not.
 *
 * In: a pointer, a stride and a number of rows. Out: prefetches, and nothing else. */
#ifndef ATTN_PREFETCH_H
#define ATTN_PREFETCH_H

#include "heads.h"

/* Adds `rows` rows of `floats` floats, which are `row` floats apart, to the list. Rows
 * that do not fit into the list are left out. */
static inline void attn_prefetch_add(struct attn_prefetch *prefetch, const float *x,
                                     int64_t row, int64_t rows, int64_t floats)
{
    enum { LINE = 64 / sizeof(float) };
    if (rows > 0 && rows <= INT32_MAX && floats > 0 && floats <= INT32_MAX &&
        prefetch->n < ATTN_PREFETCH_MAX)
        prefetch->list[prefetch->n++] =
            (struct attn_prefetch_rows){ x, row, (int32_t)rows,
                                         (int32_t)ceil_div(floats, LINE) };
}

/* Adds the rows of `n` tokens of `heads` heads from x on: whole rows where the heads lie
 * side by side, otherwise those of the first head. */
static inline void attn_prefetch_heads(struct attn_prefetch *prefetch, const float *x,
                                       const struct attn_heads *at, int64_t dim,
                                       int64_t heads, int64_t n)
{
    const int64_t floats = (heads - 1) * at->head + dim;
    const bool side_by_side = at->head == dim && at->row >= floats;
    attn_prefetch_add(prefetch, x, at->row, n, side_by_side ? floats : dim);
}

/* Reads all rows of the list in the order in which they lie, so that the CPU recognizes
 * streams. */
static inline void attn_prefetch_now(const struct attn_prefetch *prefetch)
{
    enum { LINE = 64 / sizeof(float) };
    for (int32_t l = 0; l < prefetch->n; l++) {
        const struct attn_prefetch_rows *rows = &prefetch->list[l];
        for (int32_t i = 0; i < rows->rows; i++) {
            const volatile float *x = rows->first + i * rows->row;
            for (int32_t line = 0; line < rows->lines; line++)
                (void)x[line * LINE];
        }
    }
}

#endif
