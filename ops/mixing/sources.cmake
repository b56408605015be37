# Sources of ops/mixing.
set(ATTN_OPS_MIXING
  ops/mixing/fourier_mix.c
  ops/mixing/fourier_lanes.c
  ops/mixing/fourier_rows.c
  ops/mixing/spatial_gating_unit.c
  ops/mixing/token_channels.c
  ops/mixing/token_mixing.c
  ops/mixing/boom.c
)
