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

/* VF sums of columns with these factors as numbers in 0 … 255; `at`: where they are in z. */
static ALWAYS_INLINE v_u32 bytes_of(const struct attn_requantize *to, v_u32 sum,
                                    v_f32 factor, int64_t at)
{
    const v_f32 real = __builtin_convertvector((v_i32)sum, v_f32);
    v_f32 q = round_between(real * factor, to->low, to->high);
    if (to->z != NULL) {
        const v_f32 z =
            v_rounded(bytes_less(to->z + at, 0, to->z_zero) * v_set(to->z_ratio));
        q = v_rounded((q - v_set(BYTES_MAGIC)) * v_set(to->ratio)) + z;
        q = round_between(q + v_set(to->sum_zero), 0.0f, 255.0f);
    }
    return (v_u32)q + (to->zero - BYTES_MAGIC_BITS);
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

static ALWAYS_INLINE int64_t place_of(int64_t y_block, int64_t column, int64_t pixel)
{
    return column / ATTN_BLOCK * y_block + column % ATTN_BLOCK + pixel * ATTN_BLOCK;
}

/* Sums of n pixels and nv vectors of columns, as rows of two vectors, become results. What all
 * results share is copied: they may lie anywhere, for all that the compiler knows. */
static __attribute__((noinline)) void put_sums(const struct attn_blocked_bytes *d,
                                               const uint32_t *sums,
                                               const struct place *at, int64_t n,
                                               int64_t nv)
{
    const struct attn_requantize to = d->to;
    const uint32_t *const w_zero = d->w_zero, *const x_sums = d->x_sums;
    const int64_t pixel = at->pixel, y_block = d->y_block;
    uint8_t *const y = d->y;
    for (int64_t v = 0; v < nv; v++) {
        const int64_t column = at->column + v * VF;
        const v_f32 factor = v_load(to.factor + column);
        int64_t place = place_of(y_block, column, pixel);
        for (int64_t i = 0; i < n; i++, place += ATTN_BLOCK) {
            v_u32 sum = load_words(sums + (2 * i + v) * VF);
            if (w_zero != NULL)
                sum -= load_words(w_zero + column) * (x_sums[pixel + i] - (v_u32){ 0 });
            v_store_bytes(y + place, bytes_of(&to, sum, factor, place));
        }
    }
}

/* The largest tiles, which do most of the work, are finished in registers; all others share
 * put_sums(). */
static ALWAYS_INLINE void words_put(const struct attn_blocked_bytes *d, v_u32 (*acc)[2],
                                    const struct place *at, const struct rows rows,
                                    const int nv)
{
    if (rows.n <= WORDS_PIXELS * 2 / 3) {
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
    const int64_t pixel = at->pixel, first = at->column, y_block = d->y_block;
    const uint32_t *const w_zero = d->w_zero, *const x_sums = d->x_sums;
    uint8_t *const all = d->y;
    UNROLL
    for (int v = 0; v < nv; v++) {
        const int64_t column = first + v * VF;
        const v_f32 factor = v_load(to.factor + column);
        const int64_t place = place_of(y_block, column, pixel);
        uint8_t *const y = all + place;
        if (w_zero != NULL) {
            const v_u32 zero = load_words(w_zero + column);
            EACH_ROW (i, rows)
                acc[i][v] -= zero * (x_sums[pixel + i] - (v_u32){ 0 });
        }
        EACH_ROW (i, rows)
            acc[i][v] = bytes_of(&to, acc[i][v], factor, place + i * ATTN_BLOCK);
        UNROLL
        for (int i = 0; i + 4 <= rows.max; i += 4) {
            if (!has_row(rows, i + 3))
                continue;
            const v_u32 four[4] = { acc[i][v], acc[i + 1][v], acc[i + 2][v],
                                    acc[i + 3][v] };
            v_store_four(y + i * ATTN_BLOCK, four, ATTN_BLOCK);
        }
        EACH_ROW (i, rows)
            if (i >= rows.n / 4 * 4)
                v_store_bytes(y + i * ATTN_BLOCK, acc[i][v]);
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

/* `lines` and `groups`: of a kernel, whose weights then stay in registers; 0: any. What the
 * outputs share is copied: they may lie anywhere, for all that the compiler knows. */
static ALWAYS_INLINE void run_row(const struct attn_blocked_byte_rows *d, int64_t row,
                                  const int lines, const int groups)
{
    const struct attn_requantize to = d->to;
    const int64_t columns = d->columns, step = d->column_step, tap = d->tap_step;
    const uint8_t *x = d->x + row * d->row_step;
    uint8_t *const y = d->y + row * columns * ATTN_BLOCK;
    const int64_t first_pixel = row * columns * ATTN_BLOCK;
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
        UNROLL
        for (int i = 0; i < 2; i++) {
            if (column + i == columns)
                break;
            const int64_t pixel = (column + i) * ATTN_BLOCK;
            UNROLL
            for (int v = 0; v < VECTORS; v++)
                v_store_bytes(y + pixel + v * VF, bytes_of(&to, acc[i][v], factor[v],
                                                           first_pixel + pixel + v * VF));
        }
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
