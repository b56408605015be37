"""metadata_props of a converted file: what made it, of what, how well it agrees."""
import importlib.metadata
import json
import platform
from dataclasses import asdict
from pathlib import Path

import onnx

from . import verify
from .errors import FileError

PREFIX = "attnrun."


PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
IN_FILE = ("torch", "python")  # of the versions, those that a file names


def _installed(package):
    """{package: version}, empty where it is not here."""
    try:
        return {package: importlib.metadata.version(package)}
    except importlib.metadata.PackageNotFoundError:
        return {}


def versions():
    """Of Python and of the packages that a conversion goes through."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        found.update(_installed(package))
    try:
        import torch
        found["torch"] = f"{torch.__version__} ({torch.version.git_version or 'unknown'})"
    except ImportError:
        pass
    return found


def versions_of_classes(module):
    """Of the packages whose classes a module is made of."""
    roots = {kind.__module__.partition(".")[0] for part in module.modules()
             for kind in type(part).__mro__}
    owners = importlib.metadata.packages_distributions()
    found = {}
    for package in sorted({name for root in roots for name in owners.get(root, ())} -
                          set(PACKAGES)):
        found.update(_installed(package))
    return found


def of_model(entries, dynamic, versions):
    """Written before the check. `entries`: {module path: operator}."""
    symbols = {}
    for name, axes in dynamic.items():
        for axis, word in axes.items():
            symbols.setdefault(word, []).append(f"axis {axis} of {name}")
    props = {"converter": "attnrun_convert",
             **{name: versions[name] for name in IN_FILE if name in versions}}
    if symbols:
        props["symbols"] = "; ".join(f"{w}: {', '.join(a)}" for w, a in symbols.items())
    if entries:
        props["replaced"] = json.dumps(entries)
    return {PREFIX + key: value for key, value in props.items()}


def add_result(path, rows, rtol, atol):
    """Adds tolerance and largest errors to a file; its weights are not read."""
    proto = onnx.load(path, load_external_data=False)
    props = {p.key: p.value for p in proto.metadata_props}
    props[PREFIX + "tolerance"] = verify.said(rtol, atol)
    for engine in sorted({row.engine for row in rows}):
        worst = max(row.max_abs for row in rows if row.engine == engine)
        props[f"{PREFIX}max_abs_error.{engine}"] = f"{worst:.3g}"
    onnx.helper.set_model_props(proto, props)
    onnx.save(proto, path)


def write_report(path, output, model, source, rows):
    """What was replaced or kept and why, operators of the file, and every error."""
    counts = {}
    for node in model.graph.all_nodes():
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        counts[name] = counts.get(name, 0) + 1
    report = {"file": output.name, "versions": source.versions, "replaced": source.replaced,
              "plan": source.plan_lines, "axes": source.dynamic,
              "nodes": dict(sorted(counts.items())), "results": [asdict(r) for r in rows]}
    try:
        Path(path).write_text(json.dumps(report, indent=1, default=list) + "\n")
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
