# Packages: cpack in the build folder makes libattnrun0, libattnrun-dev and attnrun as .deb, and
# one tar.gz of all. The components are those of the install rules.
set(CPACK_PACKAGE_NAME attnrun)
set(CPACK_PACKAGE_VENDOR attnrun)
set(ATTNRUN_MAINTAINER "attnrun developers <attnrun@users.noreply.github.com>" CACHE STRING
  "The maintainer of the packages")
set(CPACK_PACKAGE_CONTACT "${ATTNRUN_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run ONNX models on CPUs")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL libattnrun0 libattnrun-dev attnrun)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
find_program(shlibdeps dpkg-shlibdeps)
if(shlibdeps)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_LIBATTNRUN0_PACKAGE_NAME libattnrun0)
set(CPACK_DEBIAN_LIBATTNRUN0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBATTNRUN-DEV_PACKAGE_NAME libattnrun-dev)
set(CPACK_DEBIAN_LIBATTNRUN-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBATTNRUN-DEV_PACKAGE_DEPENDS
  "libattnrun0 (= ${PROJECT_VERSION}), libprotobuf-c-dev")
if(ATTNRUN_BLAS) # loaded by name: dpkg-shlibdeps does not see it
  set(CPACK_DEBIAN_LIBATTNRUN0_PACKAGE_DEPENDS "libopenblas0-serial | libopenblas0")
endif()
set(CPACK_DEBIAN_ATTNRUN_PACKAGE_NAME attnrun)
set(CPACK_DEBIAN_ATTNRUN_PACKAGE_SUGGESTS "python3 (>= 3.10)")
set(CPACK_COMPONENT_LIBATTNRUN0_DESCRIPTION "The shared library, which runs models.")
set(CPACK_COMPONENT_LIBATTNRUN-DEV_DESCRIPTION
  "The header, the static library, and files for pkg-config and CMake.")
set(CPACK_COMPONENT_ATTNRUN_DESCRIPTION
  "The command line, its man pages and the completions of bash, zsh and fish.")

# The version in which each function appeared, for packages that are built on the library.
set(abi ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/abi.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${abi})
file(STRINGS ${abi} functions REGEX "^function ")
set(symbols "libattnrun.so.${PROJECT_VERSION_MAJOR} libattnrun0 #MINVER#\n")
foreach(function IN LISTS functions)
  string(REGEX REPLACE "^function ([a-z0-9_]+) (.+)$" "\\1@\\2" function "${function}")
  string(APPEND symbols " ${function} ${PROJECT_VERSION}\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/symbols CONTENT "${symbols}" @ONLY)
set(CPACK_DEBIAN_LIBATTNRUN0_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/symbols)

# Each package brings its copyright and what has changed; the text of the license is Debian's, and
# a file for who installs without packages.
set(packaging ${CMAKE_CURRENT_BINARY_DIR}/packaging)
file(MAKE_DIRECTORY ${packaging})
find_program(gzip gzip)
if(gzip)
  include(tools/packaging/changelog.cmake)
  debian_changelog(${packaging}/changelog)
  execute_process(COMMAND ${gzip} -9nc ${packaging}/changelog
    OUTPUT_FILE ${packaging}/changelog.gz)
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  install(FILES tools/packaging/copyright COMPONENT ${component}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component})
  install(FILES ${packaging}/changelog.gz COMPONENT ${component} OPTIONAL
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component})
endforeach()
install(FILES LICENSE COMPONENT license DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/attnrun)

include(CPack)
