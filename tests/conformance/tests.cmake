# The 2,024 backend cases of the onnx package, against expected_failures.txt.
set(cases ${ATTNRUN_TEST_DATA}/cases)
add_python_test(conformance.make conformance/make_cases.py ${cases})
add_python_test(conformance.all conformance/run_conformance.py $<TARGET_FILE:attnrun>
  ${cases} --minimum 1100)
add_python_test(conformance.sample conformance/run_conformance.py $<TARGET_FILE:attnrun>
  ${cases} --every 7)
add_python_test(conformance.base conformance/run_conformance.py $<TARGET_FILE:attnrun>
  ${cases} --every 3 -- --isa base)
add_python_test(conformance.no_fusion conformance/run_conformance.py
  $<TARGET_FILE:attnrun> ${cases} --every 3 -- --no-fusion)
add_python_test(conformance.single_outputs conformance/single_outputs.py
  $<TARGET_FILE:attnrun> ${cases} ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden)
add_python_test(conformance.unknown_shapes conformance/unknown_shapes.py
  $<TARGET_FILE:attnrun> ${cases})
# One row of nine of PyTorch's database of operators, with samples of its own.
add_python_test(conformance.torch_operators conformance/torch_operators.py
  $<TARGET_FILE:attnrun> --every 9)
if(ATTNRUN_PYTHON)
  set_tests_properties(conformance.make PROPERTIES FIXTURES_SETUP conformance_cases)
  set_tests_properties(conformance.all conformance.sample conformance.base
    conformance.no_fusion conformance.single_outputs conformance.unknown_shapes
    PROPERTIES FIXTURES_REQUIRED conformance_cases)
  set_tests_properties(conformance.all conformance.base conformance.no_fusion
    PROPERTIES LABELS "python;slow")
endif()
