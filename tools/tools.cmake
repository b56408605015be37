# The command line: the whole static library, so that plugins find every attnrun_* symbol in it.
include(tools/sources.cmake)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
find_package(ZLIB REQUIRED)

# What `attnrun ops` says of bodies: the operators that have a reference in tools/convert.
file(GLOB references CONFIGURE_DEPENDS tools/convert/attnrun_convert/refs/*.py)
set(bodies "/* Operators of domain attnrun with a function body: BODY(name). */\n")
foreach(reference IN LISTS references)
  file(STRINGS ${reference} lines REGEX "^@operator\\(\"[A-Za-z]+\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^@operator\\(\"([A-Za-z]+)\".*" "BODY(\\1)\n" line "${line}")
    string(APPEND bodies "${line}")
  endforeach()
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${references})
file(CONFIGURE OUTPUT ${generated}/bodies.def CONTENT "${bodies}" @ONLY)

# The names of the operators' rows, for `attnrun compile`.
file(CONFIGURE OUTPUT ${generated}/op_rows.def
  CONTENT "#include \"${op_rows}\"\n" @ONLY)

include(tools/report/report.cmake)
add_executable(attnrun ${ATTN_TOOLS})
target_include_directories(attnrun PRIVATE ${generated})
target_compile_definitions(attnrun PRIVATE ${list_definitions})
set_target_properties(attnrun PROPERTIES ENABLE_EXPORTS ON
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
target_link_libraries(attnrun PRIVATE attn_flags
  -Wl,--whole-archive attnrun_static -Wl,--no-whole-archive
  PkgConfig::YAML ZLIB::ZLIB m)

# Examples. A plugin has no library to link to, the host has the symbols.
if(ATTNRUN_TESTS)
  add_library(attnrun_example_plugin MODULE tools/examples/plugin_op.c)
  target_link_libraries(attnrun_example_plugin PRIVATE attn_flags m)
  target_include_directories(attnrun_example_plugin PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR}/runtime)
  set_target_properties(attnrun_example_plugin PROPERTIES PREFIX "" OUTPUT_NAME plugin_op)

  foreach(example generate decode)
    add_executable(attnrun_example_${example} tools/examples/${example}.c)
    target_include_directories(attnrun_example_${example} PRIVATE
      ${CMAKE_CURRENT_SOURCE_DIR}/runtime)
    target_link_libraries(attnrun_example_${example} PRIVATE attn_flags attnrun_static m)
  endforeach()
endif()
