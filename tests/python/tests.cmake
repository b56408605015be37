# The Python package, from the build tree.
if(sanitized) # sanitizers do not load into a Python without them
  return()
endif()
set(python_environment
  "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_CURRENT_BINARY_DIR}/python")
add_python_test(python.model python/test_model.py)
add_python_test(python.ort python/test_ort.py)
add_python_test(python.workers python/test_workers.py)
add_python_test(python.threads python/test_threads.py)
add_python_test(python.compile python/test_compile.py)
add_python_test(ops.batch_rows ops/check_batch_rows.py)
add_python_test(ops.hidden_values ops/check_hidden_values.py)
# Over what tests of com.microsoft draw, too: cases.py keeps a copy.
set(batch_cases ${CMAKE_CURRENT_BINARY_DIR}/batch_cases)
set(batch_tests ops.contrib ops.ms ops.ms_bits ops.ms_layers ops.ms_mixture ops.ms_gates
  ops.ms_paged)
if(TARGET attnrun)
  add_python_test(ops.batch_walk ops/check_batch_walk.py $<TARGET_FILE:attnrun>
    ${ATTNRUN_TEST_DATA}/cases/node ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden
    ${batch_cases})
  add_python_test(ops.inner_values ops/check_inner_values.py ${ATTNRUN_TEST_DATA}/cases/node
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${batch_cases})
endif()
if(TARGET attnrun)
  add_python_test(python.ort_ops python/test_ort_ops.py
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${ATTNRUN_SAMPLES})
endif()
if(ATTNRUN_TESTS_FULL)
  add_python_test(python.backend python/test_backend.py --every 1)
else()
  add_python_test(python.backend python/test_backend.py --every 10)
endif()
if(ATTNRUN_PYTHON)
  if(TARGET attnrun)
    set_tests_properties(python.ort_ops PROPERTIES ENVIRONMENT
      "${python_environment};ATTNRUN=$<TARGET_FILE:attnrun>")
    set_tests_properties(${batch_tests} PROPERTIES ENVIRONMENT "ATTNRUN_BATCH_CASES=${batch_cases}"
      FIXTURES_SETUP batch_cases)
    set_tests_properties(ops.batch_walk ops.inner_values PROPERTIES
      ENVIRONMENT "${python_environment}" FIXTURES_REQUIRED "batch_cases;conformance_cases")
  endif()
  set_tests_properties(python.compile PROPERTIES ENVIRONMENT
    "${python_environment}:${CMAKE_CURRENT_SOURCE_DIR}/tools/convert")
  set_tests_properties(python.model python.ort python.workers python.threads
    python.backend ops.batch_rows ops.hidden_values PROPERTIES
    ENVIRONMENT "${python_environment}")
endif()
