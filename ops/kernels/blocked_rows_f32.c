/* blocked_rows_f32.c - convolution of each channel by itself, pooling and gates of maps
 * in blocks of 16 channels: struct attn_blocked_rows.
 *
 * A tile of TILE pixels of a line stays in registers. A pixel of the input is read once for
 * each kernel row and used by all the pixels of the tile that see it, where the kernel is 3,
 * 5 or 7 wide and not dilated, with strides of 1 or 2; tiles at the ends of a line look at
 * each column first. Others read what each tap sees. Sums are in the order of kernel rows and
 * columns, whatever the tile. */
#include "isa.h"

enum { TILE = 7 };
#define UNROLL_ALL _Pragma("GCC unroll 32")

/* A tile of n pixels from column `at` of output row `row` on; lanes from `lane` on. */
struct place {
    int64_t row, at, n, lane;
};

/* The rows of the kernel that see a row of the map. */
static ALWAYS_INLINE void kernel_rows(const struct attn_blocked_rows *d, int64_t row,
                                      int64_t *from, int64_t *to)
{
    const int64_t dilation = d->dilation[0], first = row * d->stride[0] - d->before[0];
    int64_t i = first < 0 ? (-first + dilation - 1) / dilation : 0;
    const int64_t last = d->in[0] - 1 - first;
    const int64_t end = last < 0 ? 0 : last / dilation + 1;
    *to = end < d->kernel[0] ? end : d->kernel[0];
    *from = i < *to ? i : *to;
}

static ALWAYS_INLINE const float *map_row(const struct attn_blocked_rows *d,
                                          const struct place *p, int64_t i)
{
    const int64_t row = p->row * d->stride[0] - d->before[0] + i * d->dilation[0];
    return d->x + row * d->in[1] * ATTN_BLOCK + p->lane;
}

/* acc += what one row of a kernel of k columns sees from column `column` of the map on. */
static ALWAYS_INLINE void add_line(v_f32 *acc, const float *x, const float *w,
                                   int64_t column, int64_t width, const int k,
                                   const int stride, const bool ends)
{
    v_f32 weight[7];
    UNROLL
    for (int j = 0; j < k; j++)
        weight[j] = v_load(w + j * ATTN_BLOCK);
    UNROLL_ALL
    for (int c = 0; c < (TILE - 1) * stride + k; c++) {
        if (ends && (uint64_t)(column + c) >= (uint64_t)width)
            continue;
        const v_f32 input = v_load(x + (column + c) * ATTN_BLOCK);
        UNROLL
        for (int t = 0; t < TILE; t++)
            if (c - t * stride >= 0 && c - t * stride < k)
                acc[t] += weight[c - t * stride] * input;
    }
}

/* The same of any kernel: a tap at a time. */
static ALWAYS_INLINE void add_taps(const struct attn_blocked_rows *d, v_f32 *acc,
                                   const float *x, const float *w, int64_t column)
{
    for (int64_t j = 0; j < d->kernel[1]; j++) {
        const v_f32 weight = v_load(w + j * ATTN_BLOCK);
        UNROLL
        for (int t = 0; t < TILE; t++) {
            const int64_t c = column + t * d->stride[1] + j * d->dilation[1];
            if ((uint64_t)c < (uint64_t)d->in[1])
                acc[t] += weight * v_load(x + c * ATTN_BLOCK);
        }
    }
}

static ALWAYS_INLINE void put_line(const struct attn_blocked_rows *d, const v_f32 *acc,
                                   const struct place *p)
{
    const v_f32 min = v_set(d->min), max = v_set(d->max);
    const int64_t place = ((p->row - d->row) * d->columns + p->at) * ATTN_BLOCK + p->lane;
    UNROLL
    for (int t = 0; t < TILE; t++) {
        if (t >= p->n)
            break;
        v_f32 y = acc[t];
        if (d->z != NULL)
            y += v_load(d->z + place + t * ATTN_BLOCK);
        v_store(d->y + place + t * ATTN_BLOCK, v_min(max, v_max(min, y)));
    }
}

/* k 0: a tap at a time. */
static ALWAYS_INLINE void depthwise_tile(const struct attn_blocked_rows *d,
                                         const struct place *p, const int k,
                                         const int stride, const bool ends)
{
    v_f32 acc[TILE];
    const v_f32 bias = v_load(d->bias + p->lane);
    const int64_t column = p->at * d->stride[1] - d->before[1];
    int64_t from, to;
    UNROLL
    for (int t = 0; t < TILE; t++)
        acc[t] = bias;
    kernel_rows(d, p->row, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *w = d->w + i * d->kernel[1] * ATTN_BLOCK + p->lane;
        if (k > 0)
            add_line(acc, map_row(d, p, i), w, column, d->in[1], k, stride, ends);
        else
            add_taps(d, acc, map_row(d, p, i), w, column);
    }
    put_line(d, acc, p);
}

/* clang-format off */
#define TILES(k, stride)                                                                 \
    static void tile_##k##_##stride(const struct attn_blocked_rows *d, const struct place *p) \
    {                                                                                    \
        depthwise_tile(d, p, k, stride, false);                                          \
    }                                                                                    \
    static void ends_##k##_##stride(const struct attn_blocked_rows *d, const struct place *p) \
    {                                                                                    \
        depthwise_tile(d, p, k, stride, true);                                           \
    }
TILES(3, 1) TILES(3, 2) TILES(5, 1) TILES(5, 2) TILES(7, 1) TILES(7, 2)
#undef TILES
static void ends_any(const struct attn_blocked_rows *d, const struct place *p)
{
    depthwise_tile(d, p, 0, 0, true);
}
typedef void run_tile(const struct attn_blocked_rows *, const struct place *);
static run_tile *const inner_tiles[3][2] = {
    { tile_3_1, tile_3_2 }, { tile_5_1, tile_5_2 }, { tile_7_1, tile_7_2 },
};
static run_tile *const end_tiles[3][2] = {
    { ends_3_1, ends_3_2 }, { ends_5_1, ends_5_2 }, { ends_7_1, ends_7_2 },
};
/* clang-format on */

/* A line of tiles of one output row. */
static void run_line(const struct attn_blocked_rows *d, struct place p, run_tile *inner,
                     run_tile *ends)
{
    const int64_t reach = (TILE - 1) * d->stride[1] + d->kernel[1];
    for (p.at = 0; p.at < d->columns; p.at += TILE) {
        const int64_t first = p.at * d->stride[1] - d->before[1];
        const int64_t left = d->columns - p.at;
        p.n = left < TILE ? left : TILE;
        if (p.n == TILE && first >= 0 && first + reach <= d->in[1])
            inner(d, &p);
        else
            ends(d, &p);
    }
}

void K(blocked_depthwise_f32)(const struct attn_blocked_rows *d)
{
    const int64_t k = d->kernel[1], stride = d->stride[1];
    const bool known = (k == 3 || k == 5 || k == 7) && stride <= 2 && d->dilation[1] == 1;
    run_tile *inner = known ? inner_tiles[k / 2 - 1][stride - 1] : ends_any;
    run_tile *ends = known ? end_tiles[k / 2 - 1][stride - 1] : ends_any;
    for (int64_t row = d->row; row < d->row + d->rows; row++) {
        if (attn_poll_work(d->columns * ATTN_BLOCK * d->kernel[0] * k / 5) != ATTNRUN_OK)
            return;
        for (int64_t lane = 0; lane < ATTN_BLOCK; lane += VF)
            run_line(d, (struct place){ .row = row, .lane = lane }, inner, ends);
    }
}

/* ---- pooling ---- */

static ALWAYS_INLINE v_f32 pool_pixel(const struct attn_blocked_rows *d,
                                      const struct place *p, int64_t from, int64_t to,
                                      const bool mean)
{
    const int64_t column = p->at * d->stride[1] - d->before[1];
    v_f32 acc = v_set(mean ? 0.0f : -INFINITY);
    for (int64_t i = from; i < to; i++) {
        const float *x = map_row(d, p, i);
        for (int64_t j = 0; j < d->kernel[1]; j++) {
            const int64_t c = column + j * d->dilation[1];
            if ((uint64_t)c >= (uint64_t)d->in[1])
                continue;
            const v_f32 input = v_load(x + c * ATTN_BLOCK);
            if (mean)
                acc += input;
            else
                acc = v_select((input > acc) | (input != input), input, acc);
        }
    }
    return acc;
}

static ALWAYS_INLINE void pool_line(const struct attn_blocked_rows *d, struct place p,
                                    const bool mean)
{
    float *y = d->y + (p.row - d->row) * d->columns * ATTN_BLOCK + p.lane;
    int64_t from, to;
    kernel_rows(d, p.row, &from, &to);
    for (p.at = 0; p.at < d->columns; p.at++) {
        v_f32 v = pool_pixel(d, &p, from, to, mean);
        if (mean)
            v /= v_set(d->row_share[p.row] * d->column_share[p.at]);
        v_store(y + p.at * ATTN_BLOCK, v);
    }
}

void K(blocked_pool_f32)(const struct attn_blocked_rows *d)
{
    for (int64_t row = d->row; row < d->row + d->rows; row++) {
        const int64_t taps = d->kernel[0] * d->kernel[1];
        if (attn_poll_work(d->columns * ATTN_BLOCK * taps) != ATTNRUN_OK)
            return;
        for (int64_t lane = 0; lane < ATTN_BLOCK; lane += VF) {
            const struct place p = { .row = row, .lane = lane };
            if (d->row_share != NULL)
                pool_line(d, p, true);
            else
                pool_line(d, p, false);
        }
    }
}

/* Up to 64 pixels are added as floats, those sums as doubles. */
void K(blocked_mean_f32)(float *y, const float *x, size_t n)
{
    enum { CHUNK = 64 };
    const v_f64 share = (double)n - (v_f64){ 0 };
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF) {
        v_f64 low = { 0 }, high = { 0 };
        for (size_t p = 0; p < n; p += CHUNK) {
            if (attn_poll_work(4 * CHUNK * VF) != ATTNRUN_OK)
                return;
            v_f32 acc[4] = { { 0 } };
            const float *at = x + p * ATTN_BLOCK + lane;
            const size_t count = n - p < CHUNK ? n - p : CHUNK;
            size_t i = 0;
            for (; i + 4 <= count; i += 4)
                UNROLL
            for (size_t j = 0; j < 4; j++)
                acc[j] += v_load(at + (i + j) * ATTN_BLOCK);
            for (; i < count; i++)
                acc[0] += v_load(at + i * ATTN_BLOCK);
            const v_f32 sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
            low += v_promote(sum, false);
            high += v_promote(sum, true);
        }
        v_store(y + lane, v_narrow(low / share, high / share));
    }
}

void K(blocked_gate_f32)(float *y, const float *x, const float *gate, size_t n)
{
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF) {
        const v_f32 factor = v_load(gate + lane);
        for (size_t end = 0, p = 0; attn_segment_of(&end, n, 4 * ATTN_BLOCK);)
            for (; p < end; p++)
                v_store(y + p * ATTN_BLOCK + lane,
                        v_load(x + p * ATTN_BLOCK + lane) * factor);
    }
}
