/* plain_product.h - matrix products of the types that have no tuned kernel: f64, i32,
 * u32, i64, u64. Integers wrap. A task is a row of C, or some rows where OpenBLAS
 * multiplies f64. Cost: 2 m n k operations, without vectors of our own. */
#ifndef ATTN_PLAIN_PRODUCT_H
#define ATTN_PLAIN_PRODUCT_H

#include "gemm.h"

/* What MatMul and Gemm compute: a product, scale and a matrix added to it. */
struct attn_plain {
    int32_t dtype;
    double alpha, beta;     /* 1 and 0 for MatMul; integers take the whole part */
    int64_t c0_row, c0_col; /* of the matrix added */
};

/* States one task per row of C. */
attn_status attn_plain_plan(const attnrun_step *step, struct attn_gemm *g);
/* Computes row `task` of C = alpha A B + beta c0; c0 may be NULL. It polls
 * work->cancel. */
attn_status attn_plain_row(const struct attn_gemm *g, const struct attn_plain *p,
                           const struct attn_gemm_operands *o, const void *c0,
                           int64_t task, const attnrun_work *work);

#endif
