# Sources of ops/nn.
set(ATTN_OPS_NN
  ops/nn/swiglu.c
  ops/nn/lines.c
  ops/nn/norm_rows.c
  ops/nn/softmax.c
  ops/nn/layer_normalization.c
  ops/nn/skip_layer_normalization.c
  ops/nn/embed_layer_normalization.c
  ops/nn/planes.c
  ops/nn/batch_normalization.c
  ops/nn/group_normalization.c
  ops/nn/lp_normalization.c
  ops/nn/lrn.c
  ops/nn/mean_variance_normalization.c
  ops/nn/bias_gelu.c
)
