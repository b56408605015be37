"""Forms of fixed sizes (check_forms.py) with a symbolic batch and length (of maps: height and
width) in the file, as torch.onnx.export writes them with dynamic axes: what they become, or not,
and what an exporter refuses. BECOMES lists it for TorchScript's exporter and for dynamo's. What is
recognised is compared with ONNX Runtime and with --no-fusion for the sizes of the export and for
others, where the exporter did not write numbers of one size into the file.

Files that stay as they are compute other things for sizes that are no multiples of their blocks:
BigBird and Reformer split n tokens into floor(n / 4) blocks, whose length is what is left for -1 in
a Reshape, and Involution with a stride has one window more than kernels in a map of odd size. With
padding to whole blocks, local-attention computes the number of blocks in floats (Ceil).
Usage: check_symbolic.py ATTNRUN [--only MODULE] [--all]   (--all: prints it of all fixed forms)"""
import importlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from check_forms import option
from exported import attnrun, differ, export_module, run
from recognise import EXPORTERS

FUSED, BLOCKS, LOCAL = "FusedAttention", "FusedBlockAttention", "LocalAttention"
LEFT, REFUSED, SEED = "-", "not exported", 29
BECOMES = {
    "forms_maps": {"halo": (FUSED, FUSED), "halo_one_head": (FUSED, FUSED),
                   "halo_timm": (REFUSED, FUSED), "halo_timm_stride": (REFUSED, FUSED)},
    "forms_mechanisms": {
        "involution": ("Involution", "Involution"), "involution_stride": (LEFT, LEFT),
        "sagan": ("SAGANAttention", "SAGANAttention")},
    "forms_parts": {"bigbird": (LEFT, LEFT)},
    "forms_sorted": {
        "sinkhorn": (FUSED, FUSED), "hashed": (LEFT, REFUSED), "turned": (BLOCKS, BLOCKS),
        "turned_three": (BLOCKS, BLOCKS), "turned_behind": (BLOCKS, BLOCKS)},
    "forms_windows": {
        "blocks_fixed": (LOCAL, LOCAL), "added": (BLOCKS, BLOCKS),
        "unmasked_ends": (BLOCKS, BLOCKS), "longt5_fixed": (BLOCKS, BLOCKS)},
}


def symbolic_axes(names, shape, axis):
    """{axis: name}: batch and length; of maps, height and width."""
    axes = {0: "b", axis: "n"}
    return {**axes, 3: "m"} if names == "x" and len(shape) == 4 else axes


def larger(shape, axes):
    return [size + 1 if axis == 0 else size * 2 if axis in axes else size
            for axis, size in enumerate(shape)]


def fixed_forms(module):
    return {name: form for name, form in module.FORMS.items()
            if not form[4] and form[6] is not None}


def compare(program, model, folder, module, names, shapes):
    """Failures; sizes that the file or the module does not take are left out."""
    random, failures = np.random.default_rng(SEED), []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    for shape in shapes:
        x = {name: random.standard_normal(shape).astype("f4") for name in names}
        try:
            expected = session.run(None, x)[0]
            own = module(*map(torch.from_numpy, x.values())).detach().numpy()
        except Exception:  # the exporter wrote one size, or the module has but one
            continue
        if own.shape != expected.shape or differ(own, expected) is not None:
            continue
        for chosen in ((), ("--no-fusion",)):
            why = differ(run(program, model, folder, x, *chosen)["y"], expected)
            failures += [f"{model.name} {shape} {chosen}: {why}"] * (why is not None)
    return failures


def check(program, folder, title, form, known, exporter):
    """Failures, what the file becomes, and why it does not."""
    module, names, shape, axis, _, _, _ = form
    torch.manual_seed(SEED)
    random = np.random.default_rng(SEED)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model, axes = folder / f"{title}_{exporter}.onnx", symbolic_axes(names, shape, axis)
    example = tuple(torch.from_numpy(random.standard_normal(shape).astype("f4")) for _ in names)
    try:
        export_module(module.eval(), example, str(model), EXPORTERS[exporter],
                      {name: axes for name in names}, ["y"])
    except Exception:  # of many types
        return [], REFUSED, ""
    told = json.loads(attnrun(program, "inspect", "--json", model).stdout)
    found = {row["op_type"] for row in told["ops"]}
    becomes = " ".join(op for op in known if op in found) or LEFT
    failures = compare(program, model, folder, module, names, [shape, larger(shape, axes)])
    return failures, becomes, "; ".join(f"{note['pass']}: {note['why']}" for note in told["left"])


def main():
    program, *arguments = sys.argv[1:]
    only, failures, n = option(arguments, "--only"), [], 0
    everything = "--all" in arguments
    for path in sorted(Path(__file__).parent.glob("forms_*.py")):
        expected = BECOMES.get(path.stem, {})
        if only not in (None, path.stem) or not (everything or expected):
            continue
        forms = importlib.import_module(path.stem)
        names = fixed_forms(forms) if everything else expected
        for name, k in ((name, k) for name in names for k in range(2)):
            form = forms.FORMS[name]
            if "sd"[k] not in form[5]:
                continue
            with tempfile.TemporaryDirectory() as folder:
                more, becomes, why = check(program, Path(folder), name, form, forms.KNOWN,
                                           "sd"[k])
            n += 1
            failures += more
            if everything:
                print(path.stem, name, "sd"[k], becomes, why, flush=True)
            if name in expected and expected[name][k] != becomes:
                failures.append(f"{path.stem} {name} {'sd'[k]}: became {becomes}, expected "
                                f"{expected[name][k]}; {why}")
    print("\n".join(failures + [f"{n} files, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
