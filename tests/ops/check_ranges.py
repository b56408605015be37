#!/usr/bin/env python3
"""DynamicQuantizeLinear of zeros, of nothing, of infinite numbers and of NaN.

usage: check_ranges.py ATTNRUN

Compared with ONNX Runtime, but for NaN: there the scale is NaN as that of onnx.reference, so that
what is computed with it shows the NaN. Rows are longer than a task, with the NaN in any of them.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

DEADLINE_S, LENGTH = 60, 70001


def make_model():
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None),
         helper.make_tensor_value_info("scale", TensorProto.FLOAT, None),
         helper.make_tensor_value_info("zero", TensorProto.UINT8, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)


def inputs():
    ramp = np.linspace(-3, 5, LENGTH).astype(np.float32)
    yield "zeros", np.zeros(9, np.float32)
    yield "nothing", np.zeros(0, np.float32)
    yield "of one sign", ramp[ramp > 1]
    yield "plain", ramp
    for at in (0, LENGTH // 2, LENGTH - 1):
        for what in (np.inf, -np.inf, np.nan):
            x = ramp.copy()
            x[at] = what
            yield f"{what} at {at}", x


def run(attnrun, folder, x):
    np.save(os.path.join(folder, "x.npy"), x)
    subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "x=x.npy", "-o",
                    "out.npz"], cwd=folder, check=True, timeout=DEADLINE_S)
    with np.load(os.path.join(folder, "out.npz")) as found:
        return [found[name] for name in ("y", "scale", "zero")]


def is_good(x, found, session):
    y, scale, _ = found
    if np.isnan(x).any():
        return np.isnan(scale) and not y.any() and found[2] == 0
    expected = session.run(None, {"x": x})
    if not np.isfinite(x).all():  # a number over an infinite scale is 0
        return scale == expected[1] == np.inf and (y[np.isfinite(x)] == found[2]).all()
    off = np.abs(y.astype(int) - expected[0].astype(int))
    return (off <= 1).all() and np.allclose(scale, expected[1], rtol=1e-6) and \
        found[2] == expected[2]


def main():
    attnrun, bad, n = os.path.abspath(sys.argv[1]), 0, 0
    model = make_model().SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(model)
        for name, x in inputs():
            found = run(attnrun, folder, x)
            n += 1
            if not is_good(x, found, session):
                bad += 1
                print(f"FAIL {name}: y {found[0][:4]}, scale {found[1]}, zero {found[2]}")
    print(f"{n} inputs, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
