/* gemm_bf16_tiles.h - the rows of A and the products of gemm_bf16.c where the instruction
 * set multiplies tiles of words of two bf16 (AMX).
 *
 * A block of A is cut into squares of 16 rows by 16 words, and the squares of the same
 * rows lie side by side. Each square is read as lines that follow each other. Rows behind
 * the last one are zeros, and so are words behind the last one of K. A tile of C is 32 x
 * 32: four sums, two squares of A and two of B. */
#ifndef ATTN_GEMM_BF16_TILES_H
#define ATTN_GEMM_BF16_TILES_H

enum { SIDE = 16, SQUARE = SIDE * SIDE /* words */, TILE_BYTES = SIDE * 4 };
#define BEGIN_TILES v_tiles_begin
#define END_TILES   v_tiles_end

/* Stores n floats as a row of the squares of some rows. */
static void row_to_squares(float *words, const float *x, size_t n)
{
    for (; n >= 2 * SIDE; n -= 2 * SIDE, x += 2 * SIDE, words += SQUARE)
        v_store(words, (v_f32)v_words_bf16(x));
    if (n > 0)
        pair_row(words, x, n);
}

/* The same for m <= 16 rows of a transposed A, with n elements of each. */
static void columns_to_squares(const struct attn_gemm_f32 *g, float *words, size_t i,
                               size_t from, size_t n)
{
    const size_t m = g->m - i < SIDE ? g->m - i : SIDE;
    float columns[SQUARE];
    for (size_t k = 0; k < n; k += 2 * SIDE, words += SQUARE) {
        for (size_t word = 0; word < SIDE; word++) {
            const float *x = g->a + (ptrdiff_t)(from + k + 2 * word) * g->a_col + i;
            const v_f32 none = { 0 };
            const size_t at = k + 2 * word;
            const v_f32 low = at < n ? v_load_tail(x, m, 0.0f) : none;
            const v_f32 high = at + 1 < n ? v_load_tail(x + g->a_col, m, 0.0f) : none;
            v_store(columns + word * SIDE, (v_f32)v_pair_bf16(low, high));
        }
        transpose_square(words, SIDE, columns, SIDE);
    }
}

static void find_rows(const struct attn_gemm_f32 *g, struct block *block)
{
    const size_t from = 2 * block->k0;
    const size_t n = g->k - from < 2 * block->k ? g->k - from : 2 * block->k;
    const size_t steps = (block->k + SIDE - 1) / SIDE;
    float *words = g->scratch;
    block->a = words;
    block->a_row = (ptrdiff_t)(steps * SIDE); /* on average: tiles begin with squares */
    block->a_col = 0;
    for (size_t i = 0; i < g->m; i += SIDE, words += steps * SQUARE) {
        const size_t m = g->m - i < SIDE ? g->m - i : SIDE;
        if (m < SIDE)
            memset(words, 0, steps * SQUARE * sizeof *words);
        for (size_t r = 0; g->a_col == 0 && r < m; r++)
            row_to_squares(words + r * SIDE, g->a + (ptrdiff_t)(i + r) * g->a_row + from,
                           n);
        if (g->a_col != 0)
            columns_to_squares(g, words, i, from, n);
        if (attn_poll_work((int64_t)(3 * m * n)) != ATTNRUN_OK)
            return;
    }
}

/* One step along K. b: two squares, whose rows are b_row words apart. */
static ALWAYS_INLINE void multiply_squares(const float *a, size_t next_row,
                                           const float *b, size_t b_row,
                                           const bool two_rows, const bool two_columns)
{
    v_tile_load(6, b, 4 * b_row);
    v_tile_load(4, a, TILE_BYTES);
    v_tile_dot_bf16(0, 4, 6);
    if (two_columns) {
        v_tile_load(7, b + SIDE, 4 * b_row);
        v_tile_dot_bf16(1, 4, 7);
    }
    if (two_rows) {
        v_tile_load(5, a + next_row, TILE_BYTES);
        v_tile_dot_bf16(2, 5, 6);
    }
    if (two_rows && two_columns)
        v_tile_dot_bf16(3, 5, 7);
}

/* What the sums of a tile of C begin with: squares at `at`, rows `row` floats apart (0: all rows
 * are alike); NULL: 0. */
struct squares {
    const float *at;
    ptrdiff_t row;
};

static ALWAYS_INLINE void begin_squares(struct squares from, const bool two_rows,
                                        const bool two_columns)
{
    const float *const x = from.at;
    if (x == NULL) {
        v_tile_zero(0);
        v_tile_zero(1);
        v_tile_zero(2);
        v_tile_zero(3);
        return;
    }
    v_tile_load(0, x, 4 * from.row);
    if (two_columns)
        v_tile_load(1, x + SIDE, 4 * from.row);
    if (two_rows)
        v_tile_load(2, x + SIDE * from.row, 4 * from.row);
    if (two_rows && two_columns)
        v_tile_load(3, x + SIDE * from.row + SIDE, 4 * from.row);
}

/* Stores the sums of one or two squares of rows and columns to `out`. */
static ALWAYS_INLINE void sum_squares(const struct tile *t, struct squares from,
                                      float *out, size_t out_row, const bool two_rows,
                                      const bool two_columns)
{
    const size_t steps = t->k / SIDE, b_row = (size_t)t->b_row;
    const size_t next_row = (steps + (t->k % SIDE != 0)) * SQUARE;
    const float *a = t->a, *b = t->b, *const *fetch = t->fetch;
    const float *const *last = fetch + t->n_fetch;
    const char *next = t->next;
    begin_squares(from, two_rows, two_columns);
    for (size_t i = 0; i < steps; i++, a += SQUARE, b += SIDE * b_row) {
        multiply_squares(a, next_row, b, b_row, two_rows, two_columns);
        for (int line = 0; line < 2 * t->next_lines; line++, next += LINE)
            __builtin_prefetch(next, 0, 2);
        for (int line = 0; line < 2 * t->a_strip && fetch < last; line++)
            __builtin_prefetch(*fetch++, 0, 2);
    }
    if (t->k % SIDE != 0)
        multiply_squares(a, next_row, t->tail, b_row, two_rows, two_columns);
    v_tile_store(0, out, 4 * out_row);
    if (two_columns)
        v_tile_store(1, out + SIDE, 4 * out_row);
    if (two_rows)
        v_tile_store(2, out + SIDE * out_row, 4 * out_row);
    if (two_rows && two_columns)
        v_tile_store(3, out + SIDE * out_row + SIDE, 4 * out_row);
}

static void multiply_tile(struct tile *t, size_t m, size_t width)
{
    float room[TILE_ROWS * NR] __attribute__((aligned(64)));
    struct squares from = { t->bias, 0 };
    const float *sum = t->sum;        /* that is added behind */
    if (sum != NULL && t->sum_kept) { /* behind the first block, which has no bias */
        from = (struct squares){ sum, t->sum_row };
        sum = NULL;
    }
    const bool in_place = sum == NULL && (t->kept || m % SIDE == 0);
    float *out = in_place ? t->out : room;
    const size_t out_row = in_place ? (size_t)t->out_row : NR;
    v_tiles_fence();
    if (m > SIDE && width == NR)
        sum_squares(t, from, out, out_row, true, true);
    else if (m > SIDE)
        sum_squares(t, from, out, out_row, true, false);
    else if (width == NR)
        sum_squares(t, from, out, out_row, false, true);
    else
        sum_squares(t, from, out, out_row, false, false);
    v_tiles_fence();
    for (size_t i = 0; !in_place && i < m; i++)
        for (size_t v = 0; v < width; v += VF) {
            v_f32 x = v_load(room + i * NR + v);
            if (sum != NULL)
                x += v_load(sum + (ptrdiff_t)i * t->sum_row + (ptrdiff_t)v);
            v_store(t->out + (ptrdiff_t)i * t->out_row + (ptrdiff_t)v, x);
        }
}

#endif
