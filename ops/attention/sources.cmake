# Sources of ops/attention.
set(ATTN_OPS_ATTENTION
  ops/attention/sdpa.c
  ops/attention/attention.c
  ops/attention/rotary_embedding.c
)
