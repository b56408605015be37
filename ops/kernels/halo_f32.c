/* halo_f32.c - what attention over windows of a map copies and adds: boxes of pixels, and
 * the terms of relative positions. image.def describes each kernel. Cost: a few
 * operations for each vector. */
#include "isa.h"

/* y[i] = x[i] for i < n, and nothing else. */
static ALWAYS_INLINE void copy_run(float *y, const float *x, size_t n)
{
    enum { HALF = 8, QUARTER = 4 };
    if (n >= VF) {
        for (size_t i = 0; i + VF <= n; i += VF)
            v_store(y + i, v_load(x + i));
        v_store(y + n - VF, v_load(x + n - VF));
    } else if (n >= HALF) {
        memcpy(y, x, HALF * sizeof *y);
        memcpy(y + n - HALF, x + n - HALF, HALF * sizeof *y);
    } else if (n >= QUARTER) {
        memcpy(y, x, QUARTER * sizeof *y);
        memcpy(y + n - QUARTER, x + n - QUARTER, QUARTER * sizeof *y);
    } else {
        for (size_t i = 0; i < n; i++)
            y[i] = x[i];
    }
}

void K(copy_boxes_f32)(const struct attn_boxes *b)
{
    for (size_t p = 0; p < b->planes; p++) {
        const float *x = b->x + (ptrdiff_t)p * b->x_plane;
        float *y = b->y + (ptrdiff_t)p * b->y_plane;
        for (size_t r = 0; r < b->rows; r++, x += b->x_row, y += b->y_row) {
            if (b->x_step == 1)
                copy_run(y, x, b->n);
            else
                for (size_t i = 0; i < b->n; i++)
                    y[i] = x[(ptrdiff_t)i * b->x_step];
        }
    }
}

void K(add_outer_f32)(float *y, const float *a, size_t a_rows, const float *b,
                      size_t b_rows, size_t n)
{
    for (size_t i = 0; i < a_rows; i++, a += n)
        for (size_t j = 0; j < b_rows; j++, y += n) {
            size_t p = 0;
            for (; p + VF <= n; p += VF)
                v_store(y + p, v_load(a + p) + v_load(b + j * n + p));
            for (; p < n; p++)
                y[p] = a[p] + b[j * n + p];
        }
}

/* One bit of the shifts at a time, from the last row up. */
void K(shear_columns_f32)(float *x, size_t rows, size_t n, const int32_t *shift)
{
    for (size_t p = 0; p < n; p += VF) {
        const size_t left = n - p < VF ? n - p : VF;
        v_i32 shifts = { 0 };
        memcpy(&shifts, shift + p, left * sizeof *shift);
        for (size_t step = 1; step < rows; step *= 2) {
            const v_i32 moved = (shifts & (int32_t)step) != 0;
            for (size_t r = rows; r-- > step;) {
                float *to = x + r * n + p;
                const float *from = to - step * n;
                if (left == VF)
                    v_store(to, v_select(moved, v_load(from), v_load(to)));
                else
                    v_store_tail(to,
                                 v_select(moved, v_load_tail(from, left, 0.0f),
                                          v_load_tail(to, left, 0.0f)),
                                 left);
            }
        }
    }
}
