/* nbits_bf16.c - converts a part of a panel of weights of 2, 4 or 8 bits (struct attn_nbits) to
 * words of two bf16 along k, for gemm_bf16, in products with many rows. Cost: one read of the
 * weights. */
#include "nbits_words.h"

static ALWAYS_INLINE void unpack_words(uint32_t *y, const struct attn_nbits *b,
                                       size_t panel, size_t k0, size_t k,
                                       const size_t vectors)
{
    const int bits = b->bits;
    const size_t per = 32 / (size_t)bits, first = panel * b->blocks * NR;
    const uint8_t *q = b->q + panel * attn_nbits_panel(b, NR);
    struct nbits_shared s = { .now = SIZE_MAX };
    for (size_t i = k0; i < k0 + k; i += 2, y += vectors * VF) {
        v_f32 two[2][2] = { { { 0 } } };
        for (size_t row = 0; row < 2 && i + row < k0 + k; row++) {
            nbits_find_shared(b, &s, first, i + row, vectors);
            const uint8_t *words = q + (i + row) / per * NR * 4;
            for (size_t v = 0; v < vectors; v++)
                two[row][v] = s.scale[v] * value_of(load_words(words + v * VF * 4),
                                                    (int)((i + row) % per), bits,
                                                    b->table, s.zero[v]);
        }
        for (size_t v = 0; v < vectors; v++) {
            const v_u32 pairs = v_pair_bf16(two[0][v], two[1][v]);
            memcpy(y + v * VF, &pairs, sizeof pairs);
        }
    }
}

void K(nbits_unpack_bf16)(uint32_t *y, const struct attn_nbits *b, size_t panel,
                          size_t k0, size_t k, size_t width)
{
    if (width > VF)
        unpack_words(y, b, panel, k0, k, 2);
    else
        unpack_words(y, b, panel, k0, k, 1);
}
