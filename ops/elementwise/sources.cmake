# Sources of ops/elementwise.
set(ATTN_OPS_ELEMENTWISE
  ops/nd_iter.c
  ops/elementwise/binary.c
  ops/elementwise/cast.c
  ops/elementwise/classify.c
  ops/elementwise/clip.c
  ops/elementwise/convert.c
  ops/elementwise/dropout.c
  ops/elementwise/elementwise.c
  ops/elementwise/identity.c
  ops/elementwise/pow.c
  ops/elementwise/random.c
  ops/elementwise/text_number.c
  ops/elementwise/unary.c
  ops/elementwise/variadic.c
  ops/elementwise/where.c
)
