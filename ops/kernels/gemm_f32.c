/* gemm_f32.c - C = epilogue(A B) for a block of C that one task computes, in floats.
 *
 * In: struct attn_gemm_f32. Out: C. A is read in place, row by row; if the instruction
 * set has a tile of its own (V_HAS_TILE), A is copied into panels of the rows of each
 * tile. Panels of B that are not packed floats are packed or converted into scratch;
 * packed 16-bit elements are converted by the first tile that reads them (gemm_half.h).
 * Few rows times a transposed B are dot products instead, without packing. Cost: 2 m n k
 * FLOPs; gemm_loops.h has the blocks. */
#define GEMM_STEP outer_step
#define HAS_TILE  V_HAS_TILE
#include "gemm_half.h"

enum {
    PREFETCH_ROWS = 32
}; /* rows of B that few rows of A read once: fetched so far ahead */

static size_t depth_of(const struct attn_gemm_f32 *g) { return g->k; }

static size_t stored_bytes(const struct attn_gemm_f32 *g)
{
    return g->b_type == ATTN_B_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* ---- panels of 16-bit elements ---- */

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

/* ---- operands ---- */

/* Block `block` of K for columns j … j + n - 1 of B: where it is, or packed or converted
 * into scratch. */
static void find_panel(const struct attn_gemm_f32 *g, struct tile *t, struct block block,
                       size_t j, size_t n)
{
    const size_t width = n <= VF ? VF : NR;
    t->b_row = (ptrdiff_t)width;
    const bool is_loose = g->b_type == ATTN_B_LOOSE,
               of_floats = is_loose || g->b_type == ATTN_B_F32;
    const bool in_registers = g->b_type == ATTN_B_BF16 || V_HAS_F16;
    float *floats = g->scratch + g->m * (KC + 16);
    if (!of_floats && g->packed && in_registers && (width == NR || g->m == 1)) {
        const size_t k = g->packed_k > 0 ? g->packed_k : g->k;
        t->half = (const uint16_t *)(const void *)g->b + j * k +
                  (g->packed_from + block.k0) * width;
        t->half_type = g->b_type;
        t->half_ahead = g->half_ahead != 0;
        t->floats = g->m > MR ? floats : NULL;
        return;
    }
    if (!of_floats) {
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
    /* Loose floats are copied even if few rows of A read them: they come from memory, and
     * pack_panel() prefetches. */
    if (!is_loose && g->b_col == 1 && n == width && g->m <= 2 * MR) {
        t->b = b;
        t->b_row = g->b_row;
        if (j == 0 && g->m <= FEW_ROWS && g->b_row <= 8 * NR) {
            t->next = (const char *)(b + PREFETCH_ROWS * g->b_row);
            t->next_lines = (int)(STRIP * g->b_row * (ptrdiff_t)sizeof *b / LINE);
        }
        return;
    }
    pack_panel(floats, width, b, g->b_row, g->b_col, block.k, n);
    t->b = floats;
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

/* A row that is copied soon: it lies on another page, where the CPU does not see it coming. */
enum { ROWS_AHEAD = 8 };
static void fetch_row(const float *a, size_t k)
{
    for (size_t i = 0; i < k; i += LINE / sizeof *a)
        __builtin_prefetch(a + i, 0, 2);
}

/* Rows that are a multiple of 4 KiB apart fall into the same few lines of L1: copied. */
static void find_rows(const struct attn_gemm_f32 *g, struct block *block)
{
    block->a = g->a + (ptrdiff_t)block->k0 * (g->a_col != 0 ? g->a_col : 1);
    block->a_row = g->a_row;
    block->a_col = g->a_col;
    if (HAS_TILE && g->m >= MR && g->n > NR)
        pack_rows(g, block);
    if (block->a_packed || g->a_col != 0 || g->m <= ATTN_GEMM_FEW_ROWS ||
        g->a_row % 1024 != 0)
        return;
    enum { ROW = KC + 16 };
    float *rows = g->scratch;
    for (size_t i = 0; i < g->m; i++) {
        if (i + ROWS_AHEAD < g->m)
            fetch_row(block->a + (ptrdiff_t)(i + ROWS_AHEAD) * g->a_row, block->k);
        memcpy(rows + i * ROW, block->a + (ptrdiff_t)i * g->a_row,
               block->k * sizeof *rows);
        if (attn_poll_work((int64_t)(8 * block->k)) != ATTNRUN_OK)
            break;
    }
    block->a = rows;
    block->a_row = ROW;
}

static void multiply_tile(struct tile *t, size_t m, size_t width)
{
    if (t->half == NULL) {
        run_tile(t, m, width);
        return;
    }
    if (width == NR)
        half_tiles[text_of(m, MR)](t, m);
    else
        narrow_row(t);
    if (t->floats != NULL) {
        t->half = NULL;
        t->b = t->floats;
    }
}

#include "gemm_loops.h"

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
                fetch_columns(b + ((ptrdiff_t)p + PREFETCH_ROWS) * g->b_col, g->b_col, k);
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
    if (!attn_gemm_by_dots(g)) {
        run_groups(g);
        return;
    }
    for (size_t j = 0; j < g->n; j += NR)
        if (!run_dots(g, j, g->n - j < NR ? g->n - j : NR))
            return;
}

void K(transpose_f32)(float *y, ptrdiff_t y_row, const float *x, ptrdiff_t x_row,
                      size_t rows, size_t columns)
{
    transpose_block(y, y_row, x, x_row, rows, columns);
}
