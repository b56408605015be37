# The command line, end to end.
add_python_test(tools_cli tools/test_cli.py $<TARGET_FILE:attnrun>
  $<TARGET_FILE:attnrun_example_plugin>)
add_python_test(tools_use tools/test_use.py $<TARGET_FILE:attnrun>)
add_python_test(tools_budget tools/test_budget.py $<TARGET_FILE:attnrun>)
add_python_test(tools_json tools/test_json.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_compare tools/test_compare.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_edit tools/test_edit.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_edit_branches tools/test_edit_branches.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_manual tools/test_manual.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
set(full)
if(ATTNRUN_TESTS_FULL)
  set(full --full)
endif()
add_python_test(tools_operator_pages tools/test_operator_pages.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun> ${full})
add_python_test(tools_output tools/test_output.py $<TARGET_FILE:attnrun>)
add_python_test(tools_shrunk tools/test_shrunk.py $<TARGET_FILE:attnrun>)
# Calls that fail, by a library that a sanitizer's own would be in the way of.
if(NOT sanitized AND NOT CMAKE_CROSSCOMPILING)
  add_library(fail_calls MODULE tests/tools/fail_calls.c)
  target_link_libraries(fail_calls PRIVATE attn_flags ${CMAKE_DL_LIBS})
  set_target_properties(fail_calls PROPERTIES C_VISIBILITY_PRESET default)
  set(trials)
  if(ATTNRUN_TESTS_FULL)
    set(trials --trials 0)
  endif()
  add_python_test(tools_faults tools/test_faults.py $<TARGET_FILE:attnrun>
    $<TARGET_FILE:fail_calls> ${trials})
endif()
add_python_test(tools_formats tools/test_formats.py $<TARGET_FILE:attnrun>)
add_python_test(tools_bench_cli tools/test_bench_cli.py $<TARGET_FILE:attnrun>)
add_python_test(tools_bench tools/test_bench.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(tools_examples tools/test_examples.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun> $<TARGET_FILE:attnrun_example_generate>)
add_python_test(tools_gallery tools/test_gallery.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_ops_used tools/test_ops_used.py $<TARGET_FILE:attnrun>)
add_python_test(tools_pack tools/test_pack.py $<TARGET_FILE:attnrun>)
add_python_test(tools_progress tools/test_progress.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_report tools/test_report.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(tools_maps tools/test_maps.py $<TARGET_FILE:attnrun>)
