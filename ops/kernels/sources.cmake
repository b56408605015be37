# Kernel files: each is compiled once per instruction set.
set(ATTN_KERNELS
  ops/kernels/gemm_f32.c
  ops/kernels/gemm_i8.c
  ops/kernels/gemm_bf16.c
  ops/kernels/gemm_pack.c
  ops/kernels/nbits_f32.c
  ops/kernels/nbits_rows.c
  ops/kernels/nbits_rounded.c
  ops/kernels/integers.c
  ops/kernels/softmax_f32.c
  ops/kernels/norm_f32.c
  ops/kernels/attention_f32.c
  ops/kernels/query_tile_f32.c
  ops/kernels/query_tile_bf16.c
  ops/kernels/attention_f64.c
  ops/kernels/select_f32.c
  ops/kernels/gather_f32.c
  ops/kernels/features_f32.c
  ops/kernels/recurrence_f32.c
  ops/kernels/convert_f32.c
  ops/kernels/unary_f32.c
  ops/kernels/binary_f32.c
  ops/kernels/compare_f32.c
  ops/kernels/reduce_f32.c
  ops/kernels/im2col.c
  ops/kernels/indices.c
  ops/kernels/fft_f32.c
  ops/kernels/conv_taps.c
  ops/kernels/conv_finish.c
  ops/kernels/involution_f32.c
  ops/kernels/conv_strip_f32.c
  ops/kernels/conv_direct.c
  ops/kernels/conv_planes_f32.c
  ops/kernels/conv_depthwise.c
  ops/kernels/blocked_conv_f32.c
  ops/kernels/blocked_rows_f32.c
  ops/kernels/blocked_norm_f32.c
  ops/kernels/blocked_gates_f32.c
  ops/kernels/blocked_conv_u8.c
  ops/kernels/bytes.c
  ops/kernels/winograd_f32.c
  ops/kernels/halo_f32.c
  ops/kernels/additive_f32.c
  ops/kernels/maps_f32.c
  ops/kernels/resize_f32.c
)
# Those of the other kinds of rows (kernels.def).
set(ATTN_KERNELS_tiles ops/kernels/gemm_i8.c ops/kernels/blocked_tiles_u8.c)
set(ATTN_KERNELS_bytes ops/kernels/gemm_i8.c ops/kernels/blocked_conv_u8.c
  ops/kernels/nbits_rows.c ops/kernels/nbits_rounded.c)
set(ATTN_KERNELS_pairs ops/kernels/gemm_bf16.c ops/kernels/query_tile_bf16.c
  ops/kernels/blocked_conv_bf16.c ops/kernels/nbits_bf16.c)
