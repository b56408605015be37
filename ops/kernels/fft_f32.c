/* fft_f32.c - passes of Stockham's autosorting FFT, decimation in frequency, over
 * ATTN_FFT_LANES independent transforms side by side:
 *
 *   y[r + s (p q + j)] = w_l^(q j) sum over k of x[r + s (q + m k)] w_p^(j k)
 *
 * for r < s, q < m, j < p with l = p m. No value crosses lanes, so every instruction set
 * runs the same text. Source: Stockham 1966. */
#include "isa.h"

enum { LANES = ATTN_FFT_LANES, ELEMENT = 2 * LANES };

struct value {
    v_f32 re, im;
};

static inline struct value get(const float *x, int64_t i)
{
    return (struct value){ v_load(x + i * ELEMENT), v_load(x + i * ELEMENT + LANES) };
}

static inline void put(float *y, int64_t i, struct value v)
{
    v_store(y + i * ELEMENT, v.re);
    v_store(y + i * ELEMENT + LANES, v.im);
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
    const int64_t s = f->s, gap = s * f->m;
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                const struct value a = get(x + v, r + s * q);
                const struct value b = get(x + v, r + s * q + gap);
                put(y + v, r + s * 2 * q, plus(a, b));
                put(y + v, r + s * (2 * q + 1), times(minus(a, b), root(f, q * s)));
            }
}

static void pass_4(float *y, const float *x, const struct attn_fft_pass *f)
{
    const int64_t s = f->s, gap = s * f->m;
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                const int64_t from = r + s * q, to = r + s * 4 * q;
                const struct value a = get(x + v, from), b = get(x + v, from + gap);
                const struct value c = get(x + v, from + 2 * gap);
                const struct value d = get(x + v, from + 3 * gap);
                const struct value even = plus(a, c), even_gap = minus(a, c);
                const struct value odd = plus(b, d), odd_gap = minus(b, d);
                const struct value turned = { odd_gap.im, -odd_gap.re }; /* times -i */
                put(y + v, to, plus(even, odd));
                put(y + v, to + s, times(plus(even_gap, turned), root(f, q * s)));
                put(y + v, to + 2 * s, times(minus(even, odd), root(f, 2 * q * s)));
                put(y + v, to + 3 * s,
                    times(minus(even_gap, turned), root(f, 3 * q * s)));
            }
}

/* A radix of any size: sums of that many terms. */
static void pass_any(float *y, const float *x, const struct attn_fft_pass *f)
{
    const int64_t s = f->s, gap = s * f->m, p = f->radix, turn = f->length / p;
    struct value terms[ATTN_FFT_RADIX_MOST];
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t r = 0; r < s; r++)
            for (int v = 0; v < LANES; v += VF) {
                for (int64_t k = 0; k < p; k++)
                    terms[k] = get(x + v, r + s * q + k * gap);
                for (int64_t j = 0; j < p; j++) {
                    struct value sum = terms[0];
                    for (int64_t k = 1, at = j; k < p; k++, at += j) {
                        at -= at >= p ? p : 0;
                        sum = plus(sum, times(terms[k], root(f, at * turn)));
                    }
                    put(y + v, r + s * (p * q + j), times(sum, root(f, q * j * s)));
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
