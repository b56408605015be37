#!/usr/bin/env bash
# long_document.sh - embeds 4,096 tokens with Longformer's attention and with dense attention,
# and draws time and memory over 512 to 16,384 tokens (some minutes; --lengths 512,1024 for
# less). From a clean Debian 12; everything it writes is under build/. Options are those of
# long_document.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/prepare.sh
need_demo
build/demo-venv/bin/python tools/examples/long_document.py build/demo/attnrun \
    build/long-document "$@"
