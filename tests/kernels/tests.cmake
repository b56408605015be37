# The kernel checker: `kernel_checks --bench` times, ctest checks.
include(tests/kernels/sources.cmake)
add_executable(kernel_checks ${ATTN_KERNEL_CHECKS})
target_link_libraries(kernel_checks PRIVATE attn_flags attnrun_tested m)
add_test(NAME kernels COMMAND kernel_checks)
# 6 s of processor time, ten times as much with a sanitizer.
set_tests_properties(kernels PROPERTIES TIMEOUT 600)
# What the compiler makes of the tile of gemm_f32: 12 rows of two vectors.
if(isa_have_neon AND NOT sanitized)
  add_python_test(kernels.neon_loop kernels/check_loop.py ${CMAKE_OBJDUMP}
    $<TARGET_FILE:attnrun_static> gemm_f32.c.o tile_12x2 fmla 0.9)
endif()
