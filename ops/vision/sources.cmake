# Sources of ops/vision.
set(ATTN_OPS_VISION
  ops/vision/maps.c
)
