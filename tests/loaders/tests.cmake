# Tests of loaders/: the schema, the scan, tensors of every kind, whole models, functions.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
foreach(name all_parts attrs file_kind from_pb function limits long_parts model name_map packed
    packed_hash packed_words refused types wire_scan written)
  add_executable(test_loaders_${name} tests/loaders/test_${name}.c)
  target_link_libraries(test_loaders_${name} PRIVATE attn_flags attnrun_tested
    PkgConfig::CMOCKA PkgConfig::PROTOBUF_C Threads::Threads)
  target_include_directories(test_loaders_${name} PRIVATE runtime loaders ${generated})
  add_dependencies(test_loaders_${name} attn_schema)
  add_test(NAME loaders.${name} COMMAND test_loaders_${name})
endforeach()
target_sources(test_loaders_model PRIVATE tests/fuzz/guard.c)
foreach(name all_parts from_pb long_parts name_map packed packed_words written)
  target_link_libraries(test_loaders_${name} PRIVATE attn_runtime_harness)
endforeach()
add_python_test(loaders.proto loaders/check_proto.py
  ${CMAKE_CURRENT_SOURCE_DIR}/loaders/onnx.proto)
add_executable(show_constant tests/loaders/show_constant.c)
target_link_libraries(show_constant PRIVATE attn_flags attnrun_tested)
target_include_directories(show_constant PRIVATE runtime)
add_python_test(loaders.tensors loaders/test_tensors.py $<TARGET_FILE:show_constant>)
