#!/bin/sh
# Builds and runs the test of attnrun.hpp in C++17 and C++20, with each C++ compiler there is.
#
# usage: test_hpp.sh SOURCE LIBATTNRUN.a FLAG...   (the flags: what the library needs to be linked)
set -eu
source=$1 library=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=gnu11 -I"$source/runtime" -c -o "$work/onnx_write.o" "$source/tests/runtime/onnx_write.c"
found=0
for compiler in g++ clang++ clang++-14; do
    command -v "$compiler" >/dev/null || continue
    found=1
    for standard in 17 20; do
        "$compiler" -std=c++$standard -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -O1 \
            -I"$source/runtime" -o "$work/test" "$source/tests/embed/test_hpp.cpp" \
            "$work/onnx_write.o" "$library" "$@" -lpthread -ldl -lm
        said=$("$work/test") # in a line of its own, so that a failure ends this script
        echo "$compiler, C++$standard: $said"
    done
done
[ "$found" = 1 ] || { echo "no C++ compiler"; exit 1; }
