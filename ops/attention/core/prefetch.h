/* prefetch.h - lists of rows to prefetch (struct attn_ahead). Heads that take turns
 * begin with attn_ahead_now() and give the list of the next turn to their products: a
 * walk of one head alone waits for each of its rows, products that prefetch them do not.
 * In: a pointer, a stride and a number of rows. Out: prefetches, and nothing else. */
#ifndef ATTN_PREFETCH_H
#define ATTN_PREFETCH_H

#include "heads.h"

/* `rows` rows of `floats` floats, `row` apart. What does not fit into the list is left
 * out. */
static inline void attn_ahead_add(struct attn_ahead *ahead, const float *x, int64_t row,
                                  int64_t rows, int64_t floats)
{
    enum { LINE = 64 / sizeof(float) };
    if (rows > 0 && rows <= INT32_MAX && floats > 0 && floats <= INT32_MAX &&
        ahead->n < ATTN_AHEAD_MAX)
        ahead->list[ahead->n++] =
            (struct attn_ahead_rows){ x, row, (int32_t)rows,
                                      (int32_t)((floats + LINE - 1) / LINE) };
}

/* The rows of `n` tokens of `heads` heads from x on: whole ones where the heads lie side
 * by side, else those of the first head. */
static inline void attn_ahead_heads(struct attn_ahead *ahead, const float *x,
                                    const struct attn_heads *at, int64_t dim,
                                    int64_t heads, int64_t n)
{
    const int64_t floats = (heads - 1) * at->head + dim;
    const bool side_by_side = at->head == dim && at->row >= floats;
    attn_ahead_add(ahead, x, at->row, n, side_by_side ? floats : dim);
}

/* Reads all of it, in the order in which it lies, so that rows come in streams. */
static inline void attn_ahead_now(const struct attn_ahead *ahead)
{
    enum { LINE = 64 / sizeof(float) };
    for (int32_t l = 0; l < ahead->n; l++) {
        const struct attn_ahead_rows *rows = &ahead->list[l];
        for (int32_t i = 0; i < rows->rows; i++) {
            const volatile float *x = rows->first + i * rows->row;
            for (int32_t line = 0; line < rows->lines; line++)
                (void)x[line * LINE];
        }
    }
}

#endif
