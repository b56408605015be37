"""metadata_props of a converted file: what made it, of what, how well it agrees."""
import json
from dataclasses import asdict
from pathlib import Path

import onnx

from .errors import FileError

PREFIX = "attnrun."


def of_model(entries, dynamic, versions):
    """Written before the check. `entries`: {module path: operator}."""
    symbols = {}
    for name, axes in dynamic.items():
        for axis, word in axes.items():
            symbols.setdefault(word, []).append(f"axis {axis} of {name}")
    props = {"converter": "attnrun_convert", **versions}
    if symbols:
        props["symbols"] = "; ".join(f"{w}: {', '.join(a)}" for w, a in symbols.items())
    if entries:
        props["replaced"] = json.dumps(entries)
    return {PREFIX + key: value for key, value in props.items()}


def add_result(path, rows, rtol, atol):
    """Adds tolerance and largest errors to a file; its weights are not read."""
    proto = onnx.load(path, load_external_data=False)
    props = {p.key: p.value for p in proto.metadata_props}
    props[PREFIX + "tolerance"] = f"{atol:g} + {rtol:g} |expected|"
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
