# Sources of ops/loss.
set(ATTN_OPS_LOSS
  ops/loss/loss.c
  ops/loss/pick_class.c
)
