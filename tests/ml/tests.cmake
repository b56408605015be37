# Models of scikit-learn, LightGBM, XGBoost and CatBoost, converted and compared with ONNX
# Runtime: in an environment of their own (tests/ml/requirements.txt).
find_program(ATTNRUN_ML_PYTHON NAMES python3 python
  PATHS ${CMAKE_CURRENT_SOURCE_DIR}/build/venv-ml/bin NO_DEFAULT_PATH
  DOC "Python with tests/ml/requirements.txt")
if(ATTNRUN_ML_PYTHON)
  add_test(NAME ml.pipelines COMMAND ${ATTNRUN_ML_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/ml/run_pipelines.py $<TARGET_FILE:attnrun>
    ${CMAKE_CURRENT_BINARY_DIR}/pipelines)
  set_tests_properties(ml.pipelines PROPERTIES LABELS "python;slow" TIMEOUT 7200)
else()
  message(STATUS "no build/venv-ml: pipelines of scikit-learn are left out (tools/test.sh --full)")
endif()
