# Sources of ops/training.
set(ATTN_OPS_TRAINING
  ops/training/adagrad.c
  ops/training/adam.c
  ops/training/momentum.c
  ops/training/training.c
)
