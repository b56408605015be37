# The Python package: the extension (limited API of Python 3.11: one build for all later ones)
# beside the shared library and the Python files, complete in BUILD/python/attnrun. Needs a
# Python with its headers; ATTNRUN_PYTHON_INCLUDE names another folder of them.
set(ATTNRUN_PYTHON_INCLUDE "" CACHE PATH "Folder of Python.h; empty: that of ATTNRUN_PYTHON")
set(python_include ${ATTNRUN_PYTHON_INCLUDE})
if(NOT python_include AND ATTNRUN_PYTHON)
  execute_process(COMMAND ${ATTNRUN_PYTHON} -c
    "import sysconfig, sys; print(sysconfig.get_path('include') * (sys.version_info >= (3, 11)))"
    OUTPUT_VARIABLE python_include OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT EXISTS "${python_include}/Python.h")
  message(STATUS "no Python.h of 3.11 or later: the Python package is left out")
  return()
endif()
set(python_sources dlpack interrupt module py_context py_model py_tensor py_values)
list(TRANSFORM python_sources PREPEND tools/python/src/)
list(TRANSFORM python_sources APPEND .c)
set(python_package ${CMAKE_CURRENT_BINARY_DIR}/python/attnrun)
add_library(attnrun_python MODULE ${python_sources})
target_include_directories(attnrun_python SYSTEM PRIVATE ${python_include})
# Python's tables of slots hold functions as void *, which ISO C does not know.
set_source_files_properties(${python_sources} PROPERTIES COMPILE_OPTIONS -Wno-pedantic)
target_link_libraries(attnrun_python PRIVATE attn_flags attnrun_shared)
# A free-threaded Python has no stable ABI: its extension is its own.
set(python_suffix .abi3.so)
if(EXISTS "${python_include}/pyconfig.h")
  file(STRINGS "${python_include}/pyconfig.h" free_threaded
    REGEX "^#define[ \t]+Py_GIL_DISABLED[ \t]+1")
  if(free_threaded)
    set(python_suffix .so)
  endif()
endif()
set_target_properties(attnrun_python PROPERTIES PREFIX "" OUTPUT_NAME _attnrun
  SUFFIX ${python_suffix} LIBRARY_OUTPUT_DIRECTORY ${python_package}
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

file(GLOB python_files CONFIGURE_DEPENDS tools/python/attnrun/*.py
  tools/python/attnrun/*.pyi tools/python/attnrun/py.typed)
add_custom_command(TARGET attnrun_python POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:attnrun_shared>
    ${python_package}/$<TARGET_SONAME_FILE_NAME:attnrun_shared> VERBATIM)
# The operators for onnxruntime, beside the library that they are in.
add_custom_target(attnrun_python_ort ALL
  COMMAND ${CMAKE_COMMAND} -E make_directory ${python_package}
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:attnrun_ort>
    ${python_package}/$<TARGET_FILE_NAME:attnrun_ort> VERBATIM)
add_dependencies(attnrun_python_ort attnrun_ort)
add_dependencies(attnrun_python attnrun_python_ort)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/python/stamp
  COMMAND ${CMAKE_COMMAND} -E make_directory ${python_package}
  COMMAND ${CMAKE_COMMAND} -E copy ${python_files} ${python_package}
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_CURRENT_BINARY_DIR}/python/stamp
  DEPENDS ${python_files} VERBATIM)
add_custom_target(attnrun_python_files ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/python/stamp)
add_dependencies(attnrun_python attnrun_python_files)
