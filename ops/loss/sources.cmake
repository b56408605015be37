# Sources of ops/loss.
set(ATTN_OPS_LOSS
  ops/loss/loss.c
  ops/loss/negative_log_likelihood_loss.c
  ops/loss/softmax_cross_entropy_loss.c
)
