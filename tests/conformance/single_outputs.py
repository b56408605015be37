#!/usr/bin/env python3
"""Nodes of several outputs of which only one is read: each output alone.

usage: single_outputs.py ATTNRUN CASES FOLDER...

CASES is what make_cases.py wrote, the others are test folders. Of each model that gives
more than one output, all outputs but one are taken away, in turn; once the rest keeps its
names, once it has none. The one that is left must be what it was. Cases that
expected_failures.txt lists are left out, as are random ones.
"""
import sys
import tempfile
from pathlib import Path

import onnx

from run_conformance import batches_that_fail, read_expected

RANDOM = ("node/test_training_dropout",)


def folders(cases, others):
    expected = read_expected()
    names = (cases / "names.txt").read_text(encoding="utf-8").split()
    for name in names:
        if name not in expected and not name.startswith(RANDOM):
            yield name.replace("/", "_"), cases / name
    for other in others:
        for model in sorted(other.glob("*/model.onnx")):
            yield f"{other.name}_{model.parent.name}", model.parent


def keep_output(model, k, named):
    """Output k alone; the names of the others go where nobody else reads them. Split and
    what has subgraphs take the number of their outputs from these names."""
    gone = {info.name for info in model.graph.output} - {model.graph.output[k].name}
    kept = onnx.ValueInfoProto.FromString(model.graph.output[k].SerializeToString())
    del model.graph.output[:]
    model.graph.output.append(kept)
    read = {name for node in model.graph.node for name in node.input}
    for node in model.graph.node:
        counted = node.op_type == "Split" or any(a.type in (5, 10) for a in node.attribute)
        if not named and not counted:
            node.output[:] = [name if name not in gone or name in read else ""
                              for name in node.output]
    return model


def write(source, data, k, named, to):
    to.mkdir()
    onnx.save(keep_output(onnx.ModelProto.FromString(data), k, named), to / "model.onnx")
    if (source / "tol.txt").exists():
        (to / "tol.txt").write_bytes((source / "tol.txt").read_bytes())
    sets = 0
    for given in sorted(source.glob("test_data_set_*")):
        if not (given / f"output_{k}.pb").exists():
            continue
        sets += 1
        folder = to / given.name
        folder.mkdir()
        for path in given.glob("input_*.pb"):
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / "output_0.pb").write_bytes((given / f"output_{k}.pb").read_bytes())
    return sets > 0


def main():
    attnrun, cases, others = sys.argv[1], Path(sys.argv[2]), [Path(p) for p in sys.argv[3:]]
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for name, source in folders(cases, others):
            data = (source / "model.onnx").read_bytes()
            outputs = len(onnx.ModelProto.FromString(data).graph.output)
            for k in range(outputs if outputs > 1 else 0):
                for named in (True, False):
                    to = Path(folder) / f"{name}-{k}{'' if named else '-unnamed'}"
                    if write(source, data, k, named, to):
                        made.append(str(to))
        bad = batches_that_fail(attnrun, made, folder)
    print(f"{len(made)} models")
    return 1 if bad or len(made) < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
