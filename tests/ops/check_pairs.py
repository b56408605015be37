"""Concat of two inputs whose parts have 4 or 8 bytes, as rotary positions and complex numbers are
stacked: numbers of several types and sizes, dense and through views with steps and other orders,
beside what numpy gives.
Usage: check_pairs.py ATTNRUN [SEED]"""
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from exported import run
from onnx import helper, numpy_helper

TYPES = ("f4", "f8", "f2", "i4", "i8")
SHAPES = ((3, 1, 7), (2, 5, 600), (1, 4100, 3), (4, 9, 64))
STEPS = ("dense", "stepped", "turned", "heads")


def part(how, name, x, width):
    """Nodes that make a part (a, b, c, width) of an input, the input, and the part."""
    a, b, c = x
    if how == "stepped":
        given = (a, b, 2 * c, width)
        return [helper.make_node("Slice", [name, "one", "far", "axis", "two"], [f"{name}_part"])], (
            given, lambda v: v[:, :, 1::2])
    if how == "turned":
        return [helper.make_node("Transpose", [name], [f"{name}_part"], perm=[1, 0, 2, 3])], (
            (b, a, c, width), lambda v: v.transpose(1, 0, 2, 3))
    if how == "heads":
        return [helper.make_node("Transpose", [name], [f"{name}_part"], perm=[0, 2, 1, 3])], (
            (a, c, b, width), lambda v: v.transpose(0, 2, 1, 3))
    return [helper.make_node("Identity", [name], [f"{name}_part"])], (
        (a, b, c, width), lambda v: v)


def check(program, folder, kind, shape, ways, numbers):
    width = 2 if kind == "f2" else 1
    nodes, inputs, parts, infos = [], {}, [], []
    for name, how in zip("pq", ways):
        made, (size, view) = part(how, name, shape, width)
        inputs[name] = (numbers.standard_normal(size) * 100).astype(kind)
        nodes += made
        parts.append(view(inputs[name]))
        infos.append(helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), size))
    nodes.append(helper.make_node("Concat", ["p_part", "q_part"], ["y"], axis=3))
    constants = [numpy_helper.from_array(np.array([x], "i8"), name) for name, x in
                 (("one", 1), ("far", 2 ** 62), ("axis", 2), ("two", 2))]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")],
                              [one for one in constants if one.name in read])
    model = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=9), model)
    expected = np.concatenate(parts, axis=3)
    return [f"{kind} {shape} {ways} {threads} threads" for threads in (1, 3)
            if run(program, model, folder, inputs, "--threads", threads)["y"].tobytes()
            != expected.tobytes()]


def main():
    program = sys.argv[1]
    numbers = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    failures, n = [], 0
    with tempfile.TemporaryDirectory() as name:
        for kind, shape in itertools.product(TYPES, SHAPES):
            for how in STEPS:
                n += 1
                ways = (how, STEPS[numbers.integers(len(STEPS))])
                failures += check(program, Path(name), kind, shape, ways, numbers)
    print("\n".join([*failures, f"{n} graphs, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
