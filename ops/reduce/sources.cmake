# Sources of ops/reduce.
set(ATTN_OPS_REDUCE
  ops/reduce/arg_reduce.c
  ops/reduce/cumulative.c
  ops/reduce/det.c
  ops/reduce/reduce.c
  ops/reduce/reduce_plan.c
  ops/reduce/top_k.c
)
