/* fft_f32.c - passes of Stockham's autosorting FFT, decimation in frequency, over
 * ATTN_FFT_LANES independent transforms side by side:
 *
 *   y[r + s (p q + j)] = w_l^(q j) sum over k of x[r + s (q + m k)] w_p^(j k)
 *
 * for r < s, q < m, j < p with l = p m. No value crosses lanes, so every instruction set
 * runs the same text. The other kernels here are the rotations between the two steps of a
 * long transform, and the copies of columns of a matrix to lanes and back. Source:
 * Stockham 1966. */
#include "isa.h"

enum { LANES = ATTN_FFT_LANES, ELEMENT = 2 * LANES };

struct value {
    v_f32 re, im;
};

static ALWAYS_INLINE struct value get(const float *x, ptrdiff_t im)
{
    return (struct value){ v_load(x), v_load(x + im) };
}

static ALWAYS_INLINE void put(float *y, ptrdiff_t im, struct value v)
{
    v_store(y, v.re);
    v_store(y + im, v.im);
}

static inline struct value plus(struct value a, struct value b)
{
    return (struct value){ a.re + b.re, a.im + b.im };
}

static inline struct value minus(struct value a, struct value b)
{
    return (struct value){ a.re - b.re, a.im - b.im };
}

static inline struct value times(struct value a, const float *w)
{
    const v_f32 re = v_set(w[0]), im = v_set(w[1]);
    return (struct value){ a.re * re - a.im * im, a.re * im + a.im * re };
}

static inline const float *root(const struct attn_fft_pass *f, int64_t t)
{
    return f->table + 2 * t;
}

static void pass_2(float *y, const float *x, const struct attn_fft_pass *f)
{
    const int64_t s = f->s;
    const ptrdiff_t in = f->x_im, out = f->y_im, gap = f->x_row * s * f->m;
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                const float *from = x + v + f->x_row * (r + s * q);
                float *to = y + v + f->y_row * (r + s * 2 * q);
                const struct value a = get(from, in), b = get(from + gap, in);
                put(to, out, plus(a, b));
                put(to + f->y_row * s, out, times(minus(a, b), root(f, q * s)));
            }
}

static void pass_4(float *y, const float *x, const struct attn_fft_pass *f)
{
    const int64_t s = f->s;
    const ptrdiff_t in = f->x_im, out = f->y_im, gap = f->x_row * s * f->m;
    const ptrdiff_t next = f->y_row * s;
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                const float *from = x + v + f->x_row * (r + s * q);
                float *to = y + v + f->y_row * (r + s * 4 * q);
                const struct value a = get(from, in), b = get(from + gap, in);
                const struct value c = get(from + 2 * gap, in);
                const struct value d = get(from + 3 * gap, in);
                const struct value even = plus(a, c), even_gap = minus(a, c);
                const struct value odd = plus(b, d), odd_gap = minus(b, d);
                const struct value rotated = { odd_gap.im, -odd_gap.re }; /* times -i */
                put(to, out, plus(even, odd));
                put(to + next, out, times(plus(even_gap, rotated), root(f, q * s)));
                put(to + 2 * next, out, times(minus(even, odd), root(f, 2 * q * s)));
                put(to + 3 * next, out,
                    times(minus(even_gap, rotated), root(f, 3 * q * s)));
            }
}

/* A radix of any size: sums of that many terms. */
static void pass_any(float *y, const float *x, const struct attn_fft_pass *f)
{
    const int64_t s = f->s, p = f->radix, rotation = f->length / p;
    const ptrdiff_t gap = f->x_row * s * f->m;
    struct value terms[ATTN_FFT_RADIX_MAX];
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                const float *from = x + v + f->x_row * (r + s * q);
                float *to = y + v + f->y_row * (r + s * p * q);
                for (int64_t k = 0; k < p; k++)
                    terms[k] = get(from + k * gap, f->x_im);
                for (int64_t j = 0; j < p; j++, to += f->y_row * s) {
                    struct value sum = terms[0];
                    for (int64_t k = 1, at = j; k < p; k++, at += j) {
                        at -= at >= p ? p : 0;
                        sum = plus(sum, times(terms[k], root(f, at * rotation)));
                    }
                    put(to, f->y_im, times(sum, root(f, q * j * s)));
                }
            }
}

void K(fft_pass_f32)(float *y, const float *x, const struct attn_fft_pass *pass)
{
    if (pass->radix == 4)
        pass_4(y, x, pass);
    else if (pass->radix == 2)
        pass_2(y, x, pass);
    else
        pass_any(y, x, pass);
}

void K(fft_rotate_f32)(float *y, ptrdiff_t y_row, ptrdiff_t y_im, const float *x,
                       size_t n, const float *w)
{
    for (size_t i = 0; i < n; i++, y += y_row, x += ELEMENT, w += 2)
        for (int v = 0; v < LANES; v += VF)
            put(y + v, y_im, times(get(x + v, LANES), w));
}

void K(fft_halves_f32)(float *y, const float *x, size_t n, int beside)
{
    for (size_t k = 0; k <= n / 2; k++) {
        const size_t opposite = k == 0 ? 0 : n - k;
        const float *one = x + k * ELEMENT, *other = x + opposite * ELEMENT;
        float *im = y + (beside ? n / 2 + k : opposite) * ELEMENT;
        for (int v = 0; v < LANES; v += VF) {
            const struct value a = get(one + v, LANES), b = get(other + v, LANES);
            if (opposite != k)
                put(im + v, LANES,
                    (struct value){ (a.im - b.im) * 0.5f, (b.re - a.re) * 0.5f });
            put(y + k * ELEMENT + v, LANES,
                (struct value){ (a.re + b.re) * 0.5f, (a.im + b.im) * 0.5f });
        }
    }
}

/* ---- columns ---- */

void K(fft_columns_in_f32)(float *x, const struct attn_fft_columns *f, size_t n)
{
    const float *row = f->row, *mirror = f->mirror;
    const bool whole = f->lanes == LANES && f->im_begin == 0 && f->im_end == LANES;
    for (size_t i = 0; i < n; i++, x += ELEMENT, row += f->step, mirror += f->step) {
        for (int v = 0; whole && v < LANES; v += VF) {
            v_store(x + v, v_load(row + v));
            v_store(x + LANES + v, v_backwards(v_load(mirror - v - (VF - 1))));
        }
        if (whole)
            continue;
        memset(x, 0, ELEMENT * sizeof *x);
        memcpy(x, row, (size_t)f->lanes * sizeof *x);
        for (int l = f->im_begin; l < f->im_end; l++)
            x[LANES + l] = mirror[-l];
    }
}

void K(fft_columns_out_f32)(const struct attn_fft_columns *f, const float *x, size_t n)
{
    float *row = f->row, *mirror = f->mirror;
    const bool whole = f->lanes == LANES && f->im_begin == 0 && f->im_end == LANES;
    for (size_t i = 0; i < n; i++, x += ELEMENT, row += f->step, mirror -= f->step) {
        for (int v = 0; whole && v < LANES; v += VF) {
            v_store(row + v, v_load(x + v));
            v_store(mirror - v - (VF - 1), v_backwards(v_load(x + v)));
        }
        if (whole)
            continue;
        memcpy(row, x, (size_t)f->lanes * sizeof *x);
        for (int l = f->im_begin; l < f->im_end; l++)
            mirror[-l] = x[l];
    }
}

void K(reverse_f32)(float *y, const float *x, size_t n)
{
    const size_t whole = n / VF * VF;
    for (size_t i = 0; i < whole; i += VF)
        v_store(y + i, v_backwards(v_load(x + n - VF - i)));
    for (size_t i = whole; i < n; i++)
        y[i] = x[n - 1 - i];
}
