#!/usr/bin/env python3
"""Statistics of rows without elements are those of NumPy: the mean of nothing is NaN.

usage: check_empty_rows.py ATTNRUN
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper

DEADLINE_S = 60
CASES = [  # operator, domain, opset, shape, shape of the scale, extra inputs, outputs
    ("LayerNormalization", "", 17, [0], [0], [], ["y", "mean", "inverse"]),
    ("LayerNormalization", "", 17, [3, 0], [0], [], ["y", "mean", "inverse"]),
    ("SkipLayerNormalization", "com.microsoft", 1, [2, 3, 0], [0], ["x"], ["y", "mean", "inverse"]),
    ("SimplifiedLayerNormalization", "", 17, [3, 0], [0], [], ["y", "inverse"]),
]


def run(attnrun, folder, case):
    op, domain, opset, shape, scale, extra, outputs = case
    node = helper.make_node(op, ["x", *extra, "s"], outputs, domain=domain)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
                      helper.make_tensor_value_info("s", TensorProto.FLOAT, scale)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs])
    imports = [helper.make_opsetid("", max(opset, 17)), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(made.SerializeToString())
    subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-o", "out.npz"], cwd=folder,
                   check=True, timeout=DEADLINE_S)
    with np.load(os.path.join(folder, "out.npz")) as found:
        return {name: found[name] for name in outputs}


def main():
    attnrun, bad = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            for name, found in run(attnrun, folder, case).items():
                if name == "y":
                    good = list(found.shape) == case[3]
                else:
                    good = list(found.shape) == case[3][:-1] + [1] and np.isnan(found).all()
                bad += not good
                if not good:
                    print(f"FAIL {case[0]} {case[3]}: {name} is {found!r}")
    print(f"{len(CASES)} operators, {bad} outputs wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
