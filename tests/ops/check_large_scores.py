#!/usr/bin/env python3
"""Attention whose scores are as large as floats are, against softmax in double (NumPy).

usage: check_large_scores.py ATTNRUN

Queries are powers of two and keys small integers, so that every score is exact in floats, up to
2^125: what is left of the softmax is the differences to the maximum, which are 0 or large. Many
queries, one query, a mask of floats, and every instruction set that this CPU has, also with
products of bf16, which round the values alone.
"""
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper

DEADLINE_S, SIZE = 60, 16
random = np.random.default_rng(7)


def model(path, queries, keys, masked):
    shape = {"q": [1, 2, queries, SIZE], "k": [1, 2, keys, SIZE], "v": [1, 2, keys, SIZE],
             "m": [queries, keys]}
    names = ["q", "k", "v"] + ["m"] * masked
    node = helper.make_node("Attention", names, ["y"], scale=1.0)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape[n]) for n in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    with open(path, "wb") as file:
        file.write(made.SerializeToString())
    return shape, names


def operands(shape, exponent):
    made = {"q": np.zeros(shape["q"], np.float32), "k": np.zeros(shape["k"], np.float32),
            "v": random.standard_normal(shape["v"]).astype(np.float32),
            "m": np.zeros(shape["m"], np.float32)}
    made["q"][..., 3] = 2.0 ** exponent * random.choice([-1, 1], shape["q"][:3])
    made["k"][..., 3] = random.integers(-3, 4, shape["k"][:3])
    made["m"][:, ::5] = -np.inf
    return made


def expected(made, masked):
    scores = made["q"].astype(float) @ made["k"].astype(float).swapaxes(-1, -2)
    if masked:
        scores = scores + made["m"]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ made["v"].astype(float)


def run(attnrun, folder, names, made, isa, precision):
    args = [attnrun, "run", "model.onnx", "-q", "-n", "1", "--isa", isa, "--precision", precision,
            "-o", "y.npy"]
    for name in names:
        np.save(os.path.join(folder, f"{name}.npy"), made[name])
        args += ["-i", f"{name}={name}.npy"]
    subprocess.run(args, cwd=folder, check=True, timeout=DEADLINE_S)
    return np.load(os.path.join(folder, "y.npy"))


def instruction_sets(attnrun):
    said = subprocess.run([attnrun, "doctor"], capture_output=True, text=True, check=True,
                          timeout=DEADLINE_S).stdout
    known = ("base", "avx2", "avx512", "avx512_bf16", "avx512_amx_bf16", "neon")
    return [isa for isa in known if isa in said.replace(",", " ").split()]


def main():
    attnrun, bad, checked = os.path.abspath(sys.argv[1]), 0, 0
    isas = instruction_sets(attnrun)
    with tempfile.TemporaryDirectory() as folder:
        for queries, keys, masked in ((70, 300, False), (70, 300, True), (1, 300, False),
                                      (9, 5, True)):
            shape, names = model(os.path.join(folder, "model.onnx"), queries, keys, masked)
            for exponent in (0, 10, 24, 31, 40, 60, 90, 125):
                made = operands(shape, exponent)
                right = expected(made, masked)
                for isa, precision in itertools.product(isas, ("f32", "bf16")):
                    found = run(attnrun, folder, names, made, isa, precision)
                    error = np.abs(found - right).max()
                    checked += 1
                    if not error < {"f32": 1e-5, "bf16": 2e-2}[precision]:
                        bad += 1
                        print(f"FAIL {queries} queries, {keys} keys, mask {masked}, scores of "
                              f"2^{exponent}, {isa}, {precision}: off by {error}")
    print(f"{checked - bad} passed, {bad} failed, on {' '.join(isas)}")
    return 1 if bad or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
