/* nbits_words.h - reads the words of weights of few bits (struct attn_nbits) by vectors
 * of columns. In: packed weights. Out: words of 4 bytes a lane, zero points and scales.
 */
#ifndef ATTN_NBITS_WORDS_H
#define ATTN_NBITS_WORDS_H

#include "isa.h"

enum { NR = 2 * VF };

/* Loads a word of each of VF columns. */
static ALWAYS_INLINE v_u32 load_words(const uint8_t *p)
{
    v_u32 words;
    memcpy(&words, p, sizeof words);
    return words;
}

static ALWAYS_INLINE v_f32 zeros_at(const struct attn_nbits *b, size_t at)
{
    if (b->zero_u8 != NULL)
        return __builtin_convertvector((v_i32)v_load_u8(b->zero_u8 + at), v_f32);
    return b->zero_f32 != NULL ? v_load(b->zero_f32 + at) : v_set(b->zero);
}

/* What the rows of a block share; `now`: which block. */
struct nbits_shared {
    size_t now;
    v_f32 zero[2], scale[2];
};

static ALWAYS_INLINE void nbits_find_shared(const struct attn_nbits *b,
                                            struct nbits_shared *s, size_t first,
                                            size_t row, const size_t vectors)
{
    const size_t now = b->group != NULL ? (size_t)b->group[row] : row / b->block;
    if (now == s->now)
        return;
    for (size_t v = 0; v < vectors; v++) {
        s->zero[v] = zeros_at(b, first + now * NR + v * VF);
        s->scale[v] = v_load(b->scale + first + now * NR + v * VF);
    }
    s->now = now;
}

/* Element s of the rows that a word holds, before the scale. */
static ALWAYS_INLINE v_f32 value_of(v_u32 words, int s, int bits, const float *table,
                                    v_f32 zero)
{
    const v_i32 q = (v_i32)(words >> (s * bits)) & ((1 << bits) - 1);
    return table != NULL ? v_look_up(table, q) : __builtin_convertvector(q, v_f32) - zero;
}

/* Products of bytes use the bytes of weights minus this number … */
#define NBITS_SHIFT(bits) ((bits) == 8 && V_DOT == V_DOT_I8 ? 128 : 0)
/* … and these are the bytes at place s of the words. */
static ALWAYS_INLINE v_u32 nbits_bytes(v_u32 words, int s, const int bits)
{
    const uint32_t mask = bits == 8 ? 0xffffffffu : bits == 4 ? 0x0f0f0f0fu : 0x03030303u;
    const v_u32 q = (words >> (s * bits)) & mask;
    return NBITS_SHIFT(bits) != 0 ? q ^ 0x80808080u : q;
}

/* Calls f(…, bits) with the bits of a matrix as a constant, so that each has a text of
 * its own. */
#define NBITS_EACH(b, f, ...)                                                            \
    ((b)->bits == 4   ? f(__VA_ARGS__, 4)                                                \
     : (b)->bits == 8 ? f(__VA_ARGS__, 8)                                                \
                      : f(__VA_ARGS__, 2))

/* ---- rows of A as bytes ---- */

/* A row of A is planes of bytes, followed by the numbers of each chunk. A chunk is a
 * block of the weights, or a part of a longer block. */
struct nbits_form {
    size_t plane, chunk, chunks, row_bytes; /* plane: bytes; chunk: rows of the weights */
};

/* Planes of multiples of `step` bytes, chunks of up to `rows` rows that need `each` bytes. */
static ALWAYS_INLINE struct nbits_form nbits_form_of(const struct attn_nbits *b,
                                                     size_t step, size_t rows,
                                                     size_t planes, size_t each)
{
    struct nbits_form f = { .plane = (b->k + step - 1) / step * step };
    f.chunk = b->block < rows ? b->block : rows;
    f.chunks = (b->block + f.chunk - 1) / f.chunk * b->blocks;
    f.row_bytes = (planes * f.plane + f.chunks * each + 63) / 64 * 64;
    return f;
}

/* Rows k … k + n - 1 of the weights; `end` of their block. All zeros before the first chunk. */
struct nbits_chunk {
    size_t k, n, end;
};

/* Moves *at to the next chunk, if there is one. */
static ALWAYS_INLINE bool nbits_next_chunk(const struct attn_nbits *b, size_t rows,
                                           struct nbits_chunk *at)
{
    at->k += at->n;
    if (at->k == at->end)
        at->end = b->k - at->k < b->block ? b->k : at->k + b->block;
    at->n = at->end - at->k < rows ? at->end - at->k : rows;
    return at->n > 0;
}

/* The factor of the sum of a chunk's bytes: minus the zero point that all blocks have, or
 * -1 where blocks have their own (zero_u8). */
static ALWAYS_INLINE int32_t nbits_times(const struct attn_nbits *b, int bits)
{
    return b->zero_u8 != NULL    ? -1
           : b->zero_f32 != NULL ? NBITS_SHIFT(bits)
                                 : NBITS_SHIFT(bits) - (int32_t)b->zero;
}

/* The number of elements of A that become bytes at a time. */
enum { NBITS_STEP = 16 };
typedef uint8_t nbits_bytes16 __attribute__((vector_size(NBITS_STEP)));

/* 16 bytes as words of `bits` hold 16 rows. */
static ALWAYS_INLINE nbits_bytes16 nbits_in_order(nbits_bytes16 x, int bits)
{
    if (bits == 4)
        return __builtin_shufflevector(x, x, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11,
                                       13, 15);
    if (bits == 2)
        return __builtin_shufflevector(x, x, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7,
                                       11, 15);
    return x;
}

/* Adds 8 bytes with sign, each plus 128, to four sums of 16 bits. */
static ALWAYS_INLINE uint64_t nbits_add_bytes(uint64_t sums, uint64_t bytes)
{
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    bytes ^= UINT64_C(0x8080808080808080);
    return sums + (bytes & even) + (bytes >> 8 & even);
}

static ALWAYS_INLINE v_i32 nbits_larger(v_i32 a, v_i32 b)
{
    return (v_i32)v_select(a > b, (v_f32)a, (v_f32)b);
}

/* The bits of the largest |a[k]|: those of numbers that are not finite are the largest of all. */
static ALWAYS_INLINE uint32_t nbits_largest(const float *a, size_t n)
{
    v_i32 max = { 0 };
    size_t k = 0;
    for (; k + VF <= n; k += VF)
        max = nbits_larger((v_i32)v_load(a + k) & INT32_MAX, max);
    if (k < n)
        max = nbits_larger((v_i32)v_load_tail(a + k, n - k, 0.0f) & INT32_MAX, max);
    max = nbits_larger((v_i32)V_ROTATE((v_f32)max, VF / 2), max);
    max = nbits_larger((v_i32)V_ROTATE((v_f32)max, VF / 4), max);
    if (VF >= 8)
        max = nbits_larger((v_i32)V_ROTATE((v_f32)max, VF / 8), max);
    if (VF >= 16)
        max = nbits_larger((v_i32)V_ROTATE((v_f32)max, VF / 16), max);
    return (uint32_t)max[0];
}

#endif
