#!/usr/bin/env bash
# run.sh - how attnrun bears hostile files, faults and load: one table.
#
# usage: bash tests/bad/run.sh [--full [HOURS]]
#
# The short form takes the named cases, 1,000 mutants, the limits, the sweeps of faults and the
# comparisons of the release build (build/release), some minutes. --full takes 10,000 mutants,
# HOURS of each target of fuzzing (0.06), a long soak, the sanitizers where build/asan, build/msan
# and build/tsan are built, what tests/coverage.sh counted and what tests/MUTANTS.md says, and
# writes tests/RELIABILITY.md. Exit code 1 where a row is not as it must be.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
full=0
hours=0.06
[ "${1:-}" = --full ] && full=1 && shift && hours=${1:-0.06} && shift $(($# > 0))
[ $# -eq 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

python=build/venv/bin/python
[ -x $python ] || python=python3
mkdir -p build/logs
table=build/logs/reliability.txt
: >"$table"
failures=0

# row NAME PATTERN COMMAND... - runs a command; the last line that fits is what the table says.
row() {
    local name=$1 pattern=$2 log=build/logs/bad-${1// /-}.log started=$SECONDS result=ok
    shift 2
    "$@" >"$log" 2>&1 || { result=FAIL; failures=$((failures + 1)); }
    local said
    said=$(grep -aE "$pattern" "$log" | tail -n 1)
    local took=$((SECONDS - started))
    printf '%s\t%s\t%s\t%s\n' "$name" "$result" "${said:-nothing}" $took >>"$table"
    printf '%-4s %-34s %s (%d s)\n' "$result" "$name" "${said:-nothing: $log}" $took
    [ $result = ok ] || grep -aE '^FAIL|FINDING|Failed|\*\*\*' "$log" | head -n 20
}

cases() {
    local build=$1
    $python tests/bad/make_bad.py build/bad-"$build" &&
        $python tests/bad/run_bad.py build/"$build"/attnrun build/bad-"$build"
}

# soak NAME BUILD OPTION... - one model under load (tests/runtime/test_soak.c).
soak() {
    row "$1" '^soak' build/"$2"/test_runtime_soak "${@:3}"
}

# tests NAME BUILD REGEX - some of ctest.
tests() {
    row "$1" 'tests passed' ctest --test-dir build/"$2" -R "$3" --no-tests=error
}

# Of the last whole sample of tests/mutate_code.py, which takes hours.
mutants_of_code() {
    sed -n 's/^| \(judged\|killed\|survived\) | \(.*\) |$/\1 \2/p' tests/MUTANTS.md |
        awk '{ n[$1] = $2 }
            END {
                printf "%d of %d mutants killed, %.0f %%, %d survived: tests/MUTANTS.md\n",
                    n["killed"], n["judged"], 100 * n["killed"] / n["judged"], n["survived"]
                exit !(n["judged"] >= 300 && n["killed"] >= 0.9 * n["judged"])
            }'
}

corpus=(tests/attention/golden build/data/cases)
mutants=1000
[ $full -eq 1 ] && mutants=10000
row 'named cases' 'passed,' cases release
row 'mutants' 'findings' $python tests/bad/mutants.py build/release/attnrun "${corpus[@]}" \
    --n $mutants
tests 'limits' release '^loaders\.(limits|wire_scan)$'
tests 'allocations and files that fail' release '^runtime\.(faults|faulty|io|alloc)$'
tests 'calls that fail in each command' release '^tools_faults$'
tests 'cancel and deadlines' release '^(runtime\.cancel|polls)'
tests 'threads' release '^runtime\.(concurrent|threads|idle|soak)$'
tests 'the same bits' release '^(runtime\.bits|ops\.batch_)'
tests 'plan and memory' release '^runtime\.(plan|packing|side_heap|own)$'
for target in graphs packed operators faults guard api files ort; do
    [ $full -eq 1 ] || [ $target != ort ] || continue
    if [ $full -eq 1 ]; then
        row "fuzz $target" 'findings' bash tests/fuzz/run.sh --hours "$hours" --target $target
    else
        tests "fuzz $target" release "^fuzz\.$target\$"
    fi
done
if [ $full -eq 1 ]; then
    row 'the same bits, 50 processes' 'models gave' python3 tests/runtime/check_bits.py \
        build/release/attnrun "${corpus[@]}" --every 40 --processes 50
    tests 'one model, many ways' release '^oracle\.(golden|conformance)$'
    [ -x build/asan/attnrun ] && row 'named cases, sanitized' 'passed,' cases asan
    [ -x build/asan/attnrun ] && row 'mutants, sanitized' 'findings' \
        $python tests/bad/mutants.py build/asan/attnrun "${corpus[@]}" --n 1000
    [ -x build/msan/attnrun ] && row 'named cases, memory' 'passed,' cases msan
    [ -x build/msan/attnrun ] && row 'mutants, memory' 'findings' \
        $python tests/bad/mutants.py build/msan/attnrun "${corpus[@]}" --n 1000
    for threads in 2 8 32; do
        soak "soak, $threads threads" release --threads $threads --runs 100000
    done
    soak 'soak, long' release --threads 2 --runs 1000000
    for threads in 2 8 32; do
        [ -x build/tsan/test_runtime_soak ] &&
            soak "soak, $threads threads, ThreadSanitizer" tsan --threads $threads --runs 100000
    done
    [ -x build/tsan/test_runtime_concurrent ] &&
        tests 'threads, sanitized' tsan '^runtime\.(concurrent|threads|cancel)$'
    row 'mutants of the code' 'killed' mutants_of_code
    counts=build/coverage/counts.json
    [ -f $counts ] &&
        row "coverage of $(cat build/coverage/revision.txt)" '^covered' \
            python3 tests/coverage.py table $counts build/coverage/files.txt
    python3 tests/bad/reliability.py "$table" tests/fuzz/COUNTS.md tests/RELIABILITY.md
fi
[ $failures -eq 0 ] && echo "all rows ok" || echo "$failures rows failed"
exit $((failures > 0))
