/* bytes.c - quantized bytes, and blocks of 16 of them: struct attn_binary_u8; the maximum and
 * the sums of pixels; tables. Steps are rounded one by one: the same bits on each set. */
#include "bytes.h"

typedef uint8_t v_block __attribute__((vector_size(ATTN_BLOCK)));

static inline v_block load_block(const uint8_t *x)
{
    v_block v;
    memcpy(&v, x, sizeof v);
    return v;
}

static ALWAYS_INLINE v_u32 binary(const struct attn_binary_u8 *d, const uint8_t *a,
                                  const uint8_t *b)
{
    v_f32 x = bytes_less(a, d->flip, d->a_zero), y = bytes_less(b, d->flip, d->b_zero);
    if (d->multiply)
        x = v_rounded(v_rounded(x * y) * v_set(d->a_ratio));
    else
        x = v_rounded(x * v_set(d->a_ratio)) + v_rounded(y * v_set(d->b_ratio));
    return (v_u32)round_between(x + v_set(d->zero), 0.0f, 255.0f) ^ d->flip;
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
