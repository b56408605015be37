# One model, many ways to run it: fusion, instruction sets, threads, patterns of memory.
# The small cases are all taken; of the exported models ATTNRUN_TESTS_FULL takes all, and runs
# each in more ways.
add_executable(oracle tests/oracle/oracle.c tools/io/value.c tools/io/fail.c)
target_link_libraries(oracle PRIVATE attn_flags attnrun_tested Threads::Threads m)
set(oracle_ways)
set(oracle_parts --every 3)
if(ATTNRUN_TESTS_FULL)
  set(oracle_ways --full)
  set(oracle_parts --full)
endif()
add_test(NAME oracle.golden COMMAND oracle ${oracle_ways}
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden)
add_python_test(runtime.bits_of_processes runtime/check_bits.py $<TARGET_FILE:oracle>
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden)
if(ATTNRUN_PYTHON)
  add_test(NAME oracle.conformance COMMAND oracle ${oracle_ways} ${cases})
  add_test(NAME oracle.families COMMAND oracle ${oracle_parts} ${families})
  add_test(NAME oracle.systems COMMAND oracle ${oracle_parts} ${systems})
  set_tests_properties(oracle.conformance PROPERTIES FIXTURES_REQUIRED conformance_cases)
  set_tests_properties(oracle.families PROPERTIES FIXTURES_REQUIRED model_families)
  set_tests_properties(oracle.systems PROPERTIES FIXTURES_REQUIRED systems)
  set_tests_properties(oracle.families oracle.systems PROPERTIES LABELS "slow")
endif()
