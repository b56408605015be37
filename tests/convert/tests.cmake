# References of operators and the function bodies made of them.
add_python_test(convert.bodies convert/test_bodies.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(convert.call convert/test_call.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(convert.recurrent convert/test_recurrent.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
add_python_test(convert.adapters convert/test_adapters.py ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_FILE:attnrun>)
