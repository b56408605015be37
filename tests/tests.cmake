# Tests: ctest --test-dir BUILD. Labels: "slow" for minutes, "long" for those of them that only
# tools/test.sh --full runs, "python" for the pinned packages of tests/requirements.txt, "threads"
# for what ThreadSanitizer should see.
find_program(ATTNRUN_PYTHON NAMES python3 python
  PATHS ${CMAKE_CURRENT_SOURCE_DIR}/build/venv/bin NO_DEFAULT_PATH
  DOC "Python with tests/requirements.txt")
if(NOT ATTNRUN_PYTHON)
  message(STATUS "no build/venv: tests that need Python are left out (see tools/test.sh)")
endif()
set(ATTNRUN_TEST_DATA ${CMAKE_CURRENT_SOURCE_DIR}/build/data CACHE PATH
  "Generated test data, shared by all builds")

# add_python_test(NAME SCRIPT ARGUMENT...)
# Time limits end what hangs: ten times what an idle machine of two cores takes. models.build,
# the longest of the usual tests, takes about 450 s of processor time, 230 s on two cores.
# Where programs run in an emulator, a script gets a command that runs the program there.
function(emulate arguments)
  string(REGEX MATCHALL "TARGET_FILE:[a-z0-9_]+" programs "${${arguments}}")
  foreach(program IN LISTS programs)
    string(REPLACE "TARGET_FILE:" "" program ${program})
    get_target_property(type ${program} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set(emulated ${CMAKE_CURRENT_BINARY_DIR}/emulated/${program})
      string(REPLACE ";" " " emulator "${CMAKE_CROSSCOMPILING_EMULATOR}")
      file(WRITE ${emulated}
        "#!/bin/sh\nexec ${emulator} ${CMAKE_CURRENT_BINARY_DIR}/${program} \"$@\"\n")
      file(CHMOD ${emulated} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
      string(REPLACE "$<TARGET_FILE:${program}>" "${emulated}" ${arguments} "${${arguments}}")
    endif()
  endforeach()
  set(${arguments} "${${arguments}}" PARENT_SCOPE)
endfunction()

function(add_python_test name script)
  set(given ${ARGN})
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    emulate(given)
  endif()
  if(ATTNRUN_PYTHON)
    add_test(NAME ${name} COMMAND ${ATTNRUN_PYTHON}
      ${CMAKE_CURRENT_SOURCE_DIR}/tests/${script} ${given})
    # Two tests run at a time: threads of PyTorch and numpy would wait for those of the other.
    # OMP_NUM_THREADS is left alone, since attnrun reads it, too.
    set_tests_properties(${name} PROPERTIES LABELS python TIMEOUT 2500
      ENVIRONMENT_MODIFICATION "MKL_NUM_THREADS=set:1;OPENBLAS_NUM_THREADS=set:1")
  endif()
endfunction()

foreach(folder
    runtime embed loaders kernels ops attention convert tools polls python package fuzz conformance
    models oracle ml bad hygiene)
  include(tests/${folder}/tests.cmake OPTIONAL)
endforeach()

# Seconds of the longer tests on an idle machine. Those start first, so that none of them runs alone
# at the end, and parts of the tests (tools/test.sh) take about the same time.
set(costs
  ops.symbolic_sizes 370  convert.bodies 370  models.export 160  ops.full 115  ops.windows 105
  ops.involution 105  convert.table 110  convert.maps 90  ops.mechanisms 85  convert.by_name 80
  ops.features 80  ops.masks 80  convert.outside 75  convert.adapters 75  models.build 75
  ops.window_scores 70  ops.sliding 70  python.compile 65  ops.relative 65  ops.gates 65
  convert.call 60  convert.fuse 55  ops.sliding_mutants 55  tools_faults 50  tools_examples 50
  ops.layers 50  convert.masks 50  ops.parts 50  ops.inner_values 40  ops.mixing 40  ops.maps 35
  ops.sorted 35  ops.contrib 35  convert.rules 35  ops.size_sums 35  models.twins 30
  tools_progress 30  runtime.faults 25  polls.deadline 25  runtime.fault_calls 25)
while(costs)
  list(POP_FRONT costs test cost)
  if(TEST ${test})
    set_tests_properties(${test} PROPERTIES COST ${cost})
  endif()
endwhile()
