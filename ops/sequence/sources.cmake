# Sources of ops/sequence.
set(ATTN_OPS_SEQUENCE
  ops/sequence/concat_from_sequence.c
  ops/sequence/optional.c
  ops/sequence/sequence.c
  ops/sequence/split_to_sequence.c
  ops/sequence/values.c
)
