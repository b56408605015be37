# Kernel files: each is compiled once per instruction set.
set(ATTN_KERNELS
  ops/kernels/gemm_f32.c
  ops/kernels/softmax_f32.c
  ops/kernels/norm_f32.c
  ops/kernels/attention_f32.c
  ops/kernels/features_f32.c
  ops/kernels/convert_f32.c
  ops/kernels/unary_f32.c
  ops/kernels/binary_f32.c
  ops/kernels/compare_f32.c
  ops/kernels/reduce_f32.c
  ops/kernels/im2col.c
  ops/kernels/indices.c
  ops/kernels/conv_taps.c
  ops/kernels/conv_finish.c
  ops/kernels/additive_f32.c
)
