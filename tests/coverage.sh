#!/usr/bin/env bash
# coverage.sh - which lines and branches of the library the tests run, by clang's counters.
#
# usage: bash tests/coverage.sh [--tests REGEX] [--keep] [--missed PATH]
#
# Builds build/coverage (clang-14, llvm-14) for base, avx2, avx512 and its sets of bytes and pairs,
# so that operators meet each kind of kernels. The kernels are not counted: tests/kernels looks at
# each row of them. Runs the tests of REGEX there, but for the slowest ones, and prints a row for
# loaders, runtime and ops.
# --keep adds to the counts of the runs before, so that the tests may run in pieces; --missed prints
# the lines and the branches of one file or folder that no run reached, without running tests. The
# same table for each file is build/coverage/files.txt. Exit code 1 where a folder has less than
# its bar: 95 % of the lines, and of the branches 90 % in loaders and runtime; that of ctest where a
# test fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/coverage
whole='^(runtime|loaders|ops|bad|tools_|fuzz|conformance|attention|oracle.golden|embed|ml)'
# They take minutes: other sizes of what other tests have, pages, and times.
left_out='^(ops\.(symbolic_sizes|rounded|sliding_mutants)|'
left_out+='tools_(bench|examples|gallery|manual|operator_pages|progress|report))'
regex=$whole
keep=0
missed=
while [ $# -gt 0 ]; do
    case $1 in
    --tests) regex=${2:?} && shift 2 ;;
    --keep) keep=1 && shift ;;
    --missed) missed=${2:?} && shift 2 ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
done

programs() {
    find $build -maxdepth 1 -type f -perm -u+x -name '*test_*' -printf ' -object %p'
    printf ' -object %s' $build/fuzz_graphs $build/fuzz_api $build/fuzz_files $build/oracle \
        $build/attention_checks
}

if [ -n "$missed" ]; then
    # shellcheck disable=SC2046 # a list of words
    llvm-cov-14 show $build/attnrun $(programs) -instr-profile=$build/counts.profdata \
        -show-branches=count | python3 tests/coverage.py missed "$missed"
    exit
fi

cmake -S . -B $build -G Ninja -DCMAKE_C_COMPILER=clang-14 -DATTNRUN_COVERAGE=ON \
    "-DATTNRUN_ISAS=avx2;avx512;avx512_vnni;avx512_bf16" >/dev/null &&
    cmake --build $build >$build/build.log || exit 1
passed=$build/passed.txt # names of tests; as old as the first of the pieces
[ $keep -eq 1 ] || { rm -rf $build/counts $build/counts.profdata $build/whole.txt && : >$passed; }
mkdir -p $build/counts
LLVM_PROFILE_FILE=$PWD/$build/counts/%4m.profraw ctest --test-dir $build -R "$regex" \
    -E "$left_out" -j2 --no-tests=error >$build/tests.log
tested=$?
tail -n 12 $build/tests.log
llvm-profdata-14 merge -sparse -o $build/counts.profdata $build/counts/*.profraw || exit 1
# shellcheck disable=SC2046
llvm-cov-14 export -summary-only $build/attnrun $(programs) \
    -instr-profile=$build/counts.profdata loaders runtime ops >$build/counts.json || exit 1
# For tests/bad/run.sh: whether each of the tests has passed in one of the pieces.
touch -r $passed $build/begun.txt
sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \(\S*\) .* Passed .*/\1/p' $build/tests.log >>$passed
touch -r $build/begun.txt $passed
ctest --test-dir $build -N -R "$whole" -E "$left_out" | sed -n 's/^ *Test *#[0-9]*: //p' |
    grep -vxFf $passed >$build/open.txt || touch -r $passed $build/whole.txt
python3 tests/coverage.py table $build/counts.json $build/files.txt && exit $tested
