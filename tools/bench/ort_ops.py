#!/usr/bin/env python3
"""Operators of domain attnrun in onnxruntime (libattnrun_ort.so) beside our own run: the same
node, the same input, one thread.

usage: PYTHONPATH=BUILD/python ort_ops.py [--rounds N]

Needs onnx and onnxruntime. Both write into memory of the caller. The engines take turns; the
fastest round counts, in time of the processor where that is less than the clock's (other programs
on the machine). Prints a table."""
import argparse
import os
import platform
import time

import attnrun
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HEADS = {"q_num_heads": 8, "kv_num_heads": 8}
QKV = {name: (1, 2048, 512) for name in "QKV"}
# operator: inputs, constants, attributes
CASES = {
    "LocalAttention": (QKV, {}, {**HEADS, "left_window": [128], "right_window": [128]}),
    "LinearAttention": (QKV, {}, HEADS),
    "LinformerAttention": (QKV, {"E": (2048, 256)}, HEADS),
    "FourierMix": ({"X": (1, 2048, 512)}, {}, {}),
    "TopKAttention": ({name: (1, 512, 512) for name in "QKV"}, {}, {**HEADS, "k": 32}),
    "SqueezeExcite": ({"x": (8, 256, 28, 28)}, {"w1": (16, 256), "w2": (256, 16)}, {}),
}


def model_of(op, inputs, constants, attributes):
    rng = np.random.default_rng(1)
    held = [numpy_helper.from_array((rng.standard_normal(dims) / 16).astype("f"), name)
            for name, dims in constants.items()]
    order = [*inputs, *constants]
    if op == "SqueezeExcite":
        order = ["x", "w1", "", "w2"]
    graph = helper.make_graph(
        [helper.make_node(op, order, ["Y"], domain="attnrun", **attributes)], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
         for name, dims in inputs.items()],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)], held)
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("attnrun", 1)]).SerializeToString()


def timed(run):
    wall, used = time.perf_counter(), time.process_time()
    run()
    return min(time.perf_counter() - wall, time.process_time() - used)


def measure(op, rounds):
    inputs, constants, attributes = CASES[op]
    data = model_of(op, inputs, constants, attributes)
    rng = np.random.default_rng(2)
    feeds = {name: rng.standard_normal(dims).astype("f") for name, dims in inputs.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(attnrun.ort_library())
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    context = attnrun.Model(data, threads=1).context()
    # Both write into memory that is there: what a new array costs is no matter of operators.
    shape = context.run(feeds)["Y"].shape
    theirs, ours = np.empty(shape, "f"), np.empty(shape, "f")
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("Y", "cpu", 0, np.float32, shape, theirs.ctypes.data)
    ways = (lambda: session.run_with_iobinding(binding),
            lambda: context.run(feeds, out={"Y": ours}), lambda: context.run(feeds, ()))
    for way in ways:
        way()
    same = np.array_equal(theirs, ours)
    times = [[timed(way) for way in ways] for _ in range(rounds)]
    return [1e3 * min(column) for column in zip(*times, strict=True)], same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
          f"{time.strftime('%Y-%m-%d')}, onnxruntime {onnxruntime.__version__}, one thread\n")
    print("| operator | in onnxruntime, ms | our run, ms | without its output, ms | ratio | "
          "same bits |\n|---|---|---|---|---|---|")
    for op in CASES:
        (theirs, ours, bare), same = measure(op, options.rounds)
        print(f"| {op} | {theirs:.3f} | {ours:.3f} | {bare:.3f} | {theirs / ours:.3f} | "
              f"{'yes' if same else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
