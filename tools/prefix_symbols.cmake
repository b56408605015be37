# Renames the external symbols op_* of a static library to attn_op_*: within the tree an
# operator's names are short, in the program of a user they must not meet other ones. Names
# in debug information stay, so that a debugger finds both.
#
# usage: cmake -DNM=… -DOBJCOPY=… -DLIBRARY=libattnrun.a -DLIST=FILE -P prefix_symbols.cmake
execute_process(COMMAND ${NM} -g --defined-only ${LIBRARY}
  OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " op_[A-Za-z0-9_]+" names "${symbols}")
list(REMOVE_DUPLICATES names)
set(lines "")
foreach(name IN LISTS names)
  string(STRIP ${name} name)
  string(APPEND lines "${name} attn_${name}\n")
endforeach()
file(WRITE ${LIST} "${lines}")
execute_process(COMMAND ${OBJCOPY} --redefine-syms=${LIST} ${LIBRARY}
  COMMAND_ERROR_IS_FATAL ANY)
