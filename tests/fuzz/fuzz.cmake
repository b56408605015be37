# libFuzzer targets, with clang: bash tools/test.sh --build fuzz makes build/fuzz. Run one by hand:
# fuzz_loader CORPUS -max_total_time=300.
option(ATTNRUN_FUZZ "Build the fuzz targets (clang only)" OFF)
set(ATTNRUN_FUZZ_SECONDS 20 CACHE STRING "How long each fuzz test runs")
if(ATTNRUN_FUZZ)
  # -O1: sanitized kernels at -O3 take very long to compile.
  target_compile_options(attn_flags INTERFACE -fsanitize=fuzzer-no-link -O1)
  foreach(isa IN LISTS isa_names)
    target_compile_options(attn_kernels_${isa} PRIVATE -O1)
  endforeach()
  foreach(name loader)
    add_executable(fuzz_${name} tests/fuzz/fuzz_${name}.c)
    target_include_directories(fuzz_${name} PRIVATE runtime)
    target_link_libraries(fuzz_${name} PRIVATE attn_flags attnrun_static)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/${name} ${CMAKE_BINARY_DIR}/bad)
    add_test(NAME fuzz.${name} COMMAND fuzz_${name}
      ${CMAKE_BINARY_DIR}/fuzz/${name} ${CMAKE_BINARY_DIR}/bad # seeds: broken models
      -max_total_time=${ATTNRUN_FUZZ_SECONDS} -timeout=20 -rss_limit_mb=2048
      -artifact_prefix=${CMAKE_BINARY_DIR}/ -verbosity=0 -print_final_stats=1)
    set_tests_properties(fuzz.${name} PROPERTIES LABELS slow)
    if(ATTNRUN_PYTHON)
      set_tests_properties(fuzz.${name} PROPERTIES FIXTURES_REQUIRED bad_cases)
    endif()
  endforeach()
endif()
