# report_page.h: the files of the page that `attnrun report` writes, as arrays of bytes.
set(page "/* The template of attnrun report, its style and script, and the gallery's colours. */\n")
string(REPEAT "." 80 line) # 16 bytes
foreach(part template=report/page.html style=report/style.css script=report/script.js
    colours=gallery/colours.css)
  string(REGEX REPLACE "=.*" "" name ${part})
  string(REGEX REPLACE ".*=" "" path ${part})
  file(READ ${CMAKE_CURRENT_SOURCE_DIR}/tools/${path} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(APPEND page "static const unsigned char report_${name}[] = {\n${bytes}\n};\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/tools/${path})
endforeach()
file(CONFIGURE OUTPUT ${generated}/report_page.h CONTENT "${page}" @ONLY)
