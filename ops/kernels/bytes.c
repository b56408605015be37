/* bytes.c - kernels of quantized bytes, and of blocks of 16 of them: struct
 * attn_binary_u8; the maximum and the sums of pixels; tables; transposes. Steps are
 * rounded one by one, so every instruction set gives the same bits. Cost: one read of
 * each operand and one write. */
#include "bytes.h"

typedef uint8_t v_block __attribute__((vector_size(ATTN_BLOCK)));

static inline v_block load_block(const uint8_t *x)
{
    v_block v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Converts bytes to floats and subtracts a zero point. */
static ALWAYS_INLINE v_f32 bytes_less(const uint8_t *x, uint32_t flip, float zero)
{
    return __builtin_convertvector((v_i32)(v_load_u8(x) ^ flip), v_f32) - v_set(zero);
}

static ALWAYS_INLINE v_u32 binary(const struct attn_binary_u8 *d, const uint8_t *a,
                                  const uint8_t *b)
{
    v_f32 x = bytes_less(a, d->flip, d->a_zero), y = bytes_less(b, d->flip, d->b_zero);
    if (d->multiply)
        x = v_rounded(v_rounded(x * y) * v_set(d->a_ratio));
    else
        x = v_rounded(x * v_set(d->a_ratio)) + v_rounded(y * v_set(d->b_ratio));
    x = v_max(x + v_set(d->zero), v_set(0.0f)); /* NaN becomes 0 */
    return v_nearest(v_min(x, v_set(255.0f))) ^ d->flip;
}

void K(binary_u8)(uint8_t *y, const struct attn_binary_u8 *d, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);) {
        for (; i + VF <= end; i += VF)
            v_store_bytes(y + i, binary(d, d->a + i, d->b + (d->b_repeats ? i % 16 : i)));
        uint8_t a[VF] = { 0 }, b[VF] = { 0 }, c[VF];
        for (size_t j = i; j < end; j++) {
            a[j - i] = d->a[j];
            b[j - i] = d->b[d->b_repeats ? j % 16 : j];
        }
        v_store_bytes(c, binary(d, a, b));
        memcpy(y + i, c, end - i);
        i = end;
    }
}

void K(max_u8)(uint8_t *y, const uint8_t *x, size_t step, size_t n)
{
    for (size_t end = 0, p = 0; attn_segment_of(&end, n, ATTN_BLOCK);)
        for (; p < end; p++) {
            const v_block a = load_block(y + p * ATTN_BLOCK),
                          b = load_block(x + p * step);
            const v_block above = (v_block)(a > b), max = (a & above) | (b & ~above);
            memcpy(y + p * ATTN_BLOCK, &max, sizeof max);
        }
}

void K(sum_u8)(uint32_t *y, const uint8_t *x, size_t n)
{
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF) {
        v_u32 sum = { 0 };
        for (size_t end = 0, p = 0; attn_segment_of(&end, n, ATTN_BLOCK);)
            for (; p < end; p++)
                sum += v_load_u8(x + p * ATTN_BLOCK + lane);
        memcpy(y + lane, &sum, sizeof sum);
    }
}

void K(look_up_u8)(uint8_t *y, const uint8_t *x, const uint8_t *table, size_t n)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n); i = end)
        look_up_bytes(y + i, x + i, table, end - i);
}

/* ---- transposes ---- */

static ALWAYS_INLINE v_block low_of(v_block a, v_block b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                   7, 23);
}

static ALWAYS_INLINE v_block high_of(v_block a, v_block b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                   30, 15, 31);
}

/* 16 rows of 16 bytes: each of four rounds interleaves those of the first half with those of the
 * second one, which transposes them. */
static ALWAYS_INLINE void transpose_blocks(v_block v[ATTN_BLOCK])
{
    v_block w[ATTN_BLOCK];
    for (int round = 0; round < 4; round++) {
        UNROLL
        for (int i = 0; i < 8; i++) {
            w[2 * i] = low_of(v[i], v[i + 8]);
            w[2 * i + 1] = high_of(v[i], v[i + 8]);
        }
        memcpy(v, w, sizeof w);
    }
}

/* Up to 16 rows of up to 16 columns. */
struct byte_rows {
    uint8_t *y;
    const uint8_t *x;
    ptrdiff_t y_row, x_row;
    size_t rows, columns;
    uint8_t flip;
};

static ALWAYS_INLINE void transpose_square(const struct byte_rows *s)
{
    v_block v[ATTN_BLOCK];
    UNROLL
    for (size_t i = 0; i < ATTN_BLOCK; i++)
        v[i] = load_block(s->x + (ptrdiff_t)i * s->x_row) ^ s->flip;
    transpose_blocks(v);
    UNROLL
    for (size_t j = 0; j < ATTN_BLOCK; j++)
        memcpy(s->y + (ptrdiff_t)j * s->y_row, &v[j], ATTN_BLOCK);
}

/* A square at an edge, by way of copies; rows behind the last one are zeros. */
static void transpose_edge(const struct byte_rows *s, size_t width)
{
    uint8_t from[ATTN_BLOCK * ATTN_BLOCK], to[ATTN_BLOCK * ATTN_BLOCK];
    memset(from, s->flip, sizeof from);
    for (size_t i = 0; i < s->rows; i++)
        memcpy(from + i * ATTN_BLOCK, s->x + (ptrdiff_t)i * s->x_row, s->columns);
    const struct byte_rows whole = {
        .y = to, .x = from, .y_row = ATTN_BLOCK, .x_row = ATTN_BLOCK, .flip = s->flip
    };
    transpose_square(&whole);
    for (size_t j = 0; j < s->columns; j++)
        memcpy(s->y + (ptrdiff_t)j * s->y_row, to + j * ATTN_BLOCK, width);
}

/* 16 columns of up to 4 rows, to rows of 4 bytes without gaps. */
static ALWAYS_INLINE void transpose_quarter(const struct byte_rows *s)
{
    v_block v[4] = { { 0 } };
    UNROLL
    for (size_t i = 0; i < 4; i++)
        if (i < s->rows)
            v[i] = load_block(s->x + (ptrdiff_t)i * s->x_row) ^ s->flip;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const v_block even = half == 0 ? low_of(v[0], v[2]) : high_of(v[0], v[2]),
                      odd = half == 0 ? low_of(v[1], v[3]) : high_of(v[1], v[3]);
        const v_block low = low_of(even, odd), high = high_of(even, odd);
        memcpy(s->y + half * 32, &low, sizeof low);
        memcpy(s->y + half * 32 + 16, &high, sizeof high);
    }
}

void K(transpose_u8)(uint8_t *y, ptrdiff_t y_row, const uint8_t *x, ptrdiff_t x_row,
                     size_t rows, size_t columns, size_t fill, uint8_t flip)
{
    for (size_t i = 0; i == 0 || i < rows; i += ATTN_BLOCK)
        for (size_t j = 0; j < columns; j += ATTN_BLOCK) {
            struct byte_rows s = { .y = y + (ptrdiff_t)j * y_row + i,
                                   .x = x + (ptrdiff_t)i * x_row + j,
                                   .y_row = y_row,
                                   .x_row = x_row,
                                   .flip = flip };
            s.rows = rows - i < ATTN_BLOCK ? rows - i : ATTN_BLOCK;
            s.columns = columns - j < ATTN_BLOCK ? columns - j : ATTN_BLOCK;
            const size_t width = s.rows + fill;
            if (width == 4 && y_row == 4 && s.columns == ATTN_BLOCK)
                transpose_quarter(&s);
            else if (s.rows == ATTN_BLOCK && s.columns == ATTN_BLOCK)
                transpose_square(&s);
            else
                transpose_edge(&s, width);
        }
}
