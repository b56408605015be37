# One object library of kernels for each instruction set of isa.def that is of this machine
# and whose flags the compiler knows. Sets isa_objects and isa_definitions (ATTN_HAVE_<name>).
include(CheckCCompilerFlag) # compilers before gcc 11 and clang 12 lack some
set(isa_list ${CMAKE_CURRENT_SOURCE_DIR}/ops/kernels/isa.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${isa_list})
set(isa_machine ${CMAKE_SYSTEM_PROCESSOR})
if(isa_machine STREQUAL "AMD64")
  set(isa_machine x86_64)
elseif(isa_machine STREQUAL "arm64")
  set(isa_machine aarch64)
endif()

# -O3 copies the loops around the tiles of these files, and unrolls what outer.h does not; that
# would be half of their size. The tiles are unrolled by pragmas.
if(kernel_level STREQUAL "-O3")
  set_source_files_properties(ops/kernels/gemm_f32.c ops/kernels/gemm_bf16.c
    ops/kernels/query_tile_f32.c ops/kernels/query_tile_bf16.c PROPERTIES
    COMPILE_OPTIONS "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:ATTN_SMALL>>>:-O2>")
  # The loops of these files are over vectors. -O3 only copies them, once for each condition in
  # them, and for the rests of counts; their loops over elements become vectors at -O2 as well.
  set(vector_loops)
  foreach(file binary_f32 blocked_rows_f32 convert_f32 gemm_pack im2col softmax_f32)
    list(APPEND vector_loops ops/kernels/${file}.c)
  endforeach()
  set(level_2 -O2)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # which compares the costs of loops less often at -O2
    list(APPEND level_2 -fvect-cost-model=dynamic)
  endif()
  set_source_files_properties(${vector_loops} PROPERTIES
    COMPILE_OPTIONS "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:ATTN_SMALL>>>:${level_2}>")
endif()

# Loops over the rows of tiles whose conditions are the number of rows, and what zero points there
# are, would be copied for each of them.
if(kernel_level STREQUAL "-O3" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(ops/kernels/blocked_conv_u8.c ops/kernels/maps_f32.c
    ops/kernels/nbits_rows.c ops/kernels/norm_f32.c PROPERTIES COMPILE_OPTIONS -fno-unswitch-loops)
endif()

function(add_isa name parent texts vec_bytes registers f32_rows i8_rows)
  # The set that gives the rows of each kind: this one, or what gives them to its parent.
  foreach(kind floats bytes tiles pairs)
    set(${kind} ${isa_${kind}_${parent}})
    if(texts STREQUAL "all" OR texts STREQUAL kind OR "${texts} ${kind}" STREQUAL "bytes tiles")
      set(${kind} ${name})
    endif()
    set(isa_${kind}_${name} ${${kind}} PARENT_SCOPE)
  endforeach()
  if(texts STREQUAL "all")
    set(sources ${ATTN_KERNELS})
  else()
    set(sources ${ATTN_KERNELS_${texts}})
  endif()
  add_library(attn_kernels_${name} OBJECT ${sources} ops/kernels/isa_table.c)
  target_link_libraries(attn_kernels_${name} PRIVATE attn_flags)
  target_compile_definitions(attn_kernels_${name} PRIVATE
    ATTN_ISA_SUFFIX=${name} ATTN_ISA_FLOATS=${floats} ATTN_ISA_BYTES=${bytes}
    ATTN_ISA_TILES=${tiles} ATTN_ISA_PAIRS=${pairs} ATTN_ISA_VERBS="isa/${name}.h"
    VEC_BYTES=${vec_bytes} ATTN_REGISTERS=${registers} ATTN_F32_ROWS=${f32_rows}
    ATTN_I8_ROWS=${i8_rows} ATTN_ONE_TEXT=$<STREQUAL:${name},base>)
  if(ATTNRUN_OPS)
    list(LENGTH isa_names place)
    math(EXPR place "2 * ${place}")
    target_compile_definitions(attn_kernels_${name} PRIVATE ATTN_KERNELS_BY_USE=1
      ATTN_ISA_SET=${place})
    target_include_directories(attn_kernels_${name} PRIVATE ${generated})
  endif()
  set(level ${kernel_level})
  if(kernel_level STREQUAL "-O3" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND level -fno-ipa-cp-clone) # of functions that tiles share, for each number of rows
  endif()
  # x86-64 from before 2013 alone, and tests, run these.
  if(name STREQUAL "base" AND kernel_level STREQUAL "-O3")
    set(level -Os)
    set_target_properties(attn_kernels_base PROPERTIES ATTN_SMALL ON)
  endif()
  target_compile_options(attn_kernels_${name} PRIVATE
    ${level} -ffp-contract=fast -Wno-psabi ${isa_flags_${name}})
endfunction()

file(STRINGS ${isa_list} isa_rows REGEX "^ISA\\(")
foreach(row IN LISTS isa_rows)
  string(REGEX REPLACE "^ISA\\(|\"?\\)$" "" row "${row}")
  string(REGEX REPLACE ", *\"?" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 parent)
  list(GET row 2 machine)
  list(GET row 9 flags)
  set(known ON)
  if(ATTNRUN_ISAS AND NOT name STREQUAL "base" AND NOT name IN_LIST ATTNRUN_ISAS)
    set(known OFF)
  elseif(flags)
    check_c_compiler_flag("${flags}" ATTN_COMPILER_HAS_${name})
    set(known ${ATTN_COMPILER_HAS_${name}})
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(isa_flags_${name} ${isa_flags_${parent}} ${flags})
  set(isa_have_${name} 0)
  if(known AND machine MATCHES "^(any|${isa_machine})$" AND
     (name STREQUAL parent OR isa_have_${parent}))
    set(isa_have_${name} 1)
    list(SUBLIST row 3 5 geometry)
    add_isa(${name} ${parent} ${geometry})
    list(APPEND isa_objects $<TARGET_OBJECTS:attn_kernels_${name}>)
    list(APPEND isa_names ${name})
  endif()
  list(APPEND isa_definitions ATTN_HAVE_${name}=${isa_have_${name}})
endforeach()
foreach(name IN LISTS ATTNRUN_ISAS)
  if(NOT isa_have_${name})
    message(FATAL_ERROR "ATTNRUN_ISAS: ${name} is no instruction set of ${isa_machine}, or its "
      "parent is not in the list: ${isa_names} of \"${ATTNRUN_ISAS}\" are there")
  endif()
endforeach()

# The arrays of kernels.h in a library with the operators of a list.
if(ATTNRUN_OPS)
  file(GLOB kernel_lists CONFIGURE_DEPENDS ops/kernels/*.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_lists})
  set(names_text ${CMAKE_CURRENT_BINARY_DIR}/generated/kernel_names.c)
  file(WRITE ${names_text}
    "#define KERNEL(type, name, arguments) @name@\n#include \"kernels.def\"\n")
  execute_process(COMMAND ${CMAKE_C_COMPILER} -E -P -I${CMAKE_CURRENT_SOURCE_DIR}/ops/kernels
    ${names_text} OUTPUT_VARIABLE kernel_rows COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "@[a-z0-9_ ]+@" kernel_rows "${kernel_rows}")
  set(names "/* Made by ops/kernels/isa.cmake: see kernels.h. */\n")
  foreach(row IN LISTS kernel_rows)
    string(REGEX REPLACE "[@ ]" "" row "${row}")
    string(APPEND names "#define ${row} set[attn_kernel_${row}]\n")
  endforeach()
  file(CONFIGURE OUTPUT ${generated}/kernel_names.h CONTENT "${names}" @ONLY)
  set(texts "")
  foreach(isa IN LISTS isa_names)
    foreach(kind floats bytes tiles pairs)
      set(${kind} "attn_##name##_${isa_${kind}_${isa}}")
      list(APPEND all_${kind} "${${kind}}, ${${kind}}")
    endforeach()
    set(words NULL)
    if(isa_pairs_${isa} STREQUAL isa AND NOT isa_floats_${isa} STREQUAL isa)
      set(words ${pairs})
    endif()
    list(APPEND all_words "${words}, ${words}")
    set(bf16 "attn_##bf16##_${isa_pairs_${isa}}")
    if(NOT ATTNRUN_BF16)
      set(bf16 NULL)
    endif()
    list(APPEND all_products "${floats}, ${bf16}")
    string(APPEND texts " type attn_##name##_${isa} arguments;")
  endforeach()
  foreach(kind floats bytes tiles pairs words products)
    list(JOIN all_${kind} ", " all_${kind})
  endforeach()
  file(CONFIGURE OUTPUT ${generated}/kernel_sets.h CONTENT
"/* Made by ops/kernels/isa.cmake: see by_use.c. */
#define TEXTS(type, name, arguments)${texts}
#define FLOATS(name) ${all_floats}
#define BYTES(name) ${all_bytes}
#define TILES(name) ${all_tiles}
#define PAIRS(name) ${all_pairs}
#define WORDS(name) ${all_words}
#define PRODUCTS(name, bf16) ${all_products}
" @ONLY)
endif()
