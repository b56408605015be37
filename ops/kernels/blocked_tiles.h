/* blocked_tiles.h - the loops of a convolution of blocked maps by tiles (AMX) of 16 rows
 * of 16 words. 32 pixels times 32 columns are summed in four tiles, while the sums of the
 * 32 pixels before are finished.
 *
 * A row of a tile is one pixel's inputs of a tap, which lie side by side in x; the rows of
 * the weights of a tap are the other operand. Both are read where they are. A tile takes up
 * to 16 pixels of a line of the grid, or, where lines are short, of the places of several
 * lines, those between them too, whose sums are dropped. Tiles have similar sizes: 28 pixels
 * are twice 14, and a tile of 14 takes 14/16 of the time.
 *
 * In: TILES_CONV, the struct of the kernel, and TILES_SUM, the type of its sums;
 * TILES_DOT(sums, pixels, weights) of tiles; and for that struct
 *   tiles_first(d, column)       the place of the 16 numbers that sums begin with
 *   tiles_put(d, at)             finishes the sums at->sums
 * Out: run_tiles(d), and can_tile(d), which says whether d has a grid that is worth it. */
#ifndef ATTN_BLOCKED_TILES_H
#define ATTN_BLOCKED_TILES_H

enum {
    SIDE = 16, /* rows of a tile, and words of one */
    STEP_BYTES = 64,
    TILE_COLUMNS = 2 * SIDE /* columns */
};

/* The sums of n pixels from `pixel` on and of the columns of nv tiles from `column` on;
 * rows of sums are TILE_COLUMNS apart. */
struct put {
    const TILES_SUM *sums;
    int64_t pixel, n, column;
    int nv;
};

/* How the places of the grid are cut: into tiles of up to `rows` pixels, of_line for each
 * line; or, with of_line = 0, of all places of the grid, of which a line has line_places. */
struct tile_cut {
    int64_t tiles, rows, of_line, line_places;
};

static const void *tiles_first(const TILES_CONV *d, int64_t column);
static void tiles_put(const TILES_CONV *d, const struct put *at);

static int64_t tiles_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Cycles of a step: products of two tiles of pixels, or the loads beside them. */
static int64_t cut_cost(const struct tile_cut *c)
{
    enum { LOADS = 40 };
    return tiles_ceil(c->tiles, 2) * (4 * c->rows < LOADS ? LOADS : 4 * c->rows);
}

static struct tile_cut cut_tiles(const struct attn_pixel_grid *g)
{
    struct tile_cut lines = { .of_line = tiles_ceil(g->columns, SIDE) };
    lines.rows = tiles_ceil(g->columns, lines.of_line);
    lines.tiles = g->lines * lines.of_line;
    if (g->lines == 1 || g->line_step % g->column_step != 0)
        return lines;
    struct tile_cut places = { .line_places = g->line_step / g->column_step };
    const int64_t n = (g->lines - 1) * places.line_places + g->columns;
    places.tiles = tiles_ceil(n, SIDE);
    places.rows = tiles_ceil(n, places.tiles);
    return cut_cost(&places) < cut_cost(&lines) ? places : lines;
}

/* Elements of x from the first pixel to that of tile t. */
static int64_t tile_place(const struct attn_pixel_grid *g, const struct tile_cut *c,
                          int64_t t)
{
    if (c->of_line == 0)
        return t * c->rows * g->column_step;
    return t / c->of_line * g->line_step + t % c->of_line * c->rows * g->column_step;
}

static void begin_tiles(int64_t pixels, int64_t inputs)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) { /* 0 to 3 sums, 4 and 5 pixels, 6 and 7 weights */
        config.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * inputs : STEP_BYTES);
        config.rows[i] = (uint8_t)(i < 6 ? pixels : inputs);
    }
    v_tiles_fence();
    _tile_loadconfig(&config);
}

/* ---- products ---- */

/* A panel of the weights, of nv tiles of columns, with rows of `row` bytes; and what is
 * prefetched: `lines` of 64 bytes from next on for each step. */
struct panel {
    const uint8_t *w;
    int64_t row, column, lines;
    const char *next;
};

static ALWAYS_INLINE void sum_tiles(const TILES_CONV *d, const struct panel *panel,
                                    const uint8_t *a, const uint8_t *a2, TILES_SUM *sums,
                                    const bool two, const int nv)
{
    const char *const first = tiles_first(d, panel->column);
    const struct attn_blocked_tap *tap = d->taps, *const end = tap + d->n_taps;
    const int64_t bytes = (int64_t)sizeof *d->x, row = panel->row;
    const int64_t pixel = d->grid.column_step * bytes, step = tap->inputs * row;
    const uint8_t *b = panel->w;
    const char *next = panel->next;
    v_tiles_fence(); /* what x points to was stored */
    _tile_loadd(0, first, 0);
    if (nv == 2)
        _tile_loadd(1, first + STEP_BYTES, 0);
    if (two)
        _tile_loadd(2, first, 0);
    if (two && nv == 2)
        _tile_loadd(3, first + STEP_BYTES, 0);
    for (; tap < end; tap++, b += step) {
        const int64_t offset = tap->offset * bytes;
        _tile_loadd(6, b, row);
        _tile_loadd(4, a + offset, pixel);
        if (nv == 2)
            _tile_loadd(7, b + STEP_BYTES, row);
        if (two)
            _tile_loadd(5, a2 + offset, pixel);
        TILES_DOT(0, 4, 6);
        if (nv == 2)
            TILES_DOT(1, 4, 7);
        if (two)
            TILES_DOT(2, 5, 6);
        if (two && nv == 2)
            TILES_DOT(3, 5, 7);
        for (int64_t i = 0; i < panel->lines; i++, next += 64)
            __builtin_prefetch(next, 0, 2);
    }
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
    const uint8_t *const x = (const uint8_t *)(d->x + d->pixels[0]);
    const int64_t bytes = (int64_t)sizeof *d->x;
    const uint8_t *a = x + tile_place(&d->grid, c, t) * bytes,
                  *a2 = x + tile_place(&d->grid, c, t + 1) * bytes;
    const bool two = t + 1 < c->tiles;
    if (two && nv == 2)
        sum_tiles(d, panel, a, a2, sums, true, 2);
    else if (two)
        sum_tiles(d, panel, a, a2, sums, true, 1);
    else if (nv == 2)
        sum_tiles(d, panel, a, a, sums, false, 2);
    else
        sum_tiles(d, panel, a, a, sums, false, 1);
}

/* Finishes the sums of tile t: those of pixels of the grid. */
static void put_tile(const TILES_CONV *d, const struct tile_cut *c, int64_t t,
                     struct put put)
{
    const TILES_SUM *const sums = put.sums;
    const int64_t columns = d->grid.columns;
    if (c->of_line > 0) {
        const int64_t from = t % c->of_line * c->rows, left = columns - from;
        put.pixel = t / c->of_line * columns + from;
        put.n = left < c->rows ? left : c->rows;
        tiles_put(d, &put);
        return;
    }
    const int64_t begin = t * c->rows, end = begin + c->rows;
    int64_t line = begin / c->line_places;
    for (; line < d->grid.lines && line * c->line_places < end; line++) {
        const int64_t place = line * c->line_places;
        const int64_t from = begin > place ? begin - place : 0;
        const int64_t to = end - place < columns ? end - place : columns;
        if (from >= to)
            continue;
        put.sums = sums + (place + from - begin) * TILE_COLUMNS;
        put.pixel = line * columns + from;
        put.n = to - from;
        tiles_put(d, &put);
    }
}

static void put_tiles(const TILES_CONV *d, const struct tile_cut *c, int64_t t,
                      struct put put)
{
    const TILES_SUM *const sums = put.sums;
    for (int i = 0; i < 2 && t + i < c->tiles; i++) {
        put.sums = sums + i * SIDE * TILE_COLUMNS;
        put_tile(d, c, t + i, put);
    }
}

static bool can_tile(const TILES_CONV *d)
{
    enum { MIN_PIXELS = 4 }; /* fewer are as fast without */
    return d->grid.columns > 0 && d->n_pixels >= MIN_PIXELS;
}

static void run_tiles(const TILES_CONV *d)
{
    _Alignas(64) TILES_SUM sums[2][2 * SIDE * TILE_COLUMNS];
    const struct tile_cut c = cut_tiles(&d->grid);
    const int64_t pairs = (c.tiles + 1) / 2, inputs = d->taps[0].inputs;
    struct put before = { .nv = 0 };
    int64_t before_tile = 0;
    int at = 0;
    begin_tiles(c.rows, inputs);
    for (int64_t column = 0; column < d->columns; column += TILE_COLUMNS) {
        const int64_t left = d->columns - column,
                      width = left < TILE_COLUMNS ? left : TILE_COLUMNS;
        struct panel p = { .w = (const uint8_t *)d->w + 4 * column * d->rows,
                           .row = 4 * width,
                           .column = column };
        const int nv = width > SIDE ? 2 : 1;
        const char *const next = left > TILE_COLUMNS ? (const char *)p.w + p.row * d->rows
                                                     : (const char *)d->next;
        p.lines = next != NULL ? tiles_ceil(inputs * p.row / 64, pairs) : 0;
        if (attn_poll_work(width * d->n_pixels * d->rows / 40) != ATTNRUN_OK)
            break;
        for (int64_t t = 0; t < c.tiles; t += 2, at ^= 1) {
            p.next = next + t / 2 * p.lines * d->n_taps * 64;
            sum_some(d, &c, &p, t, nv, sums[at]);
            if (before.nv > 0)
                put_tiles(d, &c, before_tile, before);
            before = (struct put){ .sums = sums[at], .column = column, .nv = nv };
            before_tile = t;
        }
    }
    if (before.nv > 0)
        put_tiles(d, &c, before_tile, before);
    _tile_release();
}

#endif
