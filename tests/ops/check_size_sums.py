#!/usr/bin/env python3
"""Check what is computed at load from sizes that are symbols, in random graphs.

usage: check_size_sums.py ATTNRUN [--models N] [--seed N]

A graph computes with the sizes of its inputs: sums, products, quotients, minima, comparisons, parts
of vectors, and the sizes of what Slice, Range, Pad, Tile, Expand, Split and others make with them.
Expressions of symbols must be exact for all sizes: where the symbols cancel, the number that is
left becomes a constant when the model is opened. Each graph is fed with some sizes, and compared
with ONNX Runtime; a model is several graphs that ONNX Runtime runs with all of them.
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

DEADLINE_S = 120
GRAPHS = 24  # of a model
SIZES = [(3, 4), (0, 1), (1, 0), (1, 1), (2, 5), (7, 2), (9, 9), (5, 12), (101, 3)]
NUMBERS = [0, 1, 2, 3, 5, -1, -2, 7, 100]
COMPARED = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]


class Graph:
    """Nodes that compute with the sizes of x f32[S,T] and t f32[T]."""

    def __init__(self, seed):
        self.random, self.seed, self.nodes, self.constants = random.Random(seed), seed, [], []
        self.vectors, self.rank = {}, {"x": 2, "t": 1}  # lengths of i64 vectors; ranks of tensors
        for name in ("x", "t"):
            self.vectors[self.node("Shape", name)] = self.rank[name]
        for _ in range(self.random.randrange(3, 16)):
            self.random.choice([self.sum, self.sum, self.vector, self.tensor, self.tensor])()

    def node(self, op, *inputs, outputs=1, **attributes):
        names = [f"g{self.seed}_{len(self.nodes)}_{k}" for k in range(outputs)]
        inputs = [name if isinstance(name, str) else self.constant(name) for name in inputs]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value):
        name = f"c{self.seed}_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(
            np.asarray(value, "f4" if np.asarray(value).dtype.kind == "f" else "i8"), name))
        return name

    def pick(self, *choices):
        return self.random.choice(choices)

    def one(self):
        """A vector of one element: a constant, or a part of a vector."""
        if self.random.random() < 0.2:
            return self.constant([self.pick(*NUMBERS)])
        vector = self.pick(*self.vectors)
        n = self.vectors[vector]
        near = self.random.random() < 0.2
        if n == 1:
            return self.near(vector) if near else vector
        at = self.random.randrange(-n, n)
        name = self.node("Gather", vector, [at]) if self.pick(True, False) else self.node(
            "Slice", vector, [at], [at + 1 if at != -1 else 2**62])
        self.vectors[name] = 1
        return self.near(name) if near else name

    def near(self, size):
        return self.node("Add", size, [self.pick(*NUMBERS)])

    def some(self, low, high):
        """The same, no less and no more than these."""
        return self.node("Min", self.node("Max", self.one(), [low]), [high])

    def scalar(self, low, high):
        return self.node("Squeeze", self.some(low, high))

    def sum(self):
        op = self.pick("Add", "Sub", "Min", "Max", "Mul", "scaled", "Div", "Mod", "Neg", "Abs",
                       "Sign", "Where", "logic", "Cast", "rounded", "Clip")
        a, b = self.one(), self.one()
        if op in ("Add", "Sub", "Min", "Max", "Mul"):
            y = self.node(op, a, b)
        elif op == "scaled":
            y = self.node("Mul", a, [self.pick(2, 3, 4, -1, -2)])
        elif op in ("Div", "Mod"):
            y = self.node(op, a, [self.pick(1, 2, 3, 4, 5, 8)])
        elif op in ("Neg", "Abs", "Sign"):
            y = self.node(op, a)
        elif op == "Where":
            y = self.node("Where", self.node(self.pick(*COMPARED), a, b), self.one(), self.one())
        elif op == "logic":
            both = [self.node(self.pick(*COMPARED), a, b),
                    self.node(self.pick(*COMPARED), self.one(), self.one())]
            y = self.node("Cast", self.node(self.pick("And", "Or", "Xor"), *both), to=7)
        elif op == "Cast":
            y = self.node("Cast", self.node("Cast", a, to=self.pick(1, 6, 11)), to=7)
        elif op == "rounded":
            scaled = self.node("Mul", self.node("Cast", a, to=1),
                               [self.pick(0.5, 0.25, 2.0, 1.5, 1 / 3)])
            y = self.node("Cast", self.node(self.pick("Floor", "Ceil", "Round"), scaled), to=7)
        else:
            low, high = sorted((self.pick(-5, 0, 1, 2, 3), self.pick(3, 5, 50, 200)))
            y = self.node("Clip", a, low, high)
        self.vectors[y] = 1

    def vector(self):
        n = self.random.randrange(1, 4)
        y = self.node("Concat", *(self.one() for _ in range(n)), axis=0)
        self.vectors[y] = n
        if self.random.random() < 0.2:
            y = self.node(self.pick("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"), y,
                          keepdims=1)
            self.vectors[y] = 1
        elif self.random.random() < 0.2:
            self.vectors[self.node("Unsqueeze", self.node("Squeeze", self.one()), [0])] = 1

    def tensor(self):
        op = self.pick("Slice", "Slice", "Slice", "ConstantOfShape", "Range", "Concat", "Pad",
                       "Tile", "Expand", "Reshape", "Transpose", "Gather", "Split")
        x = self.pick(*self.rank)
        rank = self.rank[x]
        if op == "Slice":
            y = self.node(op, x, self.one(), self.one(), [self.random.randrange(rank)],
                          [self.pick(1, 1, 1, 2, 3, -1, -2)])
        elif op == "ConstantOfShape":
            y, rank = self.node(op, self.some(0, 9)), 1
        elif op == "Range":
            made = self.node(op, self.scalar(-300, 9), self.scalar(-300, 9),
                             self.pick(1, 1, 2, 3, -1, -2))
            y, rank = self.node("Cast", made, to=1), 1
        elif op == "Concat":  # of vectors, since their other sizes need not be equal
            of = [name for name, each in self.rank.items() if each == 1]
            y, rank = self.node(op, self.pick(*of), self.pick(*of), axis=0), 1
        elif op == "Pad":
            y = self.node(op, x, self.node("Concat", *(self.some(-3, 9) for _ in range(2 * rank)),
                                           axis=0))
        elif op == "Tile":
            y = self.node(op, x, self.node("Concat", *(self.some(0, 3) for _ in range(rank)),
                                           axis=0))
        elif op == "Expand":
            y = self.node(op, self.node("ConstantOfShape", [1] * rank), self.node(
                "Concat", *(self.some(0, 9) for _ in range(rank)), axis=0))
        elif op == "Reshape":
            y, rank = self.node(op, x, [-1] if rank == 2 else [-1, 1]), 3 - rank
        elif op == "Transpose":
            y = self.node(op, x)
        elif op == "Gather":
            zeros = self.node("Mul", self.node("Range", 0, self.scalar(-9, 9), 1), 0)
            y = self.node(op, x, zeros, axis=self.random.randrange(rank))
        else:
            whole = self.node("Gather", self.node("Shape", x), [0])
            part = self.node("Min", self.some(0, 9), whole)
            y, rest = self.node(op, x, self.node("Concat", part, self.node("Sub", whole, part),
                                                 axis=0), outputs=2)
            self.rank[rest] = rank
        self.rank[y] = rank
        shape = self.node("Shape", y)
        self.vectors[shape] = rank
        # Symbols cancel in the difference of two sizes.
        before = self.node("Gather", self.node("Shape", x), [self.random.randrange(self.rank[x])])
        after = self.node("Gather", shape, [self.random.randrange(rank)])
        self.vectors[self.node("Sub", before, after)] = 1

    def outputs(self):
        return [name for name in [*list(self.vectors)[-8:], *list(self.rank)[-2:]]
                if name.startswith("g")]


def model_of(graphs):
    kinds = [(name, 1 if name in graph.rank else 7) for graph in graphs
             for name in graph.outputs()]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node for each in graphs for node in each.nodes], "sizes",
        [info("x", 1, ["S", "T"]), info("t", 1, ["T"])],
        [info(name, kind, None) for name, kind in kinds],
        [value for each in graphs for value in each.constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds(size):
    rows, columns = size
    return {"x": (np.arange(rows * columns).reshape(size) % 7).astype("f4"),
            "t": np.arange(columns, dtype="f4")}


def answers(model):
    """By size; None where ONNX Runtime refuses the model with one of them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return [session.run(None, feeds(size)) for size in SIZES]
    except Exception:  # of many types
        return None


def check(attnrun, folder, first_seed):
    """What is wrong with a model of graphs, and the seed behind the last one."""
    seed, graphs, wanted = first_seed, [], [[] for _ in SIZES]
    while len(graphs) < GRAPHS:
        graph = Graph(seed)
        seed += 1
        if (found := answers(model_of([graph]))) is not None:
            graphs.append(graph)
            for all_of, some in zip(wanted, found):
                all_of += some
    names = [name for graph in graphs for name in graph.outputs()]
    onnx.save(model_of(graphs), os.path.join(folder, "model.onnx"))
    wrong = []
    for size, values in zip(SIZES, wanted):
        for name, value in feeds(size).items():
            np.save(os.path.join(folder, f"{name}.npy"), value)
        ran = subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "x=x.npy", "-i",
                              "t=t.npy", "-o", "y.npz"], cwd=folder, timeout=DEADLINE_S,
                             capture_output=True, text=True)
        if ran.returncode != 0:
            wrong.append(f"S, T = {size}: {ran.stderr.splitlines()[0]}")
            continue
        got = np.load(os.path.join(folder, "y.npz"))
        wrong += [f"graph of seed {name.split('_')[0][1:]}, S, T = {size}: '{name}' is "
                  f"{got[name].tolist()}, expected {value.tolist()}"[:300]
                  for name, value in zip(names, values)
                  if got[name].shape != value.shape or not np.array_equal(got[name], value)]
    return wrong, seed


def option(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def main():
    attnrun, seed, failures = os.path.abspath(sys.argv[1]), option("--seed", 1), []
    models = option("--models", 12)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(models):
            first = seed
            wrong, seed = check(attnrun, folder, first)
            failures += [f"FAIL model of seeds {first} to {seed - 1}: {why}" for why in wrong]
    print("\n".join(failures[:40] + [f"{models} models of {GRAPHS} graphs and {len(SIZES)} sizes, "
                                     f"{len(failures)} failures"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
