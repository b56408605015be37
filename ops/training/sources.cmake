# Sources of ops/training.
set(ATTN_OPS_TRAINING
  ops/training/training.c
)
