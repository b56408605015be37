/* check_fft.c - passes of the FFT against their formula. */
#include "checks.h"

enum { ELEMENT = 2 * ATTN_FFT_LANES };

static void root(int64_t length, int64_t t, double w[2])
{
    const double angle = -2.0 * 3.14159265358979323846 * (double)t / (double)length;
    w[0] = cos(angle);
    w[1] = sin(angle);
}

/* Element j of block q, stride place r. */
static void check_element(struct check *c, const struct attn_fft_pass *f, const float *x,
                          const float *y, int64_t r, int64_t q, int64_t j)
{
    const int64_t p = f->radix, l = p * f->m;
    for (int lane = 0; lane < ATTN_FFT_LANES; lane++) {
        double re = 0, im = 0, w[2];
        for (int64_t k = 0; k < p; k++) {
            const float *from = x + (r + f->s * (q + f->m * k)) * ELEMENT + lane;
            root(p, j * k % p, w);
            const double a = (double)from[0], b = (double)from[ATTN_FFT_LANES];
            re += a * w[0] - b * w[1];
            im += a * w[1] + b * w[0];
        }
        root(l, q * j, w);
        const int64_t at = (r + f->s * (p * q + j)) * ELEMENT + lane;
        check_near(c, (size_t)at, (double)y[at], re * w[0] - im * w[1], 3e-5);
        check_near(c, (size_t)at, (double)y[at + ATTN_FFT_LANES], re * w[1] + im * w[0],
                   3e-5);
    }
}

void check_fft_pass_f32(struct check *c)
{
    static const int32_t radices[] = { 2, 4, 3, 5, 7, 13, 31 };
    for (int round = 0; round < 28; round++) {
        struct attn_fft_pass f = { .radix = radices[round % 7],
                                   .m = 1 + check_below(c, 5),
                                   .s = 1 + check_below(c, 5) };
        f.length = f.radix * f.m * f.s;
        check_again(c);
        float *table = check_memory(c, (size_t)f.length * 2 * sizeof *table);
        for (int64_t t = 0; t < f.length; t++) {
            double w[2];
            root(f.length, t, w);
            table[2 * t] = (float)w[0];
            table[2 * t + 1] = (float)w[1];
        }
        f.table = table;
        const float *x = check_normal_f32(c, (size_t)f.length * ELEMENT);
        float *y = check_memory(c, (size_t)f.length * ELEMENT * sizeof *y);
        c->k->fft_pass_f32(y, x, &f);
        for (int64_t q = 0; q < f.m; q++)
            for (int64_t j = 0; j < f.radix; j++)
                for (int64_t r = 0; r < f.s; r++)
                    check_element(c, &f, x, y, r, q, j);
    }
}
