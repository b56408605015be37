# Work between two polls. In a build with -DATTNRUN_COUNT=ON the compiler counts it.
add_executable(poll_probe tests/polls/probe.c)
add_library(attn_blocks OBJECT tests/polls/basic_blocks.c)
target_link_libraries(poll_probe PRIVATE attn_flags attnrun_static)
target_sources(poll_probe PRIVATE $<TARGET_OBJECTS:attn_blocks>)
set(polls_test ${CMAKE_CURRENT_SOURCE_DIR}/tests/polls/test_polls.py)
if(ATTNRUN_COUNT)
  add_test(NAME polls.blocks COMMAND ${ATTNRUN_PYTHON} ${polls_test}
    $<TARGET_FILE:poll_probe> blocks)
  set_tests_properties(polls.blocks PROPERTIES TIMEOUT 6000)
  target_compile_definitions(attn_blocks PRIVATE ATTN_COUNT_BLOCKS)
  target_link_options(poll_probe PRIVATE
    -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset)
else()
  add_python_test(polls.deadline polls/test_polls.py $<TARGET_FILE:poll_probe> deadline)
endif()
