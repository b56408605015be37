/* compare_f32.c - the kernels of compare_f32.def: y[i] = a[i * a_step] relation b[i *
 * b_step] for i < n, where a step is 1, or 0 for a scalar. y is bytes of 0 and 1. NaN is
 * unequal to all. Blocks have one size, which the compiler vectorizes by itself; this
 * keeps the code small. */
#include "isa.h"

enum { BLOCK = 64 };

typedef void compare_block(uint8_t *restrict y, const float *restrict a,
                           const float *restrict b);

/* The block at x: scalars were spread, and what ends early goes through `room`. */
static const float *block_at(const float *x, size_t step, size_t i, size_t n, float *room)
{
    if (step == 0)
        return room;
    if (n - i >= BLOCK)
        return x + i;
    memcpy(room, x + i, (n - i) * sizeof *x);
    return room;
}

static void compare(uint8_t *y, const float *a, size_t a_step, const float *b,
                    size_t b_step, size_t n, compare_block *block)
{
    float left[BLOCK] = { 0 }, right[BLOCK] = { 0 };
    uint8_t last[BLOCK];
    for (int k = 0; k < BLOCK && n > 0; k++) {
        left[k] = *a;
        right[k] = *b;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        const float *from_a = block_at(a, a_step, i, n, left);
        const float *from_b = block_at(b, b_step, i, n, right);
        const bool whole = n - i >= BLOCK;
        block(whole ? y + i : last, from_a, from_b);
        if (!whole)
            memcpy(y + i, last, n - i);
    }
}

#define COMPARE_F32(name, relation)                                                      \
    static void name##_block(uint8_t *restrict y, const float *restrict a,               \
                             const float *restrict b)                                    \
    {                                                                                    \
        for (int i = 0; i < BLOCK; i++)                                                  \
            y[i] = a[i] relation b[i];                                                   \
    }                                                                                    \
    void K(name##_f32)(uint8_t *y, const float *a, size_t a_step, const float *b,        \
                       size_t b_step, size_t n)                                          \
    {                                                                                    \
        compare(y, a, a_step, b, b_step, n, name##_block);                               \
    }
#include "compare_f32.def"
#undef COMPARE_F32
