/* fft.h - discrete Fourier transforms of any length, in f64.
 *
 * In: n complex numbers. Out: their transform, n complex numbers. Lengths whose prime
 * factors are small take Stockham's autosorting FFT, with radices 4 and 2, and sums of p
 * terms for the other primes p. Other lengths take Bluestein's method, a convolution of a
 * power-of-two length. The tables depend on the length only and lie in memory of the
 * caller. Cost: O(n log n). */
#ifndef ATTN_OPS_FFT_H
#define ATTN_OPS_FFT_H

#include <stdbool.h>
#include <stdint.h>

struct complex64 {
    double re, im;
};

enum { FFT_FACTORS = 64, FFT_LARGEST_RADIX = 31 };

struct fft_plan {
    int64_t n;      /* of the transform */
    int64_t length; /* of the FFT that does it: n, or Bluestein's power of two */
    int32_t n_factors;
    int32_t factors[FFT_FACTORS]; /* of length */
};

/* Plans a transform of length n; false where n is below 1 or above 2^40. */
bool attn_fft_plan(struct fft_plan *plan, int64_t n);
/* The number of elements of the tables, and of the work space that one transform
 * needs. */
int64_t attn_fft_table_size(const struct fft_plan *plan);
int64_t attn_fft_work_size(const struct fft_plan *plan);
void attn_fft_make_table(const struct fft_plan *plan, struct complex64 *table,
                         struct complex64 *work);
/* x[k] = sum of x[t] e^(-2 pi i t k / n), + where inverse (not divided by n); in
 * place. */
void attn_fft(const struct fft_plan *plan, const struct complex64 *table,
              struct complex64 *x, struct complex64 *work, bool inverse);

#endif
