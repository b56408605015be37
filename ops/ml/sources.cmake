# Sources of ops/ml.
set(ATTN_OPS_ML
  ops/ml/array_feature_extractor.c
  ops/ml/element_maps.c
  ops/ml/label_encoder.c
  ops/ml/linear.c
  ops/ml/zip_map.c
  ops/ml/ml.c
  ops/ml/rows.c
  ops/ml/tree_ensemble.c
  ops/ml/svm.c
  ops/ml/trees.c
  ops/ml/tree_votes.c
)
