/* blocked_conv_u8.c - convolution of maps of u8 in blocks of 16 channels by weights of i8
 * (struct attn_blocked_bytes), and depthwise convolution (struct attn_blocked_byte_rows).
 *
 * Dense: as in blocked_conv_f32.c a tile of pixels and two vectors of columns stays in
 * registers. A row of the weights is a word of 4 inputs for each column; it is multiplied
 * by a word of each pixel. Where there is no product of bytes (V_DOT_NONE), words become
 * two words of i16, so that no sum saturates. With V_DOT_I8 128 is subtracted from x.
 * Sums are exact modulo 2^32, and the steps after them are rounded one by one, so every
 * instruction set gives the same bits. Cost: one word of four products for each four
 * inputs, output and tap. */
#include "blocked_place.h"
#include "bytes.h"
#include "requantize.h"

/* Pixels of a tile by bytes of a vector, registers and V_DOT. */
#define MAX_16_16V_DOT_NONE 4
#define MAX_32_16V_DOT_NONE 4
#define MAX_32_16V_DOT_U8   6
#define MAX_16_32V_DOT_NONE 12
#define MAX_16_32V_DOT_I8   12
#define MAX_64_32V_DOT_NONE 12
#define MAX_64_32V_DOT_U8   14
#define WORDS_PIXELS        ATTN_CAT(ATTN_CAT4(MAX_, VEC_BYTES, _, ATTN_REGISTERS), V_DOT)
typedef uint32_t v_u32_u __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));

static ALWAYS_INLINE v_u32 load_words(const void *p) { return *(const v_u32_u *)p; }

/* A vector of words of weights: without V_DOT its bytes 0 and 2 apart from 1 and 3. */
struct wide {
    v_u32 all;
    v_i16 even, odd;
};
static ALWAYS_INLINE struct wide promote(v_u32 w)
{
    if (V_DOT != V_DOT_NONE)
        return (struct wide){ .all = w };
    return (struct wide){ w, (v_i16)((v_u16)w << 8) >> 8, (v_i16)w >> 8 };
}

/* acc + the products of words of x (u8) and weights (i8). */
static ALWAYS_INLINE v_u32 add_words(v_u32 acc, struct wide w, v_u32 x)
{
    if (V_DOT == V_DOT_U8)
        return v_dot_words(acc, w.all, x);
    if (V_DOT == V_DOT_I8)
        return v_dot_words(acc, w.all, x ^ 0x80808080);
    acc += v_pairs(w.even, (v_i16)(x & 0x00ff00ff));
    return acc + v_pairs(w.odd, (v_i16)(x >> 8 & 0x00ff00ff));
}

/* What sums of columns begin with. */
static ALWAYS_INLINE v_u32 first_sum(const uint32_t *begin, const uint32_t *w_sum)
{
    const v_u32 first = load_words(begin);
    return V_DOT == V_DOT_I8 ? first + (load_words(w_sum) << 7) : first;
}

/* ---- dense ---- */

static ALWAYS_INLINE v_u32 words_first(const struct attn_blocked_bytes *d, int64_t column)
{
    return first_sum(d->begin + column, d->w_sum + column);
}

static ALWAYS_INLINE const uint8_t *words_pixel(const struct attn_blocked_bytes *d,
                                                int64_t offset)
{
    return d->x + offset;
}

/* Vector v of up to four rows of sums, 1, 2 or 4 neighbouring pixels, becomes results. */
static ALWAYS_INLINE void put_pixels(const struct attn_requantize *to, v_u32 (*acc)[2],
                                     const int v, v_f32 factor, const uint8_t *z,
                                     uint8_t *y, const int n, const bool two)
{
    v_u32 four[4] = { { 0 } };
    UNROLL
    for (int i = 0; i < n; i++)
        four[i] =
            requantized(to, acc[i][v], factor, two ? z + i * ATTN_BLOCK : NULL, two);
    v_store_pixels(y, ATTN_BLOCK, four, n, limits_of(to), !two);
}

/* A vector of columns of the tile `at`: where it begins in the map, and what belongs to its
 * columns. */
struct ending {
    const struct attn_requantize *to;
    v_f32 factor;
    int64_t place;
    v_u32 w_zero;
    const uint32_t *x_sums; /* of the first pixel, or NULL: w_zero is 0 */
};
static ALWAYS_INLINE struct ending ending_of(const struct attn_blocked_bytes *d,
                                             const struct attn_requantize *to,
                                             const struct place *at, int v)
{
    const int64_t column = at->column + v * VF;
    struct ending e = { .to = to, .factor = v_load(to->factor + column) };
    e.place =
        column / ATTN_BLOCK * d->y_block + column % ATTN_BLOCK + at->pixel * ATTN_BLOCK;
    if (d->w_zero != NULL) {
        e.w_zero = load_words(d->w_zero + column);
        e.x_sums = d->x_sums + at->pixel;
    }
    return e;
}

/* Sums of n pixels and nv vectors of columns, as rows of two vectors, become results. What all
 * results share is copied: they may lie anywhere, for all that the compiler knows. */
static __attribute__((noinline)) void put_sums(const struct attn_blocked_bytes *d,
                                               const uint32_t *sums,
                                               const struct place *at, int64_t n,
                                               int64_t nv)
{
    const struct attn_requantize to = d->to;
    for (int v = 0; v < nv; v++) {
        const struct ending e = ending_of(d, &to, at, v);
        uint8_t *y = d->y + e.place;
        const uint8_t *z = to.z != NULL ? to.z + e.place : NULL;
        for (int64_t i = 0; i < n; i++, y += ATTN_BLOCK) {
            v_u32 sum[1][2] = { { load_words(sums + (2 * i + v) * VF) } };
            if (e.x_sums != NULL)
                sum[0][0] -= e.w_zero * (e.x_sums[i] - (v_u32){ 0 });
            if (z != NULL)
                put_pixels(&to, sum, 0, e.factor, z + i * ATTN_BLOCK, y, 1, true);
            else
                put_pixels(&to, sum, 0, e.factor, NULL, y, 1, false);
        }
    }
}

/* The rows of a tile from i on, up to four of them. */
static ALWAYS_INLINE void put_rows(const struct ending *e, v_u32 (*acc)[2], const int v,
                                   uint8_t *y, const int i, const struct rows rows,
                                   const bool two)
{
    const uint8_t *const z = two ? e->to->z + e->place + i * ATTN_BLOCK : NULL;
    if (i + 3 < rows.max && has_row(rows, i + 3)) {
        put_pixels(e->to, acc, v, e->factor, z, y, 4, two);
    } else if (i + 1 < rows.max && has_row(rows, i + 1)) {
        put_pixels(e->to, acc, v, e->factor, z, y, 2, two);
        if (i + 2 < rows.max && has_row(rows, i + 2))
            put_pixels(e->to, acc + 2, v, e->factor, two ? z + 2 * ATTN_BLOCK : NULL,
                       y + 2 * ATTN_BLOCK, 1, two);
    } else if (has_row(rows, i)) {
        put_pixels(e->to, acc, v, e->factor, z, y, 1, two);
    }
}

/* The largest tiles, which do most of the work, are finished in registers; all others share
 * put_sums(). */
static ALWAYS_INLINE void words_put(const struct attn_blocked_bytes *d, v_u32 (*acc)[2],
                                    const struct place *at, const struct rows rows,
                                    const int nv)
{
    if (ATTN_ONE_TEXT || rows.n <= WORDS_PIXELS * 2 / 3) {
        uint32_t sums[WORDS_PIXELS * 2 * VF];
        EACH_ROW (i, rows) {
            UNROLL
            for (int v = 0; v < nv; v++)
                memcpy(sums + (2 * i + v) * VF, &acc[i][v], sizeof acc[i][v]);
        }
        put_sums(d, sums, at, rows.n, nv);
        return;
    }
    const struct attn_requantize to = d->to;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const struct ending e = ending_of(d, &to, at, v);
        uint8_t *const y = d->y + e.place;
        if (e.x_sums != NULL)
            EACH_ROW (i, rows)
                acc[i][v] -= e.w_zero * (e.x_sums[i] - (v_u32){ 0 });
        UNROLL
        for (int i = 0; i < rows.max; i += 4)
            if (to.z != NULL)
                put_rows(&e, acc + i, v, y + i * ATTN_BLOCK, i, rows, true);
            else
                put_rows(&e, acc + i, v, y + i * ATTN_BLOCK, i, rows, false);
    }
}

static void panel_done(const struct attn_blocked_bytes *d, const struct place *at,
                       int64_t n, int64_t width)
{
    for (int64_t c = 0; d->to.table != NULL && c < width; c += ATTN_BLOCK) {
        uint8_t *y =
            d->y + (at->column + c) / ATTN_BLOCK * d->y_block + at->pixel * ATTN_BLOCK;
        look_up_bytes(y, y, d->to.table, (size_t)(n * ATTN_BLOCK));
    }
}

#define WORDS_CONV struct attn_blocked_bytes
#define WORDS_SUM  v_u32
#define words_add  add_words
enum {
    WORDS_BESIDE = ATTN_BLOCK,
    WORDS_BYTES = ATTN_BLOCK,
    WORDS_HAS_BESIDE = V_DOT != V_DOT_NONE /* else products take more than addresses */
};
#include "blocked_words.h"

/* The sums of x that zero points of weights are multiplied with, in the first lane. */
static void add_inputs(const struct attn_blocked_bytes *d)
{
    for (int64_t p = 0; p < d->n_pixels; p++) {
        v_u32 sum = { 0 };
        const uint32_t *ones = d->ones;
        if (attn_poll_work(d->rows * 4) != ATTNRUN_OK)
            return;
        for (int64_t t = 0; t < d->n_taps; t++) {
            const uint8_t *x = d->x + d->taps[t].offset + d->pixels[p];
            for (int64_t c = 0; c < d->taps[t].inputs; c++, x += 4, ones++) {
                const v_u32 one = *ones - (v_u32){ 0 };
                sum = add_words(sum, promote(one), word_at(x));
                if (V_DOT == V_DOT_I8) /* which takes x less 128 */
                    sum += (*ones * 0x01010101u >> 24) << 7;
            }
        }
        d->x_sums[p] = sum[0];
    }
}

void K(blocked_conv_u8)(const struct attn_blocked_bytes *d)
{
    if (d->w_zero != NULL)
        add_inputs(d);
    run_all(d);
}

/* ---- depthwise ---- */

enum { VECTORS = ATTN_BLOCK / VF };

/* acc += what one line of the map gives to two outputs that are side by side: w has a vector for
 * each of both. */
static ALWAYS_INLINE void add_four_pixels(v_u32 (*acc)[VECTORS], const uint8_t *x,
                                          const struct wide (*w)[VECTORS])
{
    v_u32 words[VECTORS];
    v_four_pixels(words, x);
    UNROLL
    for (int i = 0; i < 2; i++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        acc[i][v] = add_words(acc[i][v], w[i][v], words[v]);
}

static ALWAYS_INLINE void load_weights(struct wide (*w)[VECTORS], const uint8_t *from)
{
    UNROLL
    for (int i = 0; i < 2; i++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        w[i][v] = promote(load_words(from + i * 4 * ATTN_BLOCK + v * VEC_BYTES));
}

/* Two outputs of any kernel. */
static ALWAYS_INLINE void sum_pair(const struct attn_blocked_byte_rows *d,
                                   v_u32 (*acc)[VECTORS], const uint8_t *x,
                                   const int groups)
{
    const uint8_t *w = d->w;
    const int64_t n_groups = groups > 0 ? groups : d->groups;
    for (int64_t part = 0; part < d->parts; part++)
        for (int64_t i = 0; i < d->kernel_rows; i++) {
            const uint8_t *line = x + i * d->tap_step;
            for (int64_t g = 0; g < n_groups; g++, w += 8 * ATTN_BLOCK) {
                struct wide both[2][VECTORS];
                load_weights(both, w);
                add_four_pixels(acc, line + g * 4 * ATTN_BLOCK,
                                (const struct wide(*)[VECTORS])both);
            }
        }
}

/* The sums of n neighbouring pixels, four vectors at most, become their bytes, at `at`. */
static ALWAYS_INLINE void put_both(const struct attn_requantize *to,
                                   v_u32 (*acc)[VECTORS], const v_f32 *factor, int64_t at,
                                   uint8_t *y, const int n, const bool two)
{
    v_u32 q[4] = { { 0 } };
    UNROLL
    for (int i = 0; i < n * VECTORS; i++)
        q[i] = requantized(to, acc[i / VECTORS][i % VECTORS], factor[i % VECTORS],
                           two ? to->z + at + i * VF : NULL, two);
    v_store_pixels(y + at, VF, q, n * VECTORS, limits_of(to), !two);
}
static ALWAYS_INLINE void put_pair(const struct attn_requantize *to,
                                   v_u32 (*acc)[VECTORS], const v_f32 *factor, int64_t at,
                                   uint8_t *y, int64_t n, const bool two)
{
    if (VECTORS <= 2 && n == 2)
        put_both(to, acc, factor, at, y, 2, two);
    else
        for (int i = 0; i < n; i++)
            put_both(to, acc + i, factor, at + i * ATTN_BLOCK, y, 1, two);
}

/* `lines` and `groups`: of a kernel, whose weights then stay in registers; 0: any. What the
 * outputs share is copied: they may lie anywhere, for all that the compiler knows. */
static ALWAYS_INLINE void run_row(const struct attn_blocked_byte_rows *d, int64_t row,
                                  const int lines, const int groups)
{
    const struct attn_requantize to = d->to;
    const int64_t columns = d->columns, step = d->column_step, tap = d->tap_step;
    const uint8_t *x = d->x + row * d->row_step;
    uint8_t *const y = d->y + row * columns * ATTN_BLOCK;
    struct wide kept[3][2][VECTORS];
    v_f32 factor[VECTORS];
    v_u32 first[VECTORS];
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        factor[v] = v_load(to.factor + v * VF);
        first[v] = first_sum(d->begin + v * VF, d->w_sum + v * VF);
    }
    UNROLL
    for (int i = 0; i < lines; i++)
        load_weights(kept[i], d->w + i * 8 * ATTN_BLOCK);
    for (int64_t column = 0; column < columns; column += 2, x += 2 * step) {
        v_u32 acc[2][VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            acc[0][v] = acc[1][v] = first[v];
        UNROLL
        for (int i = 0; i < lines; i++)
            add_four_pixels(acc, x + i * tap, (const struct wide(*)[VECTORS])kept[i]);
        if (lines == 0)
            sum_pair(d, acc, x, groups);
        const int64_t at = (row * columns + column) * ATTN_BLOCK;
        const int64_t n = columns - column < 2 ? 1 : 2;
        if (to.z != NULL)
            put_pair(&to, acc, factor, at, d->y, n, true);
        else
            put_pair(&to, acc, factor, at, d->y, n, false);
    }
    if (to.table != NULL)
        look_up_bytes(y, y, to.table, (size_t)(columns * ATTN_BLOCK));
}

void K(blocked_depthwise_u8)(const struct attn_blocked_byte_rows *d)
{
    for (int64_t row = 0; row < d->rows; row++) {
        if (attn_poll_work(d->columns * d->kernel_rows * d->groups * 16) != ATTNRUN_OK)
            return;
        if (!ATTN_ONE_TEXT && d->groups == 1 && d->parts == 1 && d->kernel_rows == 3)
            run_row(d, row, 3, 1);
        else if (!ATTN_ONE_TEXT && d->groups == 2)
            run_row(d, row, 0, 2);
        else
            run_row(d, row, 0, 0);
    }
}
