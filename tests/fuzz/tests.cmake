include(tests/fuzz/fuzz.cmake)

# Models around sequences, optionals, subgraphs and attention: 10 s of cases; by hand
# longer: fuzz_graphs --seconds 3600 FOLDER... (see its head).
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
set(fuzz_sources tests/fuzz/case.c tests/fuzz/children.c tests/fuzz/guard.c tests/fuzz/inputs.c
  tests/fuzz/keep.c tests/fuzz/mutate.c tests/fuzz/packed.c tests/fuzz/plan_look.c
  tests/fuzz/results.c tests/fuzz/rewire.c tests/fuzz/sizes.c tools/io/value.c tools/io/fail.c)
add_executable(fuzz_graphs tests/fuzz/fuzz_graphs.c tests/fuzz/make.c ${fuzz_sources})
# Calls of the C interface; files and configurations, through the readers of the command line.
add_executable(fuzz_api tests/fuzz/fuzz_api.c tests/fuzz/api_args.c tests/fuzz/api_calls.c
  tests/fuzz/api_objects.c ${fuzz_sources})
target_link_libraries(fuzz_api PRIVATE attn_runtime_harness)
add_executable(fuzz_files tests/fuzz/fuzz_files.c tests/fuzz/files_make.c ${fuzz_sources}
  tools/io/file.c tools/io/json_read.c tools/io/map.c tools/io/npy_read.c tools/io/npy_text.c
  tools/io/npy_write.c tools/io/npz.c tools/io/output_file.c tools/io/read_files.c
  tools/io/zip_read.c tools/io/zip_write.c tools/cli/config.c tools/cli/files.c
  tools/cli/given_words.c tools/cli/limit.c tools/cli/option_texts.c tools/cli/options.c
  tools/cli/screen.c)
target_link_libraries(fuzz_files PRIVATE attn_runtime_harness PkgConfig::YAML ZLIB::ZLIB m)
# Files that a model names, in random trees; blocks in an arena.
add_executable(fuzz_paths tests/fuzz/fuzz_paths.c tests/fuzz/tree.c tests/fuzz/children.c)
add_executable(fuzz_plan tests/fuzz/fuzz_plan.c tests/fuzz/children.c)
foreach(name paths plan)
  target_link_libraries(fuzz_${name} PRIVATE attn_runtime_harness)
  add_test(NAME fuzz.${name} COMMAND fuzz_${name} --seconds 5)
endforeach()
foreach(name graphs api files paths plan)
  target_link_libraries(fuzz_${name} PRIVATE attn_flags attnrun_tested PkgConfig::PROTOBUF_C
    Threads::Threads)
  target_include_directories(fuzz_${name} PRIVATE runtime ${generated})
  add_dependencies(fuzz_${name} attn_schema)
endforeach()
add_executable(test_fuzz_results tests/fuzz/test_results.c tests/fuzz/results.c tools/io/value.c
  tools/io/fail.c)
target_link_libraries(test_fuzz_results PRIVATE attn_runtime_harness m)
add_test(NAME fuzz.results COMMAND test_fuzz_results)
set(ATTNRUN_TARGET_SECONDS 10 CACHE STRING "How long each test of fuzz_graphs looks")
add_test(NAME fuzz.graphs COMMAND fuzz_graphs --seconds ${ATTNRUN_TARGET_SECONDS}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.packed COMMAND fuzz_graphs --packed --seconds ${ATTNRUN_TARGET_SECONDS}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.operators COMMAND fuzz_graphs --operators
  --seconds ${ATTNRUN_TARGET_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
  ${ATTNRUN_TEST_DATA}/cases)
add_test(NAME fuzz.faults COMMAND fuzz_graphs --operators --faults --seed 2000000000
  --seconds ${ATTNRUN_TARGET_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
  ${ATTNRUN_TEST_DATA}/cases)
if(ATTNRUN_PYTHON)
  add_python_test(fuzz.make_forms fuzz/forms.py ${CMAKE_BINARY_DIR}/forms near_misses)
  add_test(NAME fuzz.forms COMMAND fuzz_graphs --forms --seconds ${ATTNRUN_TARGET_SECONDS}
    ${CMAKE_BINARY_DIR}/forms)
  set_tests_properties(fuzz.make_forms PROPERTIES FIXTURES_SETUP forms)
  set_tests_properties(fuzz.forms PROPERTIES FIXTURES_REQUIRED forms TIMEOUT 600)
endif()
add_test(NAME fuzz.sizes COMMAND fuzz_graphs --sizes --seconds ${ATTNRUN_TARGET_SECONDS}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
foreach(name api files)
  add_test(NAME fuzz.${name} COMMAND fuzz_${name} --seconds 8
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_TEST_DATA}/cases)
endforeach()
# A sanitizer has its own allocator: guard pages are for the builds without one.
if(NOT sanitized)
  add_test(NAME fuzz.guard COMMAND fuzz_graphs --operators --guard --seed 1000000000
    --seconds ${ATTNRUN_TARGET_SECONDS} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
    ${ATTNRUN_TEST_DATA}/cases)
  set_tests_properties(fuzz.guard PROPERTIES TIMEOUT 600)
  if(ATTNRUN_PYTHON)
    set_tests_properties(fuzz.guard PROPERTIES FIXTURES_REQUIRED conformance_cases)
  endif()
endif()
set_tests_properties(fuzz.graphs fuzz.packed fuzz.operators fuzz.sizes fuzz.faults fuzz.api
  fuzz.files PROPERTIES TIMEOUT 600)
if(ATTNRUN_PYTHON)
  set_tests_properties(fuzz.graphs fuzz.packed fuzz.operators fuzz.sizes fuzz.faults fuzz.api
    fuzz.files PROPERTIES FIXTURES_REQUIRED conformance_cases)
endif()
