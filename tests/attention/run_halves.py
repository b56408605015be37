#!/usr/bin/env python3
"""Attention in float16 and bfloat16: the f32 result of the same numbers, rounded.

Each case of the golden folder with one node that rounds, and LinearAttention of ONNX with
all its rules, runs three times: in f32 with inputs and weights that were rounded to the
type, and in both types. What a type gives may differ from the f32 result by one step of
that type: sums are f32, and are rounded once.

usage: run_halves.py ATTNRUN GOLDEN [--every N] [CASE...]

With --every N, every N-th case; ATTNRUN_TEST_SEED says from which one on.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float16": (TensorProto.FLOAT16, 11, 2.0 ** -24),  # bits of a number, least step
         "bfloat16": (TensorProto.BFLOAT16, 8, 2.0 ** -133)}
EXACT = ("Constant", "Neg", "Not", "Reshape", "Shape", "Transpose")


def rounded(x, bits, least):
    """float32 numbers to `bits` significant ones, ties to even."""
    x = x.astype(np.float64)
    step = np.maximum(2.0 ** (np.frexp(x)[1].astype(np.float64) - bits), least)
    return (np.round(x / step) * step).astype(np.float32)


def as_type(x, dtype):
    """A tensor message of `dtype` with numbers that it has."""
    if dtype == TensorProto.FLOAT16:
        return numpy_helper.from_array(x.astype(np.float16))
    if dtype == TensorProto.BFLOAT16:
        bits = (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
        return helper.make_tensor("", dtype, x.shape, bits.tobytes(), raw=True)
    return numpy_helper.from_array(x)


def convert(message, values, dtype):
    """A copy of the model whose f32 operands are of `dtype`, and its inputs as messages."""
    model = onnx.ModelProto()
    model.CopyFrom(message)
    for info in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = dtype
    for i, weight in enumerate(model.graph.initializer):
        if weight.data_type == TensorProto.FLOAT:
            new = as_type(values[weight.name], dtype)
            new.name = weight.name
            model.graph.initializer[i].CopyFrom(new)
    inputs = {}
    for info in model.graph.input:
        x = values[info.name]
        inputs[info.name] = (as_type(x, dtype) if x.dtype == np.float32
                             else numpy_helper.from_array(x))
    return model, inputs


def run(attnrun, model, inputs, folder):
    """{output: float32 array}, or a sentence."""
    onnx.save(model, str(folder / "model.onnx"))
    options = []
    for i, (name, value) in enumerate(inputs.items()):
        (folder / f"input_{i}.pb").write_bytes(value.SerializeToString())
        options += ["-i", f"{name}={folder}/input_{i}.pb"]
    done = subprocess.run([attnrun, "run", "-q", str(folder / "model.onnx"), *options, "-o",
                           str(folder / "out.npz")], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode != 0:
        return done.stderr.strip()[-300:]
    with np.load(folder / "out.npz") as got:
        return {name: got[name] for name in got.files}


def differs(name, got, want, name_of_type):
    """A sentence where an element is more than one step away, or None."""
    _, bits, least = TYPES[name_of_type]
    if got.shape != want.shape:
        return f"{name}: shape {got.shape}, expected {want.shape}"
    if name_of_type == "float16" and want.dtype == np.float32 and got.dtype != np.float16:
        return f"{name}: is {got.dtype}"
    if want.dtype != np.float32:
        wrong = int((got != want).sum())
        return f"{name}: {wrong} integers differ" if wrong else None
    got, want = got.astype(np.float64), want.astype(np.float64)
    if (rounded(got[np.isfinite(got)], bits, least) != got[np.isfinite(got)]).any():
        return f"{name}: has numbers that {name_of_type} has not"
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    step = np.maximum(2.0 ** (np.frexp(want)[1].astype(np.float64) - bits), least)
    with np.errstate(invalid="ignore"):
        far = ~same & ~(np.abs(got - want) <= step)
    if not far.any():
        return None
    at = np.unravel_index(np.argmax(far), far.shape)
    return (f"{name}: {int(far.sum())} of {far.size} elements are more than a step away; "
            f"{[int(i) for i in at]}: {got[at]:.9g}, expected {want[at]:.9g}")


def compare(attnrun, model, values, folder):
    """[sentence] of what is wrong with a case."""
    wrong = []
    for word, (dtype, bits, least) in TYPES.items():
        near = {name: rounded(x, bits, least) if x.dtype == np.float32 else x
                for name, x in values.items()}
        want = run(attnrun, *convert(model, near, TensorProto.FLOAT), folder)
        got = run(attnrun, *convert(model, near, dtype), folder)
        for result, what in ((want, "f32"), (got, word)):
            if isinstance(result, str):
                wrong.append(f"{what}: {result}")
        if isinstance(want, str) or isinstance(got, str):
            continue
        wrong += [f"{word}: {text}" for text in
                  (differs(name, got[name], want[name], word) for name in want)
                  if text]
    return wrong


def golden(folder):
    """(name, model, {input or weight: array}) of each case."""
    for case in sorted(Path(folder).iterdir()):
        if not (case / "model.onnx").is_file():
            continue
        model = onnx.load(str(case / "model.onnx"))
        if sum(node.op_type not in EXACT for node in model.graph.node) > 1:
            continue  # what is between nodes is rounded, too
        values = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
        inputs = [i for i in model.graph.input if i.name not in values]
        for i, info in enumerate(inputs):
            message = TensorProto()
            message.ParseFromString((case / f"test_data_set_0/input_{i}.pb").read_bytes())
            values[info.name] = numpy_helper.to_array(message)
        yield case.name, model, values


def linear(rule, past):
    """LinearAttention of ONNX: 2 samples, 70 tokens, 4 query heads, 2 key heads."""
    draw = np.random.default_rng(7)
    shapes = {"query": (2, 70, 4 * 16), "key": (2, 70, 2 * 16), "value": (2, 70, 2 * 24)}
    names = ["query", "key", "value", "", "", ""]
    if past:
        shapes["past_state"], names[3] = (2, 2, 16, 24), "past_state"
    if "gated" in rule:
        shapes["decay"], names[4] = (2, 70, 2 * 16), "decay"
    if "delta" in rule:
        shapes["beta"], names[5] = (2, 70, 2), "beta"
    values = {name: draw.standard_normal(shape).astype(np.float32)
              for name, shape in shapes.items()}
    values["key"] /= 4
    for name, change in (("decay", lambda x: -np.abs(x)), ("beta", lambda x: 1 / (1 + x * x))):
        if name in values:
            values[name] = change(values[name])
    while not names[-1]:
        names.pop()
    node = helper.make_node("LinearAttention", names, ["output", "present_state"],
                            q_num_heads=4, kv_num_heads=2, update_rule=rule)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
             for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
               for name in node.output]
    graph = helper.make_graph([node], "linear", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)],
                              ir_version=13)
    return f"onnx_linear_{rule}{'_past' * past}", model, values


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("golden")
    parser.add_argument("wanted", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_intermixed_args()
    first = int(os.environ.get("ATTNRUN_TEST_SEED", "0")) % given.every
    cases = [*golden(given.golden), *(linear(rule, past) for past in (False, True) for rule in
                                ("linear", "gated", "delta", "gated_delta"))]
    n_run, n_wrong = 0, 0
    with tempfile.TemporaryDirectory() as work:
        for name, model, values in cases[first::given.every]:
            if given.wanted and name not in given.wanted:
                continue
            wrong = compare(given.attnrun, model, values, Path(work))
            n_run, n_wrong = n_run + 1, n_wrong + bool(wrong)
            for text in wrong:
                print(f"{name}: {text}")
    print(f"{n_run - n_wrong} of {n_run} cases are right in f16 and bf16")
    return 1 if n_wrong or n_run == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
