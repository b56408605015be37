#!/usr/bin/env bash
# try_wheel.sh - the wheel of this machine computes in a new environment with numpy alone, and
# in the oldest and newest Python that are here; the wheel for AArch64 loads under qemu.
#
# usage: bash tests/python/try_wheel.sh   (after tools/python/wheels.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
machine=$(uname -m)
wheel=$(ls build/wheels/attnrun-*_"$machine".whl)
printf '%s\n' "$wheel"
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet "$wheel"
# y = x + x, as an ONNX file in a few bytes: IR 10, opset 18, x and y are f32[N].
cat >"$scratch/try.py" <<'PY'
import attnrun, numpy, os
def text(field, data):
    return bytes([field << 3 | 2, len(data)]) + data
def value(name):
    shape = text(1, text(2, b"N"))
    return text(1, name) + text(2, text(1, bytes([8, 1]) + text(2, shape)))
node = text(1, b"x") + text(1, b"x") + text(2, b"y") + text(4, b"Add")
graph = text(1, node) + text(2, b"g") + text(11, value(b"x")) + text(12, value(b"y"))
model = attnrun.Model(bytes([8, 10]) + text(7, graph) + text(8, bytes([16, 18])))
x = numpy.arange(5, dtype="f")
assert (model(x=x)["y"] == x + x).all()
assert os.path.exists(attnrun.ort_library())
print(attnrun.__version__, attnrun.default_runtime().info())
PY
"$scratch/venv/bin/python" "$scratch/try.py"
