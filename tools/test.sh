#!/usr/bin/env bash
# test.sh - every check that a change must pass; complete on a fresh Debian 12.
#
# usage: bash tools/test.sh [--full] [--build] [STEP...]
#
# Steps, all by default, in this order:
#   style     clang-format, clang-tidy
#   release   gcc Release, warnings are errors; all of ctest but the tests labelled "long" and the
#             fuzzing that asan does, and of those of operators, of the converter, of models, of
#             the tools and of Python a part
#   clang     clang builds the same without warnings, and its kernels agree with their references;
#             the kernels of the sets that this CPU has, and other code not optimized, all of it
#             with --full
#   asan      AddressSanitizer + UBSan (gcc), with the kernels of the sets that this CPU has: unit
#             tests, bad inputs, fuzzing, a part of conformance, of the operators, of the tools
#             and of programs that embed the library
#   clang-asan  the same of clang, which sees other faults: the kernels and the bad inputs;
#             only with --full or by name
#   msan      MemorySanitizer (clang; OpenBLAS is left out, other libraries are compiled for it):
#             unit tests, kernels, operators, bad inputs, a part of conformance and of fuzzing;
#             only with --full or by name
#   fuzz      clang's libFuzzer looks for bytes of a model that the loader does not stand; only with
#             --full or by name
#   tsan      ThreadSanitizer: the tests labelled "threads"; with --full 300,000 runs of one model
#   valgrind  a few runs without an error or a leak
#   aarch64   gcc builds for AArch64; unit tests, kernels, attention, conformance and programs
#             that embed the library under qemu; only with --full or by name
#   packages  Python packages that import onnxruntime give the same with attnrun in its place;
#             only with --full or by name
#   scale     Ray Data and Apache Beam with two processes: poisoned documents, a killed process;
#             only with --full or by name
#   wheels    the wheels of x86-64 and AArch64, types by mypy; only with --full or by name
# Where a step takes a part, the hash of the commit decides which one, and the step prints it.
# --full takes every exporter and opset of the model families, the tests labelled "long", every
# part, and the whole conformance set and the converter under the sanitizers. --build makes
# the builds of the steps and runs no test of them. Root or sudo is needed for missing packages. The
# minutes of each step stand at the end.
# Everything is written under build/; build/logs holds one log a step.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/prepare.sh

passed=0
failed=0
full=0
tests=1
steps=()
for argument in "$@"; do
    case $argument in
    --full) full=1 ;;
    --build) tests=0 ;;
    style | release | clang | asan | clang-asan | msan | fuzz | tsan | valgrind | aarch64 | \
        packages | scale | wheels) steps+=("$argument") ;;
    *)
        sed -n '2,40s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
    esac
done
if [ ${#steps[@]} -eq 0 ]; then
    steps=(style release clang asan tsan valgrind)
    [ $full -eq 1 ] && steps=(style release clang asan clang-asan msan fuzz tsan valgrind aarch64 \
        packages scale wheels)
fi

# step NAME COMMAND... - one counted step with its log; the end of the log on failure.
step() {
    local name=$1 log=build/logs/$1.log started=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name ($((SECONDS - started)) s)"
        return 0
    fi
    failed=$((failed + 1))
    echo "FAIL  $name ($((SECONDS - started)) s), the end of $log:"
    tail -n 40 "$log"
    return 1
}

# run_ctest NAME FOLDER OPTION... - ctest, each of its tests counted.
run_ctest() {
    local name=$1 folder=$2 log=build/logs/$1.log started=$SECONDS ok bad
    shift 2
    [ $tests -eq 1 ] || return 0
    ctest --test-dir "$folder" -j2 --output-on-failure --no-tests=error "$@" >"$log" 2>&1
    local code=$?
    ok=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed ' "$log")
    bad=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*(\*\*\*|Not Run)' "$log")
    [ $code -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "$([ "$bad" -eq 0 ] && echo ok || echo FAIL)    $name: $ok passed, $bad failed" \
        "($((SECONDS - started)) s)"
    [ "$bad" -eq 0 ] || {
        grep -E '^ *[0-9]+/[0-9]+ Test .*(\*\*\*|Not Run)' "$log"
        grep -E '^(FAIL|[0-9]+ passed,)|Error|error:|ERROR' "$log" | head -n 60
        echo "      all of it: $log"
    }
}

prepare() {
    need_packages build-essential cmake ninja-build pkg-config git ca-certificates \
        libopenblas-serial-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev \
        zlib1g-dev libcmocka-dev valgrind clang-14 libclang-rt-14-dev ccache \
        python3 python3-venv &&
        need_venv build/venv tests/requirements.txt &&
        need_more build/venv tests/convert/requirements.txt &&
        need_more build/venv models/requirements.txt &&
        if [ $full -eq 1 ]; then need_venv build/venv-ml tests/ml/requirements.txt; fi
}

c_files() {
    git ls-files -co --exclude-standard '*.c' '*.h'
}

format_is_kept() {
    c_files | xargs build/venv/bin/clang-format --dry-run -Werror
}

# choose_part EVERY WHAT - sets part, which is below parts, and says it; there is one with --full.
choose_part() {
    parts=$1
    [ $full -eq 1 ] && parts=1
    part=$((16#$(git rev-parse HEAD | cut -c 1-8) % parts))
    echo "      part $((part + 1)) of $parts of $2"
}

# other_parts FOLDER PATTERN - a pattern of the tests like PATTERN that are not of the chosen part.
# Tests that need the files of a test like PATTERN are of one part, and what makes these files runs
# with them alone. Parts have about the same cost: the next one goes to the part that has least.
other_parts() {
    ctest --test-dir "$1" --show-only=json-v1 -FA '.*' | python3 -c '
import json, re, sys
parts, part, pattern = int(sys.argv[1]), int(sys.argv[2]), re.compile(sys.argv[3])
tests = {test["name"]: {each["name"]: each["value"] for each in test["properties"]}
         for test in json.load(sys.stdin)["tests"]}
makers = {made: name for name, test in tests.items() if pattern.search(name)
          for made in test.get("FIXTURES_SETUP", [])}
units = {}
for name, test in tests.items():
    if pattern.search(name):
        needs = [makers[need] for need in test.get("FIXTURES_REQUIRED", []) if need in makers]
        units.setdefault((needs or [name])[0], []).append(name)

def cost(unit):
    return sum((tests[name].get("COST") or 5) * tests[name].get("PROCESSORS", 1)
               for name in unit)

sums, others = [0] * parts, []
for unit in sorted(units.values(), key=cost, reverse=True):
    at = sums.index(min(sums))
    sums[at] += cost(unit)
    others += unit if at != part else []
print("|".join(f"^{re.escape(name)}$" for name in others))
' "$parts" "$part" "$2"
}

# ggml_products.c is built with ggml's header by ggml.py, outside of this build.
tidy_is_quiet() {
    cmake -S . -B build/tidy -G Ninja -DCMAKE_C_COMPILER=clang-14 >/dev/null &&
        cmake --build build/tidy --target attn_schema >/dev/null || return 1
    git ls-files -co --exclude-standard 'runtime/*.c' 'loaders/*.c' 'ops/*.c' 'tools/*.c' |
        grep -v -e '^ops/kernels/' -e '^tools/examples/' -e '^tools/bench/ggml_products.c' |
        awk "NR % $parts == $part" |
        xargs -P2 -n4 build/venv/bin/clang-tidy --quiet -p build/tidy
}

run_style() {
    step format format_is_kept
    choose_part 10 "the files, by clang-tidy" # two seconds or more a file
    step tidy tidy_is_quiet
}

run_release() {
    local options=(-DATTNRUN_WERROR=ON -DCMAKE_C_COMPILER=gcc)
    # Pages are shown in a browser, packages are checked, the example server is under load.
    if [ $full -eq 1 ]; then
        options+=(-DATTNRUN_TESTS_FULL=ON)
        need_packages chromium fonts-dejavu-core lintian libcpp-httplib-dev
    fi
    step release-build build build/release "${options[@]}" || return
    choose_part 15 "the tests of operators, the converter, models, tools and Python"
    local sampled='^(ops|convert|models|tools|python)[._]|^oracle\.(families|systems)$'
    # These targets of fuzzing look with AddressSanitizer, below.
    local fuzz='^fuzz\.(api|faults|files|forms|graphs|make_forms|operators|packed|paths|plan|'
    fuzz+='sizes)$'
    local leave_out=(-LE long
        -E "$fuzz|$(other_parts build/release "$sampled")")
    [ $full -eq 1 ] && leave_out=()
    run_ctest release build/release "${leave_out[@]}"
}

# usable_isas - the instruction sets that kernels of a build which only runs here need: those that
# the CPU has, if the step release has built the program that says so. All with --full.
usable_isas() {
    local name names=()
    [ $full -eq 0 ] && [ -x build/release/attnrun ] || return 0
    for name in $(sed -n 's/^ISA(\([a-z0-9_]*\),.*/\1/p' ops/kernels/isa.def); do
        ATTNRUN_ISA=$name build/release/attnrun doctor | grep -q "^isa  *$name," &&
            names+=("$name")
    done
    (IFS=';' && echo "${names[*]}")
}

# Warnings do not depend on the level. Kernels have a level of their own.
run_clang() {
    local options=(-DATTNRUN_WERROR=ON -DCMAKE_C_COMPILER=clang-14)
    [ $full -eq 0 ] && options+=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-DNDEBUG
        "-DATTNRUN_ISAS=$(usable_isas)")
    step clang-build build build/clang "${options[@]}" || return
    run_ctest clang build/clang -R '^kernels$'
}

run_asan() {
    step asan-build build build/asan -DATTNRUN_ASAN=ON -DCMAKE_C_COMPILER=gcc \
        "-DATTNRUN_ISAS=$(usable_isas)" || return
    choose_part 10 "the longer tests of operators, models, loaders, tools and embedding programs"
    local sampled='^(ops|attention|embed|models|tools)[._]|^oracle\.(families|systems)$'
    sampled+='|^(conformance\.(unknown_shapes|single_outputs)|loaders\.(all|long)_parts)$'
    sampled+='|^(runtime\.(faults|fault_calls)|polls\.deadline)$'
    local leave_out=(-LE slow -E "hygiene|package|$(other_parts build/asan "$sampled")")
    [ $full -eq 1 ] && leave_out=(-E 'hygiene|package|conformance.sample')
    run_ctest asan build/asan "${leave_out[@]}"
}

# Each kernel against its reference, models whose bytes are hostile, and the unit tests.
run_clang-asan() {
    step clang-asan-build build build/clang-asan -DATTNRUN_ASAN=ON \
        -DCMAKE_C_COMPILER=clang-14 || return
    local part=(-R '^(kernels|bad|runtime|loaders)')
    [ $full -eq 1 ] && part=(-LE slow -E 'hygiene|package')
    run_ctest clang-asan build/clang-asan "${part[@]}"
}

# Threads wait for each other in it for long; what they do is seen by the step tsan.
run_msan() {
    local flags=(-fsanitize=memory -fsanitize-memory-track-origins) libraries=build/msan-libraries
    step msan-libraries need_instrumented $libraries "${flags[@]}" || return
    # The kernels in plain C: of what intrinsics write it does not know all.
    PKG_CONFIG_PATH=$PWD/$libraries/lib/pkgconfig step msan-build build build/msan \
        -DATTNRUN_MSAN=ON -DATTNRUN_BLAS=OFF -DATTNRUN_ISAS=base -DCMAKE_C_COMPILER=clang-14 \
        -DZLIB_LIBRARY="$PWD/$libraries/lib/libz.a" \
        -DZLIB_INCLUDE_DIR="$PWD/$libraries/include" || return
    run_ctest msan build/msan -LE slow -R \
        '^(runtime|loaders|embed|kernels|attention|bad|fuzz|oracle.golden|conformance.sample)'
}

build_loader_fuzz() {
    configure "$@" && cmake --build "$1" --target fuzz_loader
}

run_fuzz() {
    local options=(-DATTNRUN_FUZZ=ON -DATTNRUN_ASAN=ON -DCMAKE_C_COMPILER=clang-14)
    [ "$(uname -m)" = x86_64 ] && options+=(-DATTNRUN_ISAS=avx2)
    step fuzz-build build_loader_fuzz build/fuzz "${options[@]}" || return
    run_ctest fuzz build/fuzz -R '^fuzz\.loader$'
}

# The library and the tests labelled "threads", whose programs bear their names.
build_threads() {
    configure "$@" || return
    local programs
    programs=$(ctest --test-dir "$1" -N -L threads |
        sed -n 's/^ *Test *#[0-9]*: /test_/p' | tr . _)
    [ -n "$programs" ] && xargs cmake --build "$1" --target <<<"$programs"
}

run_tsan() {
    local options=(-DATTNRUN_TSAN=ON -DCMAKE_C_COMPILER=gcc)
    # Threads are the same with the kernels of any set.
    [ "$(uname -m)" = x86_64 ] && options+=(-DATTNRUN_ISAS=avx2)
    step tsan-build build_threads build/tsan "${options[@]}" || return
    run_ctest tsan build/tsan -L threads
    [ $tests -eq 1 ] || return 0
    local threads
    for threads in 2 8 32; do
        [ $full -eq 1 ] && step tsan-soak-$threads build/tsan/test_runtime_soak \
            --threads $threads --runs 100000
    done
}

# valgrind knows AVX2 but not AVX-512.
valgrind_is_quiet() {
    local attnrun=build/release/attnrun cases=build/data/cases name
    for name in node/test_softmax_axis_1 node/test_lstm_defaults node/test_loop11 \
        node/test_conv_with_strides_padding simple/test_sequence_model1 \
        node/test_attention_4d_causal; do
        ATTNRUN_ISA=avx2 valgrind -q --error-exitcode=99 --leak-check=full \
            "$attnrun" check "$cases/$name" || return 1
    done
}

run_valgrind() {
    [ -x build/release/attnrun ] || step release-build build build/release || return
    [ -e build/data/cases/stamp.txt ] || build/venv/bin/python \
        tests/conformance/make_cases.py build/data/cases || return
    step valgrind valgrind_is_quiet
}

# Packages of another architecture: the libraries are unpacked, not installed.
prepare_aarch64() {
    need_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user &&
        need_sysroot build/aarch64-root arm64 libopenblas0-serial libopenblas-serial-dev \
            libgfortran5 libprotobuf-c1 libprotobuf-c-dev libyaml-0-2 libyaml-dev zlib1g \
            zlib1g-dev libcmocka0 libcmocka-dev
}

run_aarch64() {
    step aarch64-prepare prepare_aarch64 || return
    step aarch64-build build build/aarch64 -DATTNRUN_WERROR=ON \
        --toolchain "$PWD/tools/aarch64.cmake" \
        -DATTNRUN_SYSROOT="$PWD/build/aarch64-root" || return
    # qemu has tables for all addresses that a program reserves: each process gets 8 GB.
    local addresses
    addresses=$(ulimit -S -v)
    ulimit -S -v 8000000
    local names='runtime|loaders|kernels|attention|embed|package_(install|symbols)'
    run_ctest aarch64 build/aarch64 -R "^($names|conformance\\.(make|all|no_fusion))"
    ulimit -S -v "$addresses"
}

prepare_packages() {
    need_packages libgl1 libglib2.0-0 &&
        need_venv build/venv-packages tests/python/requirements-packages.txt &&
        need_more build/venv-packages tests/python/requirements-no-deps.txt
}

run_packages() {
    [ -d build/release/python ] || step release-build build build/release || return
    step packages-prepare prepare_packages || return
    step packages env PYTHONPATH="$PWD/build/release/python" build/venv-packages/bin/python \
        tests/python/check_packages.py build/venv-packages/bin/python
}

make_minilm() {
    [ -e build/data/minilm.onnx ] && return 0
    mkdir -p build/data
    "$1" tools/minilm/fill.py build/data/minilm.onnx
}

prepare_scale() {
    need_venv build/venv-scale tools/python/requirements-scale.txt &&
        need_more build/venv-scale tools/python/requirements-minilm.txt
}

run_scale() {
    [ -d build/release/python ] || step release-build build build/release || return
    step scale-prepare prepare_scale || return
    step scale-model make_minilm build/venv-scale/bin/python || return
    step scale env PYTHONPATH="$PWD/build/release/python" build/venv-scale/bin/python \
        tests/python/test_scale.py build/data/minilm.onnx
}

types_are_strict() {
    local python=$PWD/build/venv/bin/python mypy=$PWD/build/venv-wheels/bin/mypy
    (cd tools/python && "$mypy" --cache-dir ../../build/mypy --python-executable "$python")
}

# Each wheel is named after what it needs, and that of this machine computes in a new environment.
run_wheels() {
    step wheels bash tools/python/wheels.sh || return
    step wheels-types types_are_strict
    step wheels-run bash tests/python/try_wheel.sh
}

mkdir -p build/logs
step prepare prepare || {
    echo "$passed passed, $failed failed"
    exit 1
}
minutes=()
for name in "${steps[@]}"; do
    started=$SECONDS
    "run_$name"
    took=$((SECONDS - started))
    minutes+=("$name $((took / 60)).$((took % 60 / 6))")
done
echo "minutes: $(IFS=,; echo "${minutes[*]}" | sed 's/,/, /g')"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
