#!/usr/bin/env python3
"""Constant weights of f16 and bf16 stay in 16 bits when packed, and change no bit of the result.

usage: check_storage.py ATTNRUN

A model of one operator is written twice: in f16 or bf16 between two casts, and in f32 with the
same weights rounded to that type. Inputs are numbers that the type has. The outputs have the same
bits, as they are or, where the last cast stays, rounded; with and without the rewrite passes. The
first model packs at most 0.56 of the bytes.
"""
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
SEED = 20261127


def recurrent(op_type, gates, inputs, hidden, directions, steps, batch):
    direction = "bidirectional" if directions == 2 else "forward"
    weights = {"W": (directions, gates * hidden, inputs), "R": (directions, gates * hidden, hidden),
               "B": (directions, 2 * gates * hidden)}
    attributes = {"hidden_size": hidden, "direction": direction}
    return op_type, attributes, weights, (steps, batch, inputs)


def conv_transpose(channels, rows, kernel, group, stride, size):
    weights = {"W": (channels, rows // group, kernel, kernel), "B": (rows,)}
    attributes = {"strides": [stride, stride], "group": group}
    return "ConvTranspose", attributes, weights, (2, channels, *size)


def attention(hidden, heads, tokens):
    weights = {"W": (hidden, 3 * hidden), "B": (3 * hidden,)}
    return ("Attention", {"domain": "com.microsoft", "num_heads": heads}, weights,
            (2, tokens, hidden))


CASES = [
    recurrent("LSTM", 4, 37, 50, 2, 7, 3), recurrent("LSTM", 4, 64, 64, 1, 9, 1),
    recurrent("GRU", 3, 37, 50, 1, 7, 11), recurrent("RNN", 1, 20, 33, 2, 5, 2),
    conv_transpose(48, 40, 3, 1, 2, (9, 11)), conv_transpose(24, 24, 3, 4, 2, (9, 11)),
    conv_transpose(48, 32, 5, 1, 3, (4, 7)), attention(48, 3, 9), attention(64, 2, 40),
]


def tensor_of(name, array):
    element = {dtype: number for number, dtype in TYPES.values()}[array.dtype.type]
    if array.dtype == ml_dtypes.bfloat16:
        return helper.make_tensor(name, element, array.shape, array.tobytes(), raw=True)
    return numpy_helper.from_array(array, name)


def write(path, case, kind, narrow):
    """narrow: the operator has the type `kind`; else f32, with what `kind` can hold."""
    op_type, attributes, shapes, shape = case
    rng = np.random.default_rng(SEED)
    weights = []
    for name, dims in shapes.items():
        array = (0.3 * rng.standard_normal(dims)).astype(TYPES[kind][1])
        weights.append(tensor_of(name, array if narrow else array.astype(np.float32)))
    nodes = [helper.make_node("Cast", ["X"], ["x"], to=TYPES[kind if narrow else "f32"][0]),
             helper.make_node(op_type, ["x", *shapes], ["y"], **attributes),
             helper.make_node("Cast", ["y"], ["Y"], to=TensorProto.FLOAT)]
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "storage", inputs, outputs, weights)
    opset = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def run(attnrun, path, given, *options):
    out = path + ".npy"
    subprocess.run([attnrun, "run", path, "-i", f"X={given}", "-o", out, "--print", "none",
                    *options], check=True, capture_output=True)
    return np.load(out)


def packed_bytes(attnrun, path):
    done = subprocess.run([attnrun, "plan", path, "--json"], check=True, capture_output=True)
    return json.loads(done.stdout)["packed_bytes"]


def complaints(attnrun, folder, case, kind):
    paths = [os.path.join(folder, f"{name}.onnx") for name in ("narrow", "wide")]
    for path, narrow in zip(paths, (True, False)):
        write(path, case, kind, narrow)
    given = os.path.join(folder, "X.npy")
    rng = np.random.default_rng(SEED + 1)
    np.save(given, rng.standard_normal(case[3]).astype(TYPES[kind][1]).astype(np.float32))
    for options in ((), ("--no-fusion",), ("--isa", "base"), ("--threads", "2")):
        narrow, wide = (run(attnrun, path, given, *options) for path in paths)
        rounded = wide.astype(TYPES[kind][1]).astype(np.float32)
        if narrow.tobytes() not in (wide.tobytes(), rounded.tobytes()):
            yield f"{options}: other bits, up to {np.abs(narrow - wide).max()}, seed {SEED}"
    narrow, wide = (packed_bytes(attnrun, path) for path in paths)
    if wide == 0 or narrow > 0.56 * wide:
        yield f"{narrow} bytes of packed weights, {wide} in f32"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            for kind in ("f16", "bf16"):
                for wrong in complaints(sys.argv[1], folder, case, kind):
                    print(f"FAIL {kind} {case}: {wrong}")
                    failed += 1
    print(f"{2 * len(CASES)} cases, {failed} complaints")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
