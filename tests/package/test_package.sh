#!/bin/sh
# Installs into a new folder, and builds and runs the embedding example against it: by
# pkg-config and by find_package, shared and static; the header as C++ too.
#
# usage: test_package.sh BUILD SOURCE
#
# For another machine the environment has CROSS_CC, its compiler, CROSS_FLAGS, what finds the
# libraries, CROSS_CMAKE, options of cmake, and EMULATOR, which runs programs; C++ is left out then.
set -eu
build=$1 source=$2
cross=${CROSS_CC:+yes} flags=${CROSS_FLAGS:-}
# shellcheck disable=SC2086
cc() { command "${CROSS_CC:-cc}" "$@" $flags; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >"$work/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name attnrun.pc)")
libdir=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH
pc() { pkg-config "$@" attnrun; }

# A model of one Relu, f32[N,3] to f32[N,3], IR 8, opset 13, byte by byte.
printf 'not a model' >"$work/broken.onnx"
python3 - "$work/relu.onnx" <<'PYTHON'
import sys


def field(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload


def value(name):
    shape = field(1, field(2, b"N")) + field(1, b"\x08\x03")
    return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, shape)))


node = field(1, b"x") + field(2, b"y") + field(4, b"Relu")
graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
model = b"\x08\x08" + field(7, graph) + field(8, b"\x10\x0d")
open(sys.argv[1], "wb").write(model)
PYTHON

run() {
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$libdir ${EMULATOR:-} "$@"
}

check() { # name, program
    got=$(run "$2" "$work/relu.onnx" | tr '\n' ' ')
    if [ "$got" != "1 0 3 0 5 0 " ]; then
        echo "$1: got '$got'"
        exit 1
    fi
    if run "$2" "$work/broken.onnx" 2>"$work/error"; then
        echo "$1: a broken model was taken"
        exit 1
    fi
    echo "ok: $1"
}

example=$source/tools/examples/embed.c
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -o "$work/shared" "$example" $(pc --cflags --libs)
check "pkg-config, shared" "$work/shared"

# shellcheck disable=SC2046
cc -o "$work/static" "$example" $(pc --cflags) \
    $(pc --static --libs | sed 's/-lattnrun/-l:libattnrun.a/')
check "pkg-config, static" "$work/static"

if [ -z "$cross" ]; then
    # shellcheck disable=SC2046
    g++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -o "$work/cxx" "$example" -x none \
        $(pc --cflags --libs)
    check "pkg-config, C++" "$work/cxx"
fi

# The programs of tests/embed, as somebody would build them who has the package alone.
for compiler in ${CROSS_CC:-gcc clang}; do
    command -v "$compiler" >/dev/null || continue
    for name in memory outputs profile; do
        for kind in shared static; do
            libraries=$(pc --libs)
            if [ "$kind" = static ]; then
                libraries=$(pc --static --libs | sed 's/-lattnrun/-l:libattnrun.a/')
            fi
            # shellcheck disable=SC2046,SC2086
            "$compiler" -std=gnu11 $(pc --cflags) -o "$work/test" \
                "$source/tests/embed/test_$name.c" "$source/tests/runtime/harness.c" \
                "$source/tests/runtime/onnx_write.c" "$source/tests/runtime/sample_models.c" \
                $libraries -lcmocka -lpthread $flags
            run "$work/test" >"$work/log" 2>&1 || {
                cat "$work/log"
                exit 1
            }
        done
    done
    echo "ok: tests/embed with $compiler, shared and static"
done

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(embed C)
find_package(attnrun 0.2 REQUIRED COMPONENTS shared static)
find_package(attnrun 0.2 QUIET COMPONENTS gpu)
if(attnrun_FOUND)
  message(FATAL_ERROR "a component that there is not was found")
endif()
foreach(kind attnrun static)
  add_executable(embed_${kind} ${EXAMPLE})
  target_link_libraries(embed_${kind} PRIVATE attnrun::${kind})
endforeach()
CMAKE
# shellcheck disable=SC2086
cmake -S "$work/project" -B "$work/embed" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_FIND_ROOT_PATH="$prefix" -DEXAMPLE="$example" ${CROSS_CMAKE:-} >"$work/cmake.log"
cmake --build "$work/embed" >>"$work/cmake.log"
check "find_package, shared" "$work/embed/embed_attnrun"
check "find_package, static" "$work/embed/embed_static"

run "$prefix/bin/attnrun" version
run "$prefix/bin/attnrun" "$work/relu.onnx" -q
[ "$(find "$prefix/include" -type f | sort | tr '\n' ' ')" = \
    "$prefix/include/attnrun.h $prefix/include/attnrun.hpp " ]
echo "ok: installed attnrun"
