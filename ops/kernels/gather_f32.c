/* gather_f32.c - what attention over chosen tokens needs besides its products: rows read
 * from and written to the places of a list, their norms, and choices among scores. Cost:
 * one read of each row. */
#include "vmath.h"

enum { LINE = 64, PREFETCH_ROWS = 16 };

static ALWAYS_INLINE v_i32 load_ints(const int32_t *x, size_t n)
{
    v_i32 v = { 0 };
    if (n >= VF)
        return *(const v_i32_u *)x;
    memcpy(&v, x, n * sizeof *x);
    return v;
}

static ALWAYS_INLINE v_i32 set_ints(int32_t x) { return x - (v_i32){ 0 }; }

void K(gather_rows_f32)(float *y, ptrdiff_t y_row, const float *x, ptrdiff_t x_row,
                        const int32_t *index, const float *factor, float scale,
                        size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, y += y_row) {
        const float *from = x + index[r] * x_row;
        const v_f32 times = v_set(factor != NULL ? scale * factor[index[r]] : scale);
        if (r + PREFETCH_ROWS < rows) {
            const char *later = (const char *)(x + index[r + PREFETCH_ROWS] * x_row);
            for (size_t at = 0; at < n * sizeof *x; at += LINE)
                __builtin_prefetch(later + at, 0, 3);
        }
        for (size_t i = 0; i < n; i += VF)
            v_store_part(y + i, v_load_part(from + i, n - i, 0.0f) * times, n - i);
    }
}

void K(scatter_rows_f32)(float *y, ptrdiff_t y_row, const int32_t *index, const float *x,
                         ptrdiff_t x_row, const float *factor, ptrdiff_t step,
                         size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += x_row, factor += step) {
        float *to = y + index[r] * y_row;
        const v_f32 times = v_set(*factor);
        for (size_t i = 0; i < n; i += VF)
            v_store_part(to + i, v_load_part(x + i, n - i, 0.0f) * times, n - i);
    }
}

void K(inverse_norms_f32)(float *y, const float *x, ptrdiff_t x_row, size_t rows,
                          size_t n, float add, float min)
{
    for (size_t r = 0; r < rows; r++, x += x_row) {
        v_f32 sum = { 0 };
        for (size_t i = 0; i < n; i += VF) {
            v_f32 v = v_load_part(x + i, n - i, 0.0f);
            sum += v * v;
        }
        const float norm = sqrtf(v_reduce_add(sum) + add);
        y[r] = 1.0f / (norm > min ? norm : min);
    }
}

void K(extremes_f32)(const float *x, ptrdiff_t x_row, size_t rows, size_t n,
                     int32_t first, struct attn_extremes *e)
{
    for (size_t j = 0; j < n; j += VF) {
        const size_t left = n - j;
        v_f32 max = v_load_part(e->max + j, left, 0.0f);
        v_f32 min = v_load_part(e->min + j, left, 0.0f);
        v_i32 at_max = load_ints(e->at_max + j, left);
        v_i32 at_min = load_ints(e->at_min + j, left), at = set_ints(first);
        const float *from = x + j;
        for (size_t r = 0; r < rows; r++, from += x_row, at += 1) {
            const v_f32 v = v_load_part(from, left, 0.0f);
            const v_i32 above = v > max, below = v < min;
            max = v_select(above, v, max);
            min = v_select(below, v, min);
            at_max = (above & at) | (~above & at_max);
            at_min = (below & at) | (~below & at_min);
        }
        const size_t bytes = (left < VF ? left : VF) * sizeof(float);
        memcpy(e->max + j, &max, bytes);
        memcpy(e->min + j, &min, bytes);
        memcpy(e->at_max + j, &at_max, bytes);
        memcpy(e->at_min + j, &at_min, bytes);
    }
}

void K(pair_mask_f32)(float *s, ptrdiff_t row, size_t rows, size_t n,
                      const struct attn_pairs *p)
{
    const v_f32 self = v_set(p->self), minus_infinity = v_set(-INFINITY);
    for (size_t r = 0; r < rows; r++, s += row) {
        const v_i32 id = set_ints(p->query[r]), limit = set_ints(p->query_limit[r]);
        const v_i32 group = set_ints(p->key_group != NULL ? p->query_group[r] : 0);
        for (size_t j = 0; j < n; j += VF) {
            const size_t left = n - j;
            v_i32 masked = load_ints(p->key_limit + j, left) > limit;
            if (p->key_group != NULL)
                masked |= load_ints(p->key_group + j, left) != group;
            v_f32 v = v_select(masked, minus_infinity, v_load_part(s + j, left, 0.0f));
            if (p->key != NULL)
                v = v_select(load_ints(p->key + j, left) == id, self, v);
            v_store_part(s + j, v, left);
        }
    }
}
