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

/* Vector v of m channels, which `acc` has `row` vectors apart: all lanes, or some of them; lane 0
 * is at `at`. */
static ALWAYS_INLINE void put_vector(const struct put *p, const v_f32 *acc, int row,
                                     int64_t at, const int m)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 x = acc[i * row];
        if (p->z != NULL)
            x += v_load(p->z + at + i * p->y_channel);
        v_store(p->y + at + i * p->y_channel, v_min(p->max, v_max(p->min, x)));
    }
}
static ALWAYS_INLINE void put_lanes(const struct put *p, const v_f32 *acc, int row,
                                    int64_t at, v_mask mask, const int m)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 x = acc[i * row];
        if (p->z != NULL)
            x += v_load_lanes(p->z + at + i * p->y_channel, mask);
        v_store_lanes(p->y + at + i * p->y_channel, mask,
                      v_min(p->max, v_max(p->min, x)));
    }
}

struct at {
    int64_t channel, row, column;
};
#define TEXTS_CONV  struct attn_conv_direct
#define TEXTS_PLACE struct at
#include "conv_texts.h"

/* Stores may write anywhere, as far as the compiler knows: *d is read before them. */
static ALWAYS_INLINE void put_vectors(const struct attn_conv_direct *d, const v_f32 *acc,
                                      int in_row, struct at at, const int m, const int nv)
{
    const int64_t columns = d->columns, pitch = d->pitch, y_row = d->y_row;
    const int64_t rows = d->rows, place = at.channel * d->y_channel;
    const struct put p = { .y = d->y + place,
                           .z = d->z != NULL ? d->z + place : NULL,
                           .y_channel = d->y_channel,
                           .min = v_set(d->min),
                           .max = v_set(d->max) };
    UNROLL
    for (int v = 0; v < nv; v++, acc++) {
        if (at.column + VF <= columns)
            put_vector(&p, acc, in_row, at.row * y_row + at.column, m);
        else /* lanes from … to - 1 are of row r; c: the column of lane 0, were it there
              */
            for (int64_t from = 0, r = at.row, c = at.column; from < VF && r < rows;
                 r++) {
                const int64_t to = columns - c < VF ? columns - c : VF;
                if (from < to)
                    put_lanes(&p, acc, in_row, r * y_row + c, v_lanes(v_bits(from, to)),
                              m);
                from = pitch - c;
                c = -from;
            }
        for (at.column += VF; at.column >= pitch; at.column -= pitch)
            at.row++;
    }
}

/* The end of all tiles of fewer vectors: m rows of nv. */
static __attribute__((noinline)) void
put_sums(const struct attn_conv_direct *d, const v_f32 *sums, struct at at, int m, int nv)
{
    for (int v = 0; v < nv; v++, sums++) {
        struct at channel = at;
        for (int i = 0; i < m; i++, channel.channel++)
            put_vectors(d, sums + i * nv, nv, channel, 1, 1);
        for (at.column += VF; at.column >= d->pitch; at.column -= d->pitch)
            at.row++;
    }
}

static ALWAYS_INLINE void put_tile(const struct attn_conv_direct *d, v_f32 (*acc)[8],
                                   struct at at, const int m, const struct rows nv)
{
    if (nv.min == nv.max) {
        put_vectors(d, acc[0], 8, at, m, nv.max);
        return;
    }
    v_f32 sums[MAX_M * 8], *to = sums;
    UNROLL
    for (int i = 0; i < m; i++)
        EACH_ROW (v, nv)
            *to++ = acc[i][v];
    put_sums(d, sums, at, m, nv.n);
}

/* ---- tiles ---- */

/* acc += the products of a tap. Whole tiles leave no registers for the weights, and others compare
 * the number of vectors once. */
static ALWAYS_INLINE void add_whole(v_f32 (*acc)[8], const float *x, const float *w,
                                    int64_t w_row, const int m, const int nv)
{
    v_f32 seen[8];
    UNROLL
    for (int v = 0; v < nv; v++)
        seen[v] = v_load(x + v * VF);
    UNROLL
    for (int i = 0; i < m; i++) {
        const v_f32 weight = v_set(w[i * w_row]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[i][v] += weight * seen[v];
    }
}
static ALWAYS_INLINE void add_some(v_f32 (*acc)[8], const float *x, const float *w,
                                   int64_t w_row, const int m, const struct rows nv)
{
    v_f32 weight[MAX_M];
    UNROLL
    for (int i = 0; i < m; i++)
        weight[i] = v_set(w[i * w_row]);
    EACH_ROW (v, nv) {
        const v_f32 seen = v_load(x + v * VF);
        UNROLL
        for (int i = 0; i < m; i++)
            acc[i][v] += weight[i] * seen;
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_conv_direct *d, const struct at *at,
                                   const int m, const struct rows nv)
{
    v_f32 acc[MAX_M][8];
    UNROLL
    for (int i = 0; i < m; i++) {
        v_f32 bias = v_set(d->bias != NULL ? d->bias[at->channel + i] : 0.0f);
        UNROLL
        for (int v = 0; v < nv.max; v++)
            acc[i][v] = bias;
    }
    const float *x = d->x + at->row * d->pitch + at->column,
                *w = d->w + at->channel * d->w_row;
    for (int64_t t = 0; t < d->taps; t++, w++)
        if (nv.min == nv.max)
            add_whole(acc, x + d->offsets[t], w, d->w_row, m, nv.max);
        else
            add_some(acc, x + d->offsets[t], w, d->w_row, m, nv);
    put_tile(d, acc, *at, m, nv);
}

enum { V_OF_2 = REGISTERS == 32 ? 8 : 5, V_OF_4 = REGISTERS == 32 ? 5 : 3 };
TEXTS(1, 8)
TEXTS(2, V_OF_2)
TEXTS(4, V_OF_4)
TEXTS(8, 3)

static const struct texts all_texts[] = { { 8, whole_1, some_1 },
                                          { V_OF_2, whole_2, some_2 },
                                          { V_OF_4, whole_4, some_4 } };
static const struct texts eight = { 3, whole_8, some_8 }; /* of 32 registers */

void K(conv_direct_f32)(const struct attn_conv_direct *d)
{
    const int64_t positions = (d->rows - 1) * d->pitch + d->columns;
    if (d->rows == 0 || d->columns == 0)
        return;
    int64_t m;
    for (struct at at = { 0 }; at.channel < d->m; at.channel += m) {
        const struct texts *texts = texts_of(all_texts, &eight, d->m - at.channel, &m);
        at.row = at.column = 0;
        for (int64_t p = 0; p < positions;) {
            const int64_t left = (positions - p + VF - 1) / VF;
            const int n = left < texts->vectors ? (int)left : texts->vectors;
            if (attn_poll_work(m * n * VF * d->taps / 5) != ATTNRUN_OK)
                return;
            if (n == texts->vectors)
                texts->whole(d, &at);
            else
                texts->some(d, &at, n);
            p += n * VF;
            for (at.column += n * VF; at.column >= d->pitch; at.column -= d->pitch)
                at.row++;
        }
    }
}
