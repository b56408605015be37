# References of operators and the function bodies made of them.
add_python_test(convert.bodies convert/test_bodies.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
# The converter: operators by hand, known modules, the rules of bodies, the command line.
foreach(part call recurrent adapters packages maps rules command fuse)
  add_python_test(convert.${part} convert/test_${part}.py ${CMAKE_CURRENT_SOURCE_DIR}
    $<TARGET_FILE:attnrun>)
endforeach()
