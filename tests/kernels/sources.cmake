# Checks of kernels: one file per area, listed here by whoever adds the kernels.
set(ATTN_KERNEL_CHECKS
  tests/kernels/main.c
  tests/kernels/checks.c
  tests/kernels/check_elementwise.c
  tests/kernels/check_attention.c
  tests/kernels/check_select.c
  tests/kernels/check_gather.c
  tests/kernels/check_features.c
  tests/kernels/check_recurrence.c
  tests/kernels/check_gemm.c
  tests/kernels/check_rows.c
  tests/kernels/check_additive.c
  tests/kernels/check_reduce.c
  tests/kernels/check_image.c
  tests/kernels/check_fft.c
  tests/kernels/check_maps.c
)
