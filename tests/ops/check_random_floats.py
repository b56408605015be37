#!/usr/bin/env python3
"""Compare random graphs of floats with ONNX Runtime.

usage: check_random_floats.py ATTNRUN [--models N] [--seed N]

A graph is up to 22 pieces on x f32[B,T,C], m f32[B,T] and w f32[T,C]: arithmetic with broadcasts,
activations, products, norms as one node or as several, reductions, attention with masks, and what
moves parts. Passes meet their patterns beside other readers, absent outputs and sizes of 1. Each
model runs with some sizes, whose numbers must be those of ONNX Runtime without optimization.
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from check_size_sums import option

DEADLINE_S = 120
SIZES = [(2, 5), (1, 1), (1, 17), (3, 2), (2, 64)]  # B, T
UNARY = ["Relu", "Sigmoid", "Tanh", "Erf", "Abs", "Neg", "Softplus", "Elu", "LeakyRelu",
         "HardSigmoid", "Sin", "Cos", "Identity", "Softsign", "Selu"]
REDUCTIONS = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare",
              "ReduceLogSumExp"]
PIECES = ["unary", "unary", "binary", "binary", "constant", "constant", "product", "weights",
          "softmax", "layer_norm", "mean_norm", "rms_norm", "gelu", "tanh_gelu", "swish", "reduce",
          "transpose", "reshape", "concat", "slice", "split", "expand", "unsqueeze", "squeeze",
          "clip", "gather", "attention"]


def broadcast(a, b):
    """The shape of both, or None. Sizes are numbers, "B" or "T"."""
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(s)) + tuple(s) for s in (a, b))
    if any(p != q and 1 not in (p, q) for p, q in zip(a, b)):
        return None
    return tuple(q if p == 1 else p for p, q in zip(a, b))


class Graph:
    def __init__(self, seed):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.constants = [], []
        self.width = self.pick(1, 3, 4, 8, 16, 24, 32)
        self.shapes = {"x": ("B", "T", self.width), "m": ("B", "T"), "w": ("T", self.width)}
        for _ in range(self.random.randrange(3, 22)):
            getattr(self, self.pick(*PIECES))(*self.some())

    def pick(self, *choices):
        return self.random.choice(choices)

    def some(self, fits=lambda shape: True):
        """A value that fits, mostly one of the last, and its shape; None, () without one."""
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        if not names:
            return None, ()
        name = self.pick(*(names[-4:] if self.random.random() < 0.7 else names))
        return name, self.shapes[name]

    def node(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        inputs = [i if isinstance(i, str) else self.constant_of(i) for i in inputs]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant_of(self, value):
        value = np.asarray(value)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(
            value.astype("f4" if value.dtype.kind == "f" else "i8"), name))
        return name

    def normal(self, *shape):
        return self.numbers.standard_normal(shape) * 0.5

    def keep(self, name, shape):
        if len(shape) < 6:
            self.shapes[name] = tuple(shape)

    def unary(self, x, shape):
        self.keep(self.node(self.pick(*UNARY), x), shape)

    def binary(self, x, shape):
        y, other = self.some(lambda other: broadcast(shape, other) is not None)
        pair = (x, y) if self.pick(True, True, False) else (y, x)
        self.keep(self.node(self.pick("Add", "Add", "Sub", "Mul", "Max", "Min"), *pair),
                  broadcast(shape, other))

    def constant(self, x, shape):
        value = self.pick(0.5, 1.0, -1.0, 2.0, 0.125, 3.0)
        if shape and isinstance(shape[-1], int) and self.pick(True, False):
            value = self.normal(*(1,) * self.pick(0, len(shape) - 1), shape[-1])
        if self.random.random() < 0.2:
            self.keep(self.node("Div", x, self.pick(2.0, 0.3, -4.0)), shape)
            return
        pair = (x, value) if self.pick(True, False) else (value, x)
        self.keep(self.node(self.pick("Add", "Mul", "Sub"), *pair), shape)

    def product(self, x, shape):
        if len(shape) < 2:
            return
        y, other = self.some(lambda s: len(s) > 1 and s[-2] == shape[-1] and
                             broadcast(shape[:-2], s[:-2]) is not None)
        if y is None:
            turned = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            y, other = self.node("Transpose", x, perm=turned), [shape[i] for i in turned]
        self.keep(self.node("MatMul", self.node("Tanh", x), self.node("Sigmoid", y)),
                  broadcast(shape[:-2], other[:-2]) + (shape[-2], other[-1]))

    def weights(self, x, shape):
        if len(shape) < 2 or not isinstance(shape[-1], int):
            return
        n, x = self.pick(1, 2, 3, 4, 8, 16, 33), self.node("Tanh", x)
        if len(shape) == 2 and self.pick(True, False):
            turned = self.pick(0, 1)
            sizes = (n, shape[-1]) if turned else (shape[-1], n)
            y = self.node("Gemm", x, self.normal(*sizes), self.normal(n), transB=turned,
                          alpha=self.pick(1.0, 0.5))
        else:
            y = self.node("MatMul", x, self.normal(shape[-1], n))
        self.keep(self.node("Add", y, self.normal(n)) if self.pick(True, False) else y,
                  shape[:-1] + (n,))

    def softmax(self, x, shape):
        if shape:
            axis = self.pick(-1, -1, -1, self.random.randrange(len(shape)))
            self.keep(self.node(self.pick("Softmax", "Softmax", "LogSoftmax"), x, axis=axis), shape)

    def scaled(self, y, shape):
        if isinstance(shape[-1], int) and self.pick(True, False):
            y = self.node("Add", self.node("Mul", y, self.normal(shape[-1])),
                          self.normal(shape[-1]))
        self.keep(y, shape)

    def layer_norm(self, x, shape):
        if shape and isinstance(shape[-1], int):
            more = [self.normal(shape[-1]) for _ in range(self.pick(1, 2))]
            self.keep(self.node("LayerNormalization", x, *more, epsilon=self.pick(1e-5, 1e-3)),
                      shape)

    def mean_norm(self, x, shape):
        if shape:
            less = self.node("Sub", x, self.node("ReduceMean", x, [-1]))
            square = self.node("Pow", less, 2.0) if self.pick(True, False) else self.node(
                "Mul", less, less)
            deviation = self.node("Sqrt", self.node(
                "Add", self.node("ReduceMean", square, [-1]), 1e-3))
            self.scaled(self.node("Div", less, deviation), shape)

    def rms_norm(self, x, shape):
        if shape:
            mean = self.node("ReduceMean", self.node("Mul", x, x), [-1])
            self.scaled(self.node("Mul", x, self.node("Reciprocal", self.node(
                "Sqrt", self.node("Add", mean, 1e-3)))), shape)

    def gelu(self, x, shape):
        both = self.node("Add", self.node("Erf", self.node("Div", x, 2**0.5)), 1.0)
        self.keep(self.node("Mul", self.node("Mul", x, both), 0.5), shape)

    def tanh_gelu(self, x, shape):
        cube = self.node("Mul", self.node("Pow", x, 3.0), 0.044715)
        inner = self.node("Mul", self.node("Add", x, cube), 0.7978845608)
        self.keep(self.node("Mul", self.node("Mul", x, 0.5), self.node(
            "Add", self.node("Tanh", inner), 1.0)), shape)

    def swish(self, x, shape):
        self.keep(self.node("Mul", x, self.node("Sigmoid", x)), shape)

    def reduce(self, x, shape):
        if shape:
            axis, kept = self.random.randrange(len(shape)), self.pick(0, 1)
            self.keep(self.node(self.pick(*REDUCTIONS), x, [axis], keepdims=kept),
                      shape[:axis] + (1,) * kept + shape[axis + 1:])

    def transpose(self, x, shape):
        order = self.random.sample(range(len(shape)), len(shape))
        if shape:
            self.keep(self.node("Transpose", x, perm=order), [shape[i] for i in order])

    def reshape(self, x, shape):
        if shape and isinstance(shape[-1], int) and shape[-1] % 2 == 0:
            parts = (2, shape[-1] // 2) if self.pick(True, False) else (shape[-1] // 2, 2)
            self.keep(self.node("Reshape", x, [*[0] * (len(shape) - 1), *parts]),
                      shape[:-1] + parts)
        elif len(shape) > 1 and isinstance(shape[-1], int) and isinstance(shape[-2], int):
            self.keep(self.node("Reshape", x, [*[0] * (len(shape) - 2), -1]),
                      shape[:-2] + (shape[-1] * shape[-2],))

    def concat(self, x, shape):
        y, other = self.some(lambda s: len(s) == len(shape) > 0 and s[:-1] == shape[:-1] and
                             isinstance(s[-1], int) and isinstance(shape[-1], int))
        if y is not None:
            self.keep(self.node("Concat", x, y, axis=-1), shape[:-1] + (shape[-1] + other[-1],))

    def slice(self, x, shape):
        if shape and isinstance(shape[-1], int):
            start = self.random.randrange(shape[-1])
            end = self.random.randrange(start, shape[-1]) + 1
            self.keep(self.node("Slice", x, [start], [end], [-1]), shape[:-1] + (end - start,))

    def split(self, x, shape):
        if shape and isinstance(shape[-1], int) and shape[-1] % 2 == 0:
            for part in self.node("Split", x, outputs=2, axis=-1, num_outputs=2)[self.pick(0, 1):]:
                self.keep(part, shape[:-1] + (shape[-1] // 2,))

    def expand(self, x, shape):
        y, other = self.some(lambda s: broadcast(shape, s) == s)
        if y is not None:
            self.keep(self.node("Expand", x, self.node("Shape", y)), other)

    def unsqueeze(self, x, shape):
        axis = self.random.randrange(len(shape) + 1)
        self.keep(self.node("Unsqueeze", x, [axis]), shape[:axis] + (1,) + shape[axis:])

    def squeeze(self, x, shape):
        if 1 in shape:
            axis = shape.index(1)
            self.keep(self.node("Squeeze", x, [axis]), shape[:axis] + shape[axis + 1:])

    def clip(self, x, shape):
        self.keep(self.node("Clip", x, -0.5, self.pick(0.7, 6.0)), shape)

    def gather(self, x, shape):
        if shape and isinstance(shape[-1], int):
            at = [self.random.randrange(-shape[-1], shape[-1]) for _ in range(self.pick(1, 2, 3))]
            self.keep(self.node("Gather", x, at, axis=-1), shape[:-1] + (len(at),))

    def masked(self, scores):
        shown = self.node("Greater", self.node("Unsqueeze", "m", [1, 2]), 0.0)
        kind = self.pick("none", "added", "chosen", "bias")
        if kind == "added":
            hidden = self.node("Sub", 1.0, self.node("Cast", shown, to=1))
            return self.node("Add", scores, self.node("Mul", hidden, -1e4))
        if kind == "chosen":
            return self.node("Where", shown, scores, -1e4)
        if kind == "bias":
            return self.node("Add", scores, self.node(
                "MatMul", "w", self.node("Transpose", "w", perm=[1, 0])))
        return scores

    def attention(self, x, shape):
        if len(shape) != 3 or shape[:2] != ("B", "T") or not isinstance(shape[-1], int):
            x, shape = "x", self.shapes["x"]
        heads, dim = self.pick(1, 2, 4), self.pick(1, 4, 8)

        def projected(order):
            y = self.node("MatMul", x, self.normal(shape[-1], heads * dim))
            if self.pick(True, False):
                y = self.node("Add", y, self.normal(heads * dim))
            return self.node("Transpose", self.node("Reshape", y, [0, 0, heads, dim]), perm=order)

        q, k, v = (projected(order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.node("MatMul", self.node("Mul", q, dim**-0.5), k)
        weights = self.node("Softmax", self.masked(scores), axis=-1)
        if self.random.random() < 0.15:
            self.keep(weights, ("B", heads, "T", "T"))
        y = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        self.keep(self.node("Reshape", y, [0, 0, heads * dim]), ("B", "T", heads * dim))

    def model(self):
        """With the values that nobody reads as outputs, and sometimes another one."""
        read = {name for node in self.nodes for name in node.input}
        made = list(self.shapes)[3:] or [self.node("Identity", "x")]
        outputs = [name for name in made if name not in read] or made[-1:]
        outputs += [self.pick(*made)] if self.random.random() < 0.3 else []
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "floats", [info(name, 1, self.shapes[name]) for name in ("x", "m", "w")],
            [info(name, 1, None) for name in dict.fromkeys(outputs)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def feeds(self, batch, tokens):
        m = np.where(self.numbers.random((batch, tokens)) < 0.7, 1, -1).astype("f4")
        m[:, 0] = 1
        return {"x": self.numbers.standard_normal((batch, tokens, self.width)).astype("f4"),
                "m": m, "w": self.numbers.standard_normal((tokens, self.width)).astype("f4")}


def far(got, wanted):
    if got.shape != wanted.shape:
        return f"shape {got.shape}, expected {wanted.shape}"
    wrong = np.abs(got - wanted) > 2e-3 + 2e-3 * np.abs(wanted)
    wrong = (wrong & np.isfinite(wanted)) | (np.isfinite(got) != np.isfinite(wanted))
    if wrong.sum() <= 0.02 * wrong.size:
        return ""
    return f"{wrong.sum()} of {wrong.size} differ: {got[wrong][:3]}, expected {wanted[wrong][:3]}"


def check(attnrun, folder, seed):
    graph = Graph(seed)
    model, failures = graph.model(), []
    onnx.save(model, os.path.join(folder, "model.onnx"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for size in SIZES:
        feeds = graph.feeds(*size)
        np.savez(os.path.join(folder, "in.npz"), **feeds)
        wanted = session.run(None, feeds)
        ran = subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "in.npz", "-o",
                              "out.npz"], cwd=folder, timeout=DEADLINE_S, capture_output=True,
                             text=True)
        if ran.returncode != 0:
            failures.append(f"B, T = {size}: exit code {ran.returncode}: {ran.stderr[:200]}")
            continue
        got = np.load(os.path.join(folder, "out.npz"))
        failures += [f"B, T = {size}: '{info.name}': {why}"
                     for info, value in zip(session.get_outputs(), wanted)
                     if (why := far(got[info.name], value))]
    return [f"FAIL seed {seed}: {why}" for why in failures]


def main():
    attnrun, seed, models = (os.path.abspath(sys.argv[1]), option("--seed", 1),
                             option("--models", 150))
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(models):
            failures += check(attnrun, folder, seed + k)
    print("\n".join(failures[:40] + [f"{models} models of {len(SIZES)} sizes, "
                                     f"{len(failures)} failures"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
