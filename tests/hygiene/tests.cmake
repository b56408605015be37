# Rules that no compiler checks: heads, layers, local names, sizes, unused names, words, the
# public header.
add_python_test(hygiene.heads hygiene/heads.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(hygiene.layering hygiene/layering.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(hygiene.names hygiene/names.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(hygiene.sizes hygiene/sizes.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(hygiene.unused hygiene/unused.py ${CMAKE_CURRENT_SOURCE_DIR})
add_python_test(hygiene.words hygiene/words.py ${CMAKE_CURRENT_SOURCE_DIR})
foreach(language c cpp)
  set(wrapper ${CMAKE_BINARY_DIR}/header_${language}.${language})
  file(WRITE ${wrapper} "#include \"attnrun.h\"\nint main(void) { return 0; }\n")
  set(options -std=c11)
  if(language STREQUAL "cpp")
    set(options -x c++ -std=c++17)
  endif()
  add_test(NAME hygiene.header_${language} COMMAND ${CMAKE_C_COMPILER} ${options} -Wall
    -Wextra -Wpedantic -Werror -fsyntax-only -I${CMAKE_CURRENT_SOURCE_DIR}/runtime
    ${wrapper})
endforeach()
