# Sources of ops/sequence.
set(ATTN_OPS_SEQUENCE
  ops/sequence/concat_from_sequence.c
  ops/sequence/murmur_hash3.c
  ops/sequence/ngram_repeat_block.c
  ops/sequence/optional.c
  ops/sequence/regex.c
  ops/sequence/regex_full_match.c
  ops/sequence/regex_states.c
  ops/sequence/sequence.c
  ops/sequence/split_to_sequence.c
  ops/sequence/string_concat.c
  ops/sequence/string_normalizer.c
  ops/sequence/string_split.c
  ops/sequence/tf_idf_vectorizer.c
  ops/sequence/tokenizer.c
  ops/sequence/values.c
)
