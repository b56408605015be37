"""Attention with a mask of f16 or bf16 that is added to the scores. A mask of queries and keys is
read where it lies, so no Cast of it is left; two attentions share it. Masks have -inf and large
negative numbers, are of all heads or of each, and those of keys alone may be zero for whole tiles.
Expected: sums in double of the same numbers.
Usage: check_narrow_masks.py ATTNRUN [SEED]"""
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from cases import check, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 7
random = np.random.default_rng(SEED)
TYPES = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16,
                                                           ml_dtypes.bfloat16)}
HEADS, DIM = 2, 16


def numbers(shape, kind):
    return random.standard_normal(shape).astype(TYPES[kind][1])


def masks(n, kind):
    """Names and masks that n queries and n keys are broadcast with."""
    padded = np.zeros((1, 1, 1, n))
    padded[..., n - n // 3:] = -30000.0
    for name, shape in (("full", (n, n)), ("heads", (1, HEADS, n, n))):
        mask = random.standard_normal(shape)
        mask[random.random(shape) < 0.3] = -np.inf
        mask[..., 0] = 0.5  # each query sees a key
        yield name, mask.astype(TYPES[kind][1])
    yield "keys", padded.astype(TYPES[kind][1])


def attend(q, k, v, mask):
    q, k, v, mask = (x.astype(np.float64) for x in (q, k, v, mask))
    scores = q @ np.swapaxes(k, 2, 3) + mask
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights / weights.sum(axis=3, keepdims=True) @ v


def model_of(arrays, kind):
    """y = attention of q, k and v, and z = that of k, q and v; f32, so that nothing is rounded."""
    nodes = []
    for q, k, y in (("q", "k", "y"), ("k", "q", "z")):
        nodes += [helper.make_node("Transpose", [k], [y + "_k"], perm=[0, 1, 3, 2]),
                  helper.make_node("MatMul", [q, y + "_k"], [y + "_s"]),
                  helper.make_node("Add", [y + "_s", "mask"], [y + "_m"]),
                  helper.make_node("Softmax", [y + "_m"], [y + "_w"], axis=-1),
                  helper.make_node("MatMul", [y + "_w", "v"], [y + "_n"]),
                  helper.make_node("Cast", [y + "_n"], [y], to=TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes, "case",
        [helper.make_tensor_value_info(name, TYPES[kind][0], x.shape) for name, x in arrays],
        [onnx.ValueInfoProto(name=name) for name in "yz"])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


def complaint(attnrun, folder):
    """"" or what is wrong with the rewritten graph."""
    done = subprocess.run([attnrun, "inspect", "--layers", "--json",
                           os.path.join(folder, "model.onnx")], capture_output=True, text=True,
                          check=True)
    layers = json.loads(done.stdout)["layers"]
    readers = [layer["op_type"] for layer in layers if "mask" in layer["inputs"]]
    return "" if readers == ["FusedAttention"] * 2 else f"the mask is read by {readers}"


def main():
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            for n in (5, 70, 600):
                for name, mask in masks(n, kind):
                    q, k, v = (numbers((2, HEADS, n, DIM), kind) for _ in "qkv")
                    arrays = [("q", q), ("k", k), ("v", v), ("mask", mask)]
                    outputs = [("y", attend(q, k, v, mask).astype(np.float32)),
                               ("z", attend(k, q, v, mask).astype(np.float32))]
                    case = os.path.join(folder, f"{kind}_{n:03}_{name}")
                    write_case(case, model_of(arrays, kind), arrays, outputs, "1e-4 2e-5")
                    wrong = complaint(sys.argv[1], case)
                    if wrong and name != "keys":
                        sys.exit(f"{os.path.basename(case)}: {wrong}")
        check(sys.argv[1], folder)


main()
