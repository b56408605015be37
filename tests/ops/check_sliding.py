"""Files of transformers' Longformer by both exporters, without and with global tokens, with one
changed constant, permutation or pad: loading may make attention over a window of them only where
that is what the file computes. Those of TorchScript's exporter are loaded as large ones are, whose
indices loading does not compute.
Usage: check_sliding.py ATTNRUN [SEED] [MUTANTS]"""
import random
import sys
import tempfile
from pathlib import Path

import forms_sliding
import numpy as np
import onnx
import torch
from exported import attnrun, differ, export_module, run
from onnx import numpy_helper


def mutate(model, choose):
    """Changes one number somewhere; returns what it changed."""
    graph = model.graph
    tensors = [t for t in graph.initializer if t.data_type in (1, 7, 9)]
    tensors += [a.t for n in graph.node for a in n.attribute if a.name == "value"]
    perms = [a for n in graph.node for a in n.attribute if a.name in ("perm", "axis")]
    kind = choose.random()
    if kind < 0.8:
        tensor = choose.choice([t for t in tensors if t.data_type == 7 or choose.random() < 0.3])
        x = numpy_helper.to_array(tensor).copy()
        at = choose.randrange(x.size)
        if x.dtype == np.bool_:
            x.flat[at] = not x.flat[at]
        elif x.dtype == np.float32 and x.ndim > 2:  # what fills scores; a NaN of a weight may
            # reach the values of hidden keys, which count or not (attnrun.h)
            x.flat[at] = choose.choice([x.flat[at] + 1, np.nan, np.inf, -np.inf])
        else:
            x.flat[at] += choose.choice([-2, -1, 1, 2])
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(x, name))
        return f"{name}[{at}]"
    attribute = choose.choice(perms)
    if attribute.name == "perm":
        i, j = (choose.randrange(len(attribute.ints)) for _ in range(2))
        attribute.ints[i], attribute.ints[j] = attribute.ints[j], attribute.ints[i]
    else:
        attribute.i = choose.randrange(4)
    return attribute.name


def module_of(globals_):
    layer = forms_sliding.longformer(forms_sliding.LongformerSelfAttention, 16)
    return (forms_sliding.Global(layer, [[0, 30]], [range(60, 64)], tokens=64) if globals_
            else forms_sliding.Sliding(layer, 0.5)).eval()


# (dynamo, with global tokens): options. Those with global tokens compute their indices.
KINDS = {(True, False): (), (False, False): ("--limit", "fold_bytes=2000"), (False, True): ()}


def try_mutants(program, folder, kind, mutants, choose, x, label):
    """How many ran, how many became attention over a window, and what went wrong."""
    dynamo, globals_ = kind
    module = module_of(globals_)
    whole, failures, ran, fused = folder / "whole.onnx", [], 0, 0
    export_module(module, (torch.randn(1, 64, forms_sliding.WIDTH),), str(whole), dynamo,
                  {} if dynamo else {"x": {}}, ["y"])
    options = KINDS[kind]
    for k in range(-1, mutants):
        model = onnx.load(whole)
        changed = mutate(model, choose) if k >= 0 else "nothing"
        path = folder / "mutant.onnx"
        onnx.save(model, path)
        plain = attnrun(program, "run", "-q", "--no-fusion", path, "--print", "none")
        if plain.returncode != 0:
            continue
        ran += k >= 0
        told = attnrun(program, "inspect", *options, path).stdout
        fused += k >= 0 and "sliding_chunks, 1 time" in told
        why = differ(run(program, path, folder, x, *options)["y"],
                     run(program, path, folder, x, "--no-fusion")["y"])
        if k < 0 and "sliding_chunks, 1 time" not in told:
            why = "is no attention over a window"
        if why is not None:
            failures.append(f"{label}, {kind}, mutant {k}, {changed}: {why}")
    return ran, fused, failures


def main():
    program = sys.argv[1]
    seed, mutants = [int(x) for x in (*sys.argv[2:], *("1", "60")[len(sys.argv) - 2:])]
    torch.manual_seed(seed)
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    x = {"x": numbers.standard_normal((1, 64, forms_sliding.WIDTH)).astype("f4")}
    failed = False
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            ran, fused, failures = try_mutants(program, Path(name), kind, mutants, choose, x,
                                               f"seed {seed}")
            print("\n".join([*failures, f"{kind}: {mutants} mutants, {ran} ran, {fused} "
                             f"are attention over a window, {len(failures)} failures"]))
            failed = failed or bool(failures) or fused == 0 or fused == ran
    return failed


if __name__ == "__main__":
    sys.exit(main())
