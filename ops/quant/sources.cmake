# Sources of ops/quant.
set(ATTN_OPS_QUANT
  ops/quant/dequantize_linear.c
  ops/quant/dynamic_quantize_linear.c
  ops/quant/quantize_linear.c
  ops/quant/scales.c
)
