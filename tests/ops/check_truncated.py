#!/usr/bin/env python3
"""Numbers that become integers: indexes of OneHot, windows and ReduceLogSumExp of integers.

usage: check_truncated.py ATTNRUN

Indexes that are no integers are cast to i64, towards zero, before anything else is done with them
(OneHot-11): computed by NumPy. Windows of an integer type are computed in floats and then cast:
compared with ONNX Runtime, of each size to 40. ReduceLogSumExp of integers is compared with NumPy's
logaddexp of what is below the largest number, which is then added as a whole number.
"""
import math
import os
import sys
import tempfile
from fractions import Fraction

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from cases import check, one_node_model, write_case

INDEXES = [-0.555, -0.117, 2.5, -0.0, -3.2, 9.99, 10.0, -10.0, -10.5, -11.0, 1e9, -1e9, np.inf,
           -np.inf, np.nan, 9.5]
DEPTH = 10


def one_hot(folder, kind, axis):
    indexes = np.array(INDEXES, kind).reshape(4, 4)
    values = np.array([-1, 7], np.float32)
    model, given = one_node_model(
        "OneHot", [("indexes", indexes), ("depth", np.array(DEPTH, np.int64)),
                   ("values", values)], ["y"], opset=11, axis=axis)
    expected = np.full((4, 4, DEPTH), values[0])
    for at, index in np.ndenumerate(indexes):
        place = np.trunc(float(index))
        if -DEPTH <= place < DEPTH:
            expected[at][int(place)] = values[1]
    write_case(os.path.join(folder, f"one_hot_{np.dtype(kind)}_{axis}"), model, given,
               [("y", np.moveaxis(expected, -1, axis))], "0 0")


def window(folder, op, kind, periodic):
    for size in range(2, 41):
        model, given = one_node_model(op, [("size", np.array(size, np.int64))], ["y"], opset=17,
                                      output_datatype=kind, periodic=periodic)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, None))
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        expected = session.run(None, dict(given))
        write_case(os.path.join(folder, f"{op}_{kind}_{periodic}_{size}"), model, given,
                   [("y", expected[0])], "0 0")


def log_sum_exp(folder, kind, axes):
    """Largest numbers on both sides of 0, near it, and far from it."""
    ends = np.iinfo(kind)
    centers = np.array([0, 1, 3, ends.max // 2, ends.max - 9, ends.min + 9, ends.min // 2,
                        max(ends.min, -4)], kind)
    steps = np.outer(np.arange(7), [1, 0, 1]).astype(object)
    x = np.minimum(centers.astype(object)[:, None, None] + steps, ends.max).astype(kind)
    model, given = one_node_model("ReduceLogSumExp", [("x", x), ("axes", np.array(axes))], ["y"],
                                  keepdims=0)
    rows = np.moveaxis(x, axes, range(-len(axes), 0))
    rows = rows.reshape(rows.shape[:x.ndim - len(axes)] + (-1,)).astype(object)
    top = rows.max(-1)
    more = np.logaddexp.reduce((rows - top[..., None]).astype(np.float64), -1)
    exact = np.vectorize(lambda a, b: math.trunc(a + Fraction(b)), [object])(top, more)
    y = exact.astype(x.dtype)
    write_case(os.path.join(folder, f"log_sum_exp_{x.dtype}_{len(axes)}_{axes[0]}"), model, given,
               [("y", y)], "0 0")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for kind in (np.float16, np.float32, np.float64):
            for axis in (-1, 0, 1):
                one_hot(folder, kind, axis)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
            for kind in (TensorProto.INT8, TensorProto.INT64):
                for periodic in (0, 1):
                    window(folder, op, kind, periodic)
        for kind in (np.int32, np.int64, np.uint32, np.uint64):
            for axes in ([0], [1], [2], [0, 2], [1, 2]):
                log_sum_exp(folder, kind, axes)
        return check(os.path.abspath(sys.argv[1]), folder)


if __name__ == "__main__":
    sys.exit(main())
