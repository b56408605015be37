# What `cmake --install` puts where: the headers, both libraries, the command line, a pkg-config
# file, a CMake package, the converter. And what the shared library exports.
include(CMakePackageConfigHelpers)

set(map ${CMAKE_CURRENT_SOURCE_DIR}/tools/attnrun.map)
target_link_options(attnrun_shared PRIVATE -Wl,--version-script=${map})
set_target_properties(attnrun_shared PROPERTIES LINK_DEPENDS ${map} EXPORT_NAME attnrun)
set_target_properties(attnrun_static PROPERTIES EXPORT_NAME static)

install(FILES runtime/attnrun.h runtime/attnrun.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT libattnrun-dev)
install(TARGETS attnrun_shared EXPORT attnrunSharedTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libattnrun0
  NAMELINK_COMPONENT libattnrun-dev)
install(TARGETS attnrun_static EXPORT attnrunStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libattnrun-dev)
if(ATTNRUN_TOOLS)
  install(TARGETS attnrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT attnrun)
  install(DIRECTORY tools/convert DESTINATION ${CMAKE_INSTALL_DATADIR}/attnrun OPTIONAL
    COMPONENT attnrun
    PATTERN __pycache__ EXCLUDE)
endif()

# ---- CMake package ----
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/attnrun)
foreach(kind Shared Static)
  install(EXPORT attnrun${kind}Targets NAMESPACE attnrun:: DESTINATION ${package}
    COMPONENT libattnrun-dev)
endforeach()
configure_package_config_file(tools/attnrunConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/attnrunConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/attnrunConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnrunConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/attnrunConfigVersion.cmake DESTINATION ${package}
  COMPONENT libattnrun-dev)

# ---- pkg-config: paths from where the file lies, so that any --prefix works ----
set(ATTNRUN_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(ATTNRUN_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(ATTNRUN_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(ATTNRUN_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
# The library by name, not by Requires.private: that would add its headers' folder.
list(JOIN PROTOBUF_C_LDFLAGS " " ATTNRUN_PC_PRIVATE)
configure_file(tools/attnrun.pc.in ${CMAKE_CURRENT_BINARY_DIR}/attnrun.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnrun.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libattnrun-dev)
