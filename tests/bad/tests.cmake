# Broken models and inputs, valid twins, and mutants: exit codes and sentences.
set(bad ${CMAKE_BINARY_DIR}/bad)
add_python_test(bad.mutants bad/mutants.py $<TARGET_FILE:attnrun> ${ATTNRUN_TEST_DATA}/cases
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden --n 400)
add_python_test(bad.make bad/make_bad.py ${bad})
add_python_test(bad.run bad/run_bad.py $<TARGET_FILE:attnrun> ${bad}
  --messages ${bad}/messages.txt)
if(ATTNRUN_PYTHON)
  set_tests_properties(bad.make PROPERTIES FIXTURES_SETUP bad_cases)
  set_tests_properties(bad.run PROPERTIES FIXTURES_REQUIRED bad_cases)
  set_tests_properties(bad.mutants PROPERTIES FIXTURES_REQUIRED conformance_cases)
endif()
