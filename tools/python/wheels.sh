#!/usr/bin/env bash
# wheels.sh - wheels of the Python package for x86-64 and AArch64, tagged with the glibc that
# they really need (2.28).
#
# usage: bash tools/python/wheels.sh [x86_64] [aarch64]
#
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

# wheel ARCHITECTURE
wheel() {
    local work=$folder/$1 compiler=gcc
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
set(CMAKE_C_CREATE_SHARED_LIBRARY "$rule")
set(CMAKE_C_CREATE_SHARED_MODULE "$rule")
CMAKE
    PKG_CONFIG_LIBDIR=$work/protobuf-c ATTNRUN_BLAS=OFF ATTNRUN_BUILD_BASE=$work/build \
        CMAKE_ARGS="--toolchain $work/toolchain.cmake" \
        _PYTHON_HOST_PLATFORM=linux-$1 \
        build/venv-wheels/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
        --wheel-dir "$work" ./tools/python
    build/venv-wheels/bin/python tools/python/tag_wheel.py "$work"/*.whl "$folder" \
        --glibc $glibc --limit $limit
}

prepare
[ $# -gt 0 ] || set -- x86_64 aarch64
for architecture in "$@"; do
    wheel "$architecture"
done
