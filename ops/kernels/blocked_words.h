/* blocked_words.h - the text of convolutions of blocked maps whose operands are words of 4
 * bytes: a tile of up to `most` pixels and two vectors of columns stays in registers while the
 * rows of the weights pass by, each a word of every column, which meets a word of every pixel.
 *
 * In: WORDS_CONV, the struct of the kernel; WORDS_SUM, the vector of sums; WORDS_PIXELS, the
 * pixels of a tile, up to WORDS_MAX, which ATTN_EACH_ROW knows; and for that struct
 *   words_first(d, column)       what sums begin with
 *   words_add(sum, weight, word) of a struct wide by widen(words), and a word of each lane
 *   words_put(d, sums, at, n, nv)
 *   words_done(d, at, n, width)  after all columns of a panel, for n pixels from at->pixel
 * Out: run_all(d). */
#ifndef ATTN_BLOCKED_WORDS_H
#define ATTN_BLOCKED_WORDS_H

enum { PANEL = 2 * VF > ATTN_BLOCK ? 2 * VF : ATTN_BLOCK };

static ALWAYS_INLINE v_u32 word_at(const uint8_t *x)
{
    uint32_t word;
    memcpy(&word, x, sizeof word);
    return word - (v_u32){ 0 };
}

static ALWAYS_INLINE void run_tile(const WORDS_CONV *d, const struct place *at,
                                   const int n, const int nv)
{
    WORDS_SUM acc[WORDS_MAX][2];
    const int32_t *pixels = d->pixels + at->pixel;
    const uint8_t *w = at->w;
    const int64_t w_row = at->w_row;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const WORDS_SUM first = words_first(d, at->column + v * VF);
        UNROLL
        for (int i = 0; i < n; i++)
            acc[i][v] = first;
    }
    for (int64_t t = 0; t < d->n_taps; t++) {
        const uint8_t *x[WORDS_MAX];
        UNROLL
        for (int i = 0; i < n; i++)
            x[i] = words_pixel(d, d->taps[t].offset + pixels[i]);
        const int64_t end = d->taps[t].inputs * 4;
        for (int64_t c = 0; c < end; c += 4, w += w_row) {
            struct wide weight[2];
            UNROLL
            for (int v = 0; v < nv; v++)
                weight[v] = widen(load_words(w + v * VEC_BYTES));
            UNROLL
            for (int i = 0; i < n; i++) {
                const v_u32 input = word_at(x[i] + c);
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[i][v] = words_add(acc[i][v], weight[v], input);
            }
        }
    }
    words_put(d, acc, at, n, nv);
}

/* clang-format off */
#define TILE(n, nv)                                                                      \
    static void tile_##n##x##nv(const WORDS_CONV *d, const struct place *at)             \
    {                                                                                    \
        run_tile(d, at, n, nv);                                                          \
    }
ATTN_EACH_ROW(WORDS_MAX, TILE, 1)
ATTN_EACH_ROW(WORDS_MAX, TILE, 2)
#define ENTRY(n, nv) tile_##n##x##nv,
static void (*const tiles[2][WORDS_MAX])(const WORDS_CONV *, const struct place *) = {
    { ATTN_EACH_ROW(WORDS_MAX, ENTRY, 1) }, { ATTN_EACH_ROW(WORDS_MAX, ENTRY, 2) },
};
#undef ENTRY
#undef TILE
/* clang-format on */

/* All pixels of the columns of a panel. */
static void run_panel(const WORDS_CONV *d, struct place at, int64_t width)
{
    const int64_t n_tiles = (d->n_pixels + WORDS_PIXELS - 1) / WORDS_PIXELS;
    const uint8_t *const w = at.w;
    const int64_t column = at.column;
    for (int64_t t = 0; t < n_tiles; t++) {
        const int64_t end = d->n_pixels * (t + 1) / n_tiles;
        if (attn_poll_work(width * (end - at.pixel) * d->rows / 5) != ATTNRUN_OK)
            return;
        for (int64_t c = 0; c < width; c += 2 * VF) {
            const int nv = width - c > VF ? 2 : 1;
            at.column = column + c;
            at.w = w + 4 * c;
            tiles[nv - 1][end - at.pixel - 1](d, &at);
        }
        at.column = column;
        words_done(d, &at, end - at.pixel, width);
        at.pixel = end;
    }
}

static void run_all(const WORDS_CONV *d)
{
    const uint8_t *const w = (const uint8_t *)d->w;
    for (int64_t column = 0; column < d->columns; column += PANEL) {
        const int64_t left = d->columns - column, width = left < PANEL ? left : PANEL;
        run_panel(d, (struct place){ 0, column, w + 4 * column * d->rows, 4 * width },
                  width);
    }
}

#endif
