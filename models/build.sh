#!/usr/bin/env bash
# build.sh - makes the models that models/*.yaml describe: ONNX files with stored results.
#
# usage: bash models/build.sh [OUT] [option of build.py...]
#
# OUT is build/models by default. Installs what is missing into build/venv, as tools/test.sh
# does; PIP_EXTRA_INDEX_URL and the user's pip configuration apply. What has not changed
# since the last time is kept. Then, for instance:
#
#     attnrun check build/models
#
# models/gallery.html is made again, of the descriptions and models/gallery.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/prepare.sh

need_packages python3 python3-venv ca-certificates
need_venv build/venv tests/requirements.txt
need_more build/venv models/requirements.txt
[ $# -gt 0 ] || set -- build/models
build/venv/bin/python models/build.py "$@"
build/venv/bin/python tools/gallery/gallery.py
