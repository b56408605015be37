#!/usr/bin/env bash
# wheels.sh - wheels of the Python package for x86-64 and AArch64, tagged with the glibc that
# they really need (2.28).
#
# usage: bash tools/python/wheels.sh [--page] [x86_64] [aarch64] [PYTHON...]
#
# PYTHON: free-threaded interpreters (python3.14t, or a path), each of which gets a wheel of this
# machine's architecture; those that are in PATH do without being named. --page writes the sizes
# into tools/python/README.md.
# In: Debian 12 with root or sudo for missing packages. Out: build/wheels/*.whl, each at most
# 3.5 MB, complete but for numpy. gcc compiles, as it does everywhere else, so the kernels are
# those that were measured; the linker of the package ziglang, which knows the symbols of every
# glibc, links against 2.28. protobuf-c is linked in, OpenBLAS is left out (products of doubles
# alone use it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

glibc=2.28
limit=3500000
folder=$PWD/build/wheels

prepare() {
    need_packages build-essential cmake ninja-build pkg-config libprotobuf-c-dev \
        protobuf-c-compiler python3 python3-venv ccache
    need_venv build/venv-wheels tools/python/requirements-wheels.txt
    mkdir -p "$folder"
}

# static_protobuf ARCHITECTURE - protobuf-c's header and static library alone, for pkg-config.
static_protobuf() {
    local root=/ to=$folder/$1/protobuf-c
    if [ "$1" = aarch64 ]; then
        need_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross
        root=$folder/aarch64-root
        need_sysroot "$root" arm64 libprotobuf-c-dev
    fi
    mkdir -p "$to/include/protobuf-c"
    cp "$root"/usr/include/protobuf-c/protobuf-c.h "$to/include/protobuf-c/"
    cp "$root/usr/lib/$1-linux-gnu/libprotobuf-c.a" "$to/"
    cat >"$to/libprotobuf-c.pc" <<PC
Name: libprotobuf-c
Description: protobuf-c, static
Version: 1.4
Libs: $to/libprotobuf-c.a
Cflags: -I$to/include
PC
}

# wheel ARCHITECTURE [PYTHON] - PYTHON: that of an environment, by default the wheels' own.
wheel() {
    local work=$folder/$1 compiler=gcc python=${2:-build/venv-wheels/bin/python}
    [ "$1" = aarch64 ] && compiler=aarch64-linux-gnu-gcc
    rm -rf "$work"
    mkdir -p "$work"
    static_protobuf "$1"
    cat >"$work/link" <<LINK
#!/bin/sh
exec "$PWD/build/venv-wheels/bin/python" -m ziglang cc -target $1-linux-gnu.$glibc -s "\$@"
LINK
    chmod +x "$work/link"
    local rule="$work/link <CMAKE_SHARED_LIBRARY_C_FLAGS> <LINK_FLAGS>"
    rule+=" <CMAKE_SHARED_LIBRARY_CREATE_C_FLAGS> <SONAME_FLAG><TARGET_SONAME>"
    rule+=" -o <TARGET> <OBJECTS> <LINK_LIBRARIES>"
    local launcher=""
    command -v ccache >/dev/null && launcher=ccache
    cat >"$work/toolchain.cmake" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $1)
set(CMAKE_C_COMPILER $compiler)
set(CMAKE_C_COMPILER_LAUNCHER $launcher)
set(ATTNRUN_PACKED_RELOCATIONS OFF)
set(CMAKE_C_CREATE_SHARED_LIBRARY "$rule")
set(CMAKE_C_CREATE_SHARED_MODULE "$rule")
CMAKE
    PKG_CONFIG_LIBDIR=$work/protobuf-c ATTNRUN_BLAS=OFF ATTNRUN_BUILD_BASE=$work/build \
        CMAKE_ARGS="--toolchain $work/toolchain.cmake" \
        _PYTHON_HOST_PLATFORM=linux-$1 \
        "$python" -m pip wheel --quiet --no-deps --no-build-isolation \
        --wheel-dir "$work" ./tools/python
    build/venv-wheels/bin/python tools/python/tag_wheel.py "$work"/*.whl "$folder" \
        --glibc $glibc --limit $limit "${page[@]}"
}

# free_threaded PYTHON - a wheel for this interpreter alone, which has no stable ABI.
free_threaded() {
    local name environment
    name=$("$1" -c 'import sys, sysconfig
print("%d.%dt" % sys.version_info[:2] if sysconfig.get_config_var("Py_GIL_DISABLED") else "")')
    [ -n "$name" ] || {
        echo "wheels.sh: $1 is no free-threaded Python" >&2
        return 1
    }
    environment=build/venv-wheels-$name
    "$1" -m venv --clear "$environment"
    grep -E '^(packaging|setuptools|wheel)==' tools/python/requirements-wheels.txt |
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
            -r /dev/stdin
    wheel "$(uname -m)" "$PWD/$environment/bin/python"
}

page=()
if [ "${1-}" = --page ]; then
    page=(--page tools/python/README.md)
    shift
fi
prepare
[ $# -gt 0 ] || set -- x86_64 aarch64 \
    $(for name in python3.13t python3.14t python3.15t; do command -v $name || true; done)
for each in "$@"; do
    case $each in
    x86_64 | aarch64) wheel "$each" ;;
    *) free_threaded "$each" ;;
    esac
done
