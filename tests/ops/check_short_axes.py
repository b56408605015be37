#!/usr/bin/env python3
"""Check what is computed at load from the extents of slices of an axis whose size is a symbol.

usage: check_short_axes.py ATTNRUN

One model slices x with all pairs of some bounds and some steps, and gives for each slice the size
of x minus that of the slice: where an expression of the extent is not exact, the symbol may cancel,
and the difference becomes a constant. Bounds are numbers, or sums with the sizes S of x and T of
another input, which are below 0 for some sizes: x[S - 5:] counts from the end where S < 5. It runs
with axes that are shorter and longer than the bounds; the expected numbers are those of Python's
slices. The model also slices a list of constants, and gives the sums: x[1:S + 5] of four elements
has three for all sizes. It gives for each bound b and some numbers d the difference b / d -
((b + d) / d - 1), which is 0 or 1 as quotients are rounded towards zero. And it counts the equal
elements of the ranges 0.0 … S - 1 and 1.0 … S: there are none.
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
NUMBERS = [0, 1, 2, 5, 100, 2**62, -1, -2, -5, -100, -2**62]
SUMS = [(1, 0, -1), (1, 0, -5), (1, 0, -100), (-1, 0, 5), (2, 0, -5), (1, 0, 3), (-1, 0, -1),
        (0, 1, 0), (0, -1, 0), (0, 1, -5), (0, -1, 5), (1, -1, 0), (-1, 1, 0)]  # of S, T and 1
BOUNDS = [(0, 0, number) for number in NUMBERS] + SUMS
LIST, BEHIND = [1, 20, 300, 4000], [(1, 0, 4), (0, 1, 5)]  # of T, S and 1: behind the list
STEPS = [1, 2, 3]
SIZES = [(0, 3), (1, 0), (2, 2), (3, 3), (4, 100), (6, 4), (99, 102), (102, 3), (300, 5)]
SLICES = list(itertools.product(BOUNDS, BOUNDS, STEPS))
LISTS = list(itertools.product([*BOUNDS, *BEHIND], [*BOUNDS, *BEHIND], STEPS))
QUOTIENTS = list(itertools.product(BOUNDS, [2, 3, 8]))
OUTPUTS = [("sizes", "d", len(SLICES)), ("sums", "sum", len(LISTS)),
           ("quotients", "q", len(QUOTIENTS)), ("equal", "equal", 1)]


def name_of(bound):
    return "b" + "_".join(map(str, bound)).replace("-", "m")


def bound_nodes(bound):
    """The sum of a bound, of what Shape gives."""
    of_s, of_t, number = (f"i{value}" for value in bound)
    name = name_of(bound)
    return [helper.make_node("Mul", ["size", of_s], [name + "s"]),
            helper.make_node("Mul", ["other", of_t], [name + "t"]),
            helper.make_node("Add", [name + "s", name + "t"], [name + "st"]),
            helper.make_node("Add", [name + "st", number], [name])]


def list_nodes(k, start, end, step):
    return [helper.make_node("Slice", ["list", name_of(start), name_of(end), "i0", f"i{step}"],
                             [f"part{k}"]),
            helper.make_node("ReduceSum", [f"part{k}", "i0"], [f"sum{k}"])]


def quotient_nodes(k, bound, divisor):
    return [helper.make_node("Div", [name_of(bound), f"i{divisor}"], [f"less{k}"]),
            helper.make_node("Add", [name_of(bound), f"i{divisor}"], [f"above{k}"]),
            helper.make_node("Div", [f"above{k}", f"i{divisor}"], [f"more{k}"]),
            helper.make_node("Sub", [f"more{k}", "i1"], [f"same{k}"]),
            helper.make_node("Sub", [f"less{k}", f"same{k}"], [f"q{k}"])]


def range_nodes():
    return [helper.make_node("Squeeze", ["size"], ["rows"]),
            helper.make_node("Cast", ["rows"], ["end"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Add", ["end", "one"], ["behind"]),
            helper.make_node("Range", ["zero", "end", "one"], ["places"]),
            helper.make_node("Range", ["one", "behind", "one"], ["next"]),
            helper.make_node("Equal", ["places", "next"], ["same"]),
            helper.make_node("Cast", ["same"], ["ones"], to=onnx.TensorProto.INT64),
            helper.make_node("ReduceSum", ["ones", "i0"], ["equal0"])]


def slices_model():
    ints = {f"i{value}": np.array([value])
            for value in {*itertools.chain(*BOUNDS, *BEHIND), *STEPS, 8}}
    ints.update(list=np.array(LIST), zero=np.float32(0), one=np.float32(1))
    nodes = [helper.make_node("Shape", ["x"], ["size"]),
             helper.make_node("Shape", ["t"], ["other"])]
    for bound in [*BOUNDS, *BEHIND]:
        nodes += bound_nodes(bound)
    for k, (start, end, step) in enumerate(LISTS):
        nodes += list_nodes(k, start, end, step)
    for k, (bound, divisor) in enumerate(QUOTIENTS):
        nodes += quotient_nodes(k, bound, divisor)
    for k, (start, end, step) in enumerate(SLICES):
        nodes += [
            helper.make_node("Slice", ["x", name_of(start), name_of(end), "i0", f"i{step}"],
                             [f"s{k}"]),
            helper.make_node("Shape", [f"s{k}"], [f"n{k}"]),
            helper.make_node("Sub", ["size", f"n{k}"], [f"d{k}"])]
    nodes += range_nodes()
    for name, of, n in OUTPUTS:
        nodes.append(helper.make_node("Concat", [f"{of}{k}" for k in range(n)], [name], axis=0))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["S"]),
                     helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, ["T"])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None)
         for name, _, _ in OUTPUTS],
        [numpy_helper.from_array(value, name) for name, value in ints.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def wanted(size, other):
    """By output: what is asked, and the number."""
    def place(bound):
        return int(np.dot(bound, (size, other, 1)))

    def part(of, start, end, step):
        return of[slice(place(start), place(end), step)]

    def toward_zero(number, divisor):
        return abs(number) // divisor * (1 if number > 0 else -1)

    return {
        "sizes": [(each, size - len(part(range(size), *each))) for each in SLICES],
        "sums": [(each, sum(part(LIST, *each))) for each in LISTS],
        "quotients": [((bound, d), toward_zero(place(bound), d)
                       - toward_zero(place(bound) + d, d) + 1) for bound, d in QUOTIENTS],
        "equal": [("elements", 0)]}


def main():
    attnrun, bad = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(slices_model(), os.path.join(folder, "model.onnx"))
        for size, other in SIZES:
            np.save(os.path.join(folder, "x.npy"), np.zeros(size, "f4"))
            np.save(os.path.join(folder, "t.npy"), np.zeros(other, "f4"))
            subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "x=x.npy", "-i",
                            "t=t.npy", "-o", "y.npz"], cwd=folder, check=True, timeout=DEADLINE_S)
            found = np.load(os.path.join(folder, "y.npz"))
            for name, pairs in wanted(size, other).items():
                for (what, want), number in zip(pairs, found[name].tolist(), strict=True):
                    if number != want:
                        print(f"{name} {what} for S = {size}, T = {other}: {number}, not {want}")
                        bad += 1
    print(f"{len(SLICES) + len(LISTS) + len(QUOTIENTS)} expressions, {len(SIZES)} pairs of sizes: "
          f"{bad} wrong")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
