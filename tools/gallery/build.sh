#!/usr/bin/env bash
# build.sh - makes models/gallery.html: what a query sees, in each system that models/
# describes, with time and memory next to dense attention.
#
# usage: bash tools/gallery/build.sh [option of gallery.py...]
#
#     --draw [MODEL,...]      run the operators and draw the pictures again
#     --measure [CASE,...]    measure again, on a quiet machine: some ten minutes
#
# Without options the page is made of models/*.yaml and models/gallery.json, in a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh

need_packages python3 python3-venv ca-certificates
need_venv build/venv tests/requirements.txt
for option in "$@"; do
    case $option in
    --draw* | --measure*)
        need_more build/venv models/requirements.txt
        need_packages build-essential cmake ninja-build pkg-config libopenblas-serial-dev \
            libprotobuf-c-dev protobuf-c-compiler libyaml-dev zlib1g-dev
        build build/release -DCMAKE_BUILD_TYPE=Release
        break
        ;;
    esac
done
build/venv/bin/python tools/gallery/gallery.py "$@"
