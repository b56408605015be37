"""operators.py - runs operators through the command line, and asks what a query sees.

`run` makes a model of the nodes given, runs it and returns an output. `sensitivity` is for
operators whose weights cannot be read off by values of one-hot rows: how much token i of
the result moves with token j of the operand, by central differences along random directions.
"""
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from onnx import helper, save

FLOOR = 1e-4  # of the largest: below is rounding
PROBES = 3


class Runner:
    """The command line that runs what the gallery shows."""

    def __init__(self, attnrun):
        self.attnrun = attnrun

    def nodes(self, nodes, inputs, output="Y", opset=24):
        """The value `output` of these nodes; inputs: {name: array}."""
        graph = helper.make_graph(
            nodes, "gallery",
            [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype),
                                           v.shape) for k, v in inputs.items()],
            [helper.make_tensor_value_info(output, 1, None)])
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("attnrun", 1),
                  helper.make_opsetid("com.microsoft", 1)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            save(helper.make_model(graph, opset_imports=opsets, ir_version=11),
                 path / "model.onnx")
            np.savez(path / "in.npz", **inputs)
            done = subprocess.run([self.attnrun, "run", str(path / "model.onnx"), "-q", "-n",
                                   "1", "-i", str(path / "in.npz"), "-o",
                                   str(path / "out.npz")], capture_output=True, text=True,
                                  check=False)
            if done.returncode:
                raise RuntimeError(done.stderr.strip())
            with np.load(path / "out.npz") as outputs:
                return outputs[output]

    def run(self, op, operands, domain="attnrun", outputs=("Y",), opset=24, **attributes):
        """Output `outputs[-1]` of one node; operands: {name: array or None}, in order."""
        given = {k: as_operand(v) for k, v in operands.items() if v is not None}
        names = [k if v is not None else "" for k, v in operands.items()]
        node = helper.make_node(op, names, list(outputs), domain=domain, **attributes)
        return self.nodes([node], given, outputs[-1], opset)


def as_operand(value):
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype == np.float64 else value


def sensitivity(apply, x, step=1e-2, seed=0):
    """(n, n) of a function of samples of tokens: (batch, n, d) -> (batch, n, any)."""
    draw = np.random.default_rng(seed)
    n, d = x.shape
    square = np.zeros((n, n))
    for _ in range(PROBES):
        moves = draw.standard_normal((n, d))
        moves *= step / np.linalg.norm(moves, axis=1, keepdims=True)
        up = np.repeat(x[None], n, 0)
        down = up.copy()
        up[np.arange(n), np.arange(n)] += moves
        down[np.arange(n), np.arange(n)] -= moves
        y = apply(np.concatenate([up, down]).astype(np.float32)).astype(np.float64)
        change = (y[:n] - y[n:]) / (2 * step)  # (token moved, token seen, …)
        square += (change ** 2).reshape(n, n, -1).sum(-1).T
    found = np.sqrt(square / PROBES)
    return np.where(found < FLOOR * found.max(), 0, found)


def to_map(tokens, side):
    """(batch, n, c) -> (batch, c, side, side)"""
    batch, _, channels = tokens.shape
    return np.ascontiguousarray(tokens.transpose(0, 2, 1)).reshape(batch, channels, side,
                                                                   side)


def to_tokens(maps):
    """(batch, c, h, w) -> (batch, h w, c)"""
    return maps.reshape(*maps.shape[:2], -1).transpose(0, 2, 1)


def costs(attnrun, names):
    """{"domain::name": cost} of `attnrun ops`, the newest row of each."""
    done = subprocess.run([attnrun, "ops", "--json"], capture_output=True, text=True,
                          check=True)
    found = {f"{op['domain'] or 'ai.onnx'}::{op['name']}": op.get("cost", "")
             for op in json.loads(done.stdout)["ops"]}
    return {name: found[name] for name in sorted(names)}
