/* gemm_tiles.h - the register tiles of a product of matrices, what they prefetch, and the
 * block of K that they work on.
 *
 * In, both by the file that includes this one: GEMM_STEP(acc, a, a_row, b, rows, nv), a
 * step of a tile along K (for example outer_step of outer.h), and HAS_TILE, 1 where whole
 * tiles have a text of their own. If tiles have more rows than the registers of vectors,
 * TILE_ROWS, and K_STEP and K_BLOCK: a block of K is a multiple of the first and has at
 * most as many words as the second. An element of A, B and K is a word of 4 bytes: a
 * float, or a pair of 16-bit elements. Out: tiles[][], struct block.
 *
 * MR x NR: 14 x 32 (AVX-512), 6 x 16 (AVX2), 12 x 8 (NEON), 6 x 8 (base). These sizes
 * fill the registers. */
#ifndef ATTN_GEMM_TILES_H
#define ATTN_GEMM_TILES_H

#include "gemm_epilogue.h"
#include "outer.h"

#ifndef TILE_ROWS
#define TILE_ROWS MR
#define K_STEP    1
#define K_BLOCK   ATTN_GEMM_KC
#endif
enum { KC = ATTN_GEMM_KC };
enum { STRIP = 8, LINE = 64, MAX_FETCH = 6 * TILE_ROWS };
enum {
    FETCH_K = 16 * STRIP, /* a shorter tile has no time to fetch more than it needs */
    LINES_A_STRIP = 3,    /* of rows to prefetch */
    FEW_ROWS = 4,      /* of A, for which weights come more slowly than they are used: */
    BYTES_AHEAD = 4096 /* they are prefetched so far ahead */
};

/* ---- register tiles ---- */

/* out[i][j] = sum over k of a[i][k] b[k][j] + bias[j] + sum[i][j] for i < mr, j < nv *
 * VF; bias and sum NULL: 0. */
struct tile {
    const float *a, *b, *bias, *sum;
    const uint16_t
        *half;     /* in the place of b (gemm_half.h), NR columns without gaps; or NULL */
    float *floats; /* where these become floats, for the tiles that follow; or NULL */
    int32_t half_type;
    bool
        half_ahead; /* few rows prefetch it, too: else that disturbs the CPU's prefetcher */
    const float
        *tail;     /* rows of b behind the last whole K_STEP, with zeros to the next */
    bool kept;     /* sum and out are in scratch, or sum is NULL */
    bool sum_kept; /* sum is in scratch, which has whole squares of rows */
    ptrdiff_t a_row, a_col, b_row, sum_row, out_row; /* a_col 0: 1; else a_row is 1 */
    float *out;
    size_t k;
    const char *next; /* rows to prefetch for after this panel … */
    int next_lines;   /* … and how many lines of it to fetch for each STRIP of k */
    int n_fetch; /* other lines, a few for each STRIP: more at once would be waited for */
    int a_strip; /* so many */
    const float *fetch[MAX_FETCH];
};

static ALWAYS_INLINE void tile_end(const struct tile *t, v_f32 (*acc)[2],
                                   const struct rows rows, const int nv)
{
    if (t->bias != NULL) {
        UNROLL
        for (int v = 0; v < nv; v++) {
            v_f32 bias = v_load(t->bias + v * VF);
            UNROLL
            for (int i = 0; i < rows.max; i++)
                acc[i][v] += bias;
        }
    }
    if (t->sum != NULL)
        EACH_ROW (i, rows) {
            UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] += v_load(t->sum + i * t->sum_row + v * VF);
        }
    EACH_ROW (i, rows) {
        UNROLL
        for (int v = 0; v < nv; v++)
            v_store(t->out + i * t->out_row + v * VF, acc[i][v]);
    }
}

static ALWAYS_INLINE void tile_products(const struct tile *t, v_f32 (*acc)[2],
                                        const struct rows rows, const int nv,
                                        const bool transposed)
{
    const float *a = t->a, *b = t->b;
    const ptrdiff_t a_row = transposed ? 1 : t->a_row, a_col = transposed ? t->a_col : 1;
    const ptrdiff_t b_row = t->b_row;
    const int steps = transposed && rows.min * nv < 2 * MR ? 1 : steps_at_once(rows, nv);
    const char *next = t->next;
    const float *const *fetch = t->fetch, *const *last = fetch + t->n_fetch;
    size_t k = t->k;
    if (HAS_TILE && transposed && rows.min == MR && nv == 2 && a_col == MR &&
        b_row == NR) {
        const size_t strips = k / STRIP, done = strips * STRIP;
        for (; fetch < last; fetch++)
            __builtin_prefetch(*fetch, 0, 2);
        v_tile_sum(acc, a, b, strips, next != NULL ? next : (const char *)b,
                   next != NULL ? LINE : 0);
        a += done * MR;
        b += done * NR;
        k -= done;
    }
    for (; k >= STRIP; k -= STRIP) {
        for (int line = 0; line < t->next_lines; line++, next += LINE)
            __builtin_prefetch(next, 0, 2); /* into L2: L1 is full of this panel */
        for (int line = 0; line < t->a_strip && fetch < last; line++)
            __builtin_prefetch(*fetch++, 0, 2);
        for (int s = 0; s < STRIP; s += steps)
            UNROLL
        for (int u = 0; u < steps; u++, a += a_col, b += b_row)
            GEMM_STEP(acc, a, a_row, b, rows, nv);
    }
    for (; k > 0; k--, a += a_col, b += b_row)
        GEMM_STEP(acc, a, a_row, b, rows, nv);
}

/* Two loops with one end, which is as long as they are. */
static ALWAYS_INLINE void tile_sum(const struct tile *t, const struct rows rows,
                                   const int nv)
{
    v_f32 acc[MR][2] = { { { 0 } } }; /* a loop of zeros would keep it on clang's stack */
    if (t->a_col != 0)
        tile_products(t, acc, rows, nv, true);
    else
        tile_products(t, acc, rows, nv, false);
    tile_end(t, acc, rows, nv);
}

/* clang-format off */
#define TILE(min, max, nv)                                                               \
    static void tile_##min##x##nv(const struct tile *t, size_t m)                        \
    {                                                                                    \
        tile_sum(t, (struct rows){ (int)m, min, max }, nv);                              \
    }
ATTN_NARROW_TEXTS(ATTN_F32_ROWS, TILE, 1)
ATTN_TEXTS(ATTN_F32_ROWS, TILE, 2)
#define ENTRY(min, max, nv) tile_##min##x##nv,
static void (*const tiles[2][MR])(const struct tile *t, size_t m) = {
    { ATTN_NARROW_TEXTS(ATTN_F32_ROWS, ENTRY, 1) }, { ATTN_TEXTS(ATTN_F32_ROWS, ENTRY, 2) }
};
#undef ENTRY
#undef TILE
/* clang-format on */

static ALWAYS_INLINE void run_tile(const struct tile *t, size_t m, size_t width)
{
    if (width == VF)
        tiles[0][narrow_text_of(m, MR)](t, m);
    else
        tiles[1][text_of(m, MR)](t, m);
}

/* ---- prefetch ---- */

/* Sets the tile to prefetch m rows of NR columns. */
static void fetch_rows(struct tile *t, const float *x, ptrdiff_t row, size_t m)
{
    for (size_t r = 0; r < m; r++, x += row) {
        t->fetch[t->n_fetch++] = x;
        t->fetch[t->n_fetch++] = x + NR - 1;
    }
}

/* Prefetches what finish() will read and write, while the last block of K is
 * multiplied. */
static void fetch_c(struct tile *t, const struct attn_gemm_f32 *g, int e, size_t i,
                    size_t m, size_t j)
{
    fetch_rows(t, g->c + (ptrdiff_t)i * g->c_row + j, g->c_row, m);
    for (; e < g->n_epilogue; e++) {
        const struct attn_epilogue *step = &g->epilogue[e];
        if (step->kind == ATTN_EPI_ADD && step->row != 0 && step->col != 0 &&
            t->n_fetch + 2 * TILE_ROWS <= MAX_FETCH)
            fetch_rows(t, step->data + (ptrdiff_t)i * step->row + j, step->row, m);
    }
}

/* Gives a tile its share of the list of rows to prefetch: a segment of one row where that
 * is most of the share, else lines of several rows, by a list. */
static void prefetch_listed(struct tile *t, struct attn_prefetch *prefetch)
{
    const int strips = (int)(t->k / STRIP), share = strips * LINES_A_STRIP;
    const int max = share < MAX_FETCH ? share : MAX_FETCH;
    const bool empty = t->n_fetch == 0;
    t->a_strip = LINES_A_STRIP;
    while (prefetch->at < prefetch->n && t->n_fetch < max) {
        const struct attn_prefetch_rows *rows = &prefetch->list[prefetch->at];
        const float *x =
            rows->first + prefetch->row * rows->row + prefetch->line * (LINE / 4);
        const int left = rows->lines - prefetch->line;
        const int n = left < max - t->n_fetch ? left : max - t->n_fetch;
        if (empty && n > max / 2) {
            t->next = (const char *)x;
            t->next_lines = (n + strips - 1) / strips;
            attn_prefetch_pass(prefetch, t->next_lines * strips);
            return;
        }
        for (int line = 0; line < n; line++)
            t->fetch[t->n_fetch++] = x + line * (LINE / 4);
        attn_prefetch_pass(prefetch, n);
    }
}

/* ---- blocks ---- */

struct block {
    const char *next; /* the packed panel that comes after this one; NULL: none */
    size_t k0, k;     /* rows of B */
    const float *a;   /* columns k0 … of A */
    ptrdiff_t a_row;  /* 1 where A is transposed: */
    ptrdiff_t a_col;  /* then not 0 */
    bool a_packed; /* A: a panel for each tile, all rows of a column of A side by side */
    bool first, last;
};

/* The number of rows of the tile at row i of m: TILE_ROWS where a tile of that many rows
 * is different code. */
static size_t rows_of_tile(size_t i, size_t m)
{
    const size_t left = m - i;
    if (HAS_TILE || TILE_ROWS > MR)
        return left < TILE_ROWS ? left : TILE_ROWS;
    return next_rows(left, MR);
}

#endif
