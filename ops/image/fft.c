/* fft.c - discrete Fourier transforms. fft.h describes the interface and the cost.
 *
 * Stockham's method, decimation in frequency: a pass of radix p makes p blocks of length
 * m at stride s p of each block of length l = p m at stride s:
 *
 *   y[r + s (p q + j)] = w_l^(q j) sum over k of x[r + s (q + m k)] w_p^(j k)
 *
 * Bluestein's method: t k = (t^2 + k^2 - (k - t)^2) / 2 makes the transform a convolution
 * with the chirp e^(pi i t^2 / n).
 * The tables are w_length[length]; for Bluestein also chirp[n] and the transform of the
 * padded chirp [length]. Source: Bluestein 1970; Stockham 1966. */
#include "fft.h"

#include "../../runtime/op.h"

#include <math.h>
#include <stddef.h>

static const double pi = 3.14159265358979323846;

static struct complex64 times(struct complex64 a, struct complex64 b)
{
    return (struct complex64){ a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re };
}
static struct complex64 plus(struct complex64 a, struct complex64 b)
{
    return (struct complex64){ a.re + b.re, a.im + b.im };
}
static struct complex64 minus(struct complex64 a, struct complex64 b)
{
    return (struct complex64){ a.re - b.re, a.im - b.im };
}

static bool factor(struct fft_plan *plan, int64_t n)
{
    plan->length = n;
    plan->n_factors = 0;
    for (int32_t p = 4; n > 1 && p <= FFT_LARGEST_RADIX; p = p == 4   ? 2
                                                             : p == 2 ? 3
                                                                      : p + 2)
        while (n % p == 0) {
            plan->factors[plan->n_factors++] = p;
            n /= p;
        }
    return n == 1;
}

bool attn_fft_plan(struct fft_plan *plan, int64_t n)
{
    if (n < 1 || n > INT64_C(1) << 40)
        return false;
    plan->n = n;
    if (factor(plan, n))
        return true;
    int64_t length = 1;
    while (length < 2 * n - 1)
        length *= 2;
    return factor(plan, length);
}

static bool is_bluestein(const struct fft_plan *plan) { return plan->length != plan->n; }

int64_t attn_fft_table_size(const struct fft_plan *plan)
{
    return is_bluestein(plan) ? 2 * plan->length + plan->n : plan->length;
}

int64_t attn_fft_work_size(const struct fft_plan *plan)
{
    return is_bluestein(plan) ? 2 * plan->length : plan->length;
}

/* ---- passes ---- */

struct fft_pass {
    const struct complex64 *table;
    int64_t length, m, s; /* of the whole FFT; of the blocks afterwards; stride */
    int32_t p;
    bool inverse;
};

/* The root w_length^k for 0 <= k < length. */
static struct complex64 root(const struct fft_pass *f, int64_t k)
{
    struct complex64 w = f->table[k];
    if (f->inverse)
        w.im = -w.im;
    return w;
}

static void pass_2(const struct fft_pass *f, struct complex64 *y,
                   const struct complex64 *x)
{
    for (int64_t q = 0; q < f->m && attn_poll_work(f->s * 32) == ATTNRUN_OK; q++) {
        struct complex64 w = root(f, q * f->s);
        const struct complex64 *a = x + f->s * q, *b = a + f->s * f->m;
        struct complex64 *to = y + f->s * 2 * q;
        for (int64_t r = 0; r < f->s && !attn_stops(r); r++) {
            to[r] = plus(a[r], b[r]);
            to[r + f->s] = times(minus(a[r], b[r]), w);
        }
    }
}

static void pass_4(const struct fft_pass *f, struct complex64 *y,
                   const struct complex64 *x)
{
    int64_t gap = f->s * f->m;
    for (int64_t q = 0; q < f->m && attn_poll_work(f->s * 32) == ATTNRUN_OK; q++) {
        struct complex64 w1 = root(f, q * f->s), w2 = times(w1, w1), w3 = times(w1, w2);
        const struct complex64 *a = x + f->s * q;
        struct complex64 *to = y + f->s * 4 * q;
        for (int64_t r = 0; r < f->s && !attn_stops(r); r++) {
            struct complex64 even = plus(a[r], a[r + 2 * gap]);
            struct complex64 even_gap = minus(a[r], a[r + 2 * gap]);
            struct complex64 odd = plus(a[r + gap], a[r + 3 * gap]);
            struct complex64 odd_gap = minus(a[r + gap], a[r + 3 * gap]);
            struct complex64 rotated = { odd_gap.im, -odd_gap.re }; /* times -i */
            if (f->inverse)
                rotated = (struct complex64){ -odd_gap.im, odd_gap.re };
            to[r] = plus(even, odd);
            to[r + f->s] = times(plus(even_gap, rotated), w1);
            to[r + 2 * f->s] = times(minus(even, odd), w2);
            to[r + 3 * f->s] = times(minus(even_gap, rotated), w3);
        }
    }
}

static void pass_any(const struct fft_pass *f, struct complex64 *y,
                     const struct complex64 *x)
{
    struct complex64 rotation[FFT_LARGEST_RADIX];
    for (int32_t k = 0; k < f->p; k++)
        rotation[k] = root(f, k * (f->length / f->p));
    for (int64_t q = 0; q < f->m && attn_poll_work(f->s * 32) == ATTNRUN_OK; q++)
        for (int32_t j = 0; j < f->p; j++) {
            struct complex64 w = root(f, q * j % (f->m * f->p) * f->s);
            struct complex64 *to = y + f->s * (f->p * q + j);
            for (int64_t r = 0; r < f->s && !attn_stops(r); r++) {
                struct complex64 sum = { 0.0, 0.0 };
                for (int32_t k = 0; k < f->p; k++)
                    sum = plus(
                        sum, times(x[r + f->s * (q + f->m * k)], rotation[j * k % f->p]));
                to[r] = times(sum, w);
            }
        }
}

/* Computes the FFT of plan->length elements, in place. */
static void transform(const struct fft_plan *plan, const struct complex64 *table,
                      struct complex64 *x, struct complex64 *work, bool inverse)
{
    struct fft_pass f = { .table = table,
                          .length = plan->length,
                          .m = plan->length,
                          .s = 1,
                          .inverse = inverse };
    struct complex64 *from = x, *to = work;
    for (int32_t i = 0; i < plan->n_factors; i++) {
        f.p = plan->factors[i];
        f.m /= f.p;
        if (f.p == 2)
            pass_2(&f, to, from);
        else if (f.p == 4)
            pass_4(&f, to, from);
        else
            pass_any(&f, to, from);
        f.s *= f.p;
        struct complex64 *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0; from != x && i < plan->length && !attn_stops(i); i++)
        x[i] = from[i];
}

void attn_fft_make_table(const struct fft_plan *plan, struct complex64 *table,
                         struct complex64 *work)
{
    int64_t length = plan->length, n = plan->n;
    for (int64_t k = 0; k < length && !attn_stops(k); k++) {
        double angle = -2.0 * pi * (double)k / (double)length;
        table[k] = (struct complex64){ cos(angle), sin(angle) };
    }
    if (!is_bluestein(plan))
        return;
    struct complex64 *chirp = table + length, *padded = chirp + n;
    for (int64_t i = 0; i < length && !attn_stops(i); i++)
        padded[i] = (struct complex64){ 0.0, 0.0 };
    for (int64_t t = 0, square = 0; t < n && !attn_stops(t); t++) {
        double angle = pi * (double)square / (double)n; /* square is t^2 mod 2n */
        chirp[t] = (struct complex64){ cos(angle), sin(angle) };
        padded[t] = chirp[t];
        if (t > 0)
            padded[length - t] = chirp[t];
        square = (square + 2 * t + 1) % (2 * n);
    }
    transform(plan, table, padded, work, false);
}

void attn_fft(const struct fft_plan *plan, const struct complex64 *table,
              struct complex64 *x, struct complex64 *work, bool inverse)
{
    if (!is_bluestein(plan)) {
        transform(plan, table, x, work, inverse);
        return;
    }
    const struct complex64 *chirp = table + plan->length, *padded = chirp + plan->n;
    struct complex64 *a = work, *second = work + plan->length;
    /* The inverse is the conjugate of the transform of the conjugate. */
    double sign = inverse ? -1.0 : 1.0, scale = 1.0 / (double)plan->length;
    for (int64_t t = 0; t < plan->n && !attn_stops(t); t++) {
        struct complex64 down = { chirp[t].re, -chirp[t].im };
        a[t] = times((struct complex64){ x[t].re, sign * x[t].im }, down);
    }
    for (int64_t t = plan->n; t < plan->length && !attn_stops(t); t++)
        a[t] = (struct complex64){ 0.0, 0.0 };
    transform(plan, table, a, second, false);
    for (int64_t i = 0; i < plan->length && !attn_stops(i); i++)
        a[i] = times(a[i], padded[i]);
    transform(plan, table, a, second, true);
    for (int64_t k = 0; k < plan->n && !attn_stops(k); k++) {
        struct complex64 down = { chirp[k].re, -chirp[k].im };
        struct complex64 y = times(a[k], down);
        x[k] = (struct complex64){ y.re * scale, sign * y.im * scale };
    }
}
