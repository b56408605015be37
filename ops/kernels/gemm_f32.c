/* gemm_f32.c - C = epilogue(A B) for a block of C that one task computes.
 *
 * Loops: groups of up to WIDE columns, blocks of K, panels of NR columns, tiles of MR
 * rows. A panel of B of one block of K (48 KiB) stays near while the rows of A pass by; A
 * is read where it is, row by row, and its block of K stays in L2 for the group. Sums of
 * the first blocks of K wait in scratch; the last one runs the epilogue. A sum is that of
 * its blocks, each from zero in the order of k: no element depends on its tile. Few rows
 * times a transposed B are dot products instead, without packing.
 *
 * MR x NR: 8 x 32 (AVX-512), 6 x 16 (AVX2), 12 x 8 (NEON), 6 x 8 (base): what fills the
 * registers. Where a set has a tile of its own (V_HAS_TILE), A is copied into panels of the
 * rows of each tile. */
#include "gemm_epilogue.h"
#include "outer.h"
#include "panel.h"
#include "transpose.h"

enum { KC = ATTN_GEMM_KC, FEW_ROWS = 32 };
enum { STRIP = 8, LINE = 64, MOST_FETCH = 6 * MR };
enum {
    FETCH_K = 16 * STRIP, /* a shorter tile has no time to fetch more than it needs */
    AHEAD = 32, /* rows of B that few rows of A read once: fetched so far ahead */
    FEW_ROWS_AHEAD = 4,
    LINES_A_STRIP = 3 /* of rows that are read soon */
};

/* ---- register tiles ---- */

/* out[i][j] = sum over k of a[i][k] b[k][j] + bias[j] + sum[i][j] for i < mr, j < nv *
 * VF; bias and sum NULL: 0. */
struct tile {
    const float *a, *b, *bias, *sum;
    ptrdiff_t a_row, a_col, b_row, sum_row, out_row; /* a_col 0: 1; else a_row is 1 */
    float *out;
    size_t k;
    const char *next; /* what is read after this tile's panel … */
    int next_lines;   /* … and how many lines of it to fetch for each STRIP of k */
    int n_fetch; /* other lines, a few for each STRIP: more at once would be waited for */
    int a_strip; /* so many */
    const float *fetch[MOST_FETCH];
};

static ALWAYS_INLINE void tile_sum(const struct tile *t, const int mr, const int nv,
                                   const bool transposed)
{
    v_f32 acc[MR][2] = { { { 0 } } }; /* a loop of zeros would keep it on clang's stack */
    const float *a = t->a, *b = t->b;
    const ptrdiff_t a_row = transposed ? 1 : t->a_row, a_col = transposed ? t->a_col : 1;
    const ptrdiff_t b_row = t->b_row;
    const char *next = t->next;
    const float *const *fetch = t->fetch, *const *last = fetch + t->n_fetch;
    size_t k = t->k;
    if (V_HAS_TILE && transposed && mr == MR && nv == 2 && a_col == MR && b_row == NR) {
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
        UNROLL
        for (int s = 0; s < STRIP; s++, a += a_col, b += b_row)
            outer_step(acc, a, a_row, b, mr, nv);
    }
    for (; k > 0; k--, a += a_col, b += b_row)
        outer_step(acc, a, a_row, b, mr, nv);
    if (t->bias != NULL) {
        UNROLL
        for (int v = 0; v < nv; v++) {
            v_f32 bias = v_load(t->bias + v * VF);
            UNROLL
            for (int i = 0; i < mr; i++)
                acc[i][v] += bias;
        }
    }
    if (t->sum != NULL) {
        UNROLL
        for (int i = 0; i < mr; i++)
            UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] += v_load(t->sum + i * t->sum_row + v * VF);
    }
    UNROLL
    for (int i = 0; i < mr; i++)
        UNROLL
    for (int v = 0; v < nv; v++)
        v_store(t->out + i * t->out_row + v * VF, acc[i][v]);
}

/* clang-format off */
#define TILE(mr, nv)                                                                     \
    static void tile_##mr##x##nv(const struct tile *t)                                   \
    {                                                                                    \
        tile_sum(t, mr, nv, false);                                                      \
    }                                                                                    \
    static void tile_t##mr##x##nv(const struct tile *t) { tile_sum(t, mr, nv, true); }
ATTN_EACH_ROW(ATTN_F32_ROWS, TILE, 1)
ATTN_EACH_ROW(ATTN_F32_ROWS, TILE, 2)
#define AS_IS(mr, nv)      tile_##mr##x##nv,
#define TRANSPOSED(mr, nv) tile_t##mr##x##nv,
#define TILES(kind)                                                                      \
    { { ATTN_EACH_ROW(ATTN_F32_ROWS, kind, 1) }, { ATTN_EACH_ROW(ATTN_F32_ROWS, kind, 2) } }
static void (*const tiles[2][2][MR])(const struct tile *t) = {
    TILES(AS_IS), TILES(TRANSPOSED), /* of A */
};
#undef TILES
#undef TRANSPOSED
#undef AS_IS
#undef TILE
/* clang-format on */

/* ---- prefetch ---- */

/* m rows of NR columns are to be fetched. */
static void fetch_rows(struct tile *t, const float *x, ptrdiff_t row, size_t m)
{
    for (size_t r = 0; r < m; r++, x += row) {
        t->fetch[t->n_fetch++] = x;
        t->fetch[t->n_fetch++] = x + NR - 1;
    }
}

/* What finish() will read and write comes while the last block of K is multiplied. */
static void fetch_c(struct tile *t, const struct attn_gemm_f32 *g, int e, size_t i,
                    size_t m, size_t j)
{
    fetch_rows(t, g->c + (ptrdiff_t)i * g->c_row + j, g->c_row, m);
    for (; e < g->n_epilogue; e++) {
        const struct attn_epilogue *step = &g->epilogue[e];
        if (step->kind == ATTN_EPI_ADD && step->row != 0 && step->col != 0 &&
            t->n_fetch + 2 * MR <= MOST_FETCH)
            fetch_rows(t, step->data + (ptrdiff_t)i * step->row + j, step->row, m);
    }
}

/* A tile asks for the next lines of what is read soon: for a run of one row where that is
 * most of its share, else for lines of several rows, by a list. */
static void fetch_ahead(struct tile *t, struct attn_ahead *ahead)
{
    const int strips = (int)(t->k / STRIP), share = strips * LINES_A_STRIP;
    const int most = share < MOST_FETCH ? share : MOST_FETCH;
    const bool empty = t->n_fetch == 0;
    t->a_strip = LINES_A_STRIP;
    while (ahead->at < ahead->n && t->n_fetch < most) {
        const struct attn_ahead_rows *rows = &ahead->list[ahead->at];
        const float *x = rows->first + ahead->row * rows->row + ahead->line * (LINE / 4);
        const int left = rows->lines - ahead->line;
        const int n = left < most - t->n_fetch ? left : most - t->n_fetch;
        if (empty && n > most / 2) {
            t->next = (const char *)x;
            t->next_lines = (n + strips - 1) / strips;
            attn_ahead_pass(ahead, t->next_lines * strips);
            return;
        }
        for (int line = 0; line < n; line++)
            t->fetch[t->n_fetch++] = x + line * (LINE / 4);
        attn_ahead_pass(ahead, n);
    }
}

/* ---- panels of 16-bit elements ---- */

static void to_floats(float *y, const uint16_t *x, size_t n, int32_t type)
{
    if (type == ATTN_B_F16)
        K(f16_to_f32)(y, x, n);
    else
        K(bf16_to_f32)(y, x, n);
}

/* Rows k0 … k0 + k - 1 of columns j … j + n - 1, packed or not, as a panel of floats. */
static void convert_panel(const struct attn_gemm_f32 *g, float *panel, size_t width,
                          size_t k0, size_t k, size_t j, size_t n)
{
    const uint16_t *b = (const uint16_t *)(const void *)g->b;
    if (g->packed) {
        const size_t all = g->packed_k > 0 ? g->packed_k : g->k;
        to_floats(panel, b + j * all + (g->packed_from + k0) * width, k * width,
                  g->b_type);
        return;
    }
    uint16_t row[NR] = { 0 };
    b += (ptrdiff_t)k0 * g->b_row + (ptrdiff_t)j * g->b_col;
    for (size_t i = 0; i < k; i++, b += g->b_row, panel += width) {
        for (size_t v = 0; v < n; v++)
            row[v] = b[(ptrdiff_t)v * g->b_col];
        to_floats(panel, row, width, g->b_type);
    }
}

/* ---- blocks ---- */

struct block {
    const char *next; /* the packed panel that comes after this one; NULL: none */
    size_t k0, k;     /* rows of B */
    const float *a;   /* columns k0 … of A */
    ptrdiff_t a_row;  /* 1 where A is transposed */
    bool a_packed; /* A: a panel for each tile, all rows of a column of A side by side */
    bool first, last;
};

/* Block `block` of K for columns j … j + n - 1 of B: where it is, or packed or converted
 * into scratch. */
static void find_panel(const struct attn_gemm_f32 *g, struct tile *t, struct block block,
                       size_t j, size_t n)
{
    const size_t width = n <= VF ? VF : NR;
    t->b_row = (ptrdiff_t)width;
    if (g->b_type != ATTN_B_F32) {
        float *floats = g->scratch + g->m * (KC + 16);
        convert_panel(g, floats, width, block.k0, block.k, j, n);
        t->b = floats;
        return;
    }
    if (g->packed) {
        const size_t k = g->packed_k > 0 ? g->packed_k : g->k;
        t->b = g->b + j * k + (g->packed_from + block.k0) * width;
        return;
    }
    const float *b = g->b + (ptrdiff_t)block.k0 * g->b_row + (ptrdiff_t)j * g->b_col;
    if (g->b_col == 1 && n == width && g->m <= 2 * MR) {
        t->b = b;
        t->b_row = g->b_row;
        if (j == 0 && g->m <= FEW_ROWS_AHEAD && g->b_row <= 8 * NR) {
            t->next = (const char *)(b + AHEAD * g->b_row);
            t->next_lines = (int)(STRIP * g->b_row * (ptrdiff_t)sizeof *b / LINE);
        }
        return;
    }
    float *panel = g->scratch + g->m * (KC + 16);
    pack_panel(panel, width, b, g->b_row, g->b_col, block.k, n);
    t->b = panel;
}

/* Rows of the tile at row i of m: MR where the tile of that many is another code, else
 * about as many in each. */
static size_t rows_of_tile(size_t i, size_t m)
{
    const size_t left = m - i;
    if (V_HAS_TILE)
        return left < MR ? left : MR;
    return left / ((left + MR - 1) / MR);
}

/* A block of K of A as panels of the rows of each tile. */
static void pack_rows(const struct attn_gemm_f32 *g, struct block *block)
{
    float *panel = g->scratch;
    for (size_t i = 0, m; i < g->m; i += m, panel += m * block->k) {
        m = rows_of_tile(i, g->m);
        if (attn_poll_work((int64_t)(8 * m * block->k)) != ATTNRUN_OK)
            break;
        const float *a = block->a + (ptrdiff_t)i * block->a_row;
        if (g->a_col == 0)
            transpose_block(panel, (ptrdiff_t)m, a, block->a_row, m, block->k);
        for (size_t k = 0; g->a_col != 0 && k < block->k; k++, a += g->a_col)
            memcpy(panel + k * m, a, m * sizeof *panel);
    }
    block->a = g->scratch;
    block->a_row = (ptrdiff_t)block->k;
    block->a_packed = true;
}

/* Rows that are a multiple of 4 KiB apart fall into the same few lines of L1: copied. */
static void find_rows(const struct attn_gemm_f32 *g, struct block *block)
{
    block->a = g->a + (ptrdiff_t)block->k0 * (g->a_col != 0 ? g->a_col : 1);
    block->a_row = g->a_row;
    if (V_HAS_TILE && g->m >= MR && g->n > NR)
        pack_rows(g, block);
    if (block->a_packed || g->a_col != 0 || g->m <= FEW_ROWS || g->a_row % 1024 != 0)
        return;
    enum { ROW = KC + 16 };
    float *rows = g->scratch;
    for (size_t i = 0; i < g->m; i++) {
        memcpy(rows + i * ROW, block->a + (ptrdiff_t)i * g->a_row,
               block->k * sizeof *rows);
        if (attn_poll_work((int64_t)(8 * block->k)) != ATTNRUN_OK)
            break;
    }
    block->a = rows;
    block->a_row = ROW;
}

/* The first steps of the epilogue where they are a bias and a matrix of rows: the first
 * block of K begins with them, at no cost. */
struct addends {
    const float *bias;                /* or NULL */
    const struct attn_epilogue *rows; /* or NULL */
    int n;                            /* steps of the epilogue that these are */
};

static struct addends find_addends(const struct attn_gemm_f32 *g, bool whole_panel)
{
    struct addends found = { NULL, NULL, 0 };
    for (int e = 0; whole_panel && !g->accumulate && e < g->n_epilogue; e++) {
        const struct attn_epilogue *step = &g->epilogue[e];
        if (step->kind != ATTN_EPI_ADD || step->col != 1 || step->alpha != 1.0f)
            break;
        if (step->row == 0 && found.bias == NULL)
            found.bias = step->data;
        else if (step->row != 0 && found.rows == NULL)
            found.rows = step;
        else
            break;
        found.n++;
    }
    return found;
}

/* What the first block of K adds its products to. */
static void begin_sum(const struct attn_gemm_f32 *g, const struct addends *addends,
                      struct tile *t, size_t i, size_t m, size_t j, bool direct)
{
    const struct attn_epilogue *rows = addends->rows;
    t->sum = NULL;
    if (addends->bias != NULL)
        t->bias = addends->bias + j;
    if (rows != NULL) {
        t->sum = rows->data + (ptrdiff_t)i * rows->row + j;
        t->sum_row = rows->row;
        if (t->k >= FETCH_K)
            fetch_rows(t, t->sum, t->sum_row, m);
    } else if (direct && g->accumulate) {
        t->sum = g->c + (ptrdiff_t)i * g->c_row + j;
        t->sum_row = g->c_row;
    }
}

/* Adds one block of K to all rows of C for columns j … j + n - 1; the sums before are
 * kept. False where the call is to end. */
static bool add_block(const struct attn_gemm_f32 *g, struct block block, float *sums,
                      size_t j, size_t n)
{
    const size_t width = n <= VF ? VF : NR, n_tiles = (g->m + MR - 1) / MR;
    const struct addends addends = find_addends(g, n == width);
    const bool direct = block.last && n == width && addends.n == g->n_epilogue &&
                        (block.first || !g->accumulate);
    struct tile t; /* `fetch` stays as it is */
    t.a_row = block.a_row;
    t.a_col = g->a_col;
    t.k = block.k;
    t.next = NULL;
    t.next_lines = 0;
    t.a_strip = 1;
    find_panel(g, &t, block, j, n);
    /* The next panel of weights comes from far away while this one is used. */
    const size_t size = g->b_type == ATTN_B_F32 ? sizeof(float) : sizeof(uint16_t);
    const size_t lines = block.k * width * size / LINE;
    const size_t strips = n_tiles * (block.k / STRIP);
    if (block.next != NULL && strips > 0)
        t.next_lines = (int)((lines + strips - 1) / strips);
    for (size_t tile = 0, next_i = 0; tile < n_tiles; tile++) {
        const size_t i = next_i, m = rows_of_tile(i, g->m);
        next_i += m;
        t.a = block.a + (ptrdiff_t)i * block.a_row;
        if (block.a_packed)
            t.a_col = (ptrdiff_t)m;
        if (block.next != NULL)
            t.next = block.next + tile * (block.k / STRIP) * (size_t)t.next_lines * LINE;
        t.n_fetch = 0;
        t.bias = NULL;
        t.sum = sums + i * NR;
        t.sum_row = NR;
        if (block.first)
            begin_sum(g, &addends, &t, i, m, j, direct);
        t.out = direct ? g->c + (ptrdiff_t)i * g->c_row + j : sums + i * NR;
        t.out_row = direct ? g->c_row : NR;
        if (block.last && block.k >= FETCH_K)
            fetch_c(&t, g, addends.n, i, m, j);
        if (g->ahead != NULL && block.next == NULL) {
            t.next = NULL;
            t.next_lines = 0;
            fetch_ahead(&t, g->ahead);
        }
        tiles[t.a_col != 0][width / VF - 1][m - 1](&t);
        if (block.last && !direct)
            finish(g, sums + i * NR, addends.n, i, m, j, n);
        if (attn_poll_work((int64_t)(m * width * (block.k / 5 + 4))) != ATTNRUN_OK)
            return false;
    }
    return attn_poll_work((int64_t)(4 * width * block.k)) == ATTNRUN_OK; /* of B */
}

/* Columns j … j + n - 1: a block of A is read once for all of them. False where the call
 * is to end. */
static bool run_group(const struct attn_gemm_f32 *g, size_t j, size_t n)
{
    const size_t n_blocks = g->k > KC ? (g->k + KC - 1) / KC : 1;
    const size_t size = g->b_type == ATTN_B_F32 ? sizeof(float) : sizeof(uint16_t);
    float *const sums = g->scratch + (size_t)(KC + 16) * g->m + (size_t)KC * NR;
    for (size_t i = 0; i < n_blocks; i++) {
        struct block block = { .k0 = g->k * i / n_blocks,
                               .first = i == 0,
                               .last = i + 1 == n_blocks };
        block.k = g->k * (i + 1) / n_blocks - block.k0;
        find_rows(g, &block);
        for (size_t p = 0; p < n; p += NR) {
            bool last_panel = p + NR >= n;
            size_t next_j = j + (!last_panel ? p + NR : block.last ? n : 0);
            size_t next_k = !last_panel ? block.k0 : block.last ? 0 : block.k0 + block.k;
            if (g->packed && g->packed_k == 0 && next_j < g->n)
                block.next = (const char *)g->b + (next_j * g->k + next_k * NR) * size;
            if (!add_block(g, block, n_blocks > 1 ? sums + p * g->m : sums, j + p,
                           n - p < NR ? n - p : NR))
                return false;
        }
    }
    return true;
}

/* ---- dot products: few rows, and both operands contiguous along k ---- */

/* y[j] += a . b_j for nj columns of stride b_col; the tail of k is padded with zeros. */
static ALWAYS_INLINE void dot_columns(float *y, const float *a, const float *b,
                                      ptrdiff_t b_col, size_t k, const int nj)
{
    v_f32 acc[4];
    UNROLL
    for (int j = 0; j < nj; j++)
        acc[j] = (v_f32){ 0 };
    size_t i = 0;
    for (; i + VF <= k; i += VF) {
        v_f32 x = v_load(a + i);
        UNROLL
        for (int j = 0; j < nj; j++)
            acc[j] += x * v_load(b + j * b_col + i);
    }
    if (i < k) {
        v_f32 x = v_load_tail(a + i, k - i, 0.0f);
        UNROLL
        for (int j = 0; j < nj; j++)
            acc[j] += x * v_load_tail(b + j * b_col + i, k - i, 0.0f);
    }
    UNROLL
    for (int j = 0; j < nj; j++)
        y[j] += v_reduce_add(acc[j]);
}

/* Four short columns that come later; long ones the CPU sees coming. */
static ALWAYS_INLINE void fetch_columns(const float *b, ptrdiff_t b_col, size_t k)
{
    for (int j = 0; k <= KC && j < 4; j++)
        for (size_t i = 0; i < k; i += LINE / sizeof *b)
            __builtin_prefetch(b + j * b_col + i, 0, 2);
}

/* The same for all rows of A, columns k0 … k0 + k - 1, and up to 4 of the n columns of b.
 * False where the call is to end. */
static bool dot_rows(const struct attn_gemm_f32 *g, float *sums, const float *b,
                     size_t k0, size_t k, size_t n)
{
    const float *a = g->a + k0;
    for (size_t i = 0; i < g->m; i++, a += g->a_row, sums += NR) {
        if (n >= 4)
            dot_columns(sums, a, b, g->b_col, k, 4);
        for (size_t p = 0; p < n && n < 4; p++)
            dot_columns(sums + p, a, b + (ptrdiff_t)p * g->b_col, g->b_col, k, 1);
        if (attn_poll_work((int64_t)(8 * k)) != ATTNRUN_OK)
            return false;
    }
    return true;
}

/* Columns j … j + n - 1 (n <= NR) of all rows. False where the call is to end. */
static bool run_dots(const struct attn_gemm_f32 *g, size_t j, size_t n)
{
    enum { DEPTH = KC * VF }; /* at most KC products in a lane */
    float *const sums = g->scratch;
    memset(sums, 0, g->m * NR * sizeof *sums);
    for (size_t k0 = 0; k0 < g->k; k0 += DEPTH) {
        size_t k = g->k - k0 < DEPTH ? g->k - k0 : DEPTH;
        const float *b = g->b + (ptrdiff_t)j * g->b_col + k0;
        for (size_t p = 0; p < n; p += 4) {
            if (n - p >= 4)
                fetch_columns(b + ((ptrdiff_t)p + AHEAD) * g->b_col, g->b_col, k);
            if (!dot_rows(g, sums + p, b + (ptrdiff_t)p * g->b_col, k0, k, n - p))
                return false;
        }
    }
    finish(g, sums, 0, 0, g->m, j, n);
    return true;
}

void K(gemm_f32)(const struct attn_gemm_f32 *g)
{
    if (g->m == 0)
        return;
    const bool dots = attn_gemm_by_dots(g);
    const size_t step = !dots && g->m > FEW_ROWS ? ATTN_GEMM_WIDE : NR;
    for (size_t j = 0; j < g->n; j += step) {
        size_t n = g->n - j < step ? g->n - j : step;
        if (!(dots ? run_dots(g, j, n) : run_group(g, j, n)))
            return;
    }
}

void K(transpose_f32)(float *y, ptrdiff_t y_row, const float *x, ptrdiff_t x_row,
                      size_t rows, size_t columns)
{
    transpose_block(y, y_row, x, x_row, rows, columns);
}
