# Work between two polls. In a build with -DATTNRUN_COUNT=ON the compiler counts it.
add_executable(poll_probe tests/polls/probe.c)
add_library(attn_blocks OBJECT tests/polls/blocks.c)
target_link_libraries(poll_probe PRIVATE attn_flags attnrun_static)
target_sources(poll_probe PRIVATE $<TARGET_OBJECTS:attn_blocks>)
if(ATTNRUN_COUNT)
  target_compile_definitions(attn_blocks PRIVATE ATTN_COUNT_BLOCKS)
  target_link_options(poll_probe PRIVATE
    -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset)
endif()
