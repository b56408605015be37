"""Modules exported by both exporters: which operator attnrun makes of them, and whether it gives
what ONNX Runtime does, with and without fusion, over several lengths."""
import json

import numpy as np
import onnxruntime
import torch

from exported import attnrun, differ, export_module, run

EXPORTERS = {"s": False, "d": True}  # torch.onnx.export(dynamo=…)


def check_form(program, folder, name, module, names, shape, dynamic, lengths, dynamo, known,
               operator, seed, by_torch=False,
               options=((), ("--no-fusion",), ("--isa", "base"))):
    """The operators of `known` that the file becomes, or the passes that change it, are [operator],
    or none for None. `dynamic`: {axis: symbol} of every input, whose sizes are the lengths.
    `by_torch`: the module itself, not ONNX Runtime, says what the file gives. Returns failures and
    what `inspect` says of what was left."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = folder / f"{name}_{'x'.join(map(str, shape))}_{'dynamo' if dynamo else 'script'}.onnx"
    example = [torch.from_numpy(random.standard_normal(shape).astype("f4")) for _ in names]
    export_module(module.eval(), tuple(example), str(model), dynamo,
                  {name: dynamic for name in names}, ["y"])
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    failures = []
    for n in lengths if dynamic else (None,):
        sizes = [n if n and axis in dynamic else size for axis, size in enumerate(shape)]
        x = {name: random.standard_normal(sizes).astype("f4") for name in names}
        expected = (module(*map(torch.from_numpy, x.values())).detach().numpy() if by_torch
                    else session.run(None, x)[0])
        for chosen in options:
            why = differ(run(program, model, folder, x, *chosen)["y"], expected)
            failures += [f"{model.name} {sizes}, seed {seed}, {chosen}: {why}"] * (
                why is not None)
    told = json.loads(attnrun(program, "inspect", "--json", model).stdout)
    found = {row["op_type"] for row in told["ops"]}
    found |= {name for name, times in told["passes"].items() if times > 0}
    there = [op for op in known if op in found]
    if there != ([operator] if operator else []):
        failures.append(f"{model.name}: became {there}, expected {operator}\n"
                        + attnrun(program, "inspect", model).stdout)
    return failures, "; ".join(f"{note['pass']}: {note['why']}" for note in told["left"])
