# Sources of ops/vision.
set(ATTN_OPS_VISION
)
