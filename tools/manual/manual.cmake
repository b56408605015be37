# Man pages and completions: the command line writes them from its table of options. Where it
# cannot run here (cross builds without an emulator), they are left out.
set(manual ${CMAKE_CURRENT_BINARY_DIR}/manual)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  return()
endif()
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "," emulator) # a list would become arguments
set(runs ${CMAKE_COMMAND} -DATTNRUN=$<TARGET_FILE:attnrun> -DEMULATOR=${emulator} -DFOLDER=${manual}
  -P ${CMAKE_CURRENT_SOURCE_DIR}/tools/manual/write.cmake)
add_custom_command(OUTPUT ${manual}/attnrun.1 COMMAND ${runs}
  DEPENDS attnrun tools/manual/write.cmake
  COMMENT "Writing man pages and completions")
add_custom_target(attnrun_manual ALL DEPENDS ${manual}/attnrun.1)

include(GNUInstallDirs)
find_program(gzip gzip)
set(pages "*.1")
if(gzip)
  set(pages "*.1.gz")
endif()
install(DIRECTORY ${manual}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  COMPONENT attnrun
  FILES_MATCHING PATTERN "${pages}")
install(FILES ${manual}/attnrun.bash RENAME attnrun COMPONENT attnrun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
# Debian's zsh reads site-functions below /usr/local only, and vendor-completions below /usr.
install(CODE "set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES \"/usr\$\" AND EXISTS /etc/debian_version)
    set(folder vendor-completions)
  endif()
  file(INSTALL \"${manual}/_attnrun\" DESTINATION
    \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")"
  COMPONENT attnrun)
install(FILES ${manual}/attnrun.fish COMPONENT attnrun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
