/* nbits_f32.c - products with weights of 2, 4 or 8 bits (struct attn_nbits).
 *
 *   nbits_unpack_f32  a part of a panel as floats, for gemm_f32: many rows of A
 *   nbits_rows_f32    few rows of A: the weights are read once and never stored as floats
 *
 * A block is summed by itself, in the order of k, and then multiplied by its scale; blocks
 * are summed in their order. Columns lie on the vector axis, so no element depends on how
 * columns are cut. */
#include "isa.h"

enum { NR = 2 * VF };

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

/* Number s of the rows that a byte holds, before the scale. */
static ALWAYS_INLINE v_f32 value_of(v_i32 bytes, int s, const int bits,
                                    const float *table, v_f32 zero)
{
    const v_i32 q = (bytes >> (s * bits)) & ((1 << bits) - 1);
    return table != NULL ? v_look_up(table, q) : __builtin_convertvector(q, v_f32) - zero;
}

/* ---- as floats ---- */

static ALWAYS_INLINE void unpack(float *y, const struct attn_nbits *b, size_t panel,
                                 size_t k0, size_t k, size_t width, const int bits)
{
    const size_t per = 8 / (size_t)bits, first = panel * b->blocks * NR;
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
                    scale[v] * value_of(load_bytes(q + i / per * NR + v * VF),
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

/* ---- few rows ---- */

/* The rows of a block: k of them, from byte row q and column a of A on. */
struct part {
    const uint8_t *q;
    const float *a, *table;
    ptrdiff_t a_row;
    size_t k;
    v_f32 zero[2], scale[2];
};

/* total[i][v] += scale[v] * sum over the block, for `rows` rows of A. */
static ALWAYS_INLINE void add_part(v_f32 (*total)[2], const struct part *p,
                                   const int rows, const int bits, const bool by_table)
{
    const int per = 8 / bits;
    const float *a = p->a, *table = by_table ? p->table : NULL;
    const uint8_t *q = p->q;
    v_f32 acc[4][2] = { { { 0 } } };
    size_t k = p->k;
    for (; k >= (size_t)per; k -= (size_t)per, a += per, q += NR) {
        const v_i32 bytes[2] = { load_bytes(q), load_bytes(q + VF) };
        UNROLL
        for (int s = 0; s < per; s++) {
            const v_f32 x = value_of(bytes[0], s, bits, table, p->zero[0]);
            const v_f32 y = value_of(bytes[1], s, bits, table, p->zero[1]);
            UNROLL
            for (int i = 0; i < rows; i++) {
                acc[i][0] += a[i * p->a_row + s] * x;
                acc[i][1] += a[i * p->a_row + s] * y;
            }
        }
    }
    for (size_t s = 0; s < k; s++) {
        const v_f32 x = value_of(load_bytes(q), (int)s, bits, table, p->zero[0]);
        const v_f32 y = value_of(load_bytes(q + VF), (int)s, bits, table, p->zero[1]);
        UNROLL
        for (int i = 0; i < rows; i++) {
            acc[i][0] += a[i * p->a_row + (ptrdiff_t)s] * x;
            acc[i][1] += a[i * p->a_row + (ptrdiff_t)s] * y;
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        total[i][0] += p->scale[0] * acc[i][0];
        total[i][1] += p->scale[1] * acc[i][1];
    }
}

typedef void part_fn(v_f32 (*total)[2], const struct part *p);
#define PART(bits, rows, by_table)                                                       \
    static void part_##bits##_##rows##_##by_table(v_f32(*total)[2],                      \
                                                  const struct part *p)                  \
    {                                                                                    \
        add_part(total, p, rows, bits, by_table);                                        \
    }
#define PARTS(bits, by_table)                                                            \
    PART(bits, 1, by_table)                                                              \
    PART(bits, 2, by_table)                                                              \
    PART(bits, 3, by_table)                                                              \
    PART(bits, 4, by_table)                                                              \
    static part_fn *const parts_##bits##_##by_table[4] = { part_##bits##_1_##by_table,   \
                                                           part_##bits##_2_##by_table,   \
                                                           part_##bits##_3_##by_table,   \
                                                           part_##bits##_4_##by_table };
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

void K(nbits_rows_f32)(float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row,
                       size_t m, const struct attn_nbits *b, size_t panel, size_t n,
                       const float *bias)
{
    part_fn *const *parts = b->table != NULL ? parts_4_1
                            : b->bits == 4   ? parts_4_0
                            : b->bits == 8   ? parts_8_0
                                             : parts_2_0;
    const uint8_t *q = b->q + panel * attn_nbits_panel(b, NR);
    v_f32 total[ATTN_NBITS_ROWS][2] = { { { 0 } } };
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
            parts[(m - i < 4 ? m - i : 4) - 1](total + i, &p);
        }
    }
    for (size_t i = 0; i < m; i++)
        for (size_t v = 0; v * VF < n; v++) {
            const size_t some = n - v * VF < VF ? n - v * VF : VF;
            write_some(c + (ptrdiff_t)i * c_row + v * VF, total[i][v],
                       bias != NULL ? bias + v * VF : NULL, some);
        }
}
