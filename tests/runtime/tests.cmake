# Unit tests of runtime/, one executable each.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
add_library(attn_runtime_harness STATIC tests/runtime/harness.c tests/runtime/deadlines.c
  tests/runtime/onnx_write.c tests/runtime/sample_models.c)
# A program whose linker wraps calls of the library has the library in it.
target_link_libraries(attn_runtime_harness PUBLIC attn_flags PkgConfig::CMOCKA Threads::Threads
  $<IF:$<BOOL:$<TARGET_PROPERTY:ATTN_WRAPS>>,attnrun_static,attnrun_tested>)
target_include_directories(attn_runtime_harness PUBLIC runtime)
foreach(name alloc api bits caches cancel chain concurrent constants context decode dim dim_sizes
    dtype edits fault_calls faults faulty formula host idle in_place io maps offsets op operand
    override packing plan recheck registry reserved rewrite rows save_onnx side_heap soak stack
    state status strings subgraph tensor threads usage)
  add_executable(test_runtime_${name} tests/runtime/test_${name}.c)
  target_link_libraries(test_runtime_${name} PRIVATE attn_runtime_harness)
  # Sanitizers use several times the stack, and the time: the soak makes a tenth of its runs, and a
  # third of the allocations fails, which the seed chooses; all do in a full run.
  set(more)
  if(name STREQUAL "faults" AND sanitized AND NOT ATTNRUN_TESTS_FULL)
    set(more 3)
  endif()
  if(name STREQUAL "soak" AND sanitized)
    set(more --runs 1000)
  endif()
  if(NOT (name STREQUAL "stack" AND sanitized))
    add_test(NAME runtime.${name} COMMAND test_runtime_${name} ${more})
  endif()
endforeach()
set_target_properties(test_runtime_threads test_runtime_packing PROPERTIES ATTN_WRAPS ON)
target_link_options(test_runtime_threads PRIVATE -Wl,--wrap=pthread_create)
target_link_options(test_runtime_packing PRIVATE -Wl,--wrap=clock_gettime)
target_sources(test_runtime_dim PRIVATE tests/runtime/dim_eval.c)
add_library(test_plugin MODULE tests/runtime/plugin.c)
target_link_libraries(test_plugin PRIVATE attn_flags)
target_include_directories(test_plugin PRIVATE runtime)
target_compile_definitions(test_runtime_concurrent PRIVATE
  TEST_PLUGIN="$<TARGET_FILE:test_plugin>")
add_dependencies(test_runtime_concurrent test_plugin)
set_tests_properties(runtime.alloc runtime.bits runtime.cancel runtime.concurrent
  runtime.faulty runtime.packing runtime.soak runtime.status runtime.threads
  PROPERTIES LABELS threads)
add_executable(pack_counts tests/runtime/pack_counts.c)
target_link_libraries(pack_counts PRIVATE attn_flags attnrun_tested Threads::Threads)
target_include_directories(pack_counts PRIVATE runtime)
add_python_test(runtime.pack_counts runtime/check_packing.py $<TARGET_FILE:pack_counts>)
