#!/usr/bin/env bash
# run.sh - fuzzing for hours: each target in turn, with seeds that were not run before; the
# counts go to tests/fuzz/COUNTS.md.
#
# usage: bash tests/fuzz/run.sh [--hours N] [--target NAME[-BUILD]]...
#
# Targets: graphs (some nodes, sequences, subgraphs), packed (packed files), operators (each row of
# the registry, and the backend cases with changes; what runs is compared with runs on another
# instruction set, other threads, other fusion and other memory), sizes (the backend cases with
# inputs of other sizes, up to the largest, or with some that do not fit the others), guard
# (operators, with memory that ends at pages nobody may touch), faults (operators, with allocations
# that fail and budgets that are too small), api (sequences of calls of the C interface:
# fuzz_api.c), files (npy, npz, test data, configurations and packed files through the readers of
# the command line: fuzz_files.c), paths (files that models name: fuzz_paths.c), plan (blocks in an
# arena: fuzz_plan.c), ort (operators, compared with ONNX Runtime: with_ort.py), forms (graphs that
# rewrite passes change, changed a little, compared as operators are: forms.py), loader (any bytes
# as a model, guided by the coverage of clang's libFuzzer: fuzz_loader.c). They run in build/asan
# and build/msan where those are built, and in build/release; guard and ort in build/release alone,
# loader in build/fuzz alone (fuzz.cmake says how to make it). --target operators takes one of them
# in all builds, operators-release in one; it may be given again. N hours are shared by all of
# these. One process, at the lowest priority. The cases of com.microsoft are those that tests of its
# operators have made in build/release; these tests run first where there are none.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

hours=0.1
all_targets=(graphs packed operators sizes faults guard api files paths plan ort forms loader)
targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --hours) hours=${2:?} && shift 2 ;;
    --target) targets+=("${2:?}") && shift 2 ;;
    *) sed -n '2,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || targets=("${all_targets[@]}")
declare -A options=([graphs]="" [packed]=--packed [operators]=--operators
    [guard]="--operators --guard" [ort]="" [api]="" [files]=""
    [faults]="--operators --faults" [paths]="" [plan]="" [loader]=""
    [forms]=--forms [sizes]=--sizes)

counts=tests/fuzz/COUNTS.md
builds=()
for build in asan msan release; do
    [ -x build/$build/fuzz_graphs ] && builds+=($build)
done
[ -x build/fuzz/fuzz_loader ] && builds+=(fuzz)
[ ${#builds[@]} -gt 0 ] || { echo "run.sh: build fuzz_graphs in build/release first" >&2; exit 1; }
runs=()
for wanted in "${targets[@]}"; do
    [[ " ${all_targets[*]} " == *" ${wanted%-*} "* ]] ||
        { echo "run.sh: no target '$wanted'" >&2; exit 2; }
    for build in "${builds[@]}"; do
        run=${wanted%-*}-$build
        [[ $run =~ ^(guard|ort)-[am]san$ ]] && continue
        [[ $run == loader-* || $build == fuzz ]] && [ "$run" != loader-fuzz ] && continue
        [[ $wanted == *-* && $wanted != "$run" ]] || runs+=("$run")
    done
done
[ ${#runs[@]} -gt 0 ] || { echo "run.sh: not built: ${targets[*]}" >&2; exit 1; }
seconds=$(awk -v h="$hours" -v n=${#runs[@]} 'BEGIN { printf "%d", h * 3600 / n + 1 }')

corpus=(tests/attention/golden build/data/cases build/release/batch_cases)
if [ ! -e ${corpus[1]}/stamp.txt ] || [ ! -d ${corpus[2]}/check_ms_paged.py ]; then
    ctest --test-dir build/release -R '^ops\.batch_walk$' --no-tests=error >/dev/null ||
        { echo "run.sh: ctest -R ops.batch_walk does not make the cases" >&2; exit 1; }
fi
if [[ " ${runs[*]} " == *" forms-"* ]]; then
    build/venv/bin/python tests/fuzz/forms.py build/data/forms near_misses forms_softmax \
        forms_parts >/dev/null || exit 1
fi

code=0
TIMEFORMAT='%U %S' # the time of processors, not of the clock
mkdir -p build/logs
for run in "${runs[@]}"; do
    target=${run%-*} build=${run##*-} log=build/logs/fuzz-$run.log
    seed=$(python3 tests/fuzz/counts.py $counts next "$run") || exit 1
    program=fuzz_graphs
    [[ $target =~ ^(api|files|paths|plan|loader)$ ]] && program=fuzz_$target
    # shellcheck disable=SC2206 # the options of a target are words
    command=(build/"$build"/$program ${options[$target]})
    [ "$target" = ort ] &&
        command=(build/venv/bin/python tests/fuzz/with_ort.py "${command[@]}")
    command+=(--seconds "$seconds" --seed "$seed")
    if [ "$target" = forms ]; then
        command+=(build/data/forms)
    elif [[ ! $target =~ ^(paths|plan)$ ]]; then
        command+=("${corpus[@]}")
    fi
    if [ "$target" = loader ]; then
        mkdir -p build/fuzz/loader build/fuzz/bad
        words=build/fuzz/words.txt # names of operators, of attributes, and of domains
        build/release/attnrun ops --json | python3 -c '
import json, sys
ops = json.load(sys.stdin)["ops"]
names = {name for op in ops for name in (op["domain"], op["name"],
                                         *(each["name"] for each in op["attributes"]))}
print(*(json.dumps(name) for name in sorted(names - {""})), sep="\n")' >$words
        command=(build/fuzz/fuzz_loader build/fuzz/loader build/fuzz/bad "${corpus[@]:0:2}"
            "-max_total_time=$seconds" "-seed=$seed" -timeout=20 -rss_limit_mb=2048
            -max_len=65536 -artifact_prefix=build/fuzz/ -verbosity=0 -use_value_profile=1
            -print_final_stats=1 -dict=$words)
    fi
    { time nice -n 19 "${command[@]}" >"$log" 2>&1 || code=1; } 2>"$log.time"
    # libFuzzer ends at its first finding, which it leaves in build/fuzz, and says no sums.
    if [ "$target" = loader ] && ! grep -q 'ran to the end' "$log"; then
        cases=$(awk '/^stat::number_of_executed_units/ { print $2 }' "$log")
        echo "FINDING: the file after 'Test unit written to'" >>"$log"
        echo "seeds $seed to $((seed + 1)), libFuzzer: ${cases:-0} cases, 0 ran to the end," \
            "1 findings" >>"$log"
    fi
    python3 tests/fuzz/counts.py $counts add "$run" "$log" \
        "$(awk '{ print $1 + $2 }' "$log.time")" || code=1
    tail -n 1 "$log" | sed "s/^/$run: /"
    grep -B3 '^FINDING' "$log" || true
done
exit $code
