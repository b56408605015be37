/* gemm_bf16.c - C = epilogue(A B) for a block of C that one task computes: products of
 * bf16, sums of floats.
 *
 * In: struct attn_gemm_f32. Out: C. If the instruction set multiplies pairs of bf16,
 * elements of A and B are rounded to bf16, and two along K are a word. B is in panels of
 * words (gemm_pack_bf16), or is converted from floats or 16-bit elements a panel at a
 * time. A is converted a block of K at a time. If the conversion would cost more than it
 * gains, or the caller wants the exact product, floats are multiplied. Other instruction
 * sets always multiply floats, by packed weights that are 16-bit elements (gemm_half.h),
 * because an emulated word costs more than it saves. Cost: 2 m n k FLOPs. */
#include "panel.h"

/* Row k of columns j … j + n - 1 of B as `width` floats: where it is, or in `room`. */
static const float *row_of_b(const struct attn_gemm_f32 *g, size_t k, size_t j, size_t n,
                             size_t width, float *room)
{
    const uint16_t *narrow = (const uint16_t *)(const void *)g->b;
    const size_t all = g->packed_k > 0 ? g->packed_k : g->k;
    const size_t place = j * all + (g->packed_from + k) * width;
    const ptrdiff_t at = (ptrdiff_t)k * g->b_row + (ptrdiff_t)j * g->b_col;
    uint16_t gathered[NR] = { 0 };
    if (g->b_type == ATTN_B_F32 && g->packed)
        return g->b + place;
    if (g->b_type == ATTN_B_F32 && g->b_col == 1 && n == width)
        return g->b + at;
    for (size_t i = 0; i < width && g->b_type == ATTN_B_F32; i++)
        room[i] = i < n ? g->b[at + (ptrdiff_t)i * g->b_col] : 0.0f;
    if (g->b_type == ATTN_B_F32)
        return room;
    for (size_t i = 0; i < n && !g->packed; i++)
        gathered[i] = narrow[at + (ptrdiff_t)i * g->b_col];
    narrow = g->packed ? narrow + place : gathered;
    to_floats(room, narrow, width, g->b_type);
    return room;
}

#if V_HAS_DOT_BF16

#if V_HAS_TILES_BF16
#define TILE_ROWS 32
#define K_STEP    16
#define K_BLOCK   256 /* words: a panel of them takes two thirds of L1 */
#endif
#define GEMM_STEP pair_step
#define HAS_TILE  0
#include "pairs.h"
#include "gemm_tiles.h"

enum {
    THIN = 16,    /* rows: fewer do not pay for the conversion of B */
    ROW = KC + 16 /* from a row of A in scratch to the next: no power of two */
};

static size_t depth_of(const struct attn_gemm_f32 *g) { return (g->k + 1) / 2; }

static size_t stored_bytes(const struct attn_gemm_f32 *g)
{
    return g->b_type == ATTN_B_PAIRS ? sizeof(uint32_t) : 0;
}

/* ---- panels of B ---- */

/* The same panel of a B whose columns are contiguous: words of columns, exchanged with
 * rows a square at a time. `from` is an element of K. */
static void pair_columns(const struct attn_gemm_f32 *g, float *panel, size_t width,
                         size_t from, size_t k, size_t j, size_t n)
{
    float words[NR * VF] = { 0 };
    const float *b = g->b + from + (ptrdiff_t)j * g->b_col;
    for (size_t c = 0; c < k; c += VF) { /* words: those of one chunk */
        const size_t left = g->k - from - 2 * c, some = k - c < VF ? k - c : VF;
        for (size_t i = 0; i < n; i++)
            pair_row(words + i * VF, b + (ptrdiff_t)i * g->b_col + 2 * c,
                     left < 2 * VF ? left : 2 * VF);
        transpose_block(panel + c * width, (ptrdiff_t)width, words, VF, width, some);
    }
}

/* k words from k0 on of columns j … j + n - 1, as a panel. */
static void make_panel(const struct attn_gemm_f32 *g, float *panel, size_t width,
                       size_t k0, size_t k, size_t j, size_t n)
{
    static const float zeros[NR];
    float low[NR], high[NR];
    if (!g->packed && g->b_type == ATTN_B_F32 && g->b_row == 1 && g->b_col != 1) {
        pair_columns(g, panel, width, 2 * k0, k, j, n);
        return;
    }
    const bool in_place =
        !g->packed && g->b_type == ATTN_B_F32 && g->b_col == 1 && n == width;
    for (size_t i = 2 * k0; i < 2 * (k0 + k); i += 2, panel += width) {
        const float *x = row_of_b(g, i, j, n, width, low);
        const float *y = i + 1 < g->k ? row_of_b(g, i + 1, j, n, width, high) : zeros;
        if (in_place) {
            prefetch_row(x, g->b_row, n);
            prefetch_row(x + g->b_row, g->b_row, n);
        }
        for (size_t v = 0; v < width; v += VF)
            v_store(panel + v, (v_f32)v_pair_bf16(v_load(x + v), v_load(y + v)));
    }
}

/* Block `block` of K for columns j … j + n - 1 of B. */
static void find_panel(const struct attn_gemm_f32 *g, struct tile *t, struct block block,
                       size_t j, size_t n)
{
    const size_t width = n <= VF ? VF : NR, tail = block.k % K_STEP;
    float *panel = g->scratch + attn_gemm_rows(g->m) * ROW;
    t->b_row = (ptrdiff_t)width;
    t->b = panel;
    t->tail = panel + (block.k - tail) * width;
    if (g->b_type == ATTN_B_PAIRS) {
        t->b = g->b + j * depth_of(g) + block.k0 * width;
        t->tail = panel;
        memcpy(panel, t->b + (block.k - tail) * width, tail * width * sizeof *panel);
    } else {
        make_panel(g, panel, width, block.k0, block.k, j, n);
        panel += (block.k - tail) * width;
    }
    if (tail > 0)
        memset(panel + tail * width, 0, (K_STEP - tail) * width * sizeof *panel);
}

/* ---- rows of A ---- */

#if V_HAS_TILES_BF16
#include "gemm_bf16_tiles.h"
#else

/* A block of a transposed A: word k of all rows side by side. */
static void pair_transposed(const struct attn_gemm_f32 *g, const struct block *block)
{
    static const float zeros[VF];
    float *words = g->scratch;
    for (size_t k = 0; k < block->k; k++, words += g->m) {
        const size_t at = 2 * (block->k0 + k);
        const float *x = g->a + (ptrdiff_t)at * g->a_col;
        const float *y = at + 1 < g->k ? x + g->a_col : NULL;
        for (size_t i = 0; i < g->m; i += VF) {
            const size_t n = g->m - i < VF ? g->m - i : VF;
            const v_f32 low = n == VF ? v_load(x + i) : v_load_tail(x + i, n, 0.0f);
            const v_f32 high = y == NULL ? v_load(zeros)
                               : n == VF ? v_load(y + i)
                                         : v_load_tail(y + i, n, 0.0f);
            v_store(words + i, (v_f32)v_pair_bf16(low, high)); /* beyond m: room for it */
        }
        if (attn_poll_work((int64_t)(12 * g->m)) != ATTNRUN_OK)
            return;
    }
}

static void find_rows(const struct attn_gemm_f32 *g, struct block *block)
{
    const size_t from = 2 * block->k0;
    const size_t n = g->k - from < 2 * block->k ? g->k - from : 2 * block->k;
    float *words = g->scratch;
    block->a = words;
    if (g->a_col != 0) {
        block->a_row = 1;
        block->a_col = (ptrdiff_t)g->m;
        pair_transposed(g, block);
        return;
    }
    block->a_row = ROW;
    block->a_col = 0;
    for (size_t i = 0; i < g->m; i++) {
        pair_row(words + i * ROW, g->a + (ptrdiff_t)i * g->a_row + from, n);
        if (attn_poll_work((int64_t)(6 * n)) != ATTNRUN_OK)
            return;
    }
}

static void multiply_tile(struct tile *t, size_t m, size_t width)
{
    run_tile(t, m, width);
}

#define BEGIN_TILES()
#define END_TILES()
#endif

#include "gemm_loops.h"

void K(gemm_bf16)(const struct attn_gemm_f32 *g)
{
    if (g->m == 0)
        return;
    if (g->exact || attn_gemm_by_dots(g) || (g->b_type != ATTN_B_PAIRS && g->m < THIN)) {
        K_OF_FLOATS(gemm_f32)(g);
        return;
    }
    BEGIN_TILES();
    run_groups(g);
    END_TILES();
}

void K(gemm_pack_bf16)(uint32_t *packed, const void *b, int32_t type, ptrdiff_t row,
                       ptrdiff_t col, size_t k, size_t n)
{
    const struct attn_gemm_f32 g = {
        .b = b, .b_row = row, .b_col = col, .k = k, .n = n, .b_type = type
    };
    const size_t depth = depth_of(&g);
    for (size_t j = 0; j < n; j += NR) {
        const size_t columns = n - j < NR ? n - j : NR, width = columns <= VF ? VF : NR;
        make_panel(&g, (float *)(void *)packed + j * depth, width, 0, depth, j, columns);
        if (attn_poll_work((int64_t)(8 * width * depth)) != ATTNRUN_OK)
            return;
    }
}

#else

void K(gemm_bf16)(const struct attn_gemm_f32 *g) { K_OF_FLOATS(gemm_f32)(g); }

void K(gemm_pack_bf16)(uint32_t *packed, const void *b, int32_t type, ptrdiff_t row,
                       ptrdiff_t col, size_t k, size_t n)
{
    const struct attn_gemm_f32 g = {
        .b = b, .b_row = row, .b_col = col, .k = k, .n = n, .b_type = type
    };
    uint16_t *panel = (uint16_t *)(void *)packed;
    float room[NR];
    for (size_t j = 0; j < n; j += NR) {
        const size_t columns = n - j < NR ? n - j : NR, width = columns <= VF ? VF : NR;
        for (size_t i = 0; i < k; i++, panel += width)
            K_OF_FLOATS(f32_to_bf16)(panel, row_of_b(&g, i, j, columns, width, room),
                                     width);
        if (attn_poll_work((int64_t)(8 * width * k)) != ATTNRUN_OK)
            return;
    }
}

#endif
