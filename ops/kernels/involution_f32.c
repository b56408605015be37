/* involution_f32.c - a tile of an involution: each pixel has a K x K kernel of its own,
 * which all channels of a group share.
 *
 * In: the input, the kernels of the tile's pixels and a place of the output. Out: that
 * part of the output. The pixels that CHANNELS channels see are copied into a strip with
 * its padding, separated by the stride, so that each tap reads consecutive floats. A
 * vector of the strip then serves all of the ROWS output rows that see it, and a vector
 * of a tap's kernels serves CHANNELS channels. Each sum is taken tap by tap, in order.
 * Cost: 2 K^2 FLOPs an element. Source: Li 2021, arXiv:2103.06255. */
#include "isa.h"

enum {
    ROWS = 4,
    CHANNELS = REGISTERS == 32 ? 4 : 2 /* ROWS * CHANNELS sums in registers */
};

/* ---- strip ---- */

struct strip {
    int64_t phases, length, pitch; /* floats of a phase, of a row */
    int64_t step, rows, plane; /* rows from output row to output row, all; a channel */
    int64_t low[ATTN_INVOLUTION_SIZE], high[ATTN_INVOLUTION_SIZE]; /* inside, by phase */
};

static struct strip find_strip(const struct attn_involution *t)
{
    const int64_t size = t->size, stride = t->stride;
    struct strip s = { .phases = stride < size ? stride : size };
    s.step = s.phases; /* rows between windows are left out */
    s.length = t->columns + (size - 1) / stride;
    s.pitch = s.phases * s.length;
    s.rows = (t->rows - 1) * s.step + size;
    s.plane = s.rows * s.pitch;
    for (int64_t p = 0; p < s.phases; p++) {
        const int64_t from = t->column * stride - (size - 1) / 2 + p;
        const int64_t low = from < 0 ? (stride - 1 - from) / stride : 0;
        const int64_t high = from < t->w ? (t->w - 1 - from) / stride + 1 : 0;
        s.low[p] = low < s.length ? low : s.length;
        s.high[p] = high < s.length ? high : s.length;
        if (s.high[p] < s.low[p])
            s.high[p] = s.low[p];
    }
    return s;
}

/* Every second of low[VF] and, from its second one on, high[VF]. */
#define PICK(i, unused) (2 * (i) + ((i) >= VF / 2))

/* VF floats that are `step` apart; reads no others behind the last one. */
static ALWAYS_INLINE v_f32 pick(const float *x, const int64_t step)
{
    v_f32 v;
    if (step == 1)
        return v_load(x);
    if (step == 2) {
        const v_f32 low = v_load(x), high = v_load(x + VF - 1);
        return V_SHUFFLE(low, high, PICK, 0);
    }
    UNROLL
    for (int i = 0; i < VF; i++)
        v[i] = x[i * step];
    return v;
}

/* y[i] = x[i * step]. */
static ALWAYS_INLINE void gather(float *y, const float *x, const int64_t step, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        v_store(y + i, pick(x + i * step, step));
    if (i == n)
        return;
    if (n >= VF)
        v_store(y + n - VF, pick(x + (n - VF) * step, step));
    else
        for (i = 0; i < n; i++)
            y[i] = x[i * step];
}

/* Copies what lies inside the image; the rest of the strip is zero for all channels. */
static ALWAYS_INLINE void put_rows(float *y, const float *x, const struct strip *s,
                                   const struct attn_involution *t, const int64_t stride)
{
    const int64_t before = (t->size - 1) / 2, from = t->column * stride - before;
    int64_t row = t->row * stride - before, until_gap = s->step;
    for (int64_t r = 0; r < s->rows; r++, row++, until_gap--) {
        if (until_gap == 0) {
            row += stride - s->step;
            until_gap = s->step;
        }
        if (row < 0 || row >= t->h)
            continue;
        for (int64_t p = 0; p < s->phases; p++) {
            const int64_t low = s->low[p];
            gather(y + r * s->pitch + p * s->length + low,
                   x + (row * t->w + from + p + low * stride), stride, s->high[p] - low);
        }
    }
}

static void put_channel(float *y, const float *x, const struct strip *s,
                        const struct attn_involution *t)
{
    if (t->stride == 1)
        put_rows(y, x, s, t, 1);
    else if (t->stride == 2)
        put_rows(y, x, s, t, 2);
    else
        put_rows(y, x, s, t, t->stride);
}

/* ---- sums ---- */

/* Up to ROWS output rows, and channels from `x` on. */
struct block {
    const struct attn_involution *tile;
    const struct strip *strip;
    const int32_t *offsets; /* of a row's taps in the strip */
    const float *x;         /* first row of the strip that the block sees */
    float *y;
    int64_t row, rows; /* the first one in the tile */
};

/* sum[r][c] += kernel * x for the taps of strip row q, rows first … last, n channels. */
static ALWAYS_INLINE void sum_row(v_f32 (*sum)[CHANNELS], const struct block *b,
                                  int64_t q, int64_t i, int64_t first, int64_t last,
                                  const int n)
{
    const struct attn_involution *t = b->tile;
    const float *x = b->x + q * b->strip->pitch + i, *kernel[ROWS];
    const int64_t plane = b->strip->plane, size = t->size, step = t->kernel_tap;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        kernel[r] = t->kernel + (q - r * b->strip->step) * size * step +
                    (b->row + r) * t->kernel_row + i;
    for (int64_t j = 0, tap = 0; j < size; j++, tap += step) {
        v_f32 column[CHANNELS];
        UNROLL
        for (int c = 0; c < n; c++)
            column[c] = v_load(x + b->offsets[j] + c * plane);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            if (r < first || r > last)
                continue;
            const v_f32 k = v_load(kernel[r] + tap);
            UNROLL
            for (int c = 0; c < n; c++)
                sum[r][c] += k * column[c];
        }
    }
}

/* Columns i … i + VF - 1 of n channels. Where rows are less than a vector, but all there
 * is, a row may run into the next ones, which are written later. */
static ALWAYS_INLINE void sum_block(const struct block *b, int64_t i, const int n)
{
    const struct attn_involution *t = b->tile;
    const int64_t size = t->size, step = b->strip->step;
    v_f32 sum[ROWS][CHANNELS] = { { { 0 } } };
    int64_t first = 0, last = 0;
    for (int64_t q = 0; q < (b->rows - 1) * step + size; q++) {
        first += q == first * step + size;
        last += q == (last + 1) * step && last + 1 < b->rows;
        if (first == 0 && last == ROWS - 1) /* most rows */
            sum_row(sum, b, q, i, 0, ROWS - 1, n);
        else
            sum_row(sum, b, q, i, first, last, n);
    }
    UNROLL
    for (int c = 0; c < n; c++)
        UNROLL
    for (int r = 0; r < ROWS; r++) {
        float *y = b->y + c * t->y_channel + r * t->y_row + i;
        const int64_t rows = t->y_row == t->columns ? t->rows - b->row - r : 1;
        const int64_t room = rows * t->columns - i;
        if (r < b->rows && room >= VF)
            v_store(y, sum[r][c]);
        else if (r < b->rows)
            v_store_tail(y, sum[r][c], (size_t)room);
    }
}

/* All pixels of a tile for n channels. Where a row is not whole vectors, the last one
 * begins earlier. */
static ALWAYS_INLINE void sum_tile(struct block *b, const float *x, float *y, const int n)
{
    const struct attn_involution *t = b->tile;
    for (b->row = 0; b->row < t->rows; b->row += ROWS) {
        b->rows = t->rows - b->row < ROWS ? t->rows - b->row : ROWS;
        b->x = x + b->row * b->strip->step * b->strip->pitch;
        b->y = y + b->row * t->y_row;
        for (int64_t i = 0; i < t->columns; i += VF)
            sum_block(b, i + VF > t->columns && t->columns >= VF ? t->columns - VF : i,
                      n);
    }
}

void K(involution_f32)(const struct attn_involution *t)
{
    const struct strip strip = find_strip(t);
    int32_t offsets[ATTN_INVOLUTION_SIZE];
    struct block b = { .tile = t, .strip = &strip, .offsets = offsets };
    for (int64_t j = 0; j < t->size; j++)
        offsets[j] = (int32_t)(j % t->stride * strip.length + j / t->stride);
    memset(t->strip, 0, (size_t)(CHANNELS * strip.plane) * sizeof(float));
    for (int64_t c = 0; c < t->channels; c += CHANNELS) {
        const int64_t left = t->channels - c, n = left < CHANNELS ? left : CHANNELS;
        for (int64_t i = 0; i < n; i++)
            put_channel(t->strip + i * strip.plane, t->x + (c + i) * t->x_channel, &strip,
                        t);
        if (n == CHANNELS)
            sum_tile(&b, t->strip, t->y + c * t->y_channel, CHANNELS);
        for (int64_t i = 0; n < CHANNELS && i < n; i++)
            sum_tile(&b, t->strip + i * strip.plane, t->y + (c + i) * t->y_channel, 1);
    }
}

/* Means of up to VF squares in a row. */
static ALWAYS_INLINE void mean_vector(float *y, const float *x, ptrdiff_t x_row,
                                      const int64_t side)
{
    v_f32 sum = { 0 };
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j < side; j++)
            sum += pick(x + i * x_row + j, side);
    v_store(y, sum * (1.0f / (float)(side * side)));
}

static ALWAYS_INLINE void mean_row(float *y, const float *x, ptrdiff_t x_row,
                                   const int64_t side, int64_t n)
{
    for (int64_t i = 0; n >= VF && i < n; i += VF) {
        i = i + VF > n ? n - VF : i;
        mean_vector(y + i, x + i * side, x_row, side);
    }
    for (int64_t p = 0; n < VF && p < n; p++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < side; i++)
            for (int64_t j = 0; j < side; j++)
                sum += x[i * x_row + p * side + j];
        y[p] = sum * (1.0f / (float)(side * side));
    }
}

void K(square_means_f32)(float *y, const float *x, ptrdiff_t x_row, int64_t side,
                         size_t n)
{
    if (side == 1)
        mean_row(y, x, x_row, 1, (int64_t)n);
    else if (side == 2)
        mean_row(y, x, x_row, 2, (int64_t)n);
    else
        mean_row(y, x, x_row, side, (int64_t)n);
}
