#!/usr/bin/env python3
"""How far operators are off a float64 evaluation of the same inputs, on each instruction set.

usage: check_accuracy.py ATTNRUN [--seeds N] [--write FILE]

All operators are nodes of one model, which each set runs once for each seed. Inputs: random
numbers, those that cancel, huge and tiny ones, denormals, and rows with NaN and infinities. An
error is counted in the unit of its gate, below: exit code 1 where one is above it. --write: a
table in Markdown.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

DEADLINE_S, WIDTH, U = 300, 512, 2.0 ** -24
HEAD = """# The largest errors of operators

Written by `python3 tests/ops/check_accuracy.py ATTNRUN --write tests/kernels/ACCURACY.md`. The
table shows the largest error of each operator compared with float64. An error above the gate
fails the test `ops.accuracy`. NaN and infinities must be where the rounded float64 result has
them.

The inputs of elementwise operators, sums and extremes are rows of random numbers, of numbers that
cancel, of huge and tiny numbers and denormals, and rows with NaN and infinities. There are
exceptions where a product cancels near a zero of the function: Sin and Cos have only ordinary
rows, and Gelu, Mish and HardSwish have magnitudes. Softmax, normalisations, products and
attention have no denormals, NaN or infinities except for the -inf of hidden scores. Squares,
normalisations and products have numbers up to 1e15.

Units:

- *rounded* counts the elements that are not the rounded float64 result.
- *ulp* is a unit of the last place of the result. Results below 1e-37 may be off by that much.
- The other units are multiples of u = 2^-24. *sum* is u times the sum of the magnitudes of the
  terms. *p* is u (1 + |x - max| / 16) times the result, because that difference is rounded;
  results of 1e-30 or less are not compared. *norm* is u (1 + |mean| / std) |scale|. *attention*
  is u max |V| (1 + max |score|).

"""
random = np.random.default_rng(0)


def f32(x):
    return np.asarray(x).astype(np.float32)


def rows(specials=True, largest=1e30):
    """Rows of WIDTH numbers, of each kind."""
    normal = random.standard_normal((8, WIDTH))
    cancels = np.repeat(random.standard_normal((2, WIDTH // 2)), 2, axis=1)
    cancels[:, 1::2] *= -1 + 1e-6 * random.standard_normal((2, WIDTH // 2))
    made = [normal, 30 * normal[:4], 100 * normal[:2], cancels, normal[:2] * largest,
            normal[:2] / largest, 1e-6 * normal[:1] + 1e3, np.full((1, WIDTH), 0.1)]
    if specials:
        made.append(normal[:1] * 1e-41)
        odd = normal[:3].copy()
        odd[0, 7], odd[1, 3], odd[2, 5] = np.nan, np.inf, -np.inf
        made.append(odd)
    return f32(np.concatenate(made))


def ulp_of(w):
    exponent = np.frexp(np.where(np.isfinite(w), w, 1))[1]
    return np.ldexp(1.0, np.maximum(exponent, -125) - 24)


# ---- units: of what came and what float64 has, the errors; `size` is the operator's own ----

def rounded(y, w, _):
    return np.where((y == f32(w)) | (np.isnan(y) & np.isnan(w)), 0, 1)


def ulp(y, w, _):
    off = np.abs(y - w)
    return np.where(off <= 1e-37, 0, off / ulp_of(w))


def per_size(y, w, size):
    return np.abs(y - w) / (U * np.maximum(size, 1e-37))


def probability(y, w, size):
    return np.where(w > 1e-30, np.abs(y - w) / (U * np.maximum(w, 1e-30) * size), 0)


UNITS = {"rounded": rounded, "ulp": ulp, "sum": per_size, "p": probability, "norm": per_size,
         "attention": per_size}


class Case:
    """A node, its operands, what float64 gives, the size of its errors and their gate."""

    def __init__(self, name, inputs, want, gate, unit="ulp", size=None, op=None, **attributes):
        self.name, self.inputs, self.op = name, inputs, op or name.split()[0]
        with np.errstate(all="ignore"):
            wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]
            self.want = want(*wide)
            self.size = size(*wide) if size else None
        self.gate, self.unit, self.attributes = gate, unit, attributes

    def error(self, y):
        y = y.astype(np.float64)
        with np.errstate(all="ignore"):
            narrow = f32(self.want).astype(np.float64)
            known = np.isfinite(narrow)
            if self.size is None and not np.array_equal(np.isnan(y), np.isnan(narrow)):
                return math.inf
            if self.unit == "ulp" and not np.array_equal(y[~known], narrow[~known],
                                                         equal_nan=True):
                return math.inf
            off = UNITS[self.unit](y, self.want, self.size)
            if not np.isfinite(y[known]).all():
                return math.inf
            return float(off[known].max()) if known.any() else 0.0


erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def elementwise():
    x, y = rows(), rows()[:, ::-1].copy()
    for name, f, gate in (
            ("Exp", np.exp, 2), ("Log", np.log, 2), ("Tanh", np.tanh, 2), ("Sigmoid", sigmoid, 2),
            ("Erf", erf, 2), ("Softplus", softplus, 4), ("Sin", np.sin, 2), ("Cos", np.cos, 2),
            ("Atan", np.arctan, 3), ("Elu", lambda v: np.where(v < 0, np.expm1(v), v), 4),
            ("Mish", lambda v: v * np.tanh(softplus(v)), 6),
            ("HardSwish", lambda v: v * np.clip(v / 6 + 0.5, 0, 1), 3)):
        if name in ("Sin", "Cos"):
            yield Case(name, [x[:14]], f, gate)
        elif name in ("Mish", "HardSwish"):  # -inf times 0 is NaN, and near -3 HardSwish cancels
            yield Case(name, [np.abs(x[:-1])], f, gate)
        else:
            yield Case(name, [x], f, gate)
    for name, f in (("Abs", np.abs), ("Neg", np.negative), ("Sqrt", np.sqrt),
                    ("Reciprocal", np.reciprocal), ("Floor", np.floor), ("Round", np.rint),
                    ("Relu", lambda v: np.where(v < 0, 0, v)), ("Sign", np.sign)):
        yield Case(name, [x], f, 0, "rounded")
    for name, f in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply),
                    ("Div", np.divide), ("Max", np.maximum), ("Min", np.minimum)):
        yield Case(name, [x, y], f, 0, "rounded")
    yield Case("Gelu", [np.abs(x)], lambda v: 0.5 * v * (1 + erf(v / math.sqrt(2))), 4)


def reductions():
    x = rows()
    yield Case("ReduceSum", [x, np.array([1])], lambda v, a: v.sum(1, keepdims=True), 4, "sum",
               lambda v, a: np.abs(v).sum(1, keepdims=True))
    yield Case("ReduceMean", [x, np.array([1])], lambda v, a: v.mean(1, keepdims=True), 4, "sum",
               lambda v, a: np.abs(v).mean(1, keepdims=True))
    yield Case("ReduceSum of columns", [x[:18], np.array([0])],
               lambda v, a: v.sum(0, keepdims=True), 4, "sum",
               lambda v, a: np.abs(v).sum(0, keepdims=True))
    yield Case("ReduceL1", [x, np.array([1])], lambda v, a: np.abs(v).sum(1, keepdims=True), 4,
               "sum", lambda v, a: np.abs(v).sum(1, keepdims=True))
    small = rows(largest=1e15)
    yield Case("ReduceSumSquare", [small, np.array([1])],
               lambda v, a: (v * v).sum(1, keepdims=True), 4, "sum",
               lambda v, a: (v * v).sum(1, keepdims=True))
    for name, f in (("ReduceMax", np.max), ("ReduceMin", np.min)):
        yield Case(name, [x, np.array([1])], lambda v, a, f=f: f(v, axis=1, keepdims=True), 0,
                   "rounded")


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmaxes():
    x = rows(specials=False)
    hidden = x[:8].copy()
    hidden[:, ::3] = -np.inf
    hidden[1, 1:] = -np.inf
    hidden[1, 0] = 2.5
    long = f32(random.standard_normal((1, 1000000)))
    for name, made in (("Softmax", x), ("Softmax of one key", f32(random.standard_normal((9, 1)))),
                       ("Softmax with -inf", hidden), ("Softmax of 10^6 keys", long)):
        yield Case(name, [made], softmax, 16, "p",
                   lambda v: 1 + np.abs(np.maximum(v, -1e30) - v.max(1, keepdims=True)) / 16)
    yield Case("Softmax down columns", [long.T], lambda v: softmax(v.T).T, 16, "p",
               lambda v: 1 + np.abs(v - v.max()) / 16, axis=0)
    yield Case("LogSoftmax", [x[:8]], lambda v: v - v.max(1, keepdims=True) - np.log(
        np.exp(v - v.max(1, keepdims=True)).sum(1, keepdims=True)), 16, "sum",
        lambda v: 1 + np.abs(v).max(1, keepdims=True) + 0 * v)


def normalized(v, scale, shift=0.0):
    return (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5) * scale + shift


def norm_size(v, scale, shift=0.0):
    std = np.sqrt(v.var(1, keepdims=True) + 1e-5)
    return (1 + np.abs(v.mean(1, keepdims=True)) / std) * np.abs(scale) + np.abs(shift)


def normalisations():
    x = rows(specials=False, largest=1e15)
    scale, shift = f32(random.standard_normal(WIDTH)), f32(random.standard_normal(WIDTH))
    yield Case("LayerNormalization", [x, scale, shift], normalized, 32, "norm", norm_size)
    yield Case("RMSNormalization", [x, scale],
               lambda v, s: v / np.sqrt((v * v).mean(1, keepdims=True) + 1e-5) * s, 32, "norm",
               lambda v, s: np.abs(s) + 0 * v)
    stats = [f32(random.standard_normal(WIDTH)), f32(random.random(WIDTH) + 0.1)]
    yield Case("BatchNormalization", [x[:14], scale, shift, *stats],
               lambda v, s, b, m, r: (v - m) / np.sqrt(r + 1e-5) * s + b, 32, "norm",
               lambda v, s, b, m, r: (np.abs(v) + np.abs(m)) / np.sqrt(r + 1e-5) * np.abs(s)
               + np.abs(b))


def products():
    a, b = rows(specials=False, largest=1e15), f32(random.standard_normal((WIDTH, 70)))
    yield Case("MatMul", [a, b], np.matmul, 4, "sum", lambda p, q: np.abs(p) @ np.abs(q))
    yield Case("MatMul of one row", [a[:1], b], np.matmul, 4, "sum",
               lambda p, q: np.abs(p) @ np.abs(q))
    yield Case("Gemm", [a, b, f32(random.standard_normal(70))], lambda p, q, c: p @ q + c, 4, "sum",
               lambda p, q, c: np.abs(p) @ np.abs(q) + np.abs(c))
    image = f32(random.standard_normal((1, 24, 9, 9)))
    weights = f32(random.standard_normal((20, 24, 3, 3)))

    def conv(v, w):
        windows = np.lib.stride_tricks.sliding_window_view(v, (3, 3), axis=(2, 3))
        return np.einsum("nchwij,ocij->nohw", windows, w)
    yield Case("Conv", [image, weights], conv, 4, "sum", lambda v, w: conv(np.abs(v), np.abs(w)))


def attentions():
    for name, queries, keys, times in (
            ("Attention", 70, 300, 1), ("Attention of one query", 1, 300, 1),
            ("Attention of large scores", 70, 300, 30), ("Attention of one key", 9, 1, 1)):
        q = f32(times * random.standard_normal((1, 2, queries, 64)))
        k, v = (f32(random.standard_normal((1, 2, keys, 64))) for _ in range(2))

        def scores(q, k):
            return q @ k.swapaxes(-1, -2) / 8
        yield Case(name, [q, k, v], lambda q, k, v: softmax(scores(q, k)) @ v, 64, "attention",
                   lambda q, k, v: np.abs(v).max() * (1 + np.abs(scores(q, k)).max()))


def cases():
    return [*elementwise(), *reductions(), *softmaxes(), *normalisations(), *products(),
            *attentions()]


def write_model(folder, made):
    nodes, inputs, arrays = [], [], {}
    for i, case in enumerate(made):
        names = [f"x{i}_{k}" for k in range(len(case.inputs))]
        constants = [x.dtype == np.int64 for x in case.inputs]
        for name, x, constant in zip(names, case.inputs, constants):
            if constant:
                nodes.append(helper.make_node("Constant", [], [name], value_ints=x.tolist()))
            else:
                arrays[name] = x
                inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape))
        nodes.append(helper.make_node(case.op, names, [f"y{i}"], **case.attributes))
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None)
               for i in range(len(made))]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10),
              os.path.join(folder, "model.onnx"))
    np.savez(os.path.join(folder, "x.npz"), **arrays)


def measure(attnrun, isas, worst):
    """Adds to {case: [case, {isa: error}]}."""
    made = cases()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, made)
        for isa in isas:
            subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "--isa", isa, "-i",
                            "x.npz", "-o", "y.npz"], cwd=folder, check=True, timeout=DEADLINE_S)
            with np.load(os.path.join(folder, "y.npz")) as results:
                for i, case in enumerate(made):
                    errors = worst.setdefault(case.name, [case, {}])[1]
                    errors[isa] = max(errors.get(isa, 0), case.error(results[f"y{i}"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun", type=os.path.abspath)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    doctor = subprocess.run([options.attnrun, "doctor", "--json"], capture_output=True, text=True,
                            check=True, timeout=DEADLINE_S)
    isas, worst, bad = json.loads(doctor.stdout)["isas"], {}, 0
    for _ in range(options.seeds):
        measure(options.attnrun, isas, worst)
    lines = [f"| operator | gate | {' | '.join(isas)} |", "|---" * (len(isas) + 2) + "|"]
    for name, (case, errors) in worst.items():
        for isa in isas:
            if not errors[isa] <= case.gate:
                bad += 1
                print(f"FAIL {name} on {isa}: {errors[isa]:.3g} {case.unit}, allowed {case.gate}")
        said = " | ".join(f"{errors[isa]:.2g}" for isa in isas)
        lines.append(f"| {name} | {case.gate} {case.unit} | {said} |")
    if options.write:
        options.write.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(worst)} operators on {' '.join(isas)}, {bad} above their gate")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
