# Sources of ops/recurrent.
set(ATTN_OPS_RECURRENT
  ops/recurrent/activation.c
  ops/recurrent/recurrent.c
  ops/recurrent/recurrent_f64.c
  ops/recurrent/recurrent_i8.c
  ops/recurrent/rnn.c
  ops/recurrent/gru.c
  ops/recurrent/lstm.c
)
