#!/usr/bin/env bash
# run.sh - fuzzing for hours: each target in turn, with seeds that were not run before; the
# counts go to tests/fuzz/COUNTS.md.
#
# usage: bash tests/fuzz/run.sh [--hours N] [--target NAME]
#
# Targets: graphs (some nodes, sequences, subgraphs), packed (packed files), operators (each row
# of the registry, and the backend cases with changes; what runs is compared with runs on another
# instruction set, other threads, other fusion and other memory), guard (operators, with memory
# that ends at pages nobody may touch), faults (operators, with allocations that fail and budgets
# that are too small), ort (operators, compared with ONNX Runtime: with_ort.py).
# They run in build/asan where that is built, and in build/release; guard and ort in build/release
# alone. One process, at the lowest priority.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

hours=0.1
targets=(graphs packed operators faults guard ort)
while [ $# -gt 0 ]; do
    case $1 in
    --hours) hours=${2:?} && shift 2 ;;
    --target) targets=("${2:?}") && shift 2 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
done
declare -A options=([graphs]="" [packed]=--packed [operators]=--operators
    [guard]="--operators --guard" [ort]=""
    [faults]="--operators --faults")

counts=tests/fuzz/COUNTS.md
builds=()
for build in asan release; do
    [ -x build/$build/fuzz_graphs ] && builds+=($build)
done
[ ${#builds[@]} -gt 0 ] || { echo "run.sh: build fuzz_graphs in build/release first" >&2; exit 1; }
runs=()
for target in "${targets[@]}"; do
    for build in "${builds[@]}"; do
        [[ $target-$build =~ ^(guard|ort)-asan$ ]] || runs+=("$target-$build")
    done
done
seconds=$(awk -v h="$hours" -v n=${#runs[@]} 'BEGIN { printf "%d", h * 3600 / n + 1 }')

code=0
mkdir -p build/logs
for run in "${runs[@]}"; do
    target=${run%-*} build=${run##*-} log=build/logs/fuzz-$run.log
    seed=$(python3 tests/fuzz/counts.py $counts next "$run") || exit 1
    # shellcheck disable=SC2206 # the options of a target are words
    command=(build/"$build"/fuzz_graphs ${options[$target]})
    [ "$target" = ort ] && command=(build/venv/bin/python tests/fuzz/with_ort.py "${command[@]}")
    nice -n 19 "${command[@]}" --seconds "$seconds" --seed "$seed" tests/attention/golden \
        build/data/cases >"$log" 2>&1 || code=1
    python3 tests/fuzz/counts.py $counts add "$run" "$log" "$seconds" || code=1
    tail -n 1 "$log" | sed "s/^/$run: /"
    grep -B3 '^FINDING' "$log" || true
done
exit $code
