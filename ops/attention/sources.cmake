# Sources of ops/attention.
set(ATTN_OPS_ATTENTION
  ops/attention/sdpa.c
  ops/attention/stream.c
  ops/attention/heads.c
  ops/attention/blocks.c
  ops/attention/attention.c
  ops/attention/rotary_embedding.c
  ops/attention/fused_rotary.c
  ops/attention/multi_head_attention.c
  ops/attention/ms_attention.c
  ops/attention/group_query_attention.c
  ops/attention/linear_attention.c
  ops/attention/causal_conv_with_state.c
  ops/attention/flex_attention.c
  ops/attention/block_sparse_attention.c
)
