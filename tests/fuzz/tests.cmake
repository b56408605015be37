include(tests/fuzz/fuzz.cmake)
