#!/usr/bin/env python3
"""Generate 2,000 bytes with linear attention, and with a cache of keys and values.

usage: generate.py ATTNRUN GENERATE FOLDER [--steps 2000] [--rounds 5] [--chart FILE.svg]

A Transformer of 4 layers, 256 wide, 4 heads, over bytes. Its weights are random: it shows
what a step costs, not what it writes. Two forms with the same weights:

    linear   LinearAttention of domain attnrun; state: a matrix and a vector a head
    cached   Attention of ONNX, causal; state: keys and values of all tokens

GENERATE is tools/examples/generate.c. It prints time and memory of steps; then both models
run once over all tokens together, and the logits of all steps must be the same. The chart has
the least time of each step over --rounds runs.
"""
import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import panels  # noqa: E402

LAYERS, WIDTH, HEADS, HIDDEN, BYTES = 4, 256, 4, 1024, 256
DIM = WIDTH // HEADS
MOST_TOKENS = 8192
NEAR = 2e-3  # logits of steps beside those of one run; they are up to 5


class Graph:
    """Nodes and random weights of one model."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0
        self.draw = np.random.default_rng(0)
        self.inputs = [helper.make_tensor_value_info("token", TensorProto.INT64,
                                                     [1, "new"])]
        self.outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                                      [1, "new", BYTES])]

    def node(self, op, inputs, outputs=None, **attributes):
        if outputs is None:
            self.count += 1
            outputs = [f"{op.lower()}_{self.count}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, name, value, dtype=np.float32):
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def matrix(self, name, rows, columns):
        return self.constant(name, self.draw.standard_normal((rows, columns)) * rows ** -0.5)

    def state(self, name, shape, kind=TensorProto.FLOAT):
        """past_NAME and present_NAME; a word in the shape is a length that grows."""
        after = [f"{dim}_after" if isinstance(dim, str) else dim for dim in shape]
        self.inputs.append(helper.make_tensor_value_info(f"past_{name}", kind, shape))
        self.outputs.append(helper.make_tensor_value_info(f"present_{name}", kind, after))
        return f"past_{name}", f"present_{name}"

    def norm(self, x, name):
        return self.node("LayerNormalization",
                         [x, self.constant(f"{name}.scale", np.ones(WIDTH)),
                          self.constant(f"{name}.bias", np.zeros(WIDTH))])

    def linear_attention(self, layer, qkv):
        kv, z = (self.state(f"{name}_{layer}", shape) for name, shape in
                 (("kv", [1, HEADS, DIM, DIM]), ("z", [1, HEADS, DIM])))
        return self.node("LinearAttention", [*qkv, "", kv[0], z[0]],
                         [f"y_{layer}", kv[1], z[1]], domain="attnrun",
                         q_num_heads=HEADS, is_causal=1)

    def cached_attention(self, layer, qkv):
        k, v = (self.state(f"{name}_{layer}", [1, HEADS, "past", DIM]) for name in "kv")
        return self.node("Attention", [*qkv, "", k[0], v[0]], [f"y_{layer}", k[1], v[1]],
                         q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1)

    def layer(self, number, x, attention):
        name = f"layer.{number}"
        both = self.node("MatMul", [self.norm(x, f"{name}.norm1"),
                                    self.matrix(f"{name}.qkv", WIDTH, 3 * WIDTH)])
        qkv = [f"{name}.{part}" for part in "qkv"]
        self.node("Split", [both], qkv, axis=-1, num_outputs=3)
        y = self.node("MatMul", [attention(number, qkv),
                                 self.matrix(f"{name}.out", WIDTH, WIDTH)])
        x = self.node("Add", [x, y])
        y = self.node("MatMul", [self.norm(x, f"{name}.norm2"),
                                 self.matrix(f"{name}.up", WIDTH, HIDDEN)])
        y = self.node("MatMul", [self.node("Gelu", [y]),
                                 self.matrix(f"{name}.down", HIDDEN, WIDTH)])
        return self.node("Add", [x, y])

    def embedding(self):
        """Bytes and places; the number of tokens so far is a state, too."""
        past, present = self.state("count", [1], TensorProto.INT64)
        new = self.node("Shape", ["token"], start=1, end=2)
        self.node("Add", [past, new], [present])
        zero, one = (self.constant(f"int.{k}", k, np.int64) for k in (0, 1))
        places = self.node("Add", [past, self.node(
            "Range", [zero, self.node("Squeeze", [new]), one])])
        x = self.node("Gather", [self.matrix("bytes", BYTES, WIDTH), "token"])
        return self.node("Add", [x, self.node(
            "Gather", [self.matrix("places", MOST_TOKENS, WIDTH), places])])

    def save(self, path):
        graph = helper.make_graph(self.nodes, "generator", self.inputs, self.outputs,
                                  self.weights)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("attnrun", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=11), path)


def make(path, linear):
    graph = Graph()
    x = graph.embedding()
    attention = graph.linear_attention if linear else graph.cached_attention
    for number in range(LAYERS):
        x = graph.layer(number, x, attention)
    graph.node("MatMul", [graph.norm(x, "norm"), graph.matrix("head", WIDTH, BYTES)],
               ["logits"])
    graph.save(path)


def states_at_once(linear):
    """What a run over all tokens begins with."""
    shapes = {"kv": (1, HEADS, DIM, DIM), "z": (1, HEADS, DIM)} if linear else {
        "k": (1, HEADS, 0, DIM), "v": (1, HEADS, 0, DIM)}
    states = {f"past_{name}_{layer}": np.zeros(shape, np.float32)
              for name, shape in shapes.items() for layer in range(LAYERS)}
    return {**states, "past_count": np.zeros(1, np.int64)}


def generate(args, name, steps):
    """(least ms of each step over the rounds, bytes held), after the check of the logits."""
    model, trace = args.folder / f"{name}.onnx", args.folder / f"{name}.txt"
    by_step, inputs = args.folder / f"{name}.f32", args.folder / f"{name}.npz"
    make(model, name == "linear")
    print(f"{name}:", flush=True)
    subprocess.run([args.generate, str(model), str(steps), str(trace), str(by_step)],
                   check=True)
    records = np.loadtxt(trace, ndmin=2)
    for _ in range(args.rounds - 1):
        subprocess.run([args.generate, str(model), str(steps), str(trace)], check=True,
                       stdout=subprocess.DEVNULL)
        records[:, 1] = np.minimum(records[:, 1], np.loadtxt(trace, ndmin=2)[:, 1])
    np.savez(inputs, token=records[None, :, 0].astype(np.int64),
             **states_at_once(name == "linear"))
    out = args.folder / f"{name}.out.npz"
    subprocess.run([args.attnrun, "run", str(model), "-i", str(inputs), "-n", "1", "-q",
                    "-o", str(out)], check=True)
    with np.load(out) as outputs:
        at_once = outputs["logits"][0]
    apart = np.abs(np.fromfile(by_step, np.float32).reshape(at_once.shape) - at_once).max()
    print(f"all {steps} steps in one run: logits up to {np.abs(at_once).max():.1f}, at most "
          f"{apart:.1e} apart\n", flush=True)
    if not apart < NEAR:
        sys.exit(f"generate.py: {name}: steps and one run differ by {apart}")
    return records[:, 1], records[:, 2]


def picture(found, steps):
    """Medians of a fiftieth of the steps each."""
    size = max(steps // 50, 1)
    def curve(values):
        return [(k + size / 2, float(np.median(values[k:k + size])))
                for k in range(0, steps - size + 1, size)]
    def panel(title, column, factor, unit):
        return {"title": title, "x_name": "step", "log": False, "unit": unit,
                "curves": {name: [(x, y * factor) for x, y in curve(found[name][column])]
                           for name in found}}
    return panels.draw("Generating bytes: 4 layers, 256 wide, one thread", [
        panel("time of a step", 0, 1, lambda ms: f"{ms:g} ms"),
        panel("memory held by the library, packed weights included", 1, 1e-6,
              lambda mb: f"{mb:g} MB")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("generate")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chart", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    names = {"linear": "linear attention", "cached": "cache of keys and values"}
    found = {names[name]: generate(args, name, args.steps) for name in names}
    chart = args.chart or args.folder / "long-generation.svg"
    chart.write_text(picture(found, args.steps), encoding="utf-8")
    print(chart)


if __name__ == "__main__":
    main()
