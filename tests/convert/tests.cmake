# References of operators and the function bodies made of them.
set(full)
if(ATTNRUN_TESTS_FULL)
  set(full --full)
endif()
add_python_test(convert.bodies convert/test_bodies.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun> ${full})
# The converter: operators by hand, known modules, the rules of bodies, the command line.
# Most of their time passes in the exporter: the sanitizers leave them to their full mode.
set(converter_tests convert.bodies)
foreach(part call recurrent adapters packages maps masks half outside by_name table rules
    command fuse)
  add_python_test(convert.${part} convert/test_${part}.py ${CMAKE_CURRENT_SOURCE_DIR}
    $<TARGET_FILE:attnrun>)
  list(APPEND converter_tests convert.${part})
endforeach()
if(ATTNRUN_PYTHON)
  set_tests_properties(${converter_tests} PROPERTIES LABELS "python;slow")
  # Many whole models of packages, minutes each.
  set_tests_properties(convert.table convert.packages PROPERTIES LABELS "python;slow;long")
endif()
