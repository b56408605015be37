#!/usr/bin/env python3
"""Sums of very many equal numbers keep their digits: where they are taken in floats one after the
other, each addition rounds the same way.

usage: check_long_sums.py ATTNRUN

Windows of pooling that see a whole image, and keys of attention by features, with one head and with
many, which are computed in other phases.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper

DEADLINE_S = 300  # 3 s on an idle machine
U = 2.0 ** -24


def check(attnrun, folder, op, inputs, want, gate, **attributes):
    """The error of each instruction set relative to `want`, in u; the number above the gate."""
    names = [f"x{i}" for i in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
         for name, x in zip(names, inputs)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("attnrun", 1)]
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(helper.make_model(graph, opset_imports=opsets,
                                     ir_version=10).SerializeToString())
    np.savez(os.path.join(folder, "x.npz"), **dict(zip(names, inputs)))
    bad = 0
    for isa in ("base", "auto"):
        subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "x.npz", "-o", "y.npz",
                        *(["--isa", isa] if isa != "auto" else [])],
                       cwd=folder, check=True, timeout=DEADLINE_S)
        y = np.load(os.path.join(folder, "y.npz"))["y"].astype(np.float64)
        off = np.abs(y / want - 1).max() / U
        if not off <= gate:
            bad += 1
            print(f"FAIL {op} {attributes} of {inputs[-1].shape} on {isa}: off by {off:.0f} u, "
                  f"allowed {gate}")
    return bad


def main():
    attnrun, bad = os.path.abspath(sys.argv[1]), 0
    tenth = float(np.float32(0.1))
    image = np.full((1, 1, 1024, 1024), 0.1, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for window in ([1024, 1024], [1024, 1], [1, 1024]):
            bad += check(attnrun, folder, "AveragePool", [image], tenth, 2, kernel_shape=window)
            bad += check(attnrun, folder, "LpPool", [image], tenth * np.sqrt(np.prod(window)), 2,
                         kernel_shape=window)
        for heads, causal in ((1, 0), (32, 0), (1, 1), (8, 1)):
            keys = np.full((1, heads, 2 ** 20 // heads if causal else 2 ** 18, 4), 0.1, np.float32)
            queries = keys if causal else keys[:, :, :1]
            bad += check(attnrun, folder, "LinearAttention", [queries, keys, keys], tenth, 64,
                         domain="attnrun", is_causal=causal)
    print(f"{bad} above their gate")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
