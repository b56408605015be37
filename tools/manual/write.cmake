# Writes the man pages and completions into FOLDER with the command line ATTNRUN (and EMULATOR
# before it, where that is set; its arguments are separated by commas).
string(REPLACE "," ";" EMULATOR "${EMULATOR}")
file(MAKE_DIRECTORY ${FOLDER})
function(write form command to)
  execute_process(COMMAND ${EMULATOR} ${ATTNRUN} help --form ${form} ${command}
    OUTPUT_FILE ${FOLDER}/${to} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
write(bash "" attnrun.bash)
write(zsh "" _attnrun)
write(fish "" attnrun.fish)
execute_process(COMMAND ${EMULATOR} ${ATTNRUN} help --form commands OUTPUT_VARIABLE names
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" names "${names}")
foreach(name IN LISTS names)
  write(man ${name} attnrun-${name}.1)
endforeach()
write(man "" attnrun.1) # last: what the build looks for
find_program(gzip gzip) # as Debian wants man pages
if(gzip)
  file(GLOB pages ${FOLDER}/*.1)
  foreach(page IN LISTS pages)
    execute_process(COMMAND ${gzip} -9nc ${page} OUTPUT_FILE ${page}.gz
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
