#!/usr/bin/env python3
"""Operators of domain attnrun in onnxruntime (libattnrun_ort.so) beside our own run: the same
node, the same input, one thread.

usage: PYTHONPATH=BUILD/python ort_ops.py [--rounds N] [--page README.md]

Needs onnx and onnxruntime. Both write into the same memory of the caller. The engines take turns;
the fastest round counts, in time of the processor where that is less than the clock's (other
programs on the machine). Prints a table; --page writes it into that page."""
import argparse
import time

import attnrun
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import written

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
    """Seconds of a run that follows its own kind: all ways find the caches alike."""
    best = float("inf")
    run()
    for _ in range(3):
        wall, used = time.perf_counter(), time.process_time()
        run()
        best = min(best, time.perf_counter() - wall, time.process_time() - used)
    return best


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
    # Both write into the same memory: what a new array costs is no matter of operators.
    ours = context.run(feeds)["Y"]
    made = np.empty_like(ours)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("Y", "cpu", 0, np.float32, made.shape, made.ctypes.data)
    ways = (lambda: session.run_with_iobinding(binding),
            lambda: context.run(feeds, out={"Y": made}))
    ways[0]()
    same = np.array_equal(made, ours)
    times = [[timed(way) for way in ways] for _ in range(rounds)]
    return [1e3 * min(column) for column in zip(*times, strict=True)], same


def table(rounds):
    lines = [written.measured("tools/bench/ort_ops.py", f"onnxruntime {onnxruntime.__version__}",
                              "one thread") + ":", "",
             "| operator | in onnxruntime, ms | our run, ms | ratio | the same bits |",
             "|---|---|---|---|---|"]
    for op, (inputs, _, _) in CASES.items():
        (theirs, ours), same = measure(op, rounds)
        dims = " x ".join(str(dim) for dim in next(iter(inputs.values())) if dim != 1)
        lines.append(f"| {op}, {dims} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.3f} | "
                     f"{'yes' if same else 'no'} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--page")
    options = parser.parse_args()
    text = table(options.rounds)
    print(text)
    if options.page:
        written.write(options.page, "operators in onnxruntime", text)


if __name__ == "__main__":
    main()
