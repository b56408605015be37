#!/usr/bin/env python3
"""Includes go down only: tools > loaders, ops > ops/kernels, runtime.

usage: layering.py ROOT
"""
import os
import re
import sys

from files import text_of, walk

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PUBLIC = "runtime/attnrun.h"
KERNELS = ("ops/kernels/kernels.h", "ops/kernels/kernel_types.h", "ops/kernels/kernels.def")

# layer -> what it may include beside itself
MAY = {
    "tools": (PUBLIC,),
    "loaders": ("runtime/",),
    "ops": ("runtime/", *KERNELS),
    "ops/kernels": ("runtime/meter.h",),
    "runtime": ("ops/kernels/isa.def",),
}
# library header -> the files that may include it
LIBRARIES = {
    "yaml.h": "tools/", "zlib.h": "tools/", "cblas.h": "ops/matmul/blas.c",
    "protobuf-c/": "loaders/", "onnx.pb-c.h": "loaders/",
    "pthread.h": ("runtime/", "tools/cli/measure.c", "tools/ort/"),
}


def layer_of(path):
    for layer in ("ops/kernels", "ops", "loaders", "runtime", "tools"):
        if path.startswith(layer + "/"):
            return layer
    return None


def target_of(root, path, name):
    """The included file below root, or None for a header of the system."""
    for base in (os.path.dirname(path), "runtime", "loaders"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return None


def wrong(root, path, name):
    """"" or why this include is not allowed."""
    for library, place in LIBRARIES.items():
        if name == library or (library.endswith("/") and name.startswith(library)):
            return "" if path.startswith(place) else f"only {place} may include <{name}>"
    target = target_of(root, path, name)
    layer = layer_of(path)
    if target is None or layer_of(target) == layer:
        return ""
    if any(target == may or (may.endswith("/") and target.startswith(may))
           for may in MAY[layer]):
        return ""
    return f"{layer}/ must not include {target}"


def main():
    root = sys.argv[1]
    bad = 0
    for path in walk(root, (".c", ".h")):
        if layer_of(path) is None or path.startswith("tools/examples/"):
            continue
        for _, name in INCLUDE.findall(text_of(root, path)):
            reason = wrong(root, path, name)
            if reason:
                print(f"{path}: {reason}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
