include(tests/fuzz/fuzz.cmake)

# Models around sequences, optionals, subgraphs and attention: 20 s of cases; by hand
# longer: fuzz_graphs --seconds 3600 FOLDER... (see its head).
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
add_executable(fuzz_graphs tests/fuzz/fuzz_graphs.c tests/fuzz/case.c tests/fuzz/make.c
  tests/fuzz/guard.c tests/fuzz/keep.c tests/fuzz/mutate.c tests/fuzz/packed.c
  tests/fuzz/results.c tools/io/value.c tools/io/fail.c)
target_link_libraries(fuzz_graphs PRIVATE attn_flags attnrun_static PkgConfig::PROTOBUF_C
  Threads::Threads)
target_include_directories(fuzz_graphs PRIVATE runtime ${generated})
add_dependencies(fuzz_graphs attn_schema)
set(ATTNRUN_GRAPH_SECONDS 20 CACHE STRING "How long the test fuzz.graphs looks")
add_test(NAME fuzz.graphs COMMAND fuzz_graphs --seconds ${ATTNRUN_GRAPH_SECONDS}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.packed COMMAND fuzz_graphs --packed --seconds ${ATTNRUN_GRAPH_SECONDS}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.operators COMMAND fuzz_graphs --operators
  --seconds ${ATTNRUN_GRAPH_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
  ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.faults COMMAND fuzz_graphs --operators --faults --seed 2000000000
  --seconds ${ATTNRUN_GRAPH_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
  ${ATTNRUN_TEST_DATA}/cases)
# A sanitizer has its own allocator: guard pages are for the builds without one.
if(NOT ATTNRUN_ASAN AND NOT ATTNRUN_TSAN)
  add_test(NAME fuzz.guard COMMAND fuzz_graphs --operators --guard --seed 1000000000
    --seconds ${ATTNRUN_GRAPH_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
    ${ATTNRUN_TEST_DATA}/cases)
  set_tests_properties(fuzz.guard PROPERTIES TIMEOUT 600)
  if(ATTNRUN_PYTHON)
    set_tests_properties(fuzz.guard PROPERTIES FIXTURES_REQUIRED conformance_cases)
  endif()
endif()
set_tests_properties(fuzz.graphs fuzz.packed fuzz.operators fuzz.faults PROPERTIES TIMEOUT 600)
if(ATTNRUN_PYTHON)
  set_tests_properties(fuzz.graphs fuzz.packed fuzz.operators fuzz.faults
    PROPERTIES FIXTURES_REQUIRED conformance_cases)
endif()
