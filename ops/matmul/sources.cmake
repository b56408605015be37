# Sources of ops/matmul.
set(ATTN_OPS_MATMUL
  ops/matmul/blas.c
  ops/matmul/gemm.c
  ops/matmul/plain.c
  ops/matmul/shapes.c
  ops/matmul/matmul.c
  ops/matmul/gemm_op.c
  ops/matmul/fused_matmul.c
  ops/matmul/einsum_equation.c
  ops/matmul/einsum.c
  ops/matmul/gemm_i8.c
  ops/matmul/integer_matmul.c
  ops/matmul/qlinear_matmul.c
  ops/matmul/integer_to_float.c
  ops/matmul/inverse.c
  ops/matmul/cdist.c
)
