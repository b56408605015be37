# Sources of ops/image.
set(ATTN_OPS_IMAGE
  ops/image/window.c
  ops/image/conv.c
  ops/image/conv_gemm.c
  ops/image/conv_depthwise.c
  ops/image/conv_plain.c
  ops/image/conv_integer.c
  ops/image/conv_transpose.c
  ops/image/pool.c
  ops/image/max_pool.c
  ops/image/average_pool.c
  ops/image/global_pool.c
  ops/image/resize_table.c
  ops/image/resize.c
)
