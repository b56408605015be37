# Tests of what operators share.
add_executable(test_nd_iter tests/ops/test_nd_iter.c ops/nd_iter.c)
target_link_libraries(test_nd_iter PRIVATE attn_flags)
add_test(NAME ops-nd-iter COMMAND test_nd_iter)
add_python_test(ops.products ops/check_products.py $<TARGET_FILE:attnrun>)
add_python_test(ops.contrib ops/check_contrib.py $<TARGET_FILE:attnrun>)
add_python_test(ops.ms ops/check_ms.py $<TARGET_FILE:attnrun>)
add_python_test(ops.resize ops/check_resize.py $<TARGET_FILE:attnrun>)
add_python_test(ops.doubles ops/check_doubles.py $<TARGET_FILE:attnrun>)
