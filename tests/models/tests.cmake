# Model families exported by torch.onnx.export, and the systems that models/ describes.
option(ATTNRUN_TESTS_FULL "All exporters and opsets of the model families" OFF)
set(families ${ATTNRUN_TEST_DATA}/families)
set(full)
if(ATTNRUN_TESTS_FULL)
  set(families ${ATTNRUN_TEST_DATA}/families-full)
  set(full --full)
endif()
set(systems ${CMAKE_CURRENT_SOURCE_DIR}/build/models)
add_python_test(models.export models/make_families.py ${families} ${full})
add_python_test(models.families models/run_models.py $<TARGET_FILE:attnrun> ${families})
add_python_test(models.twins models/run_twins.py $<TARGET_FILE:attnrun> ${families}
  ${ATTNRUN_TEST_DATA}/twins)
add_python_test(models.storage models/check_storage.py $<TARGET_FILE:attnrun>)
add_python_test(models.ragged models/check_ragged.py $<TARGET_FILE:attnrun> ${families})
add_python_test(models.build ../models/build.py ${systems})
add_python_test(models.systems models/test_systems.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun> ${systems})
add_python_test(models.check models/run_models.py $<TARGET_FILE:attnrun> ${systems} --bodies)
add_python_test(models.onnxruntime models/run_onnxruntime.py ${systems})
add_python_test(models.olmoe models/check_olmoe.py $<TARGET_FILE:attnrun>)
# Language models of a builder of others: two of its families, all under --full.
if(NOT sanitized) # the Python package does not load with sanitizers
  set(decoders llama gpt_oss)
  if(ATTNRUN_TESTS_FULL)
    set(decoders)
  endif()
  add_python_test(models.decoders models/check_decoders.py
    ${CMAKE_CURRENT_BINARY_DIR}/decoders $<TARGET_FILE:attnrun_example_decode> ${decoders})
  if(ATTNRUN_PYTHON)
    set_tests_properties(models.decoders PROPERTIES ENVIRONMENT
      "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_CURRENT_BINARY_DIR}/python:$ENV{PYTHONPATH}")
  endif()
endif()
foreach(name run_folders run_need run_oom run_steps)
  add_executable(${name} tests/models/${name}.c)
  target_link_libraries(${name} PRIVATE attn_flags attnrun_tested Threads::Threads m)
  target_include_directories(${name} PRIVATE runtime)
endforeach()
add_test(NAME models.need COMMAND run_need ${CMAKE_CURRENT_SOURCE_DIR}/tests/attention/golden)
if(ATTNRUN_PYTHON)
  add_test(NAME models.need_families COMMAND run_need ${families} ${ATTNRUN_TEST_DATA}/cases)
  set_tests_properties(models.need_families PROPERTIES
    FIXTURES_REQUIRED "model_families;conformance_cases")
  add_test(NAME models.c_api COMMAND run_folders ${systems})
  set(oom)
  foreach(family bert_d18 swin_d18 deberta_v2_d18 gpt2_past_d18 lstm_2_bi_d18 unet_d18 mamba_d18)
    list(APPEND oom ${families}/${family})
  endforeach()
  add_test(NAME models.oom COMMAND run_oom 60 ${oom})
  set_tests_properties(models.oom PROPERTIES FIXTURES_REQUIRED model_families)
  add_test(NAME models.steps_linear COMMAND run_steps ${systems}/linear-transformer-causal 0)
  add_test(NAME models.steps_llama COMMAND run_steps ${systems}/llama 2)
  add_test(NAME models.steps_packed COMMAND run_steps ${systems}/llama 2
    ${CMAKE_CURRENT_BINARY_DIR}/steps.attnpack)
  set_tests_properties(models.export PROPERTIES FIXTURES_SETUP model_families
    PROCESSORS 2)
  set_tests_properties(models.families models.twins models.ragged PROPERTIES
    FIXTURES_REQUIRED model_families)
  set_tests_properties(models.build PROPERTIES FIXTURES_SETUP systems PROCESSORS 2)
  set_tests_properties(models.systems models.check models.onnxruntime models.c_api
    models.steps_linear models.steps_llama models.steps_packed PROPERTIES FIXTURES_REQUIRED systems)
  set_tests_properties(models.export models.families models.twins models.build models.systems
    models.check models.onnxruntime PROPERTIES LABELS "python;slow")
  if(ATTNRUN_TESTS_FULL)
    set_tests_properties(models.export models.families PROPERTIES TIMEOUT 7200)
  endif()
endif()
