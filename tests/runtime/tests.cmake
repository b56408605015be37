# Unit tests of runtime/, one executable each.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
foreach(name alloc dim dtype io status tensor threads)
  add_executable(test_runtime_${name} tests/runtime/test_${name}.c)
  target_link_libraries(test_runtime_${name} PRIVATE
    attn_flags attnrun_static PkgConfig::CMOCKA Threads::Threads)
  target_include_directories(test_runtime_${name} PRIVATE runtime)
  add_test(NAME runtime.${name} COMMAND test_runtime_${name})
endforeach()
set_tests_properties(runtime.alloc runtime.status runtime.threads PROPERTIES LABELS threads)
