# What programs that embed the library use, from the public header alone.
foreach(name arena memory outputs profile ragged)
  add_executable(test_embed_${name} tests/embed/test_${name}.c)
  target_link_libraries(test_embed_${name} PRIVATE attn_runtime_harness)
  add_test(NAME embed.${name} COMMAND test_embed_${name})
endforeach()
# The header of C++; sanitizers would need their flags in the program, too.
if(NOT sanitized AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME embed.hpp COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/tests/embed/test_hpp.sh
    ${CMAKE_CURRENT_SOURCE_DIR} $<TARGET_FILE:attnrun_static> ${PROTOBUF_C_LDFLAGS})
endif()
set_tests_properties(embed.arena embed.memory embed.outputs embed.profile embed.ragged PROPERTIES
  LABELS threads)

# The example server, where Debian's libcpp-httplib-dev is installed; its load test is small here
# and long in a full run.
include(CheckLanguage)
check_language(CXX)
pkg_check_modules(HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)
# MemorySanitizer would need a C++ library that is compiled for it, and the counters of clang a C++
# compiler that knows their options.
if(HTTPLIB_FOUND AND CMAKE_CXX_COMPILER AND NOT ATTNRUN_MSAN AND NOT ATTNRUN_COVERAGE AND
   NOT CMAKE_CROSSCOMPILING)
  enable_language(CXX)
  add_executable(attnrun_example_embed_server tools/examples/embed_server.cpp)
  target_compile_features(attnrun_example_embed_server PRIVATE cxx_std_17)
  target_compile_options(attnrun_example_embed_server PRIVATE -Wall -Wextra ${sanitize})
  target_link_options(attnrun_example_embed_server PRIVATE ${sanitize})
  target_link_libraries(attnrun_example_embed_server PRIVATE attnrun_static
    PkgConfig::HTTPLIB Threads::Threads)
  set(load --requests 400)
  if(ATTNRUN_TESTS_FULL)
    set(load --requests 40000 --clients 16)
  endif()
  # The same front over ONNX Runtime, which the Python package has as a library.
  set(packages ${CMAKE_CURRENT_SOURCE_DIR}/build/venv/lib/python3*/site-packages)
  file(GLOB onnxruntime ${packages}/onnxruntime/capi/libonnxruntime.so.*)
  if(ATTNRUN_TESTS_FULL AND onnxruntime AND NOT sanitized)
    add_executable(embed_server_ort tools/examples/embed_server.cpp)
    target_compile_features(embed_server_ort PRIVATE cxx_std_17)
    target_include_directories(embed_server_ort BEFORE PRIVATE tests/embed/ort_front)
    target_link_libraries(embed_server_ort PRIVATE ${onnxruntime} attnrun_static
      PkgConfig::HTTPLIB Threads::Threads)
    # Programs look for it by its SONAME, which the Python package has no file for.
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/onnxruntime)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${onnxruntime} ${folder}/libonnxruntime.so.1 SYMBOLIC)
    set_target_properties(embed_server_ort PROPERTIES BUILD_RPATH ${folder})
    list(APPEND load --beside $<TARGET_FILE:embed_server_ort>)
  endif()
  add_python_test(embed.server embed/check_server.py
    $<TARGET_FILE:attnrun_example_embed_server> ${load})
endif()

# A model as C, in a program of its own.
if(ATTNRUN_TOOLS AND NOT sanitized AND NOT CMAKE_CROSSCOMPILING)
  add_python_test(embed.compile embed/check_compile.py ${CMAKE_CURRENT_SOURCE_DIR}
    $<TARGET_FILE:attnrun> $<TARGET_FILE:attnrun_static>)
endif()

# Small libraries: two builds of their own, minutes without ccache.
if(ATTNRUN_TESTS_FULL AND ATTNRUN_TOOLS AND NOT sanitized AND
   NOT CMAKE_CROSSCOMPILING)
  add_python_test(embed.small embed/check_small.py ${CMAKE_CURRENT_SOURCE_DIR}
    $<TARGET_FILE:attnrun> ${ATTNRUN_TEST_DATA} ${CMAKE_C_COMPILER})
  set_tests_properties(embed.small PROPERTIES LABELS "python;slow")
endif()
