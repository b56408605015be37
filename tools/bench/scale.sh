#!/usr/bin/env bash
# scale.sh - throughput and memory of one and two processes, into tools/manual/scale.md.
#
# usage: bash tools/bench/scale.sh [--seconds S] [--rounds N]   (on a quiet machine)
#
# Installs and builds what it needs below build/. Two processes of a quiet machine with two cores
# compute at least 1.8 times as many documents as one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

need_packages build-essential cmake ninja-build pkg-config libopenblas-serial-dev \
    libprotobuf-c-dev protobuf-c-compiler python3 python3-venv python3-dev ca-certificates
need_venv build/venv-scale tools/python/requirements-scale.txt
need_more build/venv-scale tools/python/requirements-minilm.txt
[ -d build/release/python ] || build build/release >build/scale.log
cmake --build build/release --target attnrun_python >>build/scale.log
mkdir -p build/data
[ -e build/data/minilm.onnx ] ||
    build/venv-scale/bin/python tools/minilm/fill.py build/data/minilm.onnx
PYTHONPATH=$PWD/build/release/python build/venv-scale/bin/python tools/bench/scale.py \
    build/data/minilm.onnx --page tools/manual/scale.md "$@"
