/* blocked_tiles.h - the loops of a convolution of blocked maps by tiles (AMX) of 16 rows
 * of 16 words. 32 pixels times 32 columns are summed in four tiles, while the sums of the
 * 32 pixels before are finished.
 *
 * Tiles read rows of 64 bytes, and a pixel's inputs lie in blocks of 16 channels. The
 * pixels of a call are therefore copied first, in the order [tile][step of 16 rows of
 * weights][pixel of the tile][64 bytes], with 0 where a step has no row; all columns read
 * the copy. Weights are read in place, except the rows of a last step, which are copied
 * with rows of 0 behind them. Pixels are cut into tiles of similar size: 49 are 13, 13,
 * 13 and 10, and a tile of 13 takes 13/16 of the time.
 *
 * In: TILES_CONV, the struct of the kernel, and TILES_SUM, the type of its sums;
 * TILES_DOT(sums, pixels, weights) of tiles; and for that struct
 *   tiles_first(d, column)       the place of the 16 numbers that sums begin with
 *   tiles_copied(d, cut)         is called after the copy was made
 *   tiles_put(d, at)             finishes the sums at->sums
 * Out: run_tiles(d). */
#ifndef ATTN_BLOCKED_TILES_H
#define ATTN_BLOCKED_TILES_H

enum {
    SIDE = 16, /* rows of a tile, and words of one */
    STEP_BYTES = 64,
    TILE_BYTES = SIDE * STEP_BYTES,
    TILE_COLUMNS = 2 * SIDE, /* columns */
    PIECE = 16               /* bytes of a block of channels */
};

/* The sums of n pixels from `pixel` on and of the columns of nv tiles from `column` on;
 * rows of sums are TILE_COLUMNS apart. */
struct put {
    const TILES_SUM *sums;
    int64_t pixel, n, column;
    int nv;
};

/* How the pixels and the rows of weights are cut. */
struct tile_cut {
    int64_t tiles, pixels; /* of a tile */
    int64_t steps, last;   /* last: rows of the last step */
};

static const void *tiles_first(const TILES_CONV *d, int64_t column);
static void tiles_copied(const TILES_CONV *d, const struct tile_cut *cut);
static void tiles_put(const TILES_CONV *d, const struct put *at);

static struct tile_cut cut_tiles(int64_t n_pixels, int64_t rows)
{
    struct tile_cut c = { .tiles = (n_pixels + SIDE - 1) / SIDE,
                          .steps = (rows + SIDE - 1) / SIDE };
    c.pixels = (n_pixels + c.tiles - 1) / c.tiles;
    c.tiles = (n_pixels + c.pixels - 1) / c.pixels;
    c.last = rows - (c.steps - 1) * SIDE;
    return c;
}

static void begin_tiles(int64_t pixels)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) { /* 0 to 3 sums, 4 and 5 pixels, 6 and 7 weights */
        config.bytes[i] = STEP_BYTES;
        config.rows[i] = (uint8_t)(i < 6 ? pixels : SIDE);
    }
    v_tiles_fence();
    _tile_loadconfig(&config);
}

/* ---- the copy of pixels ---- */

static ALWAYS_INLINE void copy_piece(uint8_t *to, const uint8_t *from)
{
    memcpy(to, from, PIECE);
}

/* Copies whole steps, where all taps have whole pieces: one step of all pixels after the
 * other. */
static void copy_pieces(const TILES_CONV *d, const struct tile_cut *c)
{
    const struct attn_blocked_tap *tap = d->taps;
    int64_t within = 0; /* words of the tap that are copied */
    for (int64_t s = 0; s < c->steps; s++) {
        const uint8_t *x[4];
        const int64_t n = (s + 1 < c->steps ? SIDE : c->last) / 4;
        for (int64_t i = 0; i < n; i++) {
            x[i] = (const uint8_t *)(d->x + tap->offset) + 4 * within;
            within += 4;
            if (within == tap->inputs) {
                within = 0;
                tap++;
            }
        }
        const int32_t *pixel = d->pixels;
        for (int64_t t = 0; t < c->tiles; t++) {
            uint8_t *to = d->copy + (t * c->steps + s) * TILE_BYTES;
            const int64_t left = d->n_pixels - t * c->pixels;
            const int64_t end = left < c->pixels ? left : c->pixels;
            for (int64_t i = 0; i < end; i++, to += STEP_BYTES, pixel++) {
                const int64_t at = *pixel * (int64_t)sizeof *d->x;
                if (n == 4) {
                    copy_piece(to, x[0] + at);
                    copy_piece(to + PIECE, x[1] + at);
                    copy_piece(to + 2 * PIECE, x[2] + at);
                    copy_piece(to + 3 * PIECE, x[3] + at);
                    continue;
                }
                memset(to + PIECE, 0, STEP_BYTES - PIECE);
                for (int64_t k = 0; k < n; k++)
                    copy_piece(to + k * PIECE, x[k] + at);
            }
        }
    }
}

/* The same for any taps: one pixel after the other, through a line of all its words. */
static void copy_lines(const TILES_CONV *d, const struct tile_cut *c)
{
    uint8_t *const line = d->copy + c->tiles * c->steps * TILE_BYTES;
    memset(line + (c->steps - 1) * STEP_BYTES, 0, STEP_BYTES);
    for (int64_t p = 0; p < d->n_pixels; p++) {
        uint8_t *to = line;
        for (int64_t i = 0; i < d->n_taps; i++) {
            const uint8_t *x = (const uint8_t *)(d->x + d->taps[i].offset + d->pixels[p]);
            const int64_t n = d->taps[i].inputs * 4;
            for (int64_t k = 0; k + PIECE <= n; k += PIECE)
                copy_piece(to + k, x + k);
            if (n >= PIECE && n % PIECE != 0)
                copy_piece(to + n - PIECE, x + n - PIECE);
            for (int64_t k = 0; n < PIECE && k < n; k += 4)
                memcpy(to + k, x + k, 4);
            to += n;
        }
        to = d->copy + p / c->pixels * c->steps * TILE_BYTES + p % c->pixels * STEP_BYTES;
        for (int64_t s = 0; s < c->steps; s++)
            memcpy(to + s * TILE_BYTES, line + s * STEP_BYTES, STEP_BYTES);
    }
}

static void copy_all(const TILES_CONV *d, const struct tile_cut *c)
{
    bool whole = true;
    for (int64_t t = 0; t < d->n_taps; t++)
        whole = whole && d->taps[t].inputs % 4 == 0;
    if (whole)
        copy_pieces(d, c);
    else
        copy_lines(d, c);
}

/* ---- products ---- */

/* A panel of the weights, of nv tiles of columns: its first row, the rows of its last
 * step, and what is prefetched: `lines` of 64 bytes from next on for each step. */
struct panel {
    const uint8_t *w;
    int64_t row, last_row; /* bytes */
    const uint8_t *last;   /* step */
    int64_t column, lines;
    const char *next;
};

/* One step: tiles 4 and 5 of pixels, `pixels` bytes apart, times 6 and 7 of weights. */
#define TILES_STEP(a, step_bytes, b, row)                                                \
    do {                                                                                 \
        _tile_loadd(6, b, row);                                                          \
        _tile_loadd(4, a, STEP_BYTES);                                                   \
        if (nv == 2)                                                                     \
            _tile_loadd(7, (b) + STEP_BYTES, row);                                       \
        if (two)                                                                         \
            _tile_loadd(5, (a) + (step_bytes), STEP_BYTES);                              \
        TILES_DOT(0, 4, 6);                                                              \
        if (nv == 2)                                                                     \
            TILES_DOT(1, 4, 7);                                                          \
        if (two)                                                                         \
            TILES_DOT(2, 5, 6);                                                          \
        if (two && nv == 2)                                                              \
            TILES_DOT(3, 5, 7);                                                          \
    } while (0)

static ALWAYS_INLINE void sum_tiles(const TILES_CONV *d, const struct tile_cut *c,
                                    const struct panel *panel, const uint8_t *a,
                                    TILES_SUM *sums, const bool two, const int nv)
{
    const void *const first = tiles_first(d, panel->column);
    const uint8_t *b = panel->w;
    const int64_t tile = c->steps * TILE_BYTES;
    const char *next = panel->next;
    v_tiles_fence(); /* the copy was stored */
    _tile_loadd(0, first, 0);
    if (nv == 2)
        _tile_loadd(1, (const char *)first + STEP_BYTES, 0);
    if (two)
        _tile_loadd(2, first, 0);
    if (two && nv == 2)
        _tile_loadd(3, (const char *)first + STEP_BYTES, 0);
    for (int64_t s = 1; s < c->steps; s++, a += TILE_BYTES, b += SIDE * panel->row) {
        TILES_STEP(a, tile, b, panel->row);
        for (int64_t i = 0; i < panel->lines; i++, next += 64)
            __builtin_prefetch(next, 0, 2);
    }
    TILES_STEP(a, tile, panel->last, panel->last_row);
    for (int64_t i = 0; i < panel->lines; i++, next += 64)
        __builtin_prefetch(next, 0, 2);
    _tile_stored(0, sums, TILE_COLUMNS * 4);
    if (nv == 2)
        _tile_stored(1, sums + SIDE, TILE_COLUMNS * 4);
    if (two)
        _tile_stored(2, sums + SIDE * TILE_COLUMNS, TILE_COLUMNS * 4);
    if (two && nv == 2)
        _tile_stored(3, sums + SIDE * TILE_COLUMNS + SIDE, TILE_COLUMNS * 4);
}

/* Computes the sums of one or two tiles of pixels, from tile t on. */
static void sum_some(const TILES_CONV *d, const struct tile_cut *c,
                     const struct panel *panel, int64_t t, int nv, TILES_SUM *sums)
{
    const uint8_t *a = d->copy + t * c->steps * TILE_BYTES;
    const bool two = t + 1 < c->tiles;
    if (two && nv == 2)
        sum_tiles(d, c, panel, a, sums, true, 2);
    else if (two)
        sum_tiles(d, c, panel, a, sums, true, 1);
    else if (nv == 2)
        sum_tiles(d, c, panel, a, sums, false, 2);
    else
        sum_tiles(d, c, panel, a, sums, false, 1);
}

static void put_tiles(const TILES_CONV *d, const struct tile_cut *c, int64_t t,
                      int64_t column, int nv, const TILES_SUM *sums)
{
    for (int i = 0; i < 2 && t + i < c->tiles; i++) {
        const int64_t pixel = (t + i) * c->pixels, left = d->n_pixels - pixel;
        tiles_put(d, &(struct put){ .sums = sums + i * SIDE * TILE_COLUMNS,
                                    .pixel = pixel,
                                    .n = left < c->pixels ? left : c->pixels,
                                    .column = column,
                                    .nv = nv });
    }
}

/* Copies the rows of the last step, with rows of 0 behind them. */
static void find_last(struct panel *p, const struct tile_cut *c, uint8_t *room)
{
    p->last = p->w + (c->steps - 1) * SIDE * p->row;
    p->last_row = p->row;
    if (c->last == SIDE)
        return;
    memcpy(room, p->last, (size_t)(c->last * p->row));
    memset(room + c->last * p->row, 0, (size_t)((SIDE - c->last) * p->row));
    p->last = room;
}

static void run_tiles(const TILES_CONV *d)
{
    _Alignas(64) TILES_SUM sums[2][2 * SIDE * TILE_COLUMNS];
    _Alignas(64) uint8_t last[2 * TILE_BYTES];
    const struct tile_cut c = cut_tiles(d->n_pixels, d->rows);
    const int64_t pairs = (c.tiles + 1) / 2;
    struct {
        int64_t tile, column;
        int nv;
    } before = { -1, 0, 0 };
    int at = 0;
    if (!d->copied) {
        copy_all(d, &c);
        tiles_copied(d, &c);
    }
    begin_tiles(c.pixels);
    for (int64_t column = 0; column < d->columns; column += TILE_COLUMNS) {
        const int64_t left = d->columns - column,
                      width = left < TILE_COLUMNS ? left : TILE_COLUMNS;
        struct panel p = { .w = (const uint8_t *)d->w + 4 * column * d->rows,
                           .row = 4 * width,
                           .column = column };
        const int nv = width > SIDE ? 2 : 1;
        const char *const next = left > TILE_COLUMNS ? (const char *)p.w + p.row * d->rows
                                                     : (const char *)d->next;
        find_last(&p, &c, last);
        p.lines = next != NULL ? (SIDE * p.row / 64 + pairs - 1) / pairs : 0;
        if (attn_poll_work(width * d->n_pixels * d->rows / 40) != ATTNRUN_OK)
            break;
        for (int64_t t = 0; t < c.tiles; t += 2, at ^= 1) {
            p.next = next + t / 2 * p.lines * c.steps * 64;
            sum_some(d, &c, &p, t, nv, sums[at]);
            if (before.tile >= 0)
                put_tiles(d, &c, before.tile, before.column, before.nv, sums[at ^ 1]);
            before.tile = t;
            before.column = column;
            before.nv = nv;
        }
    }
    if (before.tile >= 0)
        put_tiles(d, &c, before.tile, before.column, before.nv, sums[at ^ 1]);
    _tile_release();
}

#endif
