/* transpose.h - y[j * y_row + i] = x[i * x_row + j] for i < rows, j < columns, by squares
 * that stay in registers. Strides are in elements. Cost: one copy. */
#ifndef ATTN_TRANSPOSE_H
#define ATTN_TRANSPOSE_H

#include "isa.h"

/* Lane l after the h x h blocks off the diagonal of two rows that are h apart are
 * exchanged: of the upper and of the lower row. Lanes from VF on are those of the lower
 * row. */
#define UPPER(l, h) ((l) & (h) ? VF + (l) - (h) : (l))
#define LOWER(l, h) ((l) & (h) ? VF + (l) : (l) + (h))
#define SWAP_BLOCKS(h)                                                                   \
    UNROLL                                                                               \
    for (int i = 0; i < VF; i++)                                                         \
        if ((i & (h)) == 0) {                                                            \
            v_f32 upper = r[i], lower = r[i + (h)];                                      \
            r[i] = __builtin_shufflevector(upper, lower, V_LANES(UPPER, h));             \
            r[i + (h)] = __builtin_shufflevector(upper, lower, V_LANES(LOWER, h));       \
        }
#define SWAP_ALL_16 SWAP_BLOCKS(1) SWAP_BLOCKS(2)
#define SWAP_ALL_32 SWAP_ALL_16 SWAP_BLOCKS(4)
#define SWAP_ALL_64 SWAP_ALL_32 SWAP_BLOCKS(8)

static ALWAYS_INLINE void transpose_square(float *y, ptrdiff_t y_row, const float *x,
                                           ptrdiff_t x_row)
{
    v_f32 r[VF];
    UNROLL
    for (int i = 0; i < VF; i++)
        r[i] = v_load(x + i * x_row);
    V_OF_WIDTH(SWAP_ALL_)
    UNROLL
    for (int i = 0; i < VF; i++)
        v_store(y + i * y_row, r[i]);
}

#define JOIN_BLOCKS(h, joined)                                                           \
    UNROLL                                                                               \
    for (int i = 0; i < VF; i += 2 * (h)) {                                              \
        v_f32 a = __builtin_shufflevector(r[i], r[i + (h)], V_LANES(UPPER, h));          \
        v_f32 b = __builtin_shufflevector(r[i], r[i + (h)], V_LANES(LOWER, h));          \
        r[i] = joined;                                                                   \
    }
#define JOIN_ALL_16(joined) JOIN_BLOCKS(1, joined) JOIN_BLOCKS(2, joined)
#define JOIN_ALL_32(joined) JOIN_ALL_16(joined) JOIN_BLOCKS(4, joined)
#define JOIN_ALL_64(joined) JOIN_ALL_32(joined) JOIN_BLOCKS(8, joined)
#define JOIN_ALL(joined)    V_OF_WIDTH(JOIN_ALL_)(joined)
/* Lane i receives the sum, or the maximum, of the lanes of r[i]. */
static ALWAYS_INLINE v_f32 add_lanes_of_rows(v_f32 *r)
{
    JOIN_ALL(a + b)
    return r[0];
}
static ALWAYS_INLINE v_f32 max_lanes_of_rows(v_f32 *r)
{
    JOIN_ALL(v_max(a, b))
    return r[0];
}
#undef JOIN_ALL
#undef JOIN_ALL_16
#undef JOIN_ALL_32
#undef JOIN_ALL_64
#undef SWAP_ALL_16
#undef SWAP_ALL_32
#undef SWAP_ALL_64
#undef JOIN_BLOCKS
#undef SWAP_BLOCKS
#undef LOWER
#undef UPPER

static inline void transpose_block(float *y, ptrdiff_t y_row, const float *x,
                                   ptrdiff_t x_row, size_t rows, size_t columns)
{
    const size_t whole_rows = rows / VF * VF, whole_columns = columns / VF * VF;
    for (size_t i = 0; i < whole_rows; i += VF) {
        const float *from = x + (ptrdiff_t)i * x_row;
        for (size_t j = 0; j < whole_columns; j += VF) {
            if (x_row > 2 * (ptrdiff_t)columns) /* as in prefetch_row() */
                for (size_t l = 0; l < VF; l++)
                    __builtin_prefetch(from + (ptrdiff_t)(VF + l) * x_row + j);
            transpose_square(y + (ptrdiff_t)j * y_row + i, y_row, from + j, x_row);
        }
        for (size_t j = whole_columns; j < columns; j++)
            for (size_t l = 0; l < VF; l++)
                y[(ptrdiff_t)j * y_row + (ptrdiff_t)(i + l)] =
                    from[(ptrdiff_t)l * x_row + (ptrdiff_t)j];
    }
    for (size_t i = whole_rows; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            y[(ptrdiff_t)j * y_row + (ptrdiff_t)i] =
                x[(ptrdiff_t)i * x_row + (ptrdiff_t)j];
}

#endif
