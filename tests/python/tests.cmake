# The Python package, from the build tree.
if(ATTNRUN_ASAN OR ATTNRUN_TSAN) # sanitizers do not load into a Python without them
  return()
endif()
add_python_test(python.model python/test_model.py)
add_python_test(python.ort python/test_ort.py)
if(ATTNRUN_TESTS_FULL)
  add_python_test(python.backend python/test_backend.py --every 1)
else()
  add_python_test(python.backend python/test_backend.py --every 10)
endif()
if(ATTNRUN_PYTHON)
  set_tests_properties(python.model python.ort python.backend PROPERTIES
    ENVIRONMENT "PYTHONPATH=${CMAKE_CURRENT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
endif()
