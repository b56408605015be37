/* pairs.h - pairs of bf16 as operands of register tiles. A word of 4 bytes holds two
 * elements that follow each other along the sum, the first in its low half. */
#ifndef ATTN_PAIRS_H
#define ATTN_PAIRS_H

#include "isa.h"

/* acc[i] += the products of both halves of a[i * a_row] and b for each row i, nv vectors. */
static ALWAYS_INLINE void pair_step(v_f32 (*acc)[2], const float *a, ptrdiff_t a_row,
                                    const float *b, const struct rows rows, const int nv)
{
    v_u32 column[2];
    UNROLL
    for (int v = 0; v < nv; v++)
        column[v] = (v_u32)v_load(b + v * VF);
    EACH_ROW (i, rows) {
        uint32_t word;
        memcpy(&word, a + i * a_row, sizeof word);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = v_dot_bf16(acc[i][v], column[v], word);
    }
}

/* Stores n floats as (n + 1) / 2 words, and zeros up to a whole vector of words. */
static inline void pair_row(float *words, const float *x, size_t n)
{
    for (; n >= 2 * VF; n -= 2 * VF, x += 2 * VF, words += VF)
        v_store(words, (v_f32)v_words_bf16(x));
    if (n == 0)
        return;
    float tail[2 * VF] = { 0 };
    memcpy(tail, x, n * sizeof *x);
    v_store(words, (v_f32)v_words_bf16(tail));
}

#endif
