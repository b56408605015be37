#!/usr/bin/env python3
"""Check what is computed at load from the extents of slices of an axis whose size is a symbol.

usage: check_short_axes.py ATTNRUN

One model slices x with all pairs of some bounds and some steps, and gives for each slice the size
of x minus that of the slice: where an expression of the extent is not exact, the symbol may cancel,
and the difference becomes a constant. It runs with axes that are shorter and longer than the
bounds; the expected numbers are those of Python's slices.
"""
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

DEADLINE_S = 120
BOUNDS = [0, 1, 2, 5, 100, 2**62, -1, -2, -5, -100, -2**62]
STEPS = [1, 2, 3]
SIZES = [0, 1, 2, 3, 4, 6, 99, 102, 300]
SLICES = list(itertools.product(BOUNDS, BOUNDS, STEPS))


def slices_model():
    ints = {f"i{value}": np.array([value]) for value in {*BOUNDS, *STEPS}}
    nodes = [helper.make_node("Shape", ["x"], ["size"])]
    for k, (start, end, step) in enumerate(SLICES):
        nodes += [
            helper.make_node("Slice", ["x", f"i{start}", f"i{end}", "i0", f"i{step}"], [f"s{k}"]),
            helper.make_node("Shape", [f"s{k}"], [f"n{k}"]),
            helper.make_node("Sub", ["size", f"n{k}"], [f"d{k}"])]
    nodes.append(helper.make_node("Concat", [f"d{k}" for k in range(len(SLICES))], ["y"], axis=0))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["S"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
        [numpy_helper.from_array(value, name) for name, value in ints.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def main():
    attnrun, bad = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(slices_model(), os.path.join(folder, "model.onnx"))
        for size in SIZES:
            np.save(os.path.join(folder, "x.npy"), np.zeros(size, "f4"))
            subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "x=x.npy", "-o",
                            "y.npy"], cwd=folder, check=True, timeout=DEADLINE_S)
            found = np.load(os.path.join(folder, "y.npy"))
            for bounds, left in zip(SLICES, found.tolist(), strict=True):
                want = size - len(range(size)[slice(*bounds)])
                if left != want:
                    bad += 1
                    print(f"FAIL x[{bounds[0]}:{bounds[1]}:{bounds[2]}] of {size} elements: "
                          f"{size} - {size - left}, expected {size} - {size - want}")
    print(f"{len(SLICES)} slices of {len(SIZES)} sizes, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
