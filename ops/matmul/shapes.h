/* shapes.h - the shape rules of MatMul, which its relatives share. In: two operands, each
 * possibly transposed. Out: the dims of the result, and the product as struct attn_gemm.
 */
#ifndef ATTN_MATMUL_SHAPES_H
#define ATTN_MATMUL_SHAPES_H

#include "gemm.h"

/* Flags: the last two dims of an operand are exchanged. */
enum { ATTN_TRANS_A = 1, ATTN_TRANS_B = 2 };

/* Numpy's matmul of inputs `a` and `b`: dims of the result (rank -1: unknown). Fails
 * where they do not fit. */
attn_status attn_matmul_dims(const attnrun_step *step, int a, int b, unsigned trans,
                             int *rank, attnrun_dim *dims);
/* step->concrete: describes the product of dense operands (before attn_gemm_plan()). */
attn_status attn_matmul_describe(const attnrun_step *step, int a, int b, unsigned trans,
                                 struct attn_gemm *g);

#endif
