#!/usr/bin/env bash
# run.sh - how attnrun bears hostile files, faults and load: one table.
#
# usage: bash tests/bad/run.sh [--full] [--hours H] [--runs N] [--new] [--rows PATTERN]
#
# The short form takes the named cases, 1,000 mutants, the limits, the sweeps of faults and the
# comparisons of the release build (build/release), some minutes. --full takes 10,000 mutants,
# H hours of each target of fuzzing (0.02), soaks of N runs (1,000,000; a tenth of them for each
# other number of threads), the sanitizers (tools/test.sh builds them), the coverage
# (tests/coverage.sh) and tests/MUTANTS.md, and writes tests/RELIABILITY.md: some hours.
#
# --rows takes those rows whose names have PATTERN, an extended regular expression; the page keeps
# what it says of the others, with the day and the revision of that.
#
# A row has at most so many minutes. One that fails, takes longer, or has nothing to run is a row
# that says so, and the others follow. Rows that are done stay in build/logs: a run that was
# stopped goes on where it was, with its failed rows once more, if the sources and the options are
# the same; --new begins again. Exit code 1 where a row is not as it must be.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
full=0 hours=0.02 runs=1000000 new=0 rows=
while [ $# -gt 0 ]; do
    case $1 in
    --full) full=1 && shift ;;
    --hours) hours=${2:?} && shift 2 ;;
    --runs) runs=${2:?} && shift 2 ;;
    --new) new=1 && shift ;;
    --rows) rows=${2:?} && shift 2 ;;
    *) sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
done

export python=build/venv/bin/python
[ -x $python ] || python=python3
mkdir -p build/logs
table=build/logs/reliability.txt
kept=build/logs/reliability-kept.txt
: >"$table"
failures=0
child=
trap 'kill $child 2>/dev/null; echo "stopped; the same command goes on"; exit 130' INT TERM

# Pages are no sources: fuzzing and this script write some.
sources=$({ git ls-files -s -- . ':!*.md' && git diff -- . ':!*.md'; } | sha1sum | cut -c 1-12)
key="# $sources $full $hours $runs"
[ $new -eq 0 ] && [ "$(head -n 1 "$kept" 2>/dev/null)" = "$key" ] || echo "$key" >"$kept"

# row NAME MINUTES PATTERN COMMAND... - runs a command, which may be a function; the last line that
# fits is what the table says.
row() {
    local name=$1 minutes=$2 pattern=$3 log=build/logs/bad-${1//[ ,]/-}.log
    local started=$SECONDS result=ok code said line
    shift 3
    if ! [[ $name =~ $rows ]]; then
        printf '%s\tleft out\t\t0\t0\t-\n' "$name" >>"$table"
        return
    fi
    line=$(awk -F'\t' -v n="$name" '$1 == n && $2 == "ok"' "$kept" | tail -n 1)
    if [ -z "$line" ]; then
        timeout -k 20 "${minutes}m" bash -c '"$@"' "$name" "$@" >"$log" 2>&1 &
        child=$!
        wait $child
        code=$?
        child=
        [ $code -eq 0 ] || result=FAIL
        said=$(grep -aE "$pattern" "$log" | tail -n 1 | sed 's/^sum: //')
        [ -n "$said" ] || said="nothing in $log, exit code $code"
        [ $code -eq 124 ] && said="stopped after $minutes minutes; $said"
        line=$(printf '%s\t%s\t%s\t%s\t%s\t%s' "$name" $result "${said//$'\t'/ }" \
            $((SECONDS - started)) "$minutes" "$(date +%F), $(git rev-parse --short HEAD)")
        echo "$line" >>"$kept"
        [ $result = ok ] || failures=$((failures + 1))
    fi
    echo "$line" >>"$table"
    awk -F'\t' '{ printf "%-4s %-36s %s (%.1f of %s min)\n", $2, $1, $3, $4 / 60, $5 }' \
        <<<"$line"
    [ $result = ok ] || grep -aE '^FAIL|FINDING|Failed|\*\*\*' "$log" | head -n 20
}

# built BUILD - as tools/test.sh builds it.
built() {
    bash tools/test.sh --build "$1" && echo "build/$1 is of these sources"
}

cases() {
    $python tests/bad/make_bad.py build/bad-"$1" &&
        $python tests/bad/run_bad.py build/"$1"/attnrun build/bad-"$1"
}

# mutants BUILD N
mutants() {
    $python tests/bad/mutants.py build/"$1"/attnrun tests/attention/golden build/data/cases --n "$2"
}

# tests BUILD REGEX - some of ctest, and the sums of what they say they did.
tests() {
    local log=build/logs/bad-tests.log code
    ctest --test-dir build/"$1" -V -R "$2" --no-tests=error >$log
    code=$?
    grep -aE '^FAIL|\*\*\*|FINDING' $log
    python3 tests/bad/reliability.py sum $log
    return $code
}

# fuzz TARGET HOURS - in all builds that are there.
fuzz() {
    bash tests/fuzz/run.sh --hours "$2" --target "$1" >build/logs/bad-fuzz.log
    local code=$?
    cat build/logs/bad-fuzz.log
    python3 tests/bad/reliability.py sum build/logs/bad-fuzz.log
    return $code
}

# bits PROCESSES - of all operator cases, and of the models of models/ that are built.
bits() {
    local folders=(tests/attention/golden build/data/cases)
    for folder in build/release/batch_cases build/models; do
        [ -d $folder ] && folders+=($folder)
    done
    $python tests/runtime/check_bits.py build/release/oracle "${folders[@]}" --processes "$1"
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

# Of the last run of all tests in build/coverage if it was of these sources, or of another one.
coverage() {
    local whole=build/coverage/whole.txt
    if [ -e $whole ] && [ -z "$(find runtime loaders ops -newer $whole -name '*.[chd]*')" ]; then
        python3 tests/coverage.py table build/coverage/counts.json build/coverage/files.txt
    else
        bash tests/coverage.sh
    fi
}

export -f built cases mutants tests fuzz bits mutants_of_code coverage
if [ $full -eq 1 ]; then
    for build in release asan msan tsan fuzz; do
        row "build, $build" 90 '^build' built $build
    done
fi
row 'cases by class' 5 'passed,' cases release
row 'mutants' 20 'findings' mutants release $((full ? 10000 : 1000))
row 'limits' 5 '^sum' tests release '^loaders\.(limits|wire_scan)$'
row 'sweeps: allocations, files, polls' 15 '^sum' tests release \
    '^runtime\.(faults|fault_calls|faulty|io|alloc)$'
row 'sweeps: calls in each command' 15 '^sum' tests release '^tools_faults$'
row 'cancel and deadlines' 10 '^sum' tests release '^(runtime\.cancel|polls)'
row 'threads' 10 '^sum' tests release '^runtime\.(concurrent|threads|idle|soak)$'
row 'bits: threads and processes' 10 '^sum' tests release '^runtime\.bits'
row 'plan and memory' 10 '^sum' tests release \
    '^(runtime\.(plan|packing|side_heap)|embed\.(memory|arena)|tools_budget)$'
for target in graphs packed operators sizes faults guard api files paths plan; do
    if [ $full -eq 1 ]; then
        row "fuzz $target" 40 '^sum' fuzz $target "$hours"
    else
        row "fuzz $target" 5 '^sum' tests release "^fuzz\\.$target\$"
    fi
done
if [ $full -eq 1 ]; then
    row 'fuzz loader' 40 '^sum' fuzz loader "$hours"
    row 'differences from ONNX Runtime' 40 '^sum' fuzz ort "$hours"
    for build in asan msan; do
        row "cases by class, $build" 20 'passed,' cases $build
        row "mutants, $build" 20 'findings' mutants $build 1000
    done
    row 'unit tests and kernels, msan' 60 '^sum' tests msan \
        '^(runtime|loaders|embed|kernels|attention|oracle\.golden|conformance\.sample)'
    for threads in 2 8 32; do
        row "soak, $threads threads" 20 '^soak' build/release/test_runtime_soak \
            --threads $threads --runs $((runs / 10))
    done
    row 'soak, long' 60 '^soak' build/release/test_runtime_soak --threads 2 --runs "$runs"
    for threads in 2 8 32; do
        row "soak, $threads threads, tsan" 60 '^soak' build/tsan/test_runtime_soak \
            --threads $threads --runs $((runs / 10))
    done
    row 'threads, tsan' 15 '^sum' tests tsan '^runtime\.(concurrent|threads|cancel)$'
    row 'differences between ways to run' 15 '^sum' tests release '^oracle\.(golden|conformance)$'
    row 'bits: 50 processes' 30 'models gave' bits 50
    row 'bits: a sample and its batch' 40 '^sum' tests release '^ops\.batch_'
    row 'accuracy' 20 '^sum' tests release '^(kernels|ops\.(accuracy|large_scores))$'
    row 'hardening' 2 '^sum' tests release '^package_hardening$'
    row 'two builds, the same bytes' 60 'of two builds' $python \
        tests/package/check_reproducible.py . gcc
    row 'mutants of the code' 1 'killed' mutants_of_code
    row 'coverage' 240 '^covered' coverage
    python3 tests/bad/reliability.py page "$table" tests/fuzz/COUNTS.md tests/RELIABILITY.md \
        "--full --hours $hours --runs $runs" || failures=$((failures + 1))
fi
[ $failures -eq 0 ] || { echo "$failures rows failed; the same command runs them again"; exit 1; }
[ -n "$rows" ] || rm -f $kept
echo "all rows ok"
