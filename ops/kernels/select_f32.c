/* select_f32.c - few elements out of many: candidates above a threshold, the k largest,
 * sums of some rows of a matrix. select.def describes each kernel. */
#include "vmath.h"

enum { ROWS = 256 };

size_t K(select_f32)(int32_t *index, float *value, const float *s, size_t n,
                     int32_t first, float threshold)
{
    const v_f32 t = v_set(threshold);
    int32_t lanes[VF];
    size_t found = 0;
    v_i32 places;
    for (int i = 0; i < VF; i++)
        lanes[i] = first + i;
    memcpy(&places, lanes, sizeof places);
    for (size_t i = 0; i < n; i += VF, places += VF) {
        const size_t left = n - i;
        const v_f32 x = v_load_part(s + i, left, 0.0f);
        uint32_t bits = v_bits_not_below(x, t);
        if (left < VF)
            bits &= (UINT32_C(1) << left) - 1;
        found += v_store_chosen(index + found, value + found, bits, places, x);
    }
    return found;
}

/* ---- the k greatest ---- */

static ALWAYS_INLINE v_i32 ranks_at(const int32_t *rank)
{
    v_i32 x;
    memcpy(&x, rank, sizeof x);
    return x;
}

static ALWAYS_INLINE v_i32 ranks_of(v_f32 x)
{
    const v_i32 bits = (v_i32)(x + 0.0f), nan = x != x;
    return ((bits ^ (bits >> 31 & INT32_MAX)) & ~nan) | (nan & INT32_MAX);
}

void K(rank_f32)(int32_t *rank, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF) {
        const v_i32 ranks = ranks_of(v_load(x + i));
        memcpy(rank + i, &ranks, sizeof ranks);
    }
    if (i < n) {
        const v_i32 ranks = ranks_of(v_load_tail(x + i, n - i, 0.0f));
        memcpy(rank + i, &ranks, (n - i) * sizeof *rank);
    }
}

static ALWAYS_INLINE v_i32 lesser(v_i32 a, v_i32 b)
{
    const v_i32 less = a < b;
    return (a & less) | (b & ~less);
}

/* The min of the ranks that are at least `min`, else INT32_MAX. */
static int32_t min_from(const int32_t *rank, size_t n, int32_t min)
{
    v_i32 found = { 0 };
    found += INT32_MAX;
    int32_t lanes[VF], result = INT32_MAX;
    size_t i = 0;
    for (; i + VF <= n; i += VF) {
        const v_i32 x = ranks_at(rank + i), below = x < min;
        found = lesser(found, (x & ~below) | (below & INT32_MAX));
    }
    memcpy(lanes, &found, sizeof lanes);
    for (int l = 0; l < VF; l++)
        result = lanes[l] < result ? lanes[l] : result;
    for (; i < n; i++)
        result = rank[i] >= min && rank[i] < result ? rank[i] : result;
    return result;
}

/* How many of the ranks are at least `min`. */
static size_t count_from(const int32_t *rank, size_t n, int32_t min)
{
    size_t i = 0, total = 0;
    const v_i32 t = (v_i32){ 0 } + min;
    for (; V_HAS_BITS && i + VF <= n; i += VF)
        total += (size_t)__builtin_popcount(v_bits_from(ranks_at(rank + i), t));
    v_i32 count = { 0 };
    int32_t lanes[VF];
    for (; !V_HAS_BITS && i + VF <= n; i += VF)
        count -= ranks_at(rank + i) >= min;
    memcpy(lanes, &count, sizeof lanes);
    for (int l = 0; !V_HAS_BITS && l < VF; l++)
        total += (size_t)lanes[l];
    for (; i < n; i++)
        total += rank[i] >= min;
    return total;
}

/* Bisects the ranks in question. Where exactly k ranks are at least the middle, the k-th
 * is the min of those; with different values this is so after a few iterations. */
int32_t K(kth_greatest_i32)(const int32_t *rank, size_t n, size_t k, size_t *above)
{
    int32_t low = min_from(rank, n, INT32_MIN), high = INT32_MAX;
    while (low < high) {
        const int64_t sum = (int64_t)low + high + 1;
        const int32_t middle = (int32_t)(sum >> 1); /* above low */
        const size_t count = count_from(rank, n, middle);
        if (count == k) {
            low = min_from(rank, n, middle);
            break;
        }
        if (count > k)
            low = middle;
        else
            high = middle - 1;
    }
    *above = low == INT32_MAX ? 0 : count_from(rank, n, low + 1);
    return low;
}

size_t K(keep_greatest_f32)(int32_t *index, float *value, const int32_t *rank, size_t n,
                            int32_t last, size_t equal)
{
    size_t kept = 0, i = 0;
    for (; V_HAS_BITS && i + VF <= n; i += VF) {
        const v_i32 r = ranks_at(rank + i), t = (v_i32){ 0 } + last;
        uint32_t bits = v_bits_above(r, t), same = v_bits_equal(r, t);
        for (; same != 0 && equal > 0; same &= same - 1, equal--)
            bits |= same & -same;
        if (bits != 0)
            kept += v_store_chosen(index + kept, value + kept, bits, ranks_at(index + i),
                                   v_load(value + i));
    }
    for (; i < n; i++) { /* no branches: they could not be predicted */
        const float x = value[i];
        const int32_t at = index[i];
        const bool same = rank[i] == last;
        value[kept] = x;
        index[kept] = at;
        kept += (size_t)((rank[i] > last) | (same & (equal > 0)));
        equal -= same & (equal > 0);
    }
    return kept;
}

/* ---- sums ---- */

/* Columns d … d + nv * VF - 1, in registers. */
static ALWAYS_INLINE void sum_columns(float *y, const float *x, ptrdiff_t x_row,
                                      const int32_t *index, const float *weight,
                                      size_t rows, const int nv)
{
    v_f32 acc[4] = { 0 };
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + index[i] * x_row;
        const v_f32 w = v_set(weight[i]);
        UNROLL
        for (int v = 0; v < nv; v++)
            acc[v] += w * v_load(row + v * VF);
    }
    UNROLL
    for (int v = 0; v < nv; v++)
        v_store(y + v * VF, v_load(y + v * VF) + acc[v]);
}

static void sum_rows(float *y, const float *x, ptrdiff_t x_row, const int32_t *index,
                     const float *weight, size_t rows, size_t n)
{
    size_t d = 0;
    for (; d + 4 * VF <= n; d += 4 * VF)
        sum_columns(y + d, x + d, x_row, index, weight, rows, 4);
    for (; d + VF <= n; d += VF)
        sum_columns(y + d, x + d, x_row, index, weight, rows, 1);
    for (; d < n; d++) {
        float sum = 0.0f;
        for (size_t i = 0; i < rows; i++)
            sum += weight[i] * x[index[i] * x_row + (ptrdiff_t)d];
        y[d] += sum;
    }
}

/* ROWS at a time: short sums of many terms of similar size lose fewer digits. */
void K(gather_sum_f32)(float *y, const float *x, ptrdiff_t x_row, const int32_t *index,
                       const float *weight, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows; i += ROWS)
        sum_rows(y, x, x_row, index + i, weight + i, rows - i < ROWS ? rows - i : ROWS,
                 n);
}
