# Sources of ops/control.
set(ATTN_OPS_CONTROL
  ops/control/control.c
  ops/control/if.c
  ops/control/loop.c
  ops/control/scan.c
  ops/control/sequence_map.c
)
