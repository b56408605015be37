# The command line: the whole static library, so that plugins find every attnrun_* symbol in it.
include(tools/sources.cmake)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
find_package(ZLIB REQUIRED)

add_executable(attnrun ${ATTN_TOOLS})
set_target_properties(attnrun PROPERTIES ENABLE_EXPORTS ON
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
target_link_libraries(attnrun PRIVATE attn_flags
  -Wl,--whole-archive attnrun_static -Wl,--no-whole-archive
  PkgConfig::YAML ZLIB::ZLIB m)
