#!/usr/bin/env bash
# run.sh - attnrun beside ONNX Runtime, OpenVINO and PyTorch, interleaved in one run.
#
# usage: bash tools/bench/run.sh [--quick] [--models NAME,...] [--threads 1,2] [-o FOLDER]
#
# Installs what is missing, builds attnrun, makes the models under build/bench, and writes
# models/BENCHMARKS.md and models/benchmarks.svg (or into FOLDER). --quick: MiniLM and the
# attention core, few rounds, about five minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

need_packages build-essential cmake ninja-build pkg-config libopenblas-serial-dev \
    libprotobuf-c-dev protobuf-c-compiler libyaml-dev zlib1g-dev ccache python3 \
    python3-venv ca-certificates
need_venv build/bench-venv tools/bench/requirements.txt
need_venv build/demo-venv tools/minilm/requirements.txt --no-deps
mkdir -p build/bench
build build/bench/attnrun -DATTNRUN_TESTS=OFF >build/bench/build.log 2>&1 || {
    tail -n 40 build/bench/build.log
    exit 1
}
[ -e build/minilm/model.onnx ] ||
    build/demo-venv/bin/python tools/minilm/fill.py build/minilm/model.onnx
exec build/bench-venv/bin/python tools/bench/bench.py \
    --attnrun build/bench/attnrun/attnrun --work build/bench "$@"
