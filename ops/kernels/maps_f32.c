/* maps_f32.c - the work of gates over maps (batch, channel, pixel): statistics of a
 * plane, maximum and sum over channels, products of a matrix with a few vectors, and the
 * product of map, gates and pixels with what is added to it. Cost: one read of the map,
 * and one write of the product. */
#include "transpose.h"
#include "vmath.h"

/* ---- statistics ---- */

/* Sums are taken in floats over a block and in double over blocks. */
enum { BLOCK = ATTN_SMALL_PLANE, CHAINS = 4 };

struct block {
    v_f32 sum[CHAINS], squares[CHAINS], max[CHAINS];
};

static ALWAYS_INLINE void add_vector(struct block *b, int chain, v_f32 v, v_f32 greatest,
                                     const int what)
{
    b->sum[chain] += v;
    if (what & ATTN_STAT_SQUARES)
        b->squares[chain] += v * v;
    if (what & ATTN_STAT_MAX)
        b->max[chain] = v_max(greatest, b->max[chain]);
}

static float scalar_max(const float *x, size_t n)
{
    float best = x[0];
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i])
            return NAN;
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

/* Up to BLOCK pixels; their maximum goes to *max. Without a NaN in the sum there is none
 * in x. */
static ALWAYS_INLINE void add_block(const float *x, size_t n, const int what,
                                    struct attn_plane_stats *s, float *max)
{
    struct block b;
    size_t i = 0;
    UNROLL
    for (int l = 0; l < CHAINS; l++) {
        b.sum[l] = b.squares[l] = v_set(0.0f);
        b.max[l] = v_set(-INFINITY);
    }
    for (; i + CHAINS * VF <= n; i += CHAINS * VF)
        UNROLL
    for (int l = 0; l < CHAINS; l++) {
        const v_f32 v = v_load(x + i + l * VF);
        add_vector(&b, l, v, v, what);
    }
    for (; i + VF <= n; i += VF)
        add_vector(&b, 0, v_load(x + i), v_load(x + i), what);
    if (i < n)
        add_vector(&b, 1, v_load_tail(x + i, n - i, 0.0f),
                   v_load_tail(x + i, n - i, -INFINITY), what);
    const float sum = v_reduce_add((b.sum[0] + b.sum[1]) + (b.sum[2] + b.sum[3]));
    s->sum += (double)sum;
    if (what & ATTN_STAT_SQUARES)
        s->squares += (double)v_reduce_add((b.squares[0] + b.squares[1]) +
                                           (b.squares[2] + b.squares[3]));
    if (what & ATTN_STAT_MAX)
        *max = sum != sum ? scalar_max(x, n)
                          : v_reduce_max(v_max(v_max(b.max[0], b.max[1]),
                                               v_max(b.max[2], b.max[3])));
}

static float sum_exp(const float *x, size_t n, float shift)
{
    v_f32 even = v_set(0.0f), odd = even;
    size_t i = 0;
    for (; i + 2 * VF <= n; i += 2 * VF) {
        even += v_exp(v_load(x + i) - shift);
        odd += v_exp(v_load(x + i + VF) - shift);
    }
    for (; i < n; i += VF)
        even += v_exp(v_load_part(x + i, n - i, -INFINITY) - shift);
    return v_reduce_add(even + odd);
}

/* The maximum of before is s->max; NaN in either stays. */
static void add_exp(const float *x, size_t n, float max, struct attn_plane_stats *s)
{
    const float largest = s->max > max || s->max != s->max ? s->max : max;
    if (largest == -INFINITY)
        return;
    if (s->exp_sum > 0)
        s->exp_sum *= (double)expf(s->max - largest);
    s->exp_sum += (double)sum_exp(x, n, largest);
}

static ALWAYS_INLINE void stats(const float *x, size_t n, const int what,
                                struct attn_plane_stats *s)
{
    for (size_t size; n > 0; x += size, n -= size) {
        float max = -INFINITY;
        size = n < BLOCK ? n : BLOCK;
        add_block(x, size, what, s, &max);
        if (what & ATTN_STAT_EXP)
            add_exp(x, size, max, s);
        if ((what & ATTN_STAT_MAX) && !(s->max > max) && s->max == s->max)
            s->max = max;
    }
}

void K(plane_stats_f32)(const float *x, size_t n, int what, struct attn_plane_stats *s)
{
    if (what == ATTN_STAT_SUM)
        stats(x, n, ATTN_STAT_SUM, s);
    else if ((what | ATTN_STAT_SUM) == (ATTN_STAT_SUM | ATTN_STAT_MAX))
        stats(x, n, ATTN_STAT_MAX, s);
    else if ((what & ATTN_STAT_EXP) == 0)
        stats(x, n, ATTN_STAT_MAX | ATTN_STAT_SQUARES, s);
    else
        stats(x, n, ATTN_STAT_MAX | ATTN_STAT_SQUARES | ATTN_STAT_EXP, s);
}

/* ---- statistics of VF planes at a time ---- */

/* One vector of partial sums a plane, two where that is of four floats. */
static ALWAYS_INLINE void small_plane(const float *x, size_t n, v_f32 *sum, v_f32 *max,
                                      const bool with_max)
{
    v_f32 odd = v_set(0.0f);
    size_t i = 0;
    *sum = v_set(0.0f);
    *max = v_set(-INFINITY);
    for (; VF < 8 && i + 2 * VF <= n; i += 2 * VF) {
        *sum += v_load(x + i);
        odd += v_load(x + i + VF);
        if (with_max)
            *max = v_max(v_load(x + i), v_max(v_load(x + i + VF), *max));
    }
    for (; i + VF <= n; i += VF) {
        *sum += v_load(x + i);
        if (with_max)
            *max = v_max(v_load(x + i), *max);
    }
    *sum += odd;
    if (i < n) {
        *sum += v_load_tail(x + i, n - i, 0.0f);
        if (with_max)
            *max = v_max(v_load_tail(x + i, n - i, -INFINITY), *max);
    }
}

static ALWAYS_INLINE void small_planes(float *sum, float *max, const float *x, size_t n,
                                       size_t planes, const bool with_max)
{
    v_f32 sums[VF], maxima[VF], all;
    for (size_t i = 0; i < VF; i++)
        small_plane(x + (i < planes ? i : 0) * n, n, sums + i, maxima + i, with_max);
    all = add_lanes_of_rows(sums);
    if (sum != NULL)
        v_store_part(sum, all, planes);
    if (with_max) {
        float lanes[VF];
        v_store(lanes, all);
        v_store_part(max, max_lanes_of_rows(maxima), planes);
        for (size_t i = 0; i < VF && i < planes; i++)
            if (lanes[i] != lanes[i])
                max[i] = scalar_max(x + i * n, n);
    }
}

void K(small_planes_f32)(float *sum, float *max, const float *x, size_t n, size_t planes)
{
    for (size_t c = 0; c < planes; c += VF, x += VF * n) {
        float *to = sum != NULL ? sum + c : NULL;
        if (max != NULL)
            small_planes(to, max + c, x, n, planes - c, true);
        else
            small_planes(to, NULL, x, n, planes - c, false);
    }
}

/* ---- over channels ---- */

enum { CHANNELS = 8 };

/* The pixels of `channels` planes; `more`: beside what max and sum hold. */
static ALWAYS_INLINE void pool_part(float *max, float *sum, const float *x, ptrdiff_t row,
                                    const float *gate, size_t n, const int channels,
                                    const bool more)
{
    v_f32 largest = v_set(-INFINITY), part[2] = { v_set(0.0f), v_set(0.0f) };
    UNROLL
    for (int c = 0; c < channels; c++) {
        const v_f32 v = v_set(gate[c]) * v_load_part(x + c * row, n, 0.0f);
        part[c % 2] += v;
        largest = v_max(v, largest);
    }
    v_f32 total = part[0] + part[1];
    if (more) {
        total += v_load_part(sum, n, 0.0f);
        largest = v_max(largest, v_load_part(max, n, 0.0f));
    }
    v_store_part(sum, total, n);
    v_store_part(max, largest, n);
}

/* One plane after the other would be slow, each pixel in one go as well: this way it is
 * as many streams as a core can prefetch. */
static ALWAYS_INLINE void pool_planes(float *max, float *sum, const float *x,
                                      ptrdiff_t row, const float *gate, size_t n,
                                      const int channels, const bool more)
{
    static const float ones[CHANNELS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const float *g = gate != NULL ? gate : ones;
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        pool_part(max + i, sum + i, x + i, row, g, VF, channels, more);
    if (i < n)
        pool_part(max + i, sum + i, x + i, row, g, n - i, channels, more);
}

void K(pool_channels_f32)(float *max, float *sum, const float *x, ptrdiff_t row,
                          const float *gate, size_t channels, size_t n)
{
    for (size_t c = 0, step; c < channels; c += step) {
        const float *from = x + (ptrdiff_t)c * row, *g = gate != NULL ? gate + c : NULL;
        step = channels - c < CHANNELS ? 1 : CHANNELS;
        if (step == 1)
            pool_planes(max, sum, from, row, g, n, 1, c > 0);
        else if (c == 0)
            pool_planes(max, sum, from, row, g, n, CHANNELS, false);
        else
            pool_planes(max, sum, from, row, g, n, CHANNELS, true);
    }
}

/* ---- a matrix and a few vectors ---- */

enum { VECTORS = VF == 4 ? 2 : VF / 4 };

/* sum[i * high + r] += the products of n <= VF columns. */
static ALWAYS_INLINE void dense_step(v_f32 *sum, const float *const *row, const float *z,
                                     ptrdiff_t z_row, size_t j, size_t n, const int m)
{
    const int high = VF / m;
    v_f32 part[VECTORS];
    UNROLL
    for (int i = 0; i < m; i++)
        part[i] = v_load_part(z + i * z_row + j, n, 0.0f);
    UNROLL
    for (int r = 0; r < high; r++) {
        const v_f32 of_row = v_load_part(row[r] + j, n, 0.0f);
        UNROLL
        for (int i = 0; i < m; i++)
            sum[i * high + r] = v_add_product(sum[i * high + r], of_row, part[i]);
    }
}

/* VF sums: of VF / m rows (those behind the last are the last again) and m vectors. */
static ALWAYS_INLINE void dense_block(const struct attn_dense *d, const float *w,
                                      size_t rows, const float *z, float *y,
                                      const float *bias, const int m)
{
    const int high = VF / m;
    const float *row[VF];
    v_f32 sum[VF];
    size_t j = 0;
    UNROLL
    for (int r = 0; r < high; r++)
        row[r] = w + (ptrdiff_t)((size_t)r < rows ? (size_t)r : rows - 1) * d->w_row;
    UNROLL
    for (int i = 0; i < VF; i++)
        sum[i] = v_set(0.0f);
    for (; j + VF <= d->k; j += VF)
        dense_step(sum, row, z, d->z_row, j, VF, m);
    if (j < d->k)
        dense_step(sum, row, z, d->z_row, j, d->k - j, m);
    float all[VF];
    v_store(all, add_lanes_of_rows(sum));
    for (int i = 0; i < m; i++)
        for (size_t r = 0; r < rows && r < (size_t)high; r++)
            y[i * d->y_row + (ptrdiff_t)r] =
                all[(size_t)(i * high) + r] +
                (bias != NULL ? bias[r] * d->bias_factor : 0.0f);
}

void K(dense_rows_f32)(const struct attn_dense *d)
{
    size_t i = 0;
    for (int m; i < d->m; i += (size_t)m) {
        const float *z = d->z + (ptrdiff_t)i * d->z_row;
        float *y = d->y + (ptrdiff_t)i * d->y_row;
        m = i + VECTORS <= d->m ? VECTORS : 1;
        for (size_t r = 0; r < d->rows; r += VF / (size_t)m) {
            const float *w = d->w + (ptrdiff_t)r * d->w_row;
            const float *bias = d->bias != NULL ? d->bias + r : NULL;
            if (m == VECTORS)
                dense_block(d, w, d->rows - r, z, y + r, bias, VECTORS);
            else
                dense_block(d, w, d->rows - r, z, y + r, bias, 1);
        }
    }
}

/* ---- the product ---- */

static ALWAYS_INLINE void gate_part(const struct attn_gate *g, ptrdiff_t at, size_t p,
                                    v_f32 factor, const bool pixels, const bool identity,
                                    const bool relu)
{
    v_f32 v = v_load_part(g->x + at, g->n - p, 0.0f) * factor;
    if (pixels)
        v *= v_load_part(g->pixels + p, g->n - p, 0.0f);
    if (identity)
        v = v_rounded(v) + v_load_part(g->identity + at, g->n - p, 0.0f);
    if (relu)
        v = v_relu(v);
    v_store_part(g->y + at, v, g->n - p);
}

static ALWAYS_INLINE void gate_planes(const struct attn_gate *g, const bool pixels,
                                      const bool identity, const bool relu)
{
    for (size_t c = 0; c < g->planes; c++) {
        const v_f32 factor = v_set(g->gate != NULL ? g->gate[c] : 1.0f);
        const ptrdiff_t at = (ptrdiff_t)c * g->row;
        size_t p = 0;
        for (; p + VF <= g->n; p += VF)
            gate_part(g, at + (ptrdiff_t)p, p, factor, pixels, identity, relu);
        if (p < g->n)
            gate_part(g, at + (ptrdiff_t)p, p, factor, pixels, identity, relu);
    }
}

void K(gate_planes_f32)(const struct attn_gate *g)
{
    const bool identity = g->identity != NULL;
    if (g->pixels != NULL && g->relu)
        gate_planes(g, true, identity, true);
    else if (g->pixels != NULL)
        gate_planes(g, true, identity, false);
    else if (g->relu)
        gate_planes(g, false, identity, true);
    else
        gate_planes(g, false, identity, false);
}

/* ---- the sum ---- */

/* Up to VF pixels; all is read before y is written. */
static ALWAYS_INLINE void sum_part(const struct attn_sum_planes *s, size_t p, size_t n,
                                   const struct rows maps)
{
    v_f32 v = v_set(0.0f);
    EACH_ROW (m, maps) {
        const v_f32 x = v_load_part(s->x[m] + p, n, 0.0f) * s->weight[m];
        v = m == 0 ? x : v + x;
    }
    if (s->identity != NULL)
        v = v_rounded(v) + v_load_part(s->identity + p, n, 0.0f);
    if (s->relu)
        v = v_relu(v);
    v_store_part(s->y + p, v, n);
}

static ALWAYS_INLINE void sum_planes(const struct attn_sum_planes *given,
                                     const struct rows maps)
{
    const struct attn_sum_planes s = *given; /* stores may write anywhere, but not here */
    size_t p = 0;
    for (; p + VF <= s.n; p += VF)
        sum_part(&s, p, VF, maps);
    if (p < s.n)
        sum_part(&s, p, s.n - p, maps);
}

void K(sum_planes_f32)(const struct attn_sum_planes *s)
{
    if (s->maps <= 2)
        sum_planes(s, (struct rows){ (int)s->maps, 1, 2 });
    else
        sum_planes(s, (struct rows){ (int)s->maps, 3, 8 });
}
