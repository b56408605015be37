# Sources of ops/vision.
set(ATTN_OPS_VISION
  ops/vision/maps.c
  ops/vision/external_attention.c
  ops/vision/external_run.c
  ops/vision/squeeze_excite.c
  ops/vision/sk_select.c
  ops/vision/bam.c
  ops/vision/bam_run.c
  ops/vision/involution.c
  ops/vision/cbam.c
  ops/vision/spatial_gate.c
  ops/vision/sagan_attention.c
  ops/vision/sagan_run.c
)
