# prepare.sh - sourced by demo.sh, test.sh and the examples: system packages and Python
# environments.
# shellcheck shell=bash

# need_packages PACKAGE... - install the missing Debian packages; root or sudo.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null |
            grep -q '^install ok installed$' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    echo "installing: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "run as root or install sudo: apt-get install ${missing[*]}" >&2
            return 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# need_sysroot FOLDER ARCHITECTURE PACKAGE... - Debian packages of another architecture,
# unpacked into a folder; nothing of them is installed.
need_sysroot() {
    local folder=$1 architecture=$2 packages
    shift 2
    packages=$(printf '%s\n' "$@")
    [ "$(cat "$folder/packages.txt" 2>/dev/null)" = "$packages" ] && return 0
    echo "unpacking: $*"
    dpkg --print-foreign-architectures | grep -qx "$architecture" || {
        local as_root=()
        [ "$(id -u)" -eq 0 ] || as_root=(sudo)
        "${as_root[@]}" dpkg --add-architecture "$architecture" &&
            "${as_root[@]}" apt-get update -q || return 1
    }
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    (cd "$folder/packages" && apt-get download -q "${@/%/:$architecture}") || return 1
    local file
    for file in "$folder"/packages/*.deb; do
        dpkg -x "$file" "$folder" || return 1
    done
    printf '%s\n' "$packages" >"$folder/packages.txt"
}

# need_venv FOLDER REQUIREMENTS [PIP OPTION...] - a virtual environment with these pins.
# It is made again when the file changes. The user's pip configuration applies.
need_venv() {
    local folder=$1 requirements=$2
    shift 2
    cmp -s "$requirements" "$folder/requirements.txt" && return 0
    echo "python packages: $folder"
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" \
        -r "$requirements"
    cp "$requirements" "$folder/requirements.txt"
}

# need_more FOLDER REQUIREMENTS - packages without what they ask for, into an environment.
need_more() {
    local stamp
    stamp=$1/more-$(basename "$(dirname "$2")").txt
    cmp -s "$2" "$stamp" && return 0
    echo "python packages: $1, $2"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$2"
    cp "$2" "$stamp"
}

# debian_sources FOLDER PACKAGE... - the sources of packages of the Debian release, unpacked into a
# folder. The system's list of sources stays as it is.
debian_sources() {
    local folder=$1 options
    shift
    mkdir -p "$folder/lists/partial"
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | awk '$3 !~ /-/' | sort -u >"$folder/debian.list"
    options=(-q -o Dir::Etc::SourceList="$folder/debian.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$folder/lists")
    apt-get "${options[@]}" update &&
        (cd "$folder" && apt-get "${options[@]}" source "$@") || return 1
    rm -rf "$folder/lists"
}

# instrumented_objects FOLDER NAME CFLAG... - the C files of stdin become FOLDER/lib/libNAME.a.
instrumented_objects() {
    local folder=$1 name=$2 file
    shift 2
    mkdir -p "$folder/objects/$name" "$folder/lib/pkgconfig" "$folder/include"
    while read -r file; do
        clang-14 "$@" -fPIC -g -O1 -fno-omit-frame-pointer -w -c "$file" \
            -o "$folder/objects/$name/$(basename "$file" .c).o" || return 1
    done
    ar rcs "$folder/lib/lib$name.a" "$folder/objects/$name"/*.o
}

# pkg_config_file FOLDER PACKAGE NAME - what pkg-config says of FOLDER/lib/libNAME.a.
pkg_config_file() {
    printf 'Name: %s\nDescription: instrumented\nVersion: 0\nCflags: -I%s\nLibs: -L%s -l%s\n' \
        "$2" "$1/include" "$1/lib" "$3" >"$1/lib/pkgconfig/$2.pc"
}

# need_instrumented FOLDER CFLAG... - protobuf-c, libyaml, zlib and cmocka of Debian's sources,
# compiled by clang with these flags: MemorySanitizer knows only what such code has written.
need_instrumented() {
    local folder=$PWD/$1 from=$PWD/$1/sources
    [ -e "$folder/complete" ] && return 0
    shift
    rm -rf "$folder"
    debian_sources "$from" protobuf-c libyaml zlib cmocka || return 1
    ls "$from"/protobuf-c-*/protobuf-c/protobuf-c.c |
        instrumented_objects "$folder" protobuf-c "$@" -I"$(echo "$from"/protobuf-c-*/)" &&
        ls "$from"/libyaml-*/src/*.c |
        instrumented_objects "$folder" yaml "$@" -I"$(echo "$from"/libyaml-*/include)" \
            -DYAML_VERSION_MAJOR=0 -DYAML_VERSION_MINOR=0 -DYAML_VERSION_PATCH=0 \
            '-DYAML_VERSION_STRING="0"' &&
        ls "$from"/zlib-*/{adler32,crc32,compress,uncompr,deflate,trees,zutil}.c \
            "$from"/zlib-*/{inflate,inffast,inftrees}.c |
        instrumented_objects "$folder" z "$@" -DHAVE_UNISTD_H &&
        ls "$from"/cmocka-*/src/cmocka.c |
        instrumented_objects "$folder" cmocka "$@" -I"$(echo "$from"/cmocka-*/include)" \
            -DHAVE_SIGNAL_H -DHAVE_STRUCT_TIMESPEC -DHAVE_SETJMP_H -DHAVE_UNISTD_H || return 1
    mkdir -p "$folder/include/protobuf-c"
    cp "$from"/protobuf-c-*/protobuf-c/protobuf-c.h "$folder/include/protobuf-c/"
    cp "$from"/libyaml-*/include/yaml.h "$from"/zlib-*/{zlib,zconf}.h \
        "$from"/cmocka-*/include/cmocka*.h "$folder/include/"
    pkg_config_file "$folder" libprotobuf-c protobuf-c
    pkg_config_file "$folder" yaml-0.1 yaml
    pkg_config_file "$folder" cmocka cmocka
    touch "$folder/complete"
}

# configure FOLDER [CMAKE OPTION...]
configure() {
    local folder=$1
    shift
    local launcher=()
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    cmake -S . -B "$folder" -G Ninja "${launcher[@]}" "$@"
}

# build FOLDER [CMAKE OPTION...] - configure and build.
build() {
    configure "$@" && cmake --build "$1"
}

# need_demo - what the demo and the examples need: packages, a small Python environment in
# build/demo-venv, attnrun in build/demo.
need_demo() {
    mkdir -p build
    need_packages build-essential cmake ninja-build pkg-config libopenblas-serial-dev \
        libprotobuf-c-dev protobuf-c-compiler libyaml-dev zlib1g-dev python3 python3-venv \
        ca-certificates
    need_venv build/demo-venv tools/minilm/requirements.txt --no-deps
    echo "building build/demo"
    build build/demo -DATTNRUN_TESTS=OFF >build/demo.log 2>&1 || {
        tail -n 40 build/demo.log
        return 1
    }
}
