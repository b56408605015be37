/* blocked_words.h - the text of convolutions of blocked maps whose operands are words of
 * 4 bytes. A tile of up to WORDS_PIXELS pixels and two vectors of columns stays in
 * registers, while the rows of the weights are read: each row has a word for every
 * column, which is multiplied by a word of every pixel.
 *
 * In: WORDS_CONV, the struct of the kernel; WORDS_SUM, the vector of sums; WORDS_PIXELS,
 * the pixels of a tile, a number that ATTN_TEXTS accepts; WORDS_BESIDE, the elements of x
 * from a pixel to the one beside it, and WORDS_BYTES, their bytes; WORDS_HAS_BESIDE, 1 where such
 * pixels have texts of their own; and for that struct
 *   words_first(d, column)       the numbers that sums begin with
 *   words_add(sum, weight, word) sum + the products of a word of a pixel and those of the
 *                                weights; `weight` is a struct wide that promote() made
 *   words_put(d, sums, at, rows, nv)  what becomes of the sums of pixels and nv vectors
 *   panel_done(d, at, n, width)  as in blocked_panels.h
 * Out: run_all(d). */
#ifndef ATTN_BLOCKED_WORDS_H
#define ATTN_BLOCKED_WORDS_H

static ALWAYS_INLINE v_u32 word_at(const uint8_t *x)
{
    uint32_t word;
    memcpy(&word, x, sizeof word);
    return word - (v_u32){ 0 };
}

static ALWAYS_INLINE void words_tile(const WORDS_CONV *d, const struct place *at,
                                     const struct rows rows, const int nv,
                                     const bool beside)
{
    WORDS_SUM acc[WORDS_PIXELS][2];
    const int32_t *pixels = d->pixels + at->pixel;
    const uint8_t *w = at->w;
    const int64_t w_row = at->w_row;
    const char *next = at->next;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const WORDS_SUM first = words_first(d, at->column + v * VF);
        UNROLL
        for (int i = 0; i < rows.max; i++)
            acc[i][v] = first;
    }
    for (int64_t t = 0; t < d->n_taps; t++) {
        const uint8_t *x[WORDS_PIXELS];
        UNROLL
        for (int i = 0; i < rows.max; i++)
            x[i] = beside
                       ? words_pixel(d, d->taps[t].offset + pixels[0]) + i * WORDS_BYTES
                       : words_pixel(d, d->taps[t].offset +
                                            pixels[has_row(rows, i) ? i : 0]);
        const int64_t end = d->taps[t].inputs * 4;
        for (int64_t c = 0; c < end; c += 4, w += w_row) {
            struct wide weight[2];
            UNROLL
            for (int v = 0; v < nv; v++)
                weight[v] = promote(load_words(w + v * VEC_BYTES));
            __builtin_prefetch(next, 0, 2); /* into L2: L1 is full of this panel */
            next += at->next_step;
            EACH_ROW (i, rows) {
                const v_u32 input = word_at(x[i] + c);
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[i][v] = words_add(acc[i][v], weight[v], input);
            }
        }
    }
    words_put(d, acc, at, rows, nv);
}

static ALWAYS_INLINE void run_tile(const WORDS_CONV *d, const struct place *at,
                                   const struct rows rows, const int nv)
{
    words_tile(d, at, rows, nv, false);
}
static ALWAYS_INLINE void run_beside(const WORDS_CONV *d, const struct place *at,
                                     const struct rows rows, const int nv)
{
    words_tile(d, at, rows, nv, true);
}

#define PANELS_CONV       WORDS_CONV
#define PANELS_WEIGHT     uint8_t
#define PANELS_PIXELS     WORDS_PIXELS
#define PANELS_BESIDE     WORDS_BESIDE
#define PANELS_HAS_BESIDE WORDS_HAS_BESIDE
enum { PANELS_STEP = 4 };
#include "blocked_panels.h"

#endif
