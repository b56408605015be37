"""Modules exported by both exporters of PyTorch, run by attnrun."""
import contextlib
import io
import json
import logging
import subprocess
import warnings

import numpy as np
import torch

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def export_module(module, example, path, dynamo, dynamic, outputs):
    """dynamic: {input: {axis: name}} of all inputs, in their order."""
    names = dict(input_names=list(dynamic), output_names=outputs)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if dynamo:
            torch.onnx.export(module, example, path, dynamo=True, verbose=False,
                              opset_version=20, external_data=False,
                              dynamic_shapes=tuple(dynamic.values()), **names)
        else:
            torch.onnx.export(module, example, path, dynamo=False, opset_version=17,
                              dynamic_axes=dynamic, **names)


def attnrun(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


def run(program, model, folder, inputs, *options):
    given = []
    for name, x in inputs.items():
        np.save(folder / f"{name}.npy", x)
        given += ["-i", f"{name}={folder / name}.npy"]
    done = attnrun(program, "run", model, *given, "-o", folder / "out.npz", *options)
    if done.returncode != 0:
        raise SystemExit(f"{model} {options}: {done.stderr}")
    with np.load(folder / "out.npz") as found:
        return {name: found[name] for name in found.files}


def differ(found, expected):
    if (np.isnan(found) != np.isnan(expected)).any():
        return "NaN in other places"
    worst = np.nanmax(np.abs(found - expected), initial=0)
    return f"differs by {worst:g}" if worst > 1e-4 else None


def operators(program, model):
    """How many nodes there are of each operator, after rewriting."""
    told = json.loads(attnrun(program, "inspect", "--json", model).stdout)
    return {row["op_type"]: row["nodes"] for row in told["ops"]}
