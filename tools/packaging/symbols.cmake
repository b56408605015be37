# Writes the symbols file of libattnrun0 to OUTPUT, and the compressed changelog of the packages
# beside it: what LIBRARY exports, from VERSION on. NM is the tool that lists it.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE listed
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "attnrun_[a-z0-9_]+@@ATTNRUN_[0-9]+" names "${listed}")
list(SORT names)
string(REGEX REPLACE ".*/" "" soname "${SONAME}")
set(text "${soname} libattnrun0 #MINVER#\n ATTNRUN_1@ATTNRUN_1 ${VERSION}\n")
foreach(name IN LISTS names)
  string(REPLACE "@@" "@" name ${name})
  string(APPEND text " ${name} ${VERSION}\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
