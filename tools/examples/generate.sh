#!/usr/bin/env bash
# generate.sh - generates 2,000 bytes step by step through states, with linear attention and
# with a cache of keys and values, and draws time and memory of the steps. From a clean
# Debian 12; everything it writes is under build/. Options are those of generate.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh
need_demo
cc -std=c11 -O2 -Wall -Wextra -Iruntime -o build/demo/generate tools/examples/generate.c \
    -Lbuild/demo -lattnrun -lm "-Wl,-rpath,$PWD/build/demo"
build/demo-venv/bin/python tools/examples/generate.py build/demo/attnrun \
    build/demo/generate build/long-generation "$@"
