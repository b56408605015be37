# Sources of ops/rewrite.
set(ATTN_OPS_REWRITE
  ops/rewrite/attention.c
  ops/rewrite/attention_heads.c
  ops/rewrite/common_subexpression.c
  ops/rewrite/constant_if.c
  ops/rewrite/conv_batch_norm.c
  ops/rewrite/conv_epilogue.c
  ops/rewrite/elementwise_chain.c
  ops/rewrite/epilogue.c
  ops/rewrite/gelu.c
  ops/rewrite/identity.c
  ops/rewrite/layer_norm.c
  ops/rewrite/match.c
  ops/rewrite/matmul_epilogue.c
  ops/rewrite/passes.c
  ops/rewrite/rotary.c
)
