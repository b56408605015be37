#!/usr/bin/env bash
# try_wheel.sh - the wheel of this machine computes in new environments with numpy alone, one of
# each Python from 3.11 on that is here (a free-threaded one where it has a wheel); the libraries
# of the other machine load under qemu.
#
# usage: bash tests/python/try_wheel.sh   (after tools/python/wheels.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
machine=$(uname -m)
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
tried=0
for version in 11 12 13 14 13t 14t; do
    python=python3.$version abi=abi3
    [ "${version%t}" = "$version" ] || abi=cp3$version
    wheel=$(ls build/wheels/attnrun-*-"$abi"-*_"$machine".whl 2>/dev/null) || continue
    "$python" -c 'import ensurepip, sys, sysconfig, venv
sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")) != (sys.argv[1] == "t"))' \
        "${version##*[0-9]}" 2>/dev/null || continue
    "$python" -m venv "$scratch/$version"
    "$scratch/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
        --only-binary :all: "$wheel"
    echo "$python: $("$scratch/$version/bin/python" "$scratch/try.py")"
    tried=$((tried + 1))
done
[ $tried -gt 0 ]

other=build/wheels/attnrun-*_aarch64.whl
[ "$machine" = x86_64 ] && [ -e $other ] && command -v qemu-aarch64 >/dev/null || exit 0
python3 -m zipfile -e $other "$scratch/other"
cat >"$scratch/load.c" <<'C'
#include <attnrun.h>
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    attnrun_runtime *runtime;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    void *ort = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (ort == NULL || dlsym(ort, "RegisterCustomOps") == NULL ||
        attnrun_runtime_create(NULL, &runtime) || attnrun_runtime_query(runtime, &info))
        return 1;
    printf("aarch64 under qemu: %s, %s\n", attnrun_version(), info.isas);
    attnrun_runtime_destroy(runtime);
    return 0;
}
C
aarch64-linux-gnu-gcc -Iruntime "$scratch/load.c" -o "$scratch/load" \
    "$scratch/other/attnrun/libattnrun.so.0" -Wl,-rpath,"$scratch/other/attnrun" \
    -Wl,--allow-shlib-undefined
qemu-aarch64 -L /usr/aarch64-linux-gnu "$scratch/load" \
    "$scratch/other/attnrun/libattnrun_ort.so"
