"""Files of transformers' Longformer with one changed constant, permutation or pad: loading may make
attention over a window of them only where that is what the file computes.
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


def main():
    program = sys.argv[1]
    seed, mutants = [int(x) for x in (*sys.argv[2:], *("1", "120")[len(sys.argv) - 2:])]
    torch.manual_seed(seed)
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    failures, ran, fused = [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = forms_sliding.Sliding(forms_sliding.longformer(
            forms_sliding.LongformerSelfAttention, 16), 0.5).eval()
        whole = folder / "whole.onnx"
        export_module(module, (torch.randn(1, 64, forms_sliding.WIDTH),), str(whole), True, {},
                      ["y"])
        x = {"x": numbers.standard_normal((1, 64, forms_sliding.WIDTH)).astype("f4")}
        for k in range(mutants):
            model = onnx.load(whole)
            changed = mutate(model, choose)
            path = folder / "mutant.onnx"
            onnx.save(model, path)
            plain = attnrun(program, "run", "-q", "--no-fusion", path, "--print", "none")
            if plain.returncode != 0:
                continue
            ran += 1
            told = attnrun(program, "inspect", path).stdout
            fused += "sliding_chunks, 1 time" in told
            why = differ(run(program, path, folder, x)["y"],
                         run(program, path, folder, x, "--no-fusion")["y"])
            if why is not None:
                failures.append(f"seed {seed}, mutant {k}, {changed}: {why}")
    print("\n".join([*failures, f"{mutants} mutants, {ran} ran, {fused} are attention over a "
                     f"window, {len(failures)} failures"]))
    return bool(failures) or fused == 0 or fused == ran


if __name__ == "__main__":
    sys.exit(main())
