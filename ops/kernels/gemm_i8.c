/* gemm_i8.c - C = (A - a_zero) (B - b_zero) of bytes, in 32 bits that wrap, for a block
 * of C that one task computes; and the packing of B.
 *
 * The products are of A as u8 and B as i8. Other types and their zero points are shifted
 * by 128:
 *   sum (a - za)(b - zb) = sum a b - za (sum b - k zb) - zb sum a
 * With V_DOT_I8 both are i8. Zero points therefore cost two products an element of C, and
 * nothing where they are 0. All steps are exact modulo 2^32, so the bits are the same on
 * every instruction set and in any order.
 *
 * B is in panels of NR columns; a word of 4 bytes holds 4 rows of one column. The loops
 * are over blocks of K, panels, and tiles of MR rows. A block of A is copied: it is
 * padded to whole words and shifted. If there is no product of bytes (vpdpbusd), it is
 * also promoted to pairs of i16, with rows 0 and 2 of a word apart from 1 and 3, for
 * pmaddwd.
 *
 * MR, of isa.def, and NR fill the registers. Each set with V_DOT (VNNI) has a text of its
 * own. Where there are tiles (AMX), those of 32 x 32 are summed over words of 64 rows of
 * B, beside C, and the tile of MR rows adds the rest. Cost: 2 m n k operations. Tests
 * compare it with a plain loop. */
#include "isa.h"

enum {
    MR = ATTN_I8_ROWS,
    NR = 2 * VF,
    PANEL_WORDS = NR, /* of 4 rows of B */
    WORDS = ATTN_GEMM_I8_KC / 4,
    PLANES = V_DOT != V_DOT_NONE ? 1 : 2,
    ROW = PLANES * WORDS + 16, /* words between rows of the copy of A */
    PREFETCH_BYTES =
        8192, /* rows of B so far ahead, from memory: an L2 prefetcher ends at a page */
    PREFETCH_ROWS = 48
};
typedef uint32_t v_u32_u __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));

static ALWAYS_INLINE v_u32 load_u32(const void *p) { return *(const v_u32_u *)p; }
static ALWAYS_INLINE void store_u32(void *p, v_u32 v) { *(v_u32_u *)p = v; }
static ALWAYS_INLINE v_u32 set_u32(uint32_t x) { return x - (v_u32){ 0 }; }

/* ---- products of words ---- */

/* A vector of words of B, as products take it: without V_DOT its bytes are apart. */
struct wide {
    v_u32 all;
    v_i16 even, odd;
};
static ALWAYS_INLINE struct wide promote(v_u32 b)
{
    return (struct wide){ b, (v_i16)((v_u16)b << 8) >> 8, (v_i16)b >> 8 };
}

/* acc + the 4 products of the word *a (u8) and each word of b (i8). */
static ALWAYS_INLINE v_u32 add_products(v_u32 acc, struct wide b, const uint32_t *a)
{
    if (V_DOT != V_DOT_NONE)
        return v_dot(acc, b.all, *a);
    return acc + v_pair_products(b.even, a[0]) + v_pair_products(b.odd, a[WORDS]);
}

/* A row of the copy of A whose bytes are 1. */
static const uint32_t ones[2 * WORDS] = { [0] = V_DOT != V_DOT_NONE ? 0x01010101
                                                                    : 0x00010001,
                                          [WORDS] = 0x00010001 };

/* ---- tiles ---- */

/* out[i][j] = (add: out[i][j]) + begun[i][j] + sum over words of a[i] b[j]
 * - a_zero[i] column_sum[j] - row_sum[i] b_zero[j]; begun, whose rows are NR apart,
 * a_zero and b_zero may be NULL. */
struct tile {
    const uint32_t *a, *begun;
    const uint8_t *b;
    uint32_t *out;
    ptrdiff_t out_row;
    size_t words;
    const uint8_t *panel; /* of which b and words are the end */
    size_t all_words;
    bool add;
    const uint32_t *a_zero, *row_sum, *b_zero, *column_sum;
};

static ALWAYS_INLINE void take_zeros(const struct tile *t, v_u32 (*acc)[2],
                                     const struct rows rows)
{
    for (int v = 0; t->a_zero != NULL && v < 2; v++) {
        const v_u32 sum = load_u32(t->column_sum + v * VF);
        EACH_ROW (i, rows)
            acc[i][v] -= set_u32(t->a_zero[i]) * sum;
    }
    for (int v = 0; t->b_zero != NULL && v < 2; v++) {
        const v_u32 zero = load_u32(t->b_zero + v * VF);
        EACH_ROW (i, rows)
            acc[i][v] -= set_u32(t->row_sum[i]) * zero;
    }
}

static ALWAYS_INLINE void tile_sum(const struct tile *t, const struct rows rows)
{
    v_u32 acc[MR][2] = { { { 0 } } };
    const uint32_t *a = t->a;
    const uint8_t *b = t->b;
    for (size_t word = 0; word < t->words; word++, a++, b += 2 * VEC_BYTES) {
        const struct wide b0 = promote(load_u32(b)),
                          b1 = promote(load_u32(b + VEC_BYTES));
        for (int v = 0; rows.max <= 2 && v < 2; v++)
            __builtin_prefetch(b + PREFETCH_BYTES + v * VEC_BYTES);
        EACH_ROW (i, rows) {
            acc[i][0] = add_products(acc[i][0], b0, a + i * ROW);
            acc[i][1] = add_products(acc[i][1], b1, a + i * ROW);
        }
    }
    if (V_HAS_TILES && t->begun != NULL)
        EACH_ROW (i, rows) {
            acc[i][0] += load_u32(t->begun + i * NR);
            acc[i][1] += load_u32(t->begun + i * NR + VF);
        }
    if (t->add)
        EACH_ROW (i, rows) {
            acc[i][0] += load_u32(t->out + i * t->out_row);
            acc[i][1] += load_u32(t->out + i * t->out_row + VF);
        }
    take_zeros(t, acc, rows);
    EACH_ROW (i, rows) {
        store_u32(t->out + i * t->out_row, acc[i][0]);
        store_u32(t->out + i * t->out_row + VF, acc[i][1]);
    }
}

/* clang-format off */
#define TILE(min, max, unused)                                                           \
    static void tile_##min(const struct tile *t, size_t m)                               \
    {                                                                                    \
        tile_sum(t, (struct rows){ (int)m, min, max });                                  \
    }
ATTN_TEXTS(ATTN_I8_ROWS, TILE, 0)
#define ENTRY(min, max, unused) tile_##min,
static void (*const tiles[MR])(const struct tile *t, size_t m) = {
    ATTN_TEXTS(ATTN_I8_ROWS, ENTRY, 0)
};
#undef ENTRY
#undef TILE
/* clang-format on */

/* Tiles of AMX: rows, words; worth it from so many rows of A. */
enum { SIDE = 16, DEEP = 16, MIN_ROWS = 9 };

/* ---- A ---- */

/* A is copied as u8, and then as i8 where products take that: 128 is subtracted. */
static const uint32_t a_flip = V_DOT == V_DOT_I8 ? 0x80808080 : 0;
static const uint32_t a_shift = V_DOT == V_DOT_I8 ? 128 : 0;

/* n <= 4 bytes, `step` apart, as a word, the rest 0. */
static inline uint32_t word_of(const uint8_t *x, ptrdiff_t step, size_t n, uint32_t flip)
{
    uint32_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint32_t)(x[(ptrdiff_t)i * step] ^ (flip & 0xff)) << 8 * i;
    return word;
}

static inline void put_word(uint32_t *to, uint32_t word)
{
    to[0] = V_DOT != V_DOT_NONE ? word ^ a_flip : word & 0x00ff00ff;
    if (V_DOT == V_DOT_NONE)
        to[WORDS] = word >> 8 & 0x00ff00ff;
}

/* k bytes of a row of A; returns their sum as u8. */
static uint32_t copy_row(uint32_t *to, const uint8_t *a, ptrdiff_t col, size_t k,
                         uint32_t flip)
{
    const v_u32 low = set_u32(0x00ff00ff);
    v_u32 sums = { 0 };
    size_t i = 0;
    for (; col == 1 && i + VEC_BYTES <= k; i += VEC_BYTES, to += VF) {
        const v_u32 x = load_u32(a + i) ^ flip, even = x & low, odd = x >> 8 & low;
        const v_u32 both = even + odd;
        store_u32(to, V_DOT != V_DOT_NONE ? x ^ a_flip : even);
        if (V_DOT == V_DOT_NONE)
            store_u32(to + WORDS, odd);
        sums += (both & 0xffff) + (both >> 16);
    }
    uint32_t sum = 0;
    for (int lane = 0; lane < VF; lane++)
        sum += sums[lane];
    for (; i < k; i += 4, to++) {
        const uint32_t x =
            word_of(a + (ptrdiff_t)i * col, col, k - i < 4 ? k - i : 4, flip);
        put_word(to, x);
        sum += (x & 0xff) + (x >> 8 & 0xff) + (x >> 16 & 0xff) + (x >> 24);
    }
    return sum;
}

/* ---- B ---- */

/* 4 rows of NR columns that lie side by side. */
static ALWAYS_INLINE void pack_word_row(uint8_t *panel, const uint8_t *b, ptrdiff_t row,
                                        uint32_t flip, v_u32 *sums)
{
    for (int v = 0; v < 2; v++, b += VF, panel += VEC_BYTES) {
        v_u32 words = set_u32(flip);
        UNROLL
        for (int r = 0; r < 4; r++)
            words ^= v_load_u8(b + r * row) << 8 * r;
        store_u32(panel, words);
        sums[v] = add_products(sums[v], promote(words), ones);
    }
}

/* Columns 0 … n - 1 (n <= NR) and rows 0 … k - 1 of B as a panel; adds up its columns. */
static void pack_panel(uint8_t *panel, uint32_t *sums, const uint8_t *b, ptrdiff_t row,
                       ptrdiff_t col, size_t k, size_t n, uint32_t flip)
{
    v_u32 sum[2] = { load_u32(sums), load_u32(sums + VF) };
    size_t i = 0;
    for (; col == 1 && n == NR && i + 4 <= k; i += 4, panel += 4 * NR) {
        for (int r = 0; r < 4; r++)
            __builtin_prefetch(b + (ptrdiff_t)(i + PREFETCH_ROWS + r) * row);
        pack_word_row(panel, b + (ptrdiff_t)i * row, row, flip, sum);
    }
    for (; i < k; i += 4, panel += 4 * NR) {
        uint32_t words[NR] = { 0 };
        const size_t rows = k - i < 4 ? k - i : 4;
        const uint8_t *from = b + (ptrdiff_t)i * row;
        for (size_t j = 0; j < n; j++, from += col)
            words[j] = word_of(from, row, rows, flip);
        memcpy(panel, words, sizeof words);
        for (int v = 0; v < 2; v++)
            sum[v] = add_products(sum[v], promote(load_u32(words + v * VF)), ones);
    }
    store_u32(sums, sum[0]);
    store_u32(sums + VF, sum[1]);
}

static uint32_t flip_of_b(bool is_signed) { return is_signed ? 0 : 0x80808080; }

void K(gemm_pack_i8)(uint8_t *packed, uint32_t *sums, const void *b, ptrdiff_t row,
                     ptrdiff_t col, size_t k, size_t n, bool is_signed)
{
    const size_t bytes = (k + 3) / 4 * 4 * NR;
    for (size_t j = 0; j < n; j += NR, packed += bytes, sums += NR) {
        memset(sums, 0, NR * sizeof *sums);
        pack_panel(packed, sums, (const uint8_t *)b + (ptrdiff_t)j * col, row, col, k,
                   n - j < NR ? n - j : NR, flip_of_b(is_signed));
    }
}

/* ---- blocks ---- */

/* What a product keeps in scratch. Zero points and sums are those of u8 and i8. */
struct kept {
    uint32_t *rows;                /* a block of A */
    uint32_t *a_zero, *row_sum;    /* m; a_zero NULL: all 0 */
    uint32_t *b_zero, *column_sum; /* n, whole panels; b_zero NULL: all 0 */
    uint32_t *edge, *panel;
    uint32_t *begun; /* 32 x 32 sums of AMX; NULL: none */
};

static bool shift_zeros(uint32_t *to, const int32_t *zero, size_t n, uint32_t shift)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = (zero != NULL ? (uint32_t)zero[i] : 0) + shift;
        any |= to[i];
    }
    return any != 0;
}

static struct kept carve(const struct attn_gemm_i8 *g)
{
    const size_t wide = (g->n + NR - 1) / NR * NR;
    struct kept s = { .panel = g->scratch };
    s.rows = s.panel + WORDS * NR;
    s.column_sum = s.rows + attn_gemm_i8_rows(g->m) * ROW;
    s.b_zero = s.column_sum + wide;
    s.edge = s.b_zero + wide;
    s.a_zero = s.edge + MR * NR;
    s.row_sum = s.a_zero + g->m;
    s.begun = V_HAS_TILES && g->m >= MIN_ROWS ? s.row_sum + g->m : NULL;
    memset(s.row_sum, 0, g->m * sizeof *s.row_sum);
    memset(s.b_zero, 0, wide * sizeof *s.b_zero);
    if (g->sums != NULL)
        memcpy(s.column_sum, g->sums, wide * sizeof *s.column_sum);
    else
        memset(s.column_sum, 0, wide * sizeof *s.column_sum);
    if (!shift_zeros(s.a_zero, g->a_zero, g->m, (g->a_signed ? 128 : 0) - a_shift))
        s.a_zero = NULL;
    if (!shift_zeros(s.b_zero, g->b_zero, g->n, g->b_signed ? 0 : -(uint32_t)128))
        s.b_zero = NULL;
    return s;
}

struct block {
    size_t k0, k; /* rows of B */
    bool first, last;
};

static void copy_rows(const struct attn_gemm_i8 *g, struct kept *s, struct block block)
{
    const ptrdiff_t col = g->a_col != 0 ? g->a_col : 1;
    const uint8_t *a = (const uint8_t *)g->a + (ptrdiff_t)block.k0 * col;
    for (size_t i = 0; i < g->m; i++)
        s->row_sum[i] += copy_row(s->rows + i * ROW, a + (ptrdiff_t)i * g->a_row, col,
                                  block.k, g->a_signed ? 0x80808080 : 0) -
                         a_shift * (uint32_t)block.k;
}

static const uint8_t *find_panel(const struct attn_gemm_i8 *g, const struct kept *s,
                                 struct block block, size_t j, size_t n)
{
    if (g->sums != NULL)
        return (const uint8_t *)g->b + j * ((g->k + 3) / 4 * 4) + block.k0 * NR;
    const uint8_t *b =
        (const uint8_t *)g->b + (ptrdiff_t)block.k0 * g->b_row + (ptrdiff_t)j * g->b_col;
    pack_panel((uint8_t *)s->panel, s->column_sum + j, b, g->b_row, g->b_col, block.k, n,
               flip_of_b(g->b_signed));
    return (const uint8_t *)s->panel;
}

/* A tile of fewer columns than a panel has: it is summed beside C, and copied from and to
 * it. */
static void run_edge(const struct attn_gemm_i8 *g, const struct kept *s, struct tile *t,
                     size_t m, size_t n)
{
    uint32_t *c = t->out;
    for (size_t i = 0; t->add && i < m; i++)
        memcpy(s->edge + i * NR, c + (ptrdiff_t)i * g->c_row, n * sizeof *c);
    t->out = s->edge;
    t->out_row = NR;
    tiles[text_of(m, MR)](t, m);
    for (size_t i = 0; i < m; i++)
        memcpy(c + (ptrdiff_t)i * g->c_row, s->edge + i * NR, n * sizeof *c);
}

/* How many rows the tile at row i has, and what is to be multiplied. */
static size_t begin_rows(const struct attn_gemm_i8 *g, const struct kept *s,
                         struct tile *t, size_t i)
{
    const size_t left = g->m - i;
    t->a = s->rows + i * ROW;
    if (V_HAS_TILES && s->begun != NULL) {
        const size_t within = i % (2 * SIDE), done = t->all_words / DEEP * DEEP;
        if (within == 0)
            v_tiles_sum(s->begun, NR, t->a, ROW, t->panel, t->all_words);
        t->begun = s->begun + within * NR;
        t->a += done;
        t->b = t->panel + done * 4 * NR;
        t->words = t->all_words - done;
        return left < MR ? left : MR;
    }
    t->b = t->panel;
    t->words = t->all_words;
    return next_rows(left, MR);
}

static void run_panel(const struct attn_gemm_i8 *g, struct kept *s, struct block block,
                      size_t j, size_t n)
{
    struct tile t = { .panel = find_panel(g, s, block, j, n),
                      .all_words = (block.k + 3) / 4 };
    t.add = !block.first;
    for (size_t c = j; block.last && s->b_zero != NULL && c < j + n; c++)
        s->column_sum[c] -= (uint32_t)g->k * s->b_zero[c];
    for (size_t i = 0, m = 0; i < g->m; i += m) {
        m = begin_rows(g, s, &t, i);
        t.out = g->c + (ptrdiff_t)i * g->c_row + j;
        t.out_row = g->c_row;
        if (block.last) {
            t.a_zero = s->a_zero != NULL ? s->a_zero + i : NULL;
            t.b_zero = s->b_zero != NULL ? s->b_zero + j : NULL;
            t.row_sum = s->row_sum + i;
            t.column_sum = s->column_sum + j;
        }
        if (n < NR)
            run_edge(g, s, &t, m, n);
        else
            tiles[text_of(m, MR)](&t, m);
    }
}

void K(gemm_i8)(const struct attn_gemm_i8 *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    struct kept kept = carve(g);
    if (V_HAS_TILES && kept.begun != NULL)
        v_tiles_begin();
    const size_t n_blocks =
        g->k > ATTN_GEMM_I8_KC ? (g->k + ATTN_GEMM_I8_KC - 1) / ATTN_GEMM_I8_KC : 1;
    const size_t depth = ((g->k + n_blocks - 1) / n_blocks + 3) / 4 * 4;
    for (size_t i = 0; i < n_blocks; i++) {
        struct block block = { .k0 = i * depth, .first = i == 0 };
        block.last = g->k - block.k0 <= depth;
        block.k = block.last ? g->k - block.k0 : depth;
        copy_rows(g, &kept, block);
        bool stopped = false;
        for (size_t j = 0; j < g->n && !stopped; j += NR) {
            run_panel(g, &kept, block, j, g->n - j < NR ? g->n - j : NR);
            stopped =
                attn_poll_work((int64_t)(block.k * (NR + g->m * NR / 20))) != ATTNRUN_OK;
        }
        if (block.last || stopped)
            break;
    }
    if (V_HAS_TILES && kept.begun != NULL)
        v_tiles_end();
}
