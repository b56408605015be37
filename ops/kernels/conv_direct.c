/* conv_direct.c - convolution without columns. A tile of pixels of several output
 * channels stays in registers while all taps of a group are applied. A tap is a vector of
 * pixels at an offset of its own times one weight of each channel. image_types.h
 * describes the operands (struct attn_conv_direct).
 *
 * Rows of the padded image lie one after the other, so a tile may run over the end of a
 * row; results that fall between two rows are computed and not stored. Sums are in the
 * order of taps, whatever the tile. Cost: 2 taps FLOPs an element. */
#include "lanes.h"

enum { MAX_M = REGISTERS == 32 ? 8 : 4 };

/* ---- from sums to y ---- */

struct put {
    float *y; /* of the first channel */
    const float *z;
    int64_t y_channel;
    v_f32 min, max;
};

/* Vector v of m channels: all lanes, or some of them; lane 0 is at `at`. */
static ALWAYS_INLINE void put_vector(const struct put *p, v_f32 (*acc)[8], int64_t at,
                                     const int m, const int v)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 x = acc[i][v];
        if (p->z != NULL)
            x += v_load(p->z + at + i * p->y_channel);
        v_store(p->y + at + i * p->y_channel, v_min(p->max, v_max(p->min, x)));
    }
}
static ALWAYS_INLINE void put_lanes(const struct put *p, v_f32 (*acc)[8], int64_t at,
                                    v_mask mask, const int m, const int v)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 x = acc[i][v];
        if (p->z != NULL)
            x += v_load_lanes(p->z + at + i * p->y_channel, mask);
        v_store_lanes(p->y + at + i * p->y_channel, mask,
                      v_min(p->max, v_max(p->min, x)));
    }
}

/* Stores may write anywhere, as far as the compiler knows: *d is read before them. */
static ALWAYS_INLINE void put_tile(const struct attn_conv_direct *d, v_f32 (*acc)[8],
                                   int64_t channel, int64_t row, int64_t column,
                                   const int m, const int nv)
{
    const int64_t columns = d->columns, pitch = d->pitch, y_row = d->y_row;
    const int64_t rows = d->rows, at = channel * d->y_channel;
    const struct put p = { .y = d->y + at,
                           .z = d->z != NULL ? d->z + at : NULL,
                           .y_channel = d->y_channel,
                           .min = v_set(d->min),
                           .max = v_set(d->max) };
    UNROLL
    for (int v = 0; v < nv; v++) {
        if (column + VF <= columns)
            put_vector(&p, acc, row * y_row + column, m, v);
        else /* lanes from … to - 1 are of row r; c: the column of lane 0, were it there
              */
            for (int64_t from = 0, r = row, c = column; from < VF && r < rows; r++) {
                const int64_t to = columns - c < VF ? columns - c : VF;
                if (from < to)
                    put_lanes(&p, acc, r * y_row + c, v_lanes(v_bits(from, to)), m, v);
                from = pitch - c;
                c = -from;
            }
        for (column += VF; column >= pitch; column -= pitch)
            row++;
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_conv_direct *d, int64_t channel,
                                   int64_t row, int64_t column, const int m, const int nv)
{
    v_f32 acc[MAX_M][8];
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 bias = v_set(d->bias != NULL ? d->bias[channel + i] : 0.0f);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] = bias;
    }
    const float *x = d->x + row * d->pitch + column, *w = d->w + channel * d->w_row;
    for (int64_t t = 0; t < d->taps; t++, w++) {
        const float *at = x + d->offsets[t];
        v_f32 seen[8];
        UNROLL
        for (int v = 0; v < nv; v++)
            seen[v] = v_load(at + v * VF);
        UNROLL
        for (int i = 0; i < m; i++) {
            v_f32 weight = v_set(w[i * d->w_row]);
            UNROLL
            for (int v = 0; v < nv; v++)
                acc[i][v] += weight * seen[v];
        }
    }
    put_tile(d, acc, channel, row, column, m, nv);
}

/* clang-format off */
#define TILE(m, nv)                                                                      \
    static void tile_##m##x##nv(const struct attn_conv_direct *d, int64_t channel,       \
                                int64_t row, int64_t column)                             \
    {                                                                                    \
        run_tile(d, channel, row, column, m, nv);                                                  \
    }
TILE(1, 1) TILE(1, 2) TILE(1, 4) TILE(1, 8)
TILE(2, 1) TILE(2, 2) TILE(2, 5)
TILE(4, 1) TILE(4, 2) TILE(4, 3)
TILE(2, 3)                                                  /* of 16 registers */
TILE(2, 8) TILE(4, 5) TILE(8, 1) TILE(8, 2) TILE(8, 3) /* of 32 registers */
#undef TILE

/* By number of registers and of channels, those of more vectors first. */
struct width {
    int vectors;
    void (*run)(const struct attn_conv_direct *d, int64_t channel, int64_t row, int64_t column);
};
static const struct width widths_1[] = { { 8, tile_1x8 }, { 4, tile_1x4 }, { 2, tile_1x2 },
                                         { 1, tile_1x1 } };
static const struct width widths_16_2[] = { { 5, tile_2x5 }, { 3, tile_2x3 }, { 2, tile_2x2 },
                                            { 1, tile_2x1 } };
static const struct width widths_16_4[] = { { 3, tile_4x3 }, { 2, tile_4x2 }, { 1, tile_4x1 } };
static const struct width widths_32_2[] = { { 8, tile_2x8 }, { 5, tile_2x5 }, { 2, tile_2x2 },
                                            { 1, tile_2x1 } };
static const struct width widths_32_4[] = { { 5, tile_4x5 }, { 3, tile_4x3 }, { 2, tile_4x2 },
                                            { 1, tile_4x1 } };
static const struct width widths_32_8[] = { { 3, tile_8x3 }, { 2, tile_8x2 }, { 1, tile_8x1 } };
/* clang-format on */

static const struct width *widths_of(int64_t left, int *m)
{
    if (REGISTERS == 32 && left >= 8) {
        *m = 8;
        return widths_32_8;
    }
    *m = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    if (*m == 4)
        return REGISTERS == 32 ? widths_32_4 : widths_16_4;
    return *m == 1 ? widths_1 : REGISTERS == 32 ? widths_32_2 : widths_16_2;
}

void K(conv_direct_f32)(const struct attn_conv_direct *d)
{
    const int64_t positions = (d->rows - 1) * d->pitch + d->columns;
    if (d->rows == 0 || d->columns == 0)
        return;
    int m;
    for (int64_t channel = 0; channel < d->m; channel += m) {
        const struct width *width = widths_of(d->m - channel, &m);
        for (int64_t p = 0, row = 0, column = 0; p < positions;) {
            while (width->vectors > 1 && p + (width->vectors - 1) * VF >= positions)
                width++;
            if (attn_poll_work(m * width->vectors * VF * d->taps / 5) != ATTNRUN_OK)
                return;
            width->run(d, channel, row, column);
            p += width->vectors * VF;
            for (column += width->vectors * VF; column >= d->pitch; column -= d->pitch)
                row++;
        }
    }
}
