# Sources of ops/quant.
set(ATTN_OPS_QUANT
  ops/quant/dequantize_linear.c
  ops/quant/dynamic_quantize_linear.c
  ops/quant/gather_block_quantized.c
  ops/quant/byte_table.c
  ops/quant/qlinear.c
  ops/quant/qlinear_binary.c
  ops/quant/qlinear_concat.c
  ops/quant/qlinear_global_average_pool.c
  ops/quant/qlinear_softmax.c
  ops/quant/qlinear_unary.c
  ops/quant/quantize_linear.c
  ops/quant/scales.c
)
