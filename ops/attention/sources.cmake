# Sources of ops/attention.
set(ATTN_OPS_ATTENTION
)
