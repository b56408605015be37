# The installed package: pkg-config, find_package, exported and internal symbols.
add_test(NAME package_install COMMAND sh
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/test_package.sh
  ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
if(CMAKE_CROSSCOMPILING)
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  set_tests_properties(package_install PROPERTIES ENVIRONMENT "CROSS_CC=${CMAKE_C_COMPILER};\
CROSS_FLAGS=-I${ATTNRUN_SYSROOT}/usr/include ${CMAKE_EXE_LINKER_FLAGS_INIT};\
CROSS_CMAKE=--toolchain ${CMAKE_TOOLCHAIN_FILE} -DATTNRUN_SYSROOT=${ATTNRUN_SYSROOT};\
EMULATOR=${emulator};PKG_CONFIG_LIBDIR=$ENV{PKG_CONFIG_LIBDIR}")
endif()
add_test(NAME package_symbols COMMAND sh
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/test_symbols.sh
  $<TARGET_FILE:attnrun_shared> $<TARGET_FILE:attnrun_static>)
if(NOT CMAKE_CROSSCOMPILING)
  add_test(NAME package_abi COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/test_abi.sh
    $<TARGET_FILE:attnrun_shared> ${CMAKE_CURRENT_SOURCE_DIR}/runtime/attnrun.h
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/abi.txt)
endif()
# tests/package/check_hardening.py, over what is installed.
if(ATTNRUN_TOOLS AND NOT sanitized AND NOT CMAKE_CROSSCOMPILING)
  set(fortified)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(fortified --fortified)
  endif()
  add_python_test(package_hardening package/check_hardening.py ${fortified} $<TARGET_FILE:attnrun>
    $<TARGET_FILE:attnrun_shared> $<TARGET_FILE:attnrun_static>)
endif()
# Two builds without ccache: minutes.
if(ATTNRUN_TESTS_FULL AND ATTNRUN_TOOLS AND NOT sanitized AND NOT CMAKE_CROSSCOMPILING)
  add_python_test(package_reproducible package/check_reproducible.py
    ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_C_COMPILER})
  set_tests_properties(package_reproducible PROPERTIES LABELS "python;slow" PROCESSORS 2
    TIMEOUT 7200)
endif()
find_program(dpkg dpkg)
if(dpkg AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME package_packages COMMAND sh
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/package/test_packages.sh ${CMAKE_BINARY_DIR})
endif()
if(sanitized) # sanitizers bring symbols and flags of their own
  set_tests_properties(package_install package_symbols PROPERTIES DISABLED ON)
  if(TEST package_abi)
    set_tests_properties(package_abi PROPERTIES DISABLED ON)
  endif()
  if(TEST package_packages)
    set_tests_properties(package_packages PROPERTIES DISABLED ON)
  endif()
endif()
set(whole)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND isa_machine STREQUAL "x86_64" AND
   CMAKE_BUILD_TYPE STREQUAL "Release" AND kernel_level STREQUAL "-O3" AND NOT ATTNRUN_ISAS AND
   ATTNRUN_BLAS AND ATTNRUN_BF16 AND ATTNRUN_PACKED_RELOCATIONS)
  set(whole --whole)
endif()
add_python_test(package_size package/check_size.py ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_BINARY_DIR}
  ${whole})
