# libattnrun_ort: the operators of domain attnrun for programs that run ONNX Runtime. Building
# it needs nothing of ONNX Runtime (ort_api.h).
set(ort_sources kernel one_node register workers)
list(TRANSFORM ort_sources PREPEND tools/ort/)
list(TRANSFORM ort_sources APPEND .c)
set(ort_map ${CMAKE_CURRENT_SOURCE_DIR}/tools/ort/ort.map)
add_library(attnrun_ort SHARED ${ort_sources})
target_link_libraries(attnrun_ort PRIVATE $<BUILD_INTERFACE:attn_flags> attnrun_shared
  Threads::Threads)
# Never unloaded: threads of its own may be under way when the host lets go of it.
target_link_options(attnrun_ort PRIVATE -Wl,--version-script=${ort_map} -Wl,-z,nodelete)
set_target_properties(attnrun_ort PROPERTIES LINK_DEPENDS ${ort_map}
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
install(TARGETS attnrun_ort LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
