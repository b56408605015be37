/* kernel_types.h - structs that kernels take. */
#ifndef ATTN_KERNEL_TYPES_H
#define ATTN_KERNEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "image_types.h"

/* ---- GEMM ---- */

/* What happens to an element of A B on its way to C; a list of these runs in order. */
enum attn_epilogue_kind {
    ATTN_EPI_SCALE, /* x * alpha */
    ATTN_EPI_ADD,   /* x + alpha * data[i * row + j * col] */
    ATTN_EPI_RELU,  /* max(x, 0), NaN stays */
    ATTN_EPI_GELU,  /* by erf */
    ATTN_EPI_GELU_TANH,
    ATTN_EPI_SILU,
    ATTN_EPI_TANH,
    ATTN_EPI_SIGMOID,
    ATTN_EPI_CLIP,       /* min(max(x, alpha), beta), NaN stays */
    ATTN_EPI_LEAKY_RELU, /* x < 0 ? alpha * x : x */
    ATTN_EPI_HARD_SWISH  /* x * clip(x / 6 + 1/2, 0, 1) */
};
struct attn_epilogue {
    int32_t kind;
    float alpha, beta;
    /* ADD: elements between rows and columns of `data`; col is 0 (a value per row) or 1.
     * row 0: a bias per column. May be C itself with C's strides. */
    ptrdiff_t row, col;
    const float *data;
};

/* C[m,n] = epilogue(A[m,k] B[k,n]); all strides in elements. A has stride 1 along k. K is
 * summed in blocks of at most ATTN_GEMM_KC, in order, whatever m and n are. */
enum {
    ATTN_GEMM_KC = 384,
    ATTN_GEMM_MC = 128,
    ATTN_GEMM_NR_MOST = 32,
    ATTN_GEMM_WIDE = 1024 /* columns that share a block of A */
};
struct attn_gemm_f32 {
    const float *a;
    ptrdiff_t a_row;
    /* packed: panels as gemm_pack_f32 makes them (the panel of column j begins at k * j);
     * where they were packed for more rows of B, packed_k are all of them and packed_from
     * is the first one to use.
     * Else one of b_row, b_col is 1, or both are anything (slower). */
    const float *b;
    ptrdiff_t b_row, b_col;
    float *c;
    ptrdiff_t c_row;
    size_t m, n, k;
    const struct attn_epilogue *epilogue;
    float *scratch; /* attn_gemm_scratch(m, n, k) floats, 64-byte aligned */
    size_t packed_k, packed_from;
    int32_t n_epilogue, packed;
    int32_t accumulate; /* C += A B instead, before the epilogue */
};
/* Partial sums of the columns that share a block of A (of one panel, where K is one
 * block), a panel of B, and the rows of A of one block of K. */
static inline size_t attn_gemm_scratch(size_t m, size_t n, size_t k)
{
    const size_t panel = ATTN_GEMM_NR_MOST;
    size_t columns = panel;
    if (k > ATTN_GEMM_KC && m > 32)
        columns = n < ATTN_GEMM_WIDE ? (n + panel - 1) / panel * panel : ATTN_GEMM_WIDE;
    return (columns + ATTN_GEMM_KC + 16) * m + ATTN_GEMM_KC * panel;
}

/* ---- attention ---- */

/* A row of an online softmax. Starts as { -INFINITY }. */
struct attn_softmax_row {
    float max, sum; /* at most 8 below the scores so far; of exp(score - max) */
    float shift;    /* what takes the place of max in the exponent */
    float factor;   /* by softmax_rows_f32: what earlier terms are to be multiplied by */
};

#endif
