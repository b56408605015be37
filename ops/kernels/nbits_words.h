/* nbits_words.h - the words of weights of few bits (struct attn_nbits), by vectors of columns. */
#ifndef ATTN_NBITS_WORDS_H
#define ATTN_NBITS_WORDS_H

#include "isa.h"

enum { NR = 2 * VF };

/* A word of each of VF columns. */
static ALWAYS_INLINE v_u32 load_words(const uint8_t *p)
{
    v_u32 words;
    memcpy(&words, p, sizeof words);
    return words;
}

static ALWAYS_INLINE v_i32 load_bytes(const uint8_t *p)
{
    v_bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, v_i32);
}

static ALWAYS_INLINE v_f32 zeros_at(const struct attn_nbits *b, size_t at)
{
    if (b->zero_u8 != NULL)
        return __builtin_convertvector(load_bytes(b->zero_u8 + at), v_f32);
    return b->zero_f32 != NULL ? v_load(b->zero_f32 + at) : v_set(b->zero);
}

/* Number s of the rows that a word holds, before the scale. */
static ALWAYS_INLINE v_f32 value_of(v_u32 words, int s, const int bits,
                                    const float *table, v_f32 zero)
{
    const v_i32 q = (v_i32)(words >> (s * bits)) & ((1 << bits) - 1);
    return table != NULL ? v_look_up(table, q) : __builtin_convertvector(q, v_f32) - zero;
}

/* Products of bytes take bytes of weights less this number … */
#define NBITS_SHIFT(bits) ((bits) == 8 && V_DOT == V_DOT_I8 ? 128 : 0)
/* … those that the words have in place s. */
static ALWAYS_INLINE v_u32 nbits_bytes(v_u32 words, int s, const int bits)
{
    const uint32_t mask = bits == 8 ? 0xffffffffu : bits == 4 ? 0x0f0f0f0fu : 0x03030303u;
    const v_u32 q = (words >> (s * bits)) & mask;
    return NBITS_SHIFT(bits) != 0 ? q ^ 0x80808080u : q;
}

#endif
