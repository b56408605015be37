# Broken models and inputs, and valid twins: exit codes and sentences.
set(bad ${CMAKE_BINARY_DIR}/bad)
add_python_test(bad.make bad/make_bad.py ${bad})
add_python_test(bad.run bad/run_bad.py $<TARGET_FILE:attnrun> ${bad}
  --messages ${bad}/messages.txt)
if(ATTNRUN_PYTHON)
  set_tests_properties(bad.make PROPERTIES FIXTURES_SETUP bad_cases)
  set_tests_properties(bad.run PROPERTIES FIXTURES_REQUIRED bad_cases)
endif()
