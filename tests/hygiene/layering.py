#!/usr/bin/env python3
"""Includes go down only: tools > loaders, ops > ops/kernels, runtime; and between families of
operators only where FAMILIES says so, without a cycle. No two source files of the product have
the same name. Operators do not name the geometry of kernels.

usage: layering.py ROOT
"""
import os
import re
import sys

from files import text_of, walk

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PUBLIC = "runtime/attnrun.h"
# The wire format in a header that includes nothing, for programs that write ONNX themselves.
WIRE = "loaders/wire_write.h"
KERNELS = ("ops/kernels/kernels.h", "ops/kernels/kernel_types.h", "ops/kernels/kernels.def")

# layer -> what it may include beside itself
MAY = {
    "tools": (PUBLIC,),
    "loaders": ("runtime/",),
    "ops": ("runtime/", *KERNELS),
    "ops/kernels": ("runtime/meter.h",),
    "runtime": ("ops/kernels/isa.def",),
}
# family of operators -> the families whose headers and tables it may include. op_list.def
# includes the rows of all.
FAMILIES = {
    "attention": ("matmul", "move"),
    "control": ("sequence",),
    "elementwise": ("sequence",),
    "image": ("move", "quant"),
    "matmul": ("quant",),
    "mixing": ("attention", "image", "matmul"),
    "ml": ("elementwise", "sequence"),
    "nn": ("matmul", "quant"),
    "quant": ("elementwise",),
    "recurrent": ("matmul", "quant"),
    "reduce": ("elementwise",),
    "rewrite": ("attention", "elementwise", "quant"),
    "vision": ("attention",),
}
# What kernels are cut for. Operators learn it from TILE alone.
TILE = "ops/tile.h"
GEOMETRY = re.compile(r"\bATTN_GEMM_(?:I8_)?(?:KC|NR_MAX|WIDE)\b|\bkernels->vec_bytes\b")
# folder of ops/attention -> the folders beside it that it may include
PARTS = {"onnx": ("core",), "mechanisms": ("core",)}
# library header -> the files that may include it
LIBRARIES = {
    "yaml.h": "tools/", "zlib.h": "tools/", "cblas.h": "ops/matmul/blas.c",
    "protobuf-c/": "loaders/", "onnx.pb-c.h": "loaders/",
    "pthread.h": ("runtime/", "ops/matmul/blas.c", "tools/cli/measure.c", "tools/cli/concurrent.c",
                  "tools/ort/"),
}


def layer_of(path):
    for layer in ("ops/kernels", "ops", "loaders", "runtime", "tools"):
        if path.startswith(layer + "/"):
            return layer
    return None


def family_of(path):
    """The family of operators that a file belongs to, or None."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "ops" and parts[1] != "kernels" else None


def part_of(path):
    """The folder of ops/attention that a file lies in, or None."""
    parts = path.split("/")
    return parts[2] if len(parts) == 4 and parts[:2] == ["ops", "attention"] else None


def cycle(edges):
    """A family that can reach itself along the edges, or None."""
    for start in edges:
        seen, left = set(), list(edges[start])
        while left:
            family = left.pop()
            if family == start:
                return start
            if family not in seen:
                seen.add(family)
                left.extend(edges.get(family, ()))
    return None


def crosses(path, target):
    """"" or why an operator file may not include a file of other operators."""
    family, other = family_of(path), family_of(target)
    if family and other and family != other and other not in FAMILIES.get(family, ()):
        return f"operators of {family} must not include {target}; see FAMILIES"
    part, beside = part_of(path), part_of(target)
    if part and beside and part != beside and beside not in PARTS.get(part, ()):
        return f"ops/attention/{part} must not include {target}; see PARTS"
    return ""


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
    if target is None:
        return ""
    if target == WIRE and path.startswith("tools/ort/"):
        return ""
    if layer_of(target) == layer:
        return crosses(path, target)
    if any(target == may or (may.endswith("/") and target.startswith(may))
           for may in MAY[layer]):
        return ""
    return f"{layer}/ must not include {target}"


def geometry(root, path):
    """What an operator file says of the geometry of kernels instead of asking ops/tile.h."""
    if layer_of(path) != "ops" or path == TILE:
        return []
    return sorted(set(GEOMETRY.findall(text_of(root, path))))


def same_names(paths):
    """Source files whose name another one has, each with that other one."""
    first = {}
    for path in sorted(paths):
        other = first.setdefault(os.path.basename(path), path)
        if other != path and path.endswith((".c", ".h")):
            yield path, other


def main():
    root = sys.argv[1]
    bad = 0
    sources = [path for path in walk(root, (".c", ".h", ".def")) if layer_of(path)]
    for path, other in same_names(sources):
        print(f"{path}: {other} has the same name")
        bad += 1
    if cycle(FAMILIES):
        print(f"FAMILIES: {cycle(FAMILIES)} includes itself")
        bad += 1
    for path in sources:
        if path.startswith("tools/examples/"):
            continue
        for name in geometry(root, path):
            print(f"{path}: {name} is the geometry of kernels; see {TILE}")
            bad += 1
        for _, name in INCLUDE.findall(text_of(root, path)):
            reason = wrong(root, path, name)
            if reason:
                print(f"{path}: {reason}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
