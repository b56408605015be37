/* nbits_rounded.c - rows of A that are rounded to bytes, times weights of 2, 4 or 8 bits
 * (struct attn_nbits), for CPUs with products of bytes.
 *
 * A chunk is a block of the weights or, of a longer block, CHUNK rows of it. The numbers
 * of a row of A in a chunk become whole numbers from -127 to 127 with one factor, so each
 * is off by at most 1/254 of the largest of them. The sum over a chunk is an exact
 * integer. Whole zero points are subtracted before it is rounded, and chunks are added as
 * floats in their order. An element of C therefore does not depend on the cut of rows and
 * columns, nor on other rows of A. A row with a number that is not finite gives NaN; if
 * the largest number of a chunk is below 1e-36, all its numbers become 0.
 *
 * Weights of 8 bits are read in place, and those of 4 bits too where there are few rows.
 * Otherwise PART rows of a panel become bytes in scratch, in L1, and all rows of A use
 * them. Cost: 2 m n k integer operations. */
#include "nbits_words.h"

enum {
    CHUNK = 128,
    PART = ATTN_NBITS_PART,
    STEP = NBITS_STEP, /* chunks begin at multiples of it */
    MR = REGISTERS >= 32 ? 6 : 3,
    POLL = 4096, /* numbers between polls */
    FEW = 4      /* rows for which 4 bits are not unpacked */
};

/* ---- rows of A ---- */

/* A row is k bytes, in the order in which words hold their rows, and then what its chunks need.
 * start: the sum of the bytes, times minus the zero point that all blocks have; times -1 where
 * blocks have their own (zero_u8). */
struct rounded {
    float factor;
    int32_t start;
    float sum; /* of the bytes */
};
static struct nbits_form form_of(const struct attn_nbits *b)
{
    return nbits_form_of(b, STEP, CHUNK, 1, sizeof(struct rounded));
}

/* Whole steps of a chunk. */
static ALWAYS_INLINE struct rounded round_chunk(uint8_t *to, const float *a, size_t n,
                                                int32_t times, int bits)
{
    const v_f32 shift =
        v_set(12582912.0f); /* 1.5 * 2^23: whole numbers in the low bits */
    const uint32_t max_bits = nbits_largest(a, n);
    float max;
    memcpy(&max, &max_bits, sizeof max);
    if (max_bits >= 0x7f800000u || max < 1e-36f) {
        memset(to, 0, n);
        return (struct rounded){ .factor = max_bits >= 0x7f800000u ? NAN : 0 };
    }
    const v_f32 scale = v_set(127.0f / max);
    uint64_t sums = 0;
    for (size_t k = 0; k < n; k += STEP) {
        uint8_t plain[STEP];
        uint64_t halves[2];
        nbits_bytes16 bytes;
        UNROLL
        for (size_t v = 0; v < STEP; v += VF) {
            const v_f32 q = v_load(a + k + v) * scale + shift;
            v_store_bytes(plain + v, (v_u32)q);
        }
        memcpy(halves, plain, sizeof halves);
        sums = nbits_add_bytes(nbits_add_bytes(sums, halves[0]), halves[1]);
        memcpy(&bytes, plain, sizeof bytes);
        bytes = nbits_in_order(bytes, bits);
        memcpy(to + k, &bytes, sizeof bytes);
    }
    const int32_t sum =
        (int32_t)(sums * UINT64_C(0x0001000100010001) >> 48) - (int32_t)(128 * n);
    return (struct rounded){ .factor = max * (1.0f / 127.0f),
                             .start = sum * times,
                             .sum = (float)sum };
}

/* False: a poll says that the call is to end. */
static ALWAYS_INLINE bool round_row(uint8_t *to, const struct nbits_form *f,
                                    const float *a, const struct attn_nbits *b)
{
    const int bits = b->bits;
    const int32_t times = nbits_times(b, bits);
    struct rounded *at = (struct rounded *)(void *)(to + f->plane);
    size_t polled = 0; /* numbers that a poll has counted */
    for (struct nbits_chunk c = { 0 }; nbits_next_chunk(b, f->chunk, &c);) {
        const float *from = a + c.k;
        float last[CHUNK];
        if (c.k - polled >= POLL) {
            if (attn_poll_work((int64_t)((c.k - polled) * sizeof *a)) != ATTNRUN_OK)
                return false;
            polled = c.k;
        }
        if (c.n % STEP != 0) {
            memset(last, 0, sizeof last);
            from = memcpy(last, from, c.n * sizeof *a);
        }
        *at++ = round_chunk(to + c.k, from, (c.n + STEP - 1) / STEP * STEP, times, bits);
    }
    return attn_poll_work((int64_t)((b->k - polled) * sizeof *a)) == ATTNRUN_OK;
}

size_t K(nbits_round)(void *to, const float *a, ptrdiff_t a_row, size_t m,
                      const struct attn_nbits *b)
{
    if (V_DOT == V_DOT_NONE || b->table != NULL || b->group != NULL || b->k == 0 ||
        b->block % STEP != 0 || b->zero != (float)(int32_t)b->zero)
        return 0;
    const struct nbits_form f = form_of(b);
    for (size_t i = 0; i < m && to != NULL; i++) {
        uint8_t *row = (uint8_t *)to + i * f.row_bytes;
        const float *x = a + (ptrdiff_t)i * a_row;
        if (!round_row(row, &f, x, b))
            break; /* the caller sees it at the next poll */
    }
    return m * f.row_bytes;
}

/* ---- products ---- */

/* Whole chunks of a panel, PART rows at most. */
struct part {
    const struct attn_nbits_product *p;
    struct nbits_form form;
    const uint8_t *q;            /* its words */
    size_t k0, k, first, n;      /* rows; the first chunk, and the number of them */
    uint32_t words[PART / STEP]; /* of each chunk */
    const float *scales[PART / STEP];
    bool begins, ends; /* the panel */
};

/* The part that begins at row k0, with chunk `first`. */
static void begin_part(struct part *t, size_t k0, size_t first)
{
    const struct attn_nbits *b = t->p->b;
    const size_t per = 32 / (size_t)b->bits;
    size_t block = k0 / b->block, end = (block + 1) * b->block, k = k0;
    t->q = b->q + t->p->panel * attn_nbits_panel(b, NR) + k0 / per * (4 * NR);
    t->k0 = k0;
    t->first = first;
    for (t->n = 0; k < b->k; t->n++) {
        const size_t last = end < b->k ? end : b->k;
        const size_t rows = last - k < t->form.chunk ? last - k : t->form.chunk;
        if (k + rows - k0 > PART)
            break;
        t->words[t->n] = (uint32_t)((rows + per - 1) / per);
        t->scales[t->n] = b->scale + (t->p->panel * b->blocks + block) * NR;
        k += rows;
        if (k == end) {
            block++;
            end += b->block;
        }
    }
    t->k = k - k0;
    t->begins = k0 == 0;
    t->ends = k == b->k;
}

/* What a chunk has `i` rows of `row` bytes below. */
static ALWAYS_INLINE const struct rounded *row_of(const struct rounded *of, size_t row,
                                                  int i)
{
    return (const struct rounded *)(const void *)((const char *)of + (size_t)i * row);
}

/* The sums of a chunk begin with whole zero points times those of the rows. */
static ALWAYS_INLINE void begin_sums(v_i32 (*acc)[2], const struct attn_nbits *b,
                                     const struct rounded *of, size_t row,
                                     const float *scale, const int rows)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        acc[i][0] = acc[i][1] = (v_i32){ 0 } + row_of(of, row, i)->start;
    }
    for (int v = 0; b->zero_u8 != NULL && v < 2; v++) {
        const v_i32 zero = (v_i32)v_load_u8(b->zero_u8 + (scale - b->scale) + v * VF);
        const v_i16 words = (v_i16)(zero - NBITS_SHIFT(b->bits));
        UNROLL
        for (int i = 0; i < rows; i++) /* in the lower half: CHUNK * 127 fits */
            acc[i][v] =
                (v_i32)v_pair_products(words, (uint16_t)row_of(of, row, i)->start);
    }
}

static ALWAYS_INLINE void end_sums(v_f32 (*total)[2], v_i32 (*acc)[2],
                                   const struct attn_nbits *b, const struct rounded *of,
                                   size_t row, const float *scale, const int rows)
{
    for (int v = 0; v < 2; v++) {
        const v_f32 by = v_load(scale + v * VF);
        v_f32 zero = { 0 };
        if (b->zero_f32 != NULL)
            zero = v_load(b->zero_f32 + (scale - b->scale) + v * VF);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const struct rounded *r = row_of(of, row, i);
            v_f32 x = __builtin_convertvector(acc[i][v], v_f32);
            if (b->zero_f32 != NULL)
                x -= zero * v_set(r->sum);
            total[i][v] += x * v_set(r->factor) * by;
        }
    }
}

/* total[i][v] += the sums over the part, whose words of `bits` are at q, for `rows` rows, the
 * first of which is at `a`. */
static ALWAYS_INLINE void sum_part(v_f32 (*total)[2], const struct part *t,
                                   const uint8_t *q, const uint8_t *a, const int rows,
                                   const int bits)
{
    const struct attn_nbits *b = t->p->b;
    const size_t row = t->form.row_bytes, per = 8 / (size_t)bits;
    const size_t each = (size_t)bits / (size_t)b->bits; /* words here of a word there */
    const struct rounded *of =
        (const struct rounded *)(const void *)(a + t->form.plane) + t->first;
    v_f32 sum[MR][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++)
            sum[i][v] = total[i][v];
    a += t->k0;
    for (size_t c = 0; c < t->n; c++, of++) {
        const uint8_t *end = q + t->words[c] * each * (4 * NR);
        v_i32 acc[MR][2];
        begin_sums(acc, b, of, row, t->scales[c], rows);
        for (; q < end; q += 4 * NR, a += 4 * per) {
            const v_u32 words[2] = { load_words(q), load_words(q + 4 * VF) };
            UNROLL
            for (size_t s = 0; s < per; s++) {
                const v_u32 x =
                    bits == 8 ? words[0] : nbits_bytes(words[0], (int)s, bits);
                const v_u32 y =
                    bits == 8 ? words[1] : nbits_bytes(words[1], (int)s, bits);
                UNROLL
                for (int i = 0; i < rows; i++) {
                    uint32_t four;
                    memcpy(&four, a + (size_t)i * row + 4 * s, 4);
                    acc[i][0] = (v_i32)v_dot_i8((v_u32)acc[i][0], x, four);
                    acc[i][1] = (v_i32)v_dot_i8((v_u32)acc[i][1], y, four);
                }
            }
        }
        end_sums(sum, acc, b, of, row, t->scales[c], rows);
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++)
            total[i][v] = sum[i][v];
}

typedef void tile_fn(v_f32 (*total)[2], const struct part *t, const uint8_t *q,
                     const uint8_t *a);
/* clang-format off */
#define TILE(rows, bits) \
    static void tile_##rows##_##bits(v_f32 (*total)[2], const struct part *t, const uint8_t *q, \
                                     const uint8_t *a) \
    { sum_part(total, t, q, a, (rows) < MR ? (rows) : MR, bits); }
#define ENTRY(rows, bits) tile_##rows##_##bits,
TILE(1, 8) TILE(2, 8) TILE(3, 8) TILE(4, 8) TILE(5, 8) TILE(6, 8)
TILE(1, 4) TILE(2, 4) TILE(3, 4) TILE(4, 4)
static tile_fn *const tiles_8[] = {
    ENTRY(1, 8) ENTRY(2, 8) ENTRY(3, 8) ENTRY(4, 8) ENTRY(5, 8) ENTRY(6, 8)
};
static tile_fn *const tiles_4[] = { ENTRY(1, 4) ENTRY(2, 4) ENTRY(3, 4) ENTRY(4, 4) };
#undef ENTRY
#undef TILE
/* clang-format on */

/* Rows i0 … i0 + rows - 1 of C: what was there, the part's sums, and behind the last part the
 * bias. */
static void add_tile(const struct part *t, tile_fn *tile, const uint8_t *q, size_t i0,
                     size_t rows)
{
    const struct attn_nbits_product *p = t->p;
    const size_t n[2] = { p->n < VF ? p->n : VF, p->n > VF ? p->n - VF : 0 };
    float *c = p->c + (ptrdiff_t)i0 * p->c_row;
    v_f32 total[MR][2] = { { { 0 } } };
    for (size_t i = 0; !t->begins && i < rows; i++)
        for (size_t v = 0; v < 2; v++)
            total[i][v] = v_load_tail(c + (ptrdiff_t)i * p->c_row + v * VF, n[v], 0.0f);
    tile(total, t, q, (const uint8_t *)p->rows + i0 * t->form.row_bytes);
    for (size_t v = 0; v < 2 && n[v] > 0; v++) {
        v_f32 bias = { 0 };
        if (t->ends && p->bias != NULL)
            bias = v_load_tail(p->bias + v * VF, n[v], 0.0f);
        for (size_t i = 0; i < rows; i++)
            v_store_tail(c + (ptrdiff_t)i * p->c_row + v * VF, total[i][v] + bias, n[v]);
    }
}

/* The words of a part as bytes, in their order. */
static ALWAYS_INLINE void unpack_words(uint8_t *to, const struct part *t, const int bits)
{
    const size_t per = 32 / (size_t)bits;
    const uint8_t *q = t->q, *end = q + (t->k + per - 1) / per * (4 * NR);
    for (; q < end; q += 4 * NR) {
        const v_u32 words[2] = { load_words(q), load_words(q + 4 * VF) };
        UNROLL
        for (int s = 0; s < 8 / bits; s++)
            for (int v = 0; v < 2; v++, to += 4 * VF) {
                const v_u32 x = nbits_bytes(words[v], s, bits);
                memcpy(to, &x, sizeof x);
            }
    }
}

static void add_part(const struct part *t)
{
    const struct attn_nbits_product *p = t->p;
    const int bits = p->b->bits;
    const bool direct = bits == 4 ? p->m <= FEW : bits == 8 && NBITS_SHIFT(8) == 0;
    const size_t max_rows = direct && bits == 4 && MR > FEW ? FEW : MR;
    tile_fn *const *tiles = direct && bits == 4 ? tiles_4 : tiles_8;
    if (!direct)
        NBITS_EACH(p->b, unpack_words, p->scratch, t);
    for (size_t i = 0, m = 0; i < p->m; i += m) {
        m = next_rows(p->m - i, max_rows);
        add_tile(t, tiles[m - 1], direct ? t->q : p->scratch, i, m);
    }
}

void K(nbits_rounded_f32)(const struct attn_nbits_product *p)
{
    struct part t = { .p = p, .form = form_of(p->b) };
    size_t k = 0, chunk = 0;
    if (V_DOT == V_DOT_NONE)
        return;
    do {
        begin_part(&t, k, chunk);
        add_part(&t);
        k += t.k;
        chunk += t.n;
    } while (k < p->b->k &&
             attn_poll_work((int64_t)(t.k * p->m * NR / 20)) == ATTNRUN_OK);
}
