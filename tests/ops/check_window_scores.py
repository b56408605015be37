"""Windows in blocks whose operands are far from usual: the operator gives what ONNX Runtime does
of the file, or the run fails and says how to compute what the file says.
Usage: check_window_scores.py ATTNRUN"""
import sys
import tempfile
from pathlib import Path

import forms_windows
import numpy as np
import onnxruntime
from exported import attnrun, differ, export_module, operators, run

import torch


def operands(random, shape, q=1.0, k=1.0, value=None):
    x = {name: random.standard_normal(shape).astype("f4") for name in "qkv"}
    x["q"] *= np.float32(q)
    x["k"] *= np.float32(k)
    if value is not None:
        x["k"][0, 1, 3, 2] = value
    return x


def check(program, folder, name):
    module, inputs, shape, axis, *_ = forms_windows.FORMS[name]
    random, failures = np.random.default_rng(31), []
    model = folder / f"{name}.onnx"
    export_module(module.eval(), tuple(torch.zeros(shape) for _ in inputs), str(model), True,
                  {x: {axis: "n"} for x in inputs}, ["y"])
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    if not {"LocalAttention", "ChunkedLocalAttention"} & set(operators(program, model)):
        return [f"{name} is not recognised"]
    planned = attnrun(program, "plan", model, "--set", "n=48").stdout
    if "] LocalAttention" not in planned.replace("ChunkedLocal", "Local") or (
            "] BoundedScores" in planned):
        failures.append(f"{name}: queries have a block of their own\n{planned}")
    for words in ({}, {"q": 1e3, "k": 1e3}, {"value": np.nan}, {"q": 1e-30, "k": 1e30}):
        x = operands(random, shape, **words)
        why = differ(run(program, model, folder, x)["y"], session.run(None, x)[0])
        failures += [f"{name}, {words}, seed 31: {why}"] * (why is not None)
    for words in ({"q": 1e5, "k": 1e5}, {"q": 1e16, "k": 1e16}, {"value": np.inf},
                  {"q": 1e36, "k": 1e2}):
        x = operands(random, shape, **words)
        given = []
        for key, value in x.items():
            np.save(folder / f"{key}.npy", value)
            given += ["-i", f"{key}={folder / key}.npy"]
        done = attnrun(program, "run", model, *given)
        if done.returncode != 7 or "without the pass block_attention" not in done.stderr:
            failures.append(f"{name}, {words}: exit {done.returncode}, {done.stderr}")
        done = attnrun(program, "run", model, *given, "--disable-pass", "block_attention")
        if done.returncode != 0:
            failures.append(f"{name}, {words}, without the pass: {done.stderr}")
    return failures


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("stock", "band", "causal_blocks"):
            failures += check(sys.argv[1], Path(folder), name)
    print("\n".join(failures + [f"{len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
