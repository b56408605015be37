/* blocked_panels.h - how a convolution of blocked maps walks its work: panels of columns, in each
 * panel tiles of pixels, in each tile two vectors of columns at a time.
 *
 * The pixels of a call are cut into whole tiles and a rest: next_rows(). Each tile also prefetches
 * its share of the next panel, since memory delivers a panel more slowly than one tile uses it.
 *
 * In, defined by the file that includes this one:
 *   PANELS_CONV    the struct of the kernel
 *   PANELS_WEIGHT  the type that its weights are read as
 *   PANELS_STEP    the number of them that one column of a row has; the expression may read d
 *   PANELS_PIXELS  the pixels of a tile, a number that ATTN_TEXTS accepts
 *   run_tile(d, at, rows, nv)    computes the pixels `rows`, a struct rows, and nv vectors of
 *                                columns at `at`, a struct place; nv is a constant
 *   run_beside(d, at, rows, nv)  the same for pixels that are PANELS_BESIDE elements apart; only
 *                                where PANELS_BESIDE is defined, and PANELS_HAS_BESIDE is not 0
 *   find_weights(d, at, c, width, row)  sets where the weights of the tile at column c of a panel
 *                                are; row has room for a row of floats; only where PANELS_FLOATS is
 *                                defined
 *   panel_done(d, at, n, width)  called after all columns of a panel, for the n pixels from
 *                                at->pixel on
 * Out: run_all(d). */
#ifndef ATTN_BLOCKED_PANELS_H
#define ATTN_BLOCKED_PANELS_H

enum { PANEL = 2 * VF > ATTN_BLOCK ? 2 * VF : ATTN_BLOCK };

/* clang-format off */
#define TILE(min, max, nv)                                                               \
    static void tile_##min##x##nv(const PANELS_CONV *d, const struct place *at, size_t n) \
    {                                                                                    \
        run_tile(d, at, (struct rows){ (int)n, min, max }, nv);                          \
    }
ATTN_NARROW_TEXTS(PANELS_PIXELS, TILE, 1)
ATTN_TEXTS(PANELS_PIXELS, TILE, 2)
#define ENTRY(min, max, nv) tile_##min##x##nv,
static void (*const tiles[2][PANELS_PIXELS])(const PANELS_CONV *, const struct place *, size_t) = {
    { ATTN_NARROW_TEXTS(PANELS_PIXELS, ENTRY, 1) }, { ATTN_TEXTS(PANELS_PIXELS, ENTRY, 2) },
};
#undef ENTRY
#undef TILE
/* clang-format on */
#ifdef PANELS_BESIDE
/* The largest tiles where their pixels lie side by side: all inputs of a row of weights then
 * have one address and constant distances, which leaves the registers of the CPU to the loop. */
enum { BESIDE_MIN = PANELS_PIXELS - 2 };
static void beside_whole(const PANELS_CONV *d, const struct place *at)
{
    run_beside(d, at, (struct rows){ PANELS_PIXELS, PANELS_PIXELS, PANELS_PIXELS }, 2);
}
static void beside_less(const PANELS_CONV *d, const struct place *at, int n)
{
    run_beside(d, at, (struct rows){ n, BESIDE_MIN, PANELS_PIXELS - 1 }, 2);
}

/* Tiles of about the same size: most of them have those texts. */
static size_t next_pixels(size_t n)
{
    return PANELS_HAS_BESIDE ? even_rows(n, PANELS_PIXELS) : next_rows(n, PANELS_PIXELS);
}

static bool are_beside(const PANELS_CONV *d, int64_t first, int64_t end)
{
    int32_t apart = 0;
    for (int64_t i = first + 1; i < end; i++)
        apart |= (d->pixels[i] - d->pixels[i - 1]) ^ PANELS_BESIDE;
    return apart == 0 && end - first >= BESIDE_MIN;
}
#else
static size_t next_pixels(size_t n) { return next_rows(n, PANELS_PIXELS); }
#endif

/* All pixels of the columns of a panel. */
static void run_panel(const PANELS_CONV *d, struct place at, int64_t width,
                      const void *next)
{
    const int64_t n_tiles = (d->n_pixels + PANELS_PIXELS - 1) / PANELS_PIXELS;
    const PANELS_WEIGHT *const w = at.w;
    const int64_t column = at.column, row = at.w_row * (int64_t)sizeof *w;
#ifdef PANELS_FLOATS
    _Alignas(VEC_BYTES) float floats[2 * VF];
#endif
    for (int64_t t = 0; t < n_tiles; t++) {
        const size_t n = next_pixels((size_t)(d->n_pixels - at.pixel));
        const int64_t end = at.pixel + (int64_t)n;
        if (attn_poll_work(width * (end - at.pixel) * d->rows / 5) != ATTNRUN_OK)
            return;
        at.next_step = next != NULL ? row / n_tiles : 0;
        at.next = (const char *)(next != NULL ? next : w) + t * d->rows * at.next_step;
#ifdef PANELS_BESIDE
        const bool beside = PANELS_HAS_BESIDE && are_beside(d, at.pixel, end);
#endif
        for (int64_t c = 0; c < width; c += 2 * VF) {
            const int nv = width - c > VF ? 2 : 1;
            at.column = column + c;
            at.w = w + PANELS_STEP * c;
#ifdef PANELS_FLOATS
            find_weights(d, &at, c, width, floats);
#endif
#ifdef PANELS_BESIDE
            if (beside && nv == 2) {
                if (end - at.pixel == PANELS_PIXELS)
                    beside_whole(d, &at);
                else
                    beside_less(d, &at, (int)(end - at.pixel));
                continue;
            }
#endif
            tiles[nv - 1][nv == 1 ? narrow_text_of(n, PANELS_PIXELS)
                                  : text_of(n, PANELS_PIXELS)](d, &at, n);
        }
        at.column = column;
        panel_done(d, &at, end - at.pixel, width);
        at.pixel = end;
    }
}

static void run_all(const PANELS_CONV *d)
{
    const PANELS_WEIGHT *const w = (const PANELS_WEIGHT *)d->w;
    for (int64_t column = 0; column < d->columns; column += PANEL) {
        const int64_t left = d->columns - column, width = left < PANEL ? left : PANEL;
        const PANELS_WEIGHT *const panel = w + PANELS_STEP * column * d->rows;
        const int64_t row = PANELS_STEP * width;
        run_panel(d, (struct place){ .column = column, .w = panel, .w_row = row }, width,
                  left > PANEL ? panel + row * d->rows : d->next);
    }
}

#endif
