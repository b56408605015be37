/* nbits_f32.c - converts a part of a panel of weights of 2, 4 or 8 bits (struct
 * attn_nbits) to floats, for gemm_f32, in products with many rows. Few rows are in
 * nbits_rows.c. Cost: one read of the weights. */
#include "nbits_words.h"

static ALWAYS_INLINE void unpack(float *y, const struct attn_nbits *b, size_t panel,
                                 size_t k0, size_t k, size_t width, const int bits)
{
    const size_t per = 32 / (size_t)bits, first = panel * b->blocks * NR;
    const uint8_t *q = b->q + panel * attn_nbits_panel(b, NR);
    struct nbits_shared s = { .now = SIZE_MAX };
    for (size_t i = k0; i < k0 + k; i++, y += width) {
        nbits_find_shared(b, &s, first, i, width / VF);
        for (size_t v = 0; v < width / VF; v++)
            v_store(y + v * VF,
                    s.scale[v] * value_of(load_words(q + (i / per * NR + v * VF) * 4),
                                          (int)(i % per), bits, b->table, s.zero[v]));
    }
}

void K(nbits_unpack_f32)(float *y, const struct attn_nbits *b, size_t panel, size_t k0,
                         size_t k, size_t width)
{
    if (b->bits == 4)
        unpack(y, b, panel, k0, k, width, 4);
    else if (b->bits == 8)
        unpack(y, b, panel, k0, k, width, 8);
    else
        unpack(y, b, panel, k0, k, width, 2);
}
