/* check_fourier_mix.c - FourierMix against the sums of its definition. */
#include <stdlib.h>

#include "operator_harness.h"

static const double pi = 3.14159265358979323846;

/* One dim of the transform: to[k * step] = sum of from[t * step] w^(t k), complex. `powers`: the n
 * powers of w. */
static void transform(int64_t n, int64_t step, double (*powers)[2], const double *re,
                      const double *im, double *to_re, double *to_im)
{
    for (int64_t k = 0; k < n; k++) {
        double a = 0, b = 0;
        for (int64_t t = 0; t < n; t++) {
            const double c = powers[t * k % n][0], s = powers[t * k % n][1];
            a += re[t * step] * c - im[t * step] * s;
            b += re[t * step] * s + im[t * step] * c;
        }
        to_re[k * step] = a;
        to_im[k * step] = b;
    }
}

static void set_powers(double (*powers)[2], int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double angle = -2 * pi * (double)i / (double)n;
        powers[i][0] = cos(angle);
        powers[i][1] = sin(angle);
    }
}

static double reference(double *y, const float *x, int64_t n, int64_t c)
{
    const size_t room = (size_t)(n * c) + 1;
    double (*powers)[2] = malloc((size_t)(n > c ? n : c) * sizeof *powers);
    double *a = calloc(room * 4, sizeof *a), *b = a + room, max = 0;
    for (int64_t i = 0; i < n * c; i++)
        a[i] = (double)x[i];
    set_powers(powers, c);
    for (int64_t row = 0; row < n; row++)
        transform(c, 1, powers, a + row * c, b + row * c, a + 2 * room + row * c,
                  a + 3 * room + row * c);
    set_powers(powers, n);
    for (int64_t column = 0; column < c; column++)
        transform(n, c, powers, a + 2 * room + column, a + 3 * room + column, a + column,
                  b + column);
    for (int64_t i = 0; i < n * c; i++) {
        y[i] = a[i];
        max = fmax(max, fabs(a[i]));
    }
    free(a);
    free(powers);
    return max;
}

void check_fourier_mix(struct check *c)
{
    static const int64_t lengths[] = { 1, 2, 3, 4, 8, 13, 16, 32, 37, 60, 97, 128 };
    double max = 0;
    CHECK_ROUNDS(c, 60)
    {
        const bool listed = check_chance(c, 60);
        const int64_t b = check_between(c, 0, 3);
        const int64_t n = listed ? lengths[check_below(c, 12)] : check_between(c, 1, 90);
        const int64_t d = listed ? lengths[check_below(c, 12)] : check_between(c, 1, 90);
        check_begin(c, "FourierMix");
        const float *x = check_f32(c, "X", DIMS(b, n, d));
        double *y = check_output(c, "Y", DIMS(b, n, d));
        for (int64_t i = 0; i < b; i++)
            max = fmax(max, reference(y + i * n * d, x + i * n * d, n, d));
        check_run_with(c, 0, 1e-6 * max + 1e-6); /* class B is 1e-4 of the largest */
    }
    static const int64_t split[] = { 256, 288, 341, 512, 625, 1024, 1200, 1536, 2048 };
    CHECK_ROUNDS(c, 27) /* in four steps, over tokens or channels, and by rows */
    {
        int64_t n = split[c->round % 9], d = check_between(c, 1, 40);
        if (c->round >= 18) {
            d = 32 * check_between(c, 1, 2);
        } else if (c->round >= 9) {
            d = n;
            n = check_between(c, 1, 40);
        }
        const int64_t b = c->round == 18 ? 2 : 1;
        check_begin(c, "FourierMix");
        const float *x = check_f32(c, "X", DIMS(b, n, d));
        double *y = check_output(c, "Y", DIMS(b, n, d)), largest = 0;
        for (int64_t i = 0; i < b; i++)
            largest = fmax(largest, reference(y + i * n * d, x + i * n * d, n, d));
        check_run_with(c, 0, 1e-6 * largest);
    }
    check_begin(c, "FourierMix");
    check_f32(c, "X", DIMS(2, 0, 3));
    check_output(c, "Y", DIMS(2, 0, 3));
    check_run(c, CHECK_EXACT);
    check_begin(c, "FourierMix");
    check_f32(c, "X", DIMS(2, 3));
    check_output(c, "Y", DIMS(2, 3));
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 X|expected rank 3");
    c->blank = true;
    check_begin(c, "FourierMix");
    check_f32(c, "X", DIMS(1, 16384, 512));
    check_output(c, "Y", DIMS(1, 16384, 512));
    check_extra_memory(c, 3 << 19);
}
