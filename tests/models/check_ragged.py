#!/usr/bin/env python3
"""Encoders on the tokens of ragged batches (--ragged) against ONNX Runtime on padded ones.

usage: check_ragged.py ATTNRUN FAMILIES [SEED]

Each encoder of FAMILIES (make_families.py) runs batches of random lengths, 0, 1 and all tokens
among them, with padding behind, before and between tokens:
  - tokens that are there get what ONNX Runtime gives them, within 1e-4 + 1e-3 |y|;
  - rows of padding are 0; outputs that read token 0 are right wherever that is there;
  - one and three threads give the same bits.
Models that are no such encoders are refused, and so are masks that are not 0 and 1, and an
attention that sees what the mask leaves out. `auto` gives what no option gives, in every row,
whatever the mask holds, and packs only a model that reads no row of padding.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ENCODERS = ("bert_d18", "bert_o13", "distilbert_d20", "mpnet_o17", "t5_encoder_o13")
OTHERS = ("modernbert_d18", "fnet_d20", "resnet_d18")
SHAPES = ((4, 16), (1, 7), (5, 61), (2, 1))


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def run(self, model, feed, *options, code=0):
        """The outputs; what was said where the exit code is another."""
        np.savez(f"{self.folder}/in.npz", **feed)
        done = subprocess.run([self.path, "run", str(model), "-i", f"{self.folder}/in.npz", "-o",
                               f"{self.folder}/out.npz", *options],
                              capture_output=True, text=True, check=False)
        assert done.returncode == code, (model, options, done.returncode, done.stderr)
        if code != 0:
            return done.stderr
        with np.load(f"{self.folder}/out.npz") as out:
            return {name: out[name] for name in out.files}

    def plan(self, model, *options):
        done = subprocess.run([self.path, "plan", str(model), *options], capture_output=True,
                              text=True, check=True)
        return " ".join(done.stdout.split())

    def passes(self, model, *options):
        done = subprocess.run([self.path, "inspect", str(model), "--json", *options],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["passes"].get("ragged", 0)


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])


def make_mask(rng, batch, tokens):
    """Padding behind; in the last sample before and between the tokens."""
    lengths = rng.integers(0, tokens + 1, batch)
    lengths[: min(batch, 3)] = [tokens, 1, 0][: min(batch, 3)]
    mask = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
    if batch > 3:
        mask[3] = rng.integers(0, 2, tokens)
        mask[3, : tokens // 3] = 0
        mask[3, -1] = 1
    return mask


def between(mask):
    """What runs: from the first token of a sample to its last."""
    there = mask != 0
    return np.logical_or.accumulate(there, 1) & np.logical_or.accumulate(
        there[:, ::-1], 1)[:, ::-1]


def make_feed(rng, inputs, mask):
    ids = rng.integers(2, 20, mask.shape)
    return {name: {"attention_mask": mask, "token_type_ids": ids % 2}.get(name, ids)
            for name in inputs}


def close(got, want, what):
    error = np.abs(got - want) - 1e-4 - 1e-3 * np.abs(want)
    assert error.size == 0 or error.max() <= 0, (what, float(error.max()))


def check_encoder(program, model, rng, seed):
    reference = session(model)
    names = [x.name for x in reference.get_outputs()]
    for batch, tokens in SHAPES:
        mask = make_mask(rng, batch, tokens)
        feed = make_feed(rng, [x.name for x in reference.get_inputs()], mask)
        want = dict(zip(names, reference.run(None, feed)))
        got = program.run(model, feed, "--ragged", "on", "--threads", "1")
        what = (model.parent.name, batch, tokens, "seed", seed)
        for name in names:
            tokenwise = got[name].shape[:2] == mask.shape and got[name].ndim == 3
            rows = mask != 0 if tokenwise else mask[:, 0] != 0
            close(got[name][rows], want[name][rows], (*what, name))
            if tokenwise:
                assert not got[name][~between(mask)].any(), (*what, name)
        again = program.run(model, feed, "--ragged", "on", "--threads", "3")
        for name in names:
            assert got[name].tobytes() == again[name].tobytes(), (*what, name, "threads")
        plain = program.run(model, feed, "--ragged", "auto")
        off = program.run(model, feed)
        for name in names:
            assert plain[name].tobytes() == off[name].tobytes(), (*what, name, "auto")
    assert program.passes(model, "--ragged", "on") == 1
    assert "at most, with all tokens" not in program.plan(model)
    assert "at most, with all tokens" in program.plan(model, "--ragged", "on")
    feed["attention_mask"] = 2 * mask
    assert "0 or 1" in program.run(model, feed, "--ragged", "on", code=7)
    assert "cannot run" in program.run(model, feed, "--ragged", "on", "--no-fusion", code=4)


def add_nodes(model, path, nodes, outputs, constants=()):
    """The encoder with other outputs, made of `last_hidden_state`."""
    made = onnx.load(model)
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(constants)
    del made.graph.output[:]
    made.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                             for name in outputs)
    onnx.save(made, path)


def mean_of_tokens(model, path):
    """As sentence embeddings are made: a sum of what the mask lets through, and token 0."""
    add_nodes(model, path, [
        helper.make_node("Cast", ["attention_mask"], ["mask_f"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask_f", "axis2"], ["mask_3"]),
        helper.make_node("Mul", ["last_hidden_state", "mask_3"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "axis1"], ["sum"], keepdims=0),
        helper.make_node("Gather", ["last_hidden_state", "zero"], ["first"], axis=1),
    ], ["sum", "first"], [numpy_helper.from_array(np.array([2]), "axis2"),
                          numpy_helper.from_array(np.array([1]), "axis1"),
                          numpy_helper.from_array(np.array(0), "zero")])


def check_auto(program, model, folder, rng, seed):
    """With outputs of its own the model is packed, and all outputs are as they were."""
    path = Path(folder) / "mean.onnx"
    mean_of_tokens(model, path)
    assert program.passes(path, "--ragged", "auto") == 1
    assert program.passes(model, "--ragged", "auto") == 0
    for batch, tokens in SHAPES:
        mask = make_mask(rng, batch, tokens)
        feed = make_feed(rng, [x.name for x in session(path).get_inputs()], mask)
        for scale in (1, 3):  # 3 is no mask of this option, but the model takes it
            feed["attention_mask"] = scale * mask
            got, off = program.run(path, feed, "--ragged", "auto"), program.run(path, feed)
            for name in off:
                close(got[name], off[name], ("auto", name, batch, tokens, scale, "seed", seed))
    add_nodes(model, path, [helper.make_node("ReduceMax", ["last_hidden_state", "axis1"], ["most"],
                                             keepdims=0)], ["most"],
              [numpy_helper.from_array(np.array([1]), "axis1")])
    assert program.passes(path, "--ragged", "auto") == 0


def attention_model(path, mask_nodes):
    """x (B, S, 8) plus attention over it, under what `mask_nodes` make of `attention_mask`."""
    rng = np.random.default_rng(5)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), name)
               for name in "qkv"]
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in
                 (("heads", [0, 0, 2, 4]), ("flat", [0, 0, 8]), ("axes", [1, 2]))]
    constants += [numpy_helper.from_array(np.float32(value), name) for name, value in
                  (("one", 1), ("low", -1e4), ("weak", -3), ("scale", 0.5))]
    nodes = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [helper.make_node("MatMul", ["x", name], [name + "1"]),
                  helper.make_node("Reshape", [name + "1", "heads"], [name + "2"]),
                  helper.make_node("Transpose", [name + "2"], [name + "3"], perm=perm)]
    nodes += [helper.make_node("MatMul", ["q3", "k3"], ["s1"]),
              helper.make_node("Mul", ["s1", "scale"], ["s2"]), *mask_nodes,
              helper.make_node("Add", ["s2", "mask"], ["s3"]),
              helper.make_node("Softmax", ["s3"], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", "v3"], ["y1"]),
              helper.make_node("Transpose", ["y1"], ["y2"], perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["y2", "flat"], ["y3"]),
              helper.make_node("Add", ["x", "y3"], ["y"])]
    graph = helper.make_graph(
        nodes, "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "S", 8]),
         helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["B", "S"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", "S", 8])],
        weights + constants)
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)


def additive(number):
    """(1 - mask) * number, as encoders have it."""
    return [helper.make_node("Cast", ["attention_mask"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["f", "axes"], ["f4"]),
            helper.make_node("Sub", ["one", "f4"], ["g"]),
            helper.make_node("Mul", ["g", number], ["mask"])]


def check_masks(program, folder, rng, seed):
    """An added number hides padding; a weak one does not, and that is found out."""
    path = Path(folder) / "attention.onnx"
    for batch, tokens in SHAPES:
        mask = make_mask(rng, batch, tokens)
        feed = {"x": rng.standard_normal((batch, tokens, 8)).astype(np.float32),
                "attention_mask": mask}
        attention_model(path, additive("low"))
        got = program.run(path, feed, "--ragged", "on")["y"]
        want = session(path).run(None, feed)[0]
        close(got[mask != 0], want[mask != 0], ("added", batch, tokens, "seed", seed))
        attention_model(path, additive("weak"))
        padded = not between(mask).all() and mask.any()
        if padded:
            some = mask.any(1) & ~between(mask).all(1)
            said = program.run(path, feed, "--ragged", "on", code=7 if some.any() else 0)
            assert not some.any() or "leaves out" in said, said


def check_far_padding(program, folder, rng, seed):
    """Padding in front of more than a block of 64 tokens, under a mask that depends on the query:
    two tokens see all others, the rest their neighbours."""
    path, tokens = Path(folder) / "global.onnx", 512
    seen = np.zeros((tokens, 1), bool)
    seen[[130, 132]] = True
    at = np.arange(tokens)
    near = np.where(abs(at[:, None] - at) <= 3, 0, -1e4).astype(np.float32)
    nodes = additive("low")
    nodes[-1].output[0] = "padding"
    nodes += [helper.make_node("Add", ["padding", "near"], ["both"]),
              helper.make_node("Where", ["seen", "padding", "both"], ["mask"])]
    attention_model(path, nodes)
    model = onnx.load(path)
    model.graph.initializer.extend([numpy_helper.from_array(seen, "seen"),
                                    numpy_helper.from_array(near, "near")])
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = tokens
    onnx.save(model, path)
    assert program.passes(path, "--ragged", "on") == 1
    feed = {"x": rng.standard_normal((16, tokens, 8)).astype(np.float32)}
    for first in (0, 10, 64, 74, 138):
        mask = np.ones((16, tokens), np.int64)
        mask[:, :first] = 0
        feed["attention_mask"] = mask
        got = program.run(path, feed, "--ragged", "on")["y"]
        want = session(path).run(None, feed)[0]
        close(got[mask != 0], want[mask != 0], ("far", first, "seed", seed))


def check_many_operands(program, folder, rng, seed):
    """The largest of n values of each token, of which each is another multiple of x."""
    path = Path(folder) / "many.onnx"
    for n in (2, 17, 18, 32, 33, 60):
        attention_model(path, additive("low"))
        model = onnx.load(path)
        del model.graph.node[-1]
        for k in range(1, n):
            factor = rng.standard_normal(8).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(factor, f"factor{k}"))
            model.graph.node.append(helper.make_node("Mul", ["x", f"factor{k}"], [f"x{k}"]))
        names = ["y3", *(f"x{k}" for k in range(1, n))]
        model.graph.node.append(helper.make_node("Max", names, ["y"]))
        onnx.save(model, path)
        assert program.passes(path, "--ragged", "on") == 1
        for mask in ([[0, 0, 1, 1, 1]], [[1, 1, 0], [0, 1, 1]]):
            feed = {"x": rng.standard_normal((*np.shape(mask), 8)).astype(np.float32),
                    "attention_mask": np.array(mask)}
            got = program.run(path, feed, "--ragged", "on")["y"]
            want, there = session(path).run(None, feed)[0], np.array(mask) != 0
            close(got[there], want[there], ("many", n, mask, "seed", seed))


def main():
    program_path, families = sys.argv[1], Path(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 11
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(program_path, folder)
        for name in ENCODERS:
            check_encoder(program, families / name / "model.onnx", rng, seed)
        for name in OTHERS:
            said = subprocess.run(
                [program_path, "inspect", str(families / name / "model.onnx"), "--ragged", "on"],
                capture_output=True, text=True, check=False)
            assert said.returncode == 4 and "no attention" in said.stderr, (name, said.stderr)
        check_auto(program, families / "bert_d18/model.onnx", folder, rng, seed)
        check_auto(program, families / "distilbert_d20/model.onnx", folder, rng, seed)
        check_masks(program, folder, rng, seed)
        check_far_padding(program, folder, rng, seed)
        check_many_operands(program, folder, rng, seed)
    print(f"{len(ENCODERS)} encoders, 0 failed, seed {seed}")


if __name__ == "__main__":
    main()
