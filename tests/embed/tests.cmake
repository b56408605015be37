# What programs that embed the library use, from the public header alone.
foreach(name outputs profile)
  add_executable(test_embed_${name} tests/embed/test_${name}.c)
  target_link_libraries(test_embed_${name} PRIVATE attn_runtime_harness)
  add_test(NAME embed.${name} COMMAND test_embed_${name})
endforeach()
set_tests_properties(embed.outputs embed.profile PROPERTIES LABELS threads)
