# Operators of domain attnrun: against plain loops in double (attention_checks, one file
# for each line of checks.def), against outputs of upstream code (golden/), and against
# samples beside the repository, where there are any.
file(STRINGS tests/attention/checks.def check_lines REGEX "^CHECK\\(")
foreach(line IN LISTS check_lines)
  string(REGEX REPLACE "^CHECK\\(([a-z0-9_]+)\\).*" "\\1" name "${line}")
  list(APPEND attention_names ${name})
  list(APPEND attention_checks tests/attention/check_${name}.c)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/attention/checks.def)
add_executable(attention_checks tests/attention/operators_main.c tests/attention/operator_harness.c
  tests/attention/harness_model.c tests/attention/harness_run.c ${attention_checks})
target_link_libraries(attention_checks PRIVATE attn_runtime_harness m)
# Sanitizers take several times as long: each case on a third of the instruction sets, and a
# quarter of the golden cases; all in a full run.
set(isas)
set(share)
if(sanitized AND NOT ATTNRUN_TESTS_FULL)
  set(isas --every-isa 3)
  set(share --every 4)
endif()
foreach(name IN LISTS attention_names)
  add_test(NAME attention.checks.${name} COMMAND attention_checks ${isas} ${name})
endforeach()

set(ATTNRUN_SAMPLES ${CMAKE_CURRENT_SOURCE_DIR}/../shared/data/ops CACHE PATH
  "Folders of cases of operators of domain attnrun, run where they exist")
if(TARGET attnrun)
  file(GLOB golden_cases CONFIGURE_DEPENDS tests/attention/golden/*/model.onnx)
  if(golden_cases)
    add_test(NAME attention.golden COMMAND attnrun check
      ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden)
  endif()
  add_python_test(attention.halves attention/run_halves.py $<TARGET_FILE:attnrun>
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${share})
  add_python_test(attention.bf16 attention/run_bf16.py $<TARGET_FILE:attnrun>
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden ${share})
  add_python_test(attention.samples attention/run_samples.py $<TARGET_FILE:attnrun>
    ${ATTNRUN_SAMPLES})
  if(ATTNRUN_PYTHON)
    set_tests_properties(attention.samples PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endif()
