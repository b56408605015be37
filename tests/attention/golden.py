"""What the golden_<operator>.py scripts share: a folder tests/attention/golden/<case> of
operands, upstream's output and its provenance."""
import ast
import importlib
import importlib.machinery
import importlib.metadata
import json
import math
import sys
import types
from pathlib import Path

import onnx
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "convert"))
from attnrun_convert import bodies, operators, samples  # noqa: E402

OPERATORS = operators.load()


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heads_of(x, heads):
    """(B, N, heads * D) as (B, heads, N, D)."""
    return x.unflatten(2, (heads, x.shape[2] // heads)).transpose(1, 2)


def joined(y):
    return y.transpose(1, 2).flatten(2)


def class_of(path, *names):
    """{name: class or function} of a source file below sys.path whose imports are not
    needed for them."""
    return classes_in(source_of(path), *names)


def source_of(path):
    return next(Path(p) / path for p in sys.path if (Path(p) / path).is_file()).read_text()


def classes_in(source, *names):
    found = {"torch": torch, "nn": torch.nn, "math": math, "F": torch.nn.functional,
             "Module": torch.nn.Module, "Parameter": torch.nn.Parameter,
             "Callable": callable}
    for part in ast.parse(source).body:
        if getattr(part, "name", None) in names:
            exec(compile(ast.Module([part], []), "upstream", "exec"), found)
    return found


def layer_of_that_name(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (torch.nn.Module,), {})


def timm_layers():
    """Lets `timm.layers` be imported alone and without torchvision, which the rest of timm
    and a layer that no case needs ask for."""
    for name in ("timm", "torchvision", "torchvision.ops", "torchvision.ops.misc"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__path__ = []
        module.__getattr__ = layer_of_that_name
    spec = importlib.machinery.PathFinder.find_spec("timm")
    sys.modules["timm"].__path__ = spec.submodule_search_locations


def timm_layer(module, name):
    """A class of timm's layers, whose exporter must not meet what stands for torchvision."""
    timm_layers()
    found = getattr(importlib.import_module(f"timm.layers.{module}"), name)
    for key in [key for key in sys.modules if key.partition(".")[0] == "torchvision"]:
        del sys.modules[key]
    return found


def notebook(path):
    """The code of its cells that define classes."""
    cells = ["".join(cell["source"]) for cell in json.loads(Path(path).read_text())["cells"]]
    return "\n".join(cell for cell in cells if "class " in cell)


def write(case, op, attributes, tensors, outputs, package, what, tolerance=(1e-5, 1e-6)):
    """tensors: in the operator's order, None where absent. `package`: its name, or None
    where `what` says all. Fails where the reference of the converter disagrees by more than
    the tolerance."""
    operator = OPERATORS[op]
    tensors = list(tensors) + [None] * (len(operator.inputs) - len(tensors))
    outputs = [y.detach().float() for y in outputs]
    worst = 0.0
    for mine, theirs in zip(samples.expected(operator, attributes, tensors), outputs):
        error = (mine - theirs).abs()
        if not (error <= tolerance[1] + tolerance[0] * theirs.abs()).all():
            raise SystemExit(f"{case}: the reference is {error.max():.3g} off")
        worst = max(worst, float(error.max()) if error.numel() else 0.0)
    folder = ROOT / "tests" / "attention" / "golden" / case
    model = bodies.make_model(operator, attributes, tensors, len(outputs), body=False,
                              dynamic=False)
    samples.write_folder(folder, model, tensors, outputs, tolerance)
    version = f"{package} {importlib.metadata.version(package)} " if package else ""
    (folder / "meta.txt").write_text(
        f"op: {op}\nexpected from: {version}{what}\n"
        f"largest difference to the converter's reference: {worst:.2g}\n")
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{case}: {size} bytes, {worst:.2g}")


def amid(case, same):
    """Puts the node of a written case between pairs of Neg, so that it may write over an
    inner value: the operands `same`, which are equal, become one of them."""
    folder = ROOT / "tests" / "attention" / "golden" / case
    model = onnx.load(folder / "model.onnx")
    graph, node = model.graph, model.graph.node[0]
    first, out = same[0], node.output[0]
    for i, name in reversed(list(enumerate(v.name for v in graph.input))):
        if name in same[1:]:
            del graph.input[i]
    kept = [v.name for v in graph.input]
    names = [n for n in node.input if n]
    data = folder / "test_data_set_0"
    tensors = {n: (data / f"input_{i}.pb").read_bytes() for i, n in enumerate(names)}
    for path in data.glob("input_*.pb"):
        path.unlink()
    for i, name in enumerate(kept):
        (data / f"input_{i}.pb").write_bytes(tensors[name])
    node.input[:] = ["turned" if n in same else n for n in node.input]
    node.output[:] = ["inner"]
    make = onnx.helper.make_node
    nodes = [make("Neg", [first], ["negative"]), make("Neg", ["negative"], ["turned"]), node,
             make("Neg", ["inner"], ["outer"]), make("Neg", ["outer"], [out])]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, folder / "model.onnx")
