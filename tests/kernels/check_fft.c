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
            const float *from = x + f->x_row * (r + f->s * (q + f->m * k)) + lane;
            root(p, j * k % p, w);
            const double a = (double)from[0], b = (double)from[f->x_im];
            re += a * w[0] - b * w[1];
            im += a * w[1] + b * w[0];
        }
        root(l, q * j, w);
        const int64_t at = f->y_row * (r + f->s * (p * q + j)) + lane;
        check_near(c, (size_t)at, (double)y[at], re * w[0] - im * w[1], 3e-5);
        check_near(c, (size_t)at, (double)y[at + f->y_im], re * w[1] + im * w[0], 3e-5);
    }
}

void check_fft_pass_f32(struct check *c)
{
    static const int32_t radices[] = { 2, 4, 3, 5, 7, 13, 31 };
    for (int round = 0; round < 28; round++) {
        struct attn_fft_pass f = { .radix = radices[round % 7],
                                   .m = 1 + check_below(c, 5),
                                   .s = 1 + check_below(c, 5),
                                   .x_im = ATTN_FFT_LANES + check_below(c, 3),
                                   .y_im = ATTN_FFT_LANES + check_below(c, 3) };
        f.x_row = f.x_im + ATTN_FFT_LANES + check_below(c, 20);
        f.y_row = f.y_im + ATTN_FFT_LANES + check_below(c, 20);
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
        const float *x = check_normal_f32(c, (size_t)(f.length * f.x_row));
        float *y = check_memory(c, (size_t)(f.length * f.y_row) * sizeof *y);
        c->k->fft_pass_f32(y, x, &f);
        for (int64_t q = 0; q < f.m; q++)
            for (int64_t j = 0; j < f.radix; j++)
                for (int64_t r = 0; r < f.s; r++)
                    check_element(c, &f, x, y, r, q, j);
    }
}

void check_fft_rotate_f32(struct check *c)
{
    for (size_t n = 0; n < 20; n++) {
        const ptrdiff_t im = ATTN_FFT_LANES + check_below(c, 3);
        const ptrdiff_t row = im + ATTN_FFT_LANES + check_below(c, 20);
        check_again(c);
        const float *x = check_normal_f32(c, n * ELEMENT);
        const float *w = check_normal_f32(c, n * 2);
        float *y = check_memory(c, n * (size_t)row * sizeof *y);
        c->k->fft_rotate_f32(y, row, im, x, n, w);
        for (size_t i = 0; i < n * ATTN_FFT_LANES; i++) {
            const size_t element = i / ATTN_FFT_LANES, lane = i % ATTN_FFT_LANES;
            const float *from = x + element * ELEMENT + lane, *u = w + 2 * element;
            const float *to = y + (ptrdiff_t)element * row + lane;
            const double re = (double)from[0], f = (double)from[ATTN_FFT_LANES];
            const double a = (double)u[0], b = (double)u[1];
            check_near(c, i, (double)to[0], re * a - f * b, 1e-5);
            check_near(c, i, (double)to[im], re * b + f * a, 1e-5);
        }
    }
}

/* Spectra of real lines a and b, and what is to be told from the spectrum of a + i b. */
static void check_halves(struct check *c, const float *x, const float *y, size_t n,
                         bool beside)
{
    for (size_t k = 0; k <= n / 2; k++)
        for (size_t lane = 0; lane < ATTN_FFT_LANES; lane++) {
            const size_t opposite = k == 0 ? 0 : n - k;
            const double p = (double)x[k * ELEMENT + lane];
            const double q = (double)x[opposite * ELEMENT + lane];
            const double s = (double)x[k * ELEMENT + ATTN_FFT_LANES + lane];
            const double t = (double)x[opposite * ELEMENT + ATTN_FFT_LANES + lane];
            check_near(c, k, (double)y[k * ELEMENT + lane], (p + q) / 2, 1e-6);
            check_near(c, k, (double)y[k * ELEMENT + ATTN_FFT_LANES + lane], (s + t) / 2,
                       1e-6);
            if (k == opposite)
                continue;
            const float *im = y + (beside ? n / 2 + k : opposite) * ELEMENT + lane;
            check_near(c, k, (double)im[0], (s - t) / 2, 1e-6);
            check_near(c, k, (double)im[ATTN_FFT_LANES], (q - p) / 2, 1e-6);
        }
}

void check_fft_halves_f32(struct check *c)
{
    for (size_t n = 1; n < 20; n++) {
        check_again(c);
        float *x = check_normal_f32(c, n * ELEMENT);
        float *y = check_memory(c, n * ELEMENT * sizeof *y);
        if (n % 2 == 0) {
            c->k->fft_halves_f32(y, x, n, 1);
            check_halves(c, x, y, n, true);
        }
        c->k->fft_halves_f32(y, x, n, 0);
        check_halves(c, x, y, n, false);
        c->k->fft_halves_f32(x, x, n, 0); /* in place */
        for (size_t i = 0; i < n * ELEMENT; i++)
            check_near(c, i, (double)x[i], (double)y[i], 0);
    }
}

/* Lanes of a matrix whose columns `first` … and their mirrors fill it to its edges. */
static struct attn_fft_columns some_columns(struct check *c, size_t n, float **matrix)
{
    struct attn_fft_columns f = { .lanes = ATTN_FFT_LANES, .im_end = ATTN_FFT_LANES };
    if (check_below(c, 2) == 0) {
        f.lanes = 1 + (int32_t)check_below(c, ATTN_FFT_LANES);
        f.im_begin = (int32_t)check_below(c, 2);
        f.im_end = f.lanes - (int32_t)check_below(c, 2);
    }
    f.step = f.lanes + f.im_end; /* side by side, the mirror on the right */
    *matrix = check_normal_f32(c, n * (size_t)f.step);
    f.row = *matrix;
    f.mirror = f.row + f.step - 1;
    return f;
}

void check_fft_columns_in_f32(struct check *c)
{
    for (size_t n = 0; n < 30; n++) {
        float *matrix;
        check_again(c);
        const struct attn_fft_columns f = some_columns(c, n, &matrix);
        float *x = check_memory(c, n * ELEMENT * sizeof *x);
        c->k->fft_columns_in_f32(x, &f, n);
        for (size_t i = 0; i < n; i++)
            for (int32_t lane = 0; lane < ATTN_FFT_LANES; lane++) {
                const float *row = matrix + (ptrdiff_t)i * f.step;
                const float re = lane < f.lanes ? row[lane] : 0;
                const float im =
                    lane >= f.im_begin && lane < f.im_end ? row[f.step - 1 - lane] : 0;
                const float *got = x + i * ELEMENT + lane;
                check_near(c, i, (double)got[0], (double)re, 0);
                check_near(c, i, (double)got[ATTN_FFT_LANES], (double)im, 0);
            }
    }
}

void check_fft_columns_out_f32(struct check *c)
{
    for (size_t n = 1; n < 30; n++) {
        float *matrix;
        check_again(c);
        struct attn_fft_columns f = some_columns(c, n, &matrix);
        const float *x = check_normal_f32(c, n * ELEMENT);
        f.mirror += (ptrdiff_t)(n - 1) * f.step; /* goes up, row by row */
        c->k->fft_columns_out_f32(&f, x, n);
        for (size_t i = 0; i < n; i++)
            for (int32_t lane = 0; lane < f.lanes; lane++) {
                const float *row = matrix + (ptrdiff_t)i * f.step;
                const float *up = matrix + (ptrdiff_t)(n - 1 - i) * f.step;
                const double want = (double)x[i * ELEMENT + (size_t)lane];
                check_near(c, i, (double)row[lane], want, 0);
                if (lane >= f.im_begin && lane < f.im_end)
                    check_near(c, i, (double)up[f.step - 1 - lane], want, 0);
            }
    }
}

void check_reverse_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_normal_f32(c, n);
        float *y = check_memory(c, n * sizeof *y);
        c->k->reverse_f32(y, x, n);
        for (size_t i = 0; i < n; i++)
            check_near(c, i, (double)y[i], (double)x[n - 1 - i], 0);
    }
}
