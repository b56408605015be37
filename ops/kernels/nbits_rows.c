/* nbits_rows.c - few rows of A times weights of 2, 4 or 8 bits (struct attn_nbits). The
 * weights are read once and never stored as floats.
 *
 * In floats a block is summed alone, in the order of k, and then multiplied by its scale;
 * blocks are added in their order. That takes five instructions a vector of weights,
 * which is slower than memory delivers them. Where there are products of bytes, the
 * numbers of A therefore become three digits of 8 bits with a factor for each block, once
 * for all columns; that is 23 bits relative to the block's largest number. A product of
 * bytes then adds 4 rows at a time. Sums of digits are exact integers, and whole zero
 * points are subtracted before they are rounded. If a row has a number that is not finite, or so
 * small that a factor has no inverse, all of the few rows are summed in floats. Columns lie along
 * the vector, so no element depends on the cut of columns. Cost: 2 m n k operations; three times as
 * many integer ones with digits. */
#include "nbits_words.h"

/* ---- in floats ---- */

/* The rows of a block: k of them, from byte row q and column a of A on. */
struct part {
    const uint8_t *q;
    const float *a, *table;
    ptrdiff_t a_row;
    size_t k;
    v_f32 zero[2], scale[2];
};

/* total[i][v] += scale[v] * sum over the block, for each row of A. */
static ALWAYS_INLINE void add_part(v_f32 (*total)[2], const struct part *p,
                                   const struct rows rows, const int bits,
                                   const bool by_table)
{
    const int per = 32 / bits, text = bits == 2 ? 2 : per; /* 2 bits are rare */
    const float *a = p->a, *table = by_table ? p->table : NULL;
    const uint8_t *q = p->q;
    v_f32 acc[4][2] = { { { 0 } } };
    size_t k = p->k;
    for (; k >= (size_t)per; k -= (size_t)per, a += per, q += 4 * NR) {
        const v_u32 words[2] = { load_words(q), load_words(q + 4 * VF) };
        for (int part = 0; part < per; part += text)
            UNROLL
        for (int u = 0; u < text; u++) {
            const int s = part + u;
            const v_f32 x = value_of(words[0], s, bits, table, p->zero[0]);
            const v_f32 y = value_of(words[1], s, bits, table, p->zero[1]);
            EACH_ROW (i, rows) {
                acc[i][0] += a[i * p->a_row + s] * x;
                acc[i][1] += a[i * p->a_row + s] * y;
            }
        }
    }
    for (size_t s = 0; s < k; s++) {
        const v_f32 x = value_of(load_words(q), (int)s, bits, table, p->zero[0]);
        const v_f32 y = value_of(load_words(q + 4 * VF), (int)s, bits, table, p->zero[1]);
        EACH_ROW (i, rows) {
            acc[i][0] += a[i * p->a_row + (ptrdiff_t)s] * x;
            acc[i][1] += a[i * p->a_row + (ptrdiff_t)s] * y;
        }
    }
    EACH_ROW (i, rows) {
        total[i][0] += p->scale[0] * acc[i][0];
        total[i][1] += p->scale[1] * acc[i][1];
    }
}

typedef void part_fn(v_f32 (*total)[2], const struct part *p, size_t rows);
/* One row has a text of its own, the others share one. */
#define PARTS(bits, by_table)                                                            \
    static void part_##bits##_##by_table(v_f32(*total)[2], const struct part *p,         \
                                         size_t rows)                                    \
    {                                                                                    \
        if (!ATTN_ONE_TEXT && rows == 1)                                                 \
            add_part(total, p, (struct rows){ 1, 1, 1 }, bits, by_table);                \
        else                                                                             \
            add_part(total, p, (struct rows){ (int)rows, 2 - ATTN_ONE_TEXT, 4 }, bits,   \
                     by_table);                                                          \
    }
PARTS(2, 0)
PARTS(4, 0)
PARTS(8, 0)
PARTS(4, 1)

static ALWAYS_INLINE void write_some(float *c, v_f32 sum, const float *bias, size_t some)
{
    if (some == VF) {
        v_store(c, bias != NULL ? sum + v_load(bias) : sum);
        return;
    }
    v_store_tail(c, bias != NULL ? sum + v_load_tail(bias, some, 0.0f) : sum, some);
}

static void rows_in_floats(v_f32 (*total)[2], const float *a, ptrdiff_t a_row, size_t m,
                           const struct attn_nbits *b, size_t panel)
{
    memset(total, 0, m * sizeof *total);
    part_fn *const part = b->table != NULL ? part_4_1
                          : b->bits == 4   ? part_4_0
                          : b->bits == 8   ? part_8_0
                                           : part_2_0;
    const uint8_t *q = b->q + panel * attn_nbits_panel(b, NR);
    for (size_t block = 0; block * b->block < b->k; block++) {
        const size_t at = (panel * b->blocks + block) * NR, k0 = block * b->block;
        struct part p = { .table = b->table, .a_row = a_row };
        p.q = q + k0 * (size_t)b->bits / 8 * NR;
        p.k = b->k - k0 < b->block ? b->k - k0 : b->block;
        for (size_t v = 0; v < 2; v++) {
            p.zero[v] = zeros_at(b, at + v * VF);
            p.scale[v] = v_load(b->scale + at + v * VF);
        }
        for (size_t i = 0; i < m; i += 4) {
            p.a = a + (ptrdiff_t)i * a_row + k0;
            part(total + i, &p, m - i < 4 ? m - i : 4);
        }
    }
}

/* ---- in digits ---- */

/* Where the parts of a row's digits are: DIGITS planes of bytes, and for each chunk a factor,
 * the sum of its numbers, and the sums of its digits. A chunk is a block of the weights or, of
 * a longer one, CHUNK rows of it. */
enum { DIGITS = 3, CHUNK = 512, SUMS = 4 }; /* 512: sums of bytes fit in 16 bits */
static struct nbits_form digits_of(const struct attn_nbits *b)
{
    return nbits_form_of(b, 32 / (size_t)b->bits, CHUNK, DIGITS,
                         (1 + SUMS) * sizeof(float));
}

/* The value of a chunk of a row: factor * (d0 + 256 d1 + 65536 d2), each digit of 8 bits
 * with its sign. The digits of the rows that number s of a word has in its 4 bytes lie
 * together. */
struct chunk {
    float *factor;
    int8_t *to;
    size_t plane;
    int32_t *sums; /* each times -zero where all blocks have that zero point */
    float *sum;
    int32_t times;
};

/* Digits of NBITS_STEP numbers, in the order in which words hold them: the first `n` bytes of each
 * plane. */
static ALWAYS_INLINE void make_step(const struct chunk *c, uint64_t *sums, size_t k,
                                    const float *a, float times, size_t n, int bits)
{
    uint8_t plain[DIGITS][NBITS_STEP];
    UNROLL
    for (size_t v = 0; v < NBITS_STEP; v += VF) {
        const v_f32 x = v_load(a + v) * v_set(times);
        const v_f32 half = v_select(x < v_set(0.0f), v_set(-0.5f), v_set(0.5f));
        const v_i32 whole = __builtin_convertvector(x + half, v_i32);
        const v_u32 t = ((v_u32)whole + 0x808080u) ^ 0x808080u;
        UNROLL
        for (int j = 0; j < DIGITS; j++)
            v_store_bytes(plain[j] + v, t >> (8 * j));
    }
    UNROLL
    for (int j = 0; j < DIGITS; j++) {
        uint64_t halves[2];
        nbits_bytes16 bytes;
        memcpy(halves, plain[j], sizeof halves);
        sums[j] = nbits_add_bytes(nbits_add_bytes(sums[j], halves[0]), halves[1]);
        memcpy(&bytes, plain[j], sizeof bytes);
        bytes = nbits_in_order(bytes, bits);
        memcpy(c->to + (size_t)j * c->plane + k, &bytes, n);
    }
}

/* The sum of n bytes, from what nbits_add_bytes() made of them. */
static int32_t sum_of(uint64_t sums, size_t n)
{
    const uint64_t even = UINT64_C(0x0000ffff0000ffff);
    const uint64_t pairs = (sums & even) + (sums >> 16 & even);
    return (int32_t)((uint32_t)pairs + (uint32_t)(pairs >> 32)) - (int32_t)(128 * n);
}

static ALWAYS_INLINE bool make_chunk(const struct chunk *c, const float *a, size_t n,
                                     int bits)
{
    const float limit = 127 * 65536; /* rounded it is below 128 * 65536 - 128 * 257 */
    const size_t word = 32 / (size_t)bits;
    const uint32_t max_bits = nbits_largest(a, n);
    float max, last[NBITS_STEP] = { 0 };
    memcpy(&max, &max_bits, sizeof max);
    if (max_bits >= 0x7f800000u || (max > 0 && max < 1e-30f))
        return false; /* not finite, or too small to be divided by */
    const float times = max > 0 ? limit / max : 0;
    *c->factor = max / limit;
    uint64_t sums[DIGITS] = { 0 };
    size_t k = 0;
    for (; k + NBITS_STEP <= n; k += NBITS_STEP)
        make_step(c, sums, k, a + k, times, NBITS_STEP, bits);
    if (k < n) {
        memcpy(last, a + k, (n - k) * sizeof *a);
        make_step(c, sums, k, last, times, (n - k + word - 1) / word * word, bits);
        k += NBITS_STEP;
    }
    float all = 0;
    for (int j = DIGITS - 1; j >= 0; j--) {
        const int32_t sum = sum_of(sums[j], k);
        all = all * 256.0f + (float)sum;
        c->sums[j] = sum * c->times;
    }
    *c->sum = *c->factor * all;
    return true;
}

static ALWAYS_INLINE bool make_row(uint8_t *to, const struct nbits_form *d,
                                   const float *a, const struct attn_nbits *b)
{
    float *factors = (float *)(void *)(to + DIGITS * d->plane);
    const int bits = b->bits;
    const int32_t times = nbits_times(b, bits);
    size_t at = 0;
    for (struct nbits_chunk i = { 0 }; nbits_next_chunk(b, d->chunk, &i); at++) {
        float *sums = factors + d->chunks + SUMS * at;
        const struct chunk c = { .factor = factors + at,
                                 .to = (int8_t *)to + i.k,
                                 .plane = d->plane,
                                 .sums = (int32_t *)(void *)sums,
                                 .sum = sums + DIGITS,
                                 .times = times };
        if (!make_chunk(&c, a + i.k, i.n, bits))
            return false;
    }
    return true;
}

size_t K(nbits_digits)(void *to, const float *a, ptrdiff_t a_row, size_t m,
                       const struct attn_nbits *b)
{
    if (V_DOT == V_DOT_NONE || b->table != NULL || b->group != NULL || b->k == 0 ||
        b->zero != (float)(int32_t)b->zero)
        return 0;
    const struct nbits_form d = digits_of(b);
    for (size_t i = 0; i < m && to != NULL; i++) {
        uint8_t *row = (uint8_t *)to + i * d.row_bytes;
        const float *x = a + (ptrdiff_t)i * a_row;
        if (!make_row(row, &d, x, b))
            return 0;
    }
    return m * d.row_bytes;
}

/* Rows of A that share the words of a chunk. */
enum { TOGETHER = ATTN_REGISTERS >= 32 ? 4 : 2 };

/* Scales are prefetched so many bytes before they are used, words of weights attn_nbits.ahead
 * bytes, both into L2. The CPU's own prefetcher stops at the end of a page, and memory needs more
 * requests than it makes. */
enum { SCALES_AHEAD = 2048 };

static ALWAYS_INLINE void fetch_ahead(const void *at, ptrdiff_t ahead)
{
    UNROLL
    for (int line = 0; line < 4 * NR; line += 64)
        __builtin_prefetch((const char *)at + ahead + line, 0, 2);
}

/* A panel, and the digits of the first of some rows. */
struct dot_rows {
    const struct attn_nbits *b;
    const uint8_t *q, *digits;
    struct nbits_form d;
    size_t first; /* of the panel's scales */
};

/* What a panel has of a chunk: pointers move along with it. `sums` are of the first row of A. */
struct dot_chunk {
    const uint8_t *q;
    const int8_t *digits;
    const float *scale, *zero_f32, *factor, *sums;
    const uint8_t *zero_u8;
};

/* What a chunk's sums begin with: whole zero points times the digits. */
static ALWAYS_INLINE void begin_dots(v_i32 (*acc)[DIGITS], const uint8_t *zero_u8,
                                     const float *sums, const int bits)
{
    UNROLL
    for (int j = 0; j < DIGITS; j++) {
        int32_t first;
        memcpy(&first, sums + j, sizeof first);
        acc[0][j] = acc[1][j] = (v_i32){ 0 } + first;
    }
    if (zero_u8 == NULL)
        return;
    UNROLL
    for (int v = 0; v < 2; v++) {
        const v_i32 zero = (v_i32)v_load_u8(zero_u8 + (size_t)v * VF) - NBITS_SHIFT(bits);
        UNROLL
        for (int j = 0; j < DIGITS; j++)
            acc[v][j] *= zero;
    }
}

static ALWAYS_INLINE v_f32 end_dots(const v_i32 *acc, const struct dot_chunk *c,
                                    ptrdiff_t row, int v)
{
    v_f32 x = __builtin_convertvector(acc[2], v_f32) * 65536.0f +
              __builtin_convertvector(acc[1], v_f32) * 256.0f +
              __builtin_convertvector(acc[0], v_f32);
    x *= v_set(c->factor[row]);
    if (c->zero_f32 != NULL)
        x -= v_load(c->zero_f32 + (size_t)v * VF) * v_set(c->sums[row + DIGITS]);
    return x * v_load(c->scale + (size_t)v * VF);
}

/* What stays the same in a panel. */
struct dot_steps {
    ptrdiff_t ahead, row_bytes, plane;
};

/* acc += the products of the next word of each column. */
static ALWAYS_INLINE void add_word(v_i32 (*acc)[2][DIGITS], struct dot_chunk *c,
                                   const struct dot_steps *by, const struct rows rows,
                                   const int bits)
{
    const size_t per = 8 / (size_t)bits;
    const size_t text = bits == 2 ? 1 : per; /* 2 bits are rare */
    const v_u32 words[2] = { load_words(c->q), load_words(c->q + 4 * VF) };
    fetch_ahead(c->q, by->ahead);
    for (size_t part = 0; part < per; part += text)
        UNROLL
    for (size_t s = part; s < part + text; s++)
        UNROLL
    for (int v = 0; v < 2; v++) {
        const v_u32 x = nbits_bytes(words[v], (int)s, bits);
        EACH_ROW (i, rows)
            for (int j = 0; j < DIGITS; j++) {
                uint32_t four;
                memcpy(&four, c->digits + i * by->row_bytes + j * by->plane + 4 * s, 4);
                acc[i][v][j] = (v_i32)v_dot_i8((v_u32)acc[i][v][j], x, four);
            }
    }
    c->q += 4 * NR;
    c->digits += 4 * per;
}

/* total[i][v] += the sums over the next `words` words of the panel. Of one row, whose products cost
 * less than the memory, few instructions leave more reads in flight. */
static ALWAYS_INLINE void add_dots(v_f32 (*total)[2], struct dot_chunk *c, size_t words,
                                   const struct dot_steps *by, const struct rows rows,
                                   const int bits)
{
    enum { TEXT = 4 };
    const ptrdiff_t row_bytes = by->row_bytes;
    v_i32 acc[TOGETHER][2][DIGITS] = { { { { 0 } } } };
    EACH_ROW (i, rows)
        begin_dots(acc[i], c->zero_u8, c->sums + i * row_bytes / 4, bits);
    for (; rows.max == 1 && bits != 2 && words >= TEXT; words -= TEXT)
        UNROLL
    for (int i = 0; i < TEXT; i++)
        add_word(acc, c, by, rows, bits);
    for (; words > 0; words--)
        add_word(acc, c, by, rows, bits);
    EACH_ROW (i, rows) {
        UNROLL
        for (int v = 0; v < 2; v++)
            total[i][v] += end_dots(acc[i][v], c, i * row_bytes / 4, v);
    }
}

static ALWAYS_INLINE void sum_dots(v_f32 (*total)[2], const struct dot_rows *p,
                                   const struct rows rows, const int bits)
{
    const struct attn_nbits *b = p->b;
    const size_t word = 32 / (size_t)bits, first = p->first;
    const struct dot_steps by = { (ptrdiff_t)b->ahead, (ptrdiff_t)p->d.row_bytes,
                                  (ptrdiff_t)p->d.plane };
    const float *const factors =
        (const float *)(const void *)(p->digits + DIGITS * p->d.plane);
    struct dot_chunk c = {
        .q = p->q,
        .digits = (const int8_t *)p->digits,
        .scale = b->scale + first,
        .zero_f32 = b->zero_f32 != NULL ? b->zero_f32 + first : NULL,
        .zero_u8 = b->zero_u8 != NULL ? b->zero_u8 + first : NULL,
        .factor = factors,
        .sums = factors + p->d.chunks,
    };
    v_f32 sum[TOGETHER][2] = { { { 0 } } };
    for (size_t left = b->k, of_block = 0; left > 0; c.factor++, c.sums += SUMS) {
        const size_t block = left + of_block < b->block ? left : b->block - of_block;
        const size_t n = block < p->d.chunk ? block : p->d.chunk;
        fetch_ahead(c.scale, SCALES_AHEAD);
        add_dots(sum, &c, (n + word - 1) / word, &by, rows, bits);
        left -= n;
        of_block += n;
        if (of_block == b->block) {
            of_block = 0;
            c.scale += NR;
            if (c.zero_f32 != NULL)
                c.zero_f32 += NR;
            if (c.zero_u8 != NULL)
                c.zero_u8 += NR;
        }
    }
    EACH_ROW (i, rows)
        for (int v = 0; v < 2; v++)
            total[i][v] = sum[i][v];
}

/* Each text is a function of its own, so that its pointers stay in registers. */
#define DOTS(bits)                                                                       \
    static __attribute__((noinline)) void dot_##bits(v_f32(*total)[2],                   \
                                                     const struct dot_rows *p)           \
    {                                                                                    \
        sum_dots(total, p, (struct rows){ 1, 1, 1 }, bits);                              \
    }                                                                                    \
    static __attribute__((noinline)) void dots_##bits(                                   \
        v_f32(*total)[2], const struct dot_rows *p, size_t rows)                         \
    {                                                                                    \
        if (rows == 1)                                                                   \
            dot_##bits(total, p);                                                        \
        else                                                                             \
            sum_dots(total, p, (struct rows){ (int)rows, 2, TOGETHER }, bits);           \
    }
DOTS(2)
DOTS(4)
DOTS(8)

static void rows_in_digits(v_f32 (*total)[2], const uint8_t *digits, size_t m,
                           const struct attn_nbits *b, size_t panel)
{
    struct dot_rows p = { .b = b, .d = digits_of(b), .first = panel * b->blocks * NR };
    p.q = b->q + panel * attn_nbits_panel(b, NR);
    for (size_t i = 0; i < m; i += TOGETHER) {
        const size_t rows = m - i < TOGETHER ? m - i : TOGETHER;
        p.digits = digits + i * p.d.row_bytes;
        if (b->bits == 4)
            dots_4(total + i, &p, rows);
        else if (b->bits == 8)
            dots_8(total + i, &p, rows);
        else
            dots_2(total + i, &p, rows);
    }
}

/* ---- both ---- */

void K(nbits_rows_f32)(float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row,
                       size_t m, const struct attn_nbits *b, const void *digits,
                       size_t panel, size_t n, const float *bias)
{
    v_f32 total[ATTN_NBITS_ROWS][2];
    if (V_DOT != V_DOT_NONE &&
        digits == NULL) { /* one text in floats for such sets, too */
        K_OF_FLOATS(nbits_rows_f32)(c, c_row, a, a_row, m, b, NULL, panel, n, bias);
        return;
    }
    if (V_DOT != V_DOT_NONE)
        rows_in_digits(total, digits, m, b, panel);
    else
        rows_in_floats(total, a, a_row, m, b, panel);
    for (size_t i = 0; i < m; i++)
        for (size_t v = 0; v * VF < n; v++) {
            const size_t some = n - v * VF < VF ? n - v * VF : VF;
            write_some(c + (ptrdiff_t)i * c_row + v * VF, total[i][v],
                       bias != NULL ? bias + v * VF : NULL, some);
        }
}
