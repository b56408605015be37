/* nbits_f32.c - converts a part of a panel of weights of 2, 4 or 8 bits (struct
 * attn_nbits) to floats, for gemm_f32, in products with many rows. Few rows are in
 * nbits_rows.c. Cost: one read of the weights. */
#include "nbits_words.h"

static ALWAYS_INLINE void unpack(float *y, const struct attn_nbits *b, size_t panel,
                                 size_t k0, size_t k, size_t width, const int bits)
{
    const size_t per = 32 / (size_t)bits, first = panel * b->blocks * NR;
    const uint8_t *q = b->q + panel * attn_nbits_panel(b, NR);
    size_t block = SIZE_MAX;
    v_f32 zero[2] = { { 0 } }, scale[2] = { { 0 } };
    for (size_t i = k0; i < k0 + k; i++, y += width) {
        const size_t now = b->group != NULL ? (size_t)b->group[i] : i / b->block;
        for (size_t v = 0; now != block && v < width / VF; v++) {
            zero[v] = zeros_at(b, first + now * NR + v * VF);
            scale[v] = v_load(b->scale + first + now * NR + v * VF);
        }
        block = now;
        for (size_t v = 0; v < width / VF; v++)
            v_store(y + v * VF,
                    scale[v] * value_of(load_words(q + (i / per * NR + v * VF) * 4),
                                        (int)(i % per), bits, b->table, zero[v]));
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
