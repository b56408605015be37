/* blas.h - the interface to OpenBLAS, which is used for products of doubles that are
 * large enough. */
#ifndef ATTN_BLAS_H
#define ATTN_BLAS_H

#include "gemm.h"

/* The product of doubles is large enough, its strides suit BLAS, and BLAS may be used. */
bool attn_blas_fits(const attnrun_step *step, const struct attn_gemm *g);
/* C = A B for `rows` rows of A and C; one sample of the batch. */
void attn_blas_product_f64(const struct attn_gemm *g, int64_t rows, const double *a,
                           const double *b, double *c);

#endif
