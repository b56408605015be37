/* blocked_rows_f32.c - depthwise convolution, pooling and gates of maps in blocks of 16
 * channels: struct attn_blocked_rows.
 *
 * A tile of TILE pixels of a line stays in registers. If the kernel is 3, 5 or 7 wide and
 * not dilated, with strides of 1 or 2, a pixel of the input is read once for each kernel
 * row and used by all pixels of the tile that see it. Tiles at the ends of a line check
 * each column first. For other kernels each tap reads its pixels. Sums are in the order
 * of kernel rows and columns, whatever the tile; those of a mean are of each row, and then of the
 * rows. Cost: 2 taps FLOPs an element. */
#include "isa.h"

enum { TILE = 7, MANY = 256 /* taps of a pixel: it polls for itself */ };
#define UNROLL_ALL _Pragma("GCC unroll 32")

/* A tile of n pixels from column `at` of output row `row` on; lanes from `lane` on. Rows from …
 * to - 1 of the kernel see the map. */
struct place {
    int64_t row, at, n, lane, from, to;
};

/* The taps [from, to) of a kernel that see the map along an axis, the first of them at `first`. */
struct seen {
    int64_t from, to;
};
static __attribute__((noinline)) struct seen seen_of(const struct attn_blocked_rows *d,
                                                     int axis, int64_t first)
{
    const int64_t dilation = d->dilation[axis], last = d->in[axis] - 1 - first;
    const int64_t i = first < 0 ? (-first + dilation - 1) / dilation : 0;
    const int64_t end = last < 0 ? 0 : last / dilation + 1;
    const int64_t to = end < d->kernel[axis] ? end : d->kernel[axis];
    return (struct seen){ i < to ? i : to, to };
}

/* The first tile of a row of the output. */
static inline struct place place_of(const struct attn_blocked_rows *d, int64_t row,
                                    int64_t lane)
{
    const struct seen rows = seen_of(d, 0, row * d->stride[0] - d->before[0]);
    return (struct place){ .row = row, .lane = lane, .from = rows.from, .to = rows.to };
}

static ALWAYS_INLINE const float *map_row(const struct attn_blocked_rows *d,
                                          const struct place *p, int64_t i)
{
    const int64_t row = p->row * d->stride[0] - d->before[0] + i * d->dilation[0];
    return d->x + row * d->in[1] * ATTN_BLOCK + p->lane;
}

/* acc += what one row of a kernel of k columns sees from x on; with `ends` only the n columns
 * from `first` on are there. */
static ALWAYS_INLINE void add_line(v_f32 *acc, const float *x, const float *w, int first,
                                   int n, const int k, const int stride, const bool ends)
{
    v_f32 weight[7];
    UNROLL
    for (int j = 0; j < k; j++)
        weight[j] = v_load(w + j * ATTN_BLOCK);
    UNROLL_ALL
    for (int c = 0; c < (TILE - 1) * stride + k; c++) {
        if (ends && (unsigned)(c - first) >= (unsigned)n)
            continue;
        const v_f32 input = v_load(x + c * ATTN_BLOCK);
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

/* What the tiles of a line of the output share. */
struct line {
    const float *x, *w, *z; /* of the first kernel row that is there; z or NULL */
    float *y;
    int64_t rows, x_row, w_row, width;
    v_f32 bias, min, max;
};

static ALWAYS_INLINE void put_tile(const struct line *l, v_f32 *acc, int64_t at,
                                   const int n)
{
    float *const y = l->y + at * ATTN_BLOCK;
    if (l->z != NULL) {
        UNROLL
        for (int t = 0; t < n; t++)
            acc[t] += v_load(l->z + (at + t) * ATTN_BLOCK);
    }
    UNROLL
    for (int t = 0; t < n; t++)
        v_store(y + t * ATTN_BLOCK, v_min(l->max, v_max(l->min, acc[t])));
}

/* The tile of `n` pixels at `at`, which sees the map from `column` on. k 0: a tap at a time. */
static ALWAYS_INLINE void depthwise_tile(const struct attn_blocked_rows *d,
                                         const struct line *l, int64_t at, int64_t n,
                                         const int k, const int stride, const bool ends)
{
    v_f32 acc[TILE];
    const int64_t column = at * d->stride[1] - d->before[1], after = l->width - column;
    const int reach = (TILE - 1) * stride + k;
    const int first = column >= 0 ? 0 : -column < reach ? (int)-column : reach;
    const int end = after < 0 ? 0 : after < reach ? (int)after : reach;
    const float *x = l->x + (k > 0 ? column * ATTN_BLOCK : 0), *w = l->w;
    UNROLL
    for (int t = 0; t < TILE; t++)
        acc[t] = l->bias;
    for (int64_t i = 0; i < l->rows; i++, x += l->x_row, w += l->w_row) {
        if (k > 0)
            add_line(acc, x, w, first, end > first ? end - first : 0, k, stride, ends);
        else
            add_taps(d, acc, x, w, column);
    }
    if (n == TILE) {
        put_tile(l, acc, at, TILE);
        return;
    }
    for (int64_t t = 0; t < n; t++) /* by way of memory, which tiles at ends afford */
        put_tile(l, &acc[t], at + t, 1);
}

/* A line of tiles of one output row. */
static ALWAYS_INLINE void depthwise_line(const struct attn_blocked_rows *d,
                                         const struct place *p, const int k,
                                         const int stride)
{
    const int64_t reach = (TILE - 1) * d->stride[1] + d->kernel[1];
    const int64_t at = (p->row - d->row) * d->columns * ATTN_BLOCK + p->lane;
    const struct line l = {
        .x = map_row(d, p, p->from),
        .w = d->w + p->from * d->kernel[1] * ATTN_BLOCK + p->lane,
        .z = d->z != NULL ? d->z + at : NULL,
        .y = d->y + at,
        .rows = p->to - p->from,
        .x_row = d->dilation[0] * d->in[1] * ATTN_BLOCK,
        .w_row = d->kernel[1] * ATTN_BLOCK,
        .width = d->in[1],
        .bias = v_load(d->bias + p->lane),
        .min = v_set(d->min),
        .max = v_set(d->max),
    };
    for (int64_t i = 0; i < d->columns; i += TILE) {
        const int64_t first = i * d->stride[1] - d->before[1], left = d->columns - i;
        if (k > 0 && left >= TILE && first >= 0 && first + reach <= d->in[1])
            depthwise_tile(d, &l, i, TILE, k, stride, false);
        else
            depthwise_tile(d, &l, i, left < TILE ? left : TILE, k, stride, true);
    }
}

/* clang-format off */
#define LINES(k, stride)                                                                 \
    static void line_##k##_##stride(const struct attn_blocked_rows *d, const struct place *p) \
    {                                                                                    \
        depthwise_line(d, p, k, stride);                                                 \
    }
LINES(3, 1) LINES(3, 2) LINES(5, 1) LINES(5, 2) LINES(7, 1) LINES(7, 2) LINES(0, 0)
#undef LINES
typedef void run_line(const struct attn_blocked_rows *, const struct place *);
static run_line *const known_lines[3][2] = {
    { line_3_1, line_3_2 }, { line_5_1, line_5_2 }, { line_7_1, line_7_2 },
};
/* clang-format on */

void K(blocked_depthwise_f32)(const struct attn_blocked_rows *d)
{
    const int64_t k = d->kernel[1], stride = d->stride[1];
    const bool known = !ATTN_ONE_TEXT && (k == 3 || k == 5 || k == 7) && stride <= 2 &&
                       d->dilation[1] == 1;
    run_line *const line = known ? known_lines[k / 2 - 1][stride - 1] : line_0_0;
    for (int64_t row = d->row; row < d->row + d->rows; row++) {
        if (attn_poll_work(d->columns * ATTN_BLOCK * d->kernel[0] * k / 5) != ATTNRUN_OK)
            return;
        for (int64_t lane = 0; lane < ATTN_BLOCK; lane += VF) {
            const struct place p = place_of(d, row, lane);
            line(d, &p);
        }
    }
}

/* ---- pooling ---- */

static ALWAYS_INLINE v_f32 pool_pixel(const struct attn_blocked_rows *d,
                                      const struct place *p, const bool mean)
{
    const int64_t column = p->at * d->stride[1] - d->before[1], step = d->dilation[1];
    struct seen columns = { 0, d->kernel[1] };
    v_f32 acc = v_set(mean ? 0.0f : -INFINITY);
    if (column < 0 || column + (columns.to - 1) * step >= d->in[1])
        columns = seen_of(d, 1, column);
    for (int64_t i = p->from; i < p->to; i++) {
        const float *x = map_row(d, p, i);
        v_f32 line = v_set(0.0f); /* short sums keep the digits of a large window */
        for (int64_t j = columns.from; j < columns.to; j++) {
            const v_f32 input = v_load(x + (column + j * step) * ATTN_BLOCK);
            if (mean)
                line += input;
            else
                acc = v_select((input > acc) | (input != input), input, acc);
        }
        if (mean)
            acc += line;
    }
    return acc;
}

/* The largest number of taps that a pixel of a row sees; a kernel may have far more. */
static inline int64_t most_taps(const struct attn_blocked_rows *d, const struct place *p)
{
    return (p->to - p->from) * (d->kernel[1] < d->in[1] ? d->kernel[1] : d->in[1]);
}

static __attribute__((noinline)) bool pool_stops(int64_t taps)
{
    return attn_poll_work(taps * VF) != ATTNRUN_OK;
}

static ALWAYS_INLINE void pool_line(const struct attn_blocked_rows *d, struct place p,
                                    const bool mean)
{
    float *y = d->y + (p.row - d->row) * d->columns * ATTN_BLOCK + p.lane;
    const int64_t taps = most_taps(d, &p);
    for (p.at = 0; p.at < d->columns; p.at++) {
        if (taps > MANY && pool_stops(taps))
            return;
        v_f32 v = pool_pixel(d, &p, mean);
        if (mean)
            v /= v_set(d->row_share[p.row] * d->column_share[p.at]);
        v_store(y + p.at * ATTN_BLOCK, v);
    }
}

void K(blocked_pool_f32)(const struct attn_blocked_rows *d)
{
    for (int64_t row = d->row; row < d->row + d->rows; row++) {
        struct place p = place_of(d, row, 0);
        if (attn_poll_work(d->columns * ATTN_BLOCK * most_taps(d, &p)) != ATTNRUN_OK)
            return;
        for (; p.lane < ATTN_BLOCK; p.lane += VF) {
            if (d->row_share != NULL)
                pool_line(d, p, true);
            else
                pool_line(d, p, false);
        }
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
