#!/usr/bin/env python3
"""Backend cases whose inputs have no declared shape: what inference knows of the outputs
must not say more than is so.

usage: unknown_shapes.py ATTNRUN CASES

CASES is what make_cases.py wrote. Of each model every third input keeps its rank, the
others lose their shapes. Instead of an output of rank 2 or more there are the differences
of all pairs of its dims, taken by Shape, Gather and Sub: where two dims are one symbol by
mistake, a difference is folded to 0.
"""
import itertools
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from run_conformance import batches_that_fail, read_expected

LEAST = 500


def forget_shapes(graph, number):
    fixed = {tensor.name for tensor in graph.initializer}
    for i, value in enumerate(graph.input):
        if value.name in fixed or value.type.WhichOneof("value") != "tensor_type":
            continue
        if (number + i) % 3 != 0:
            value.type.tensor_type.ClearField("shape")
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"input{i}_{axis}"
    del graph.value_info[:]


def differences(graph, name, pairs):
    """Outputs: dim a - dim b of value `name`, for each pair."""
    del graph.output[:]
    graph.node.append(helper.make_node("Shape", [name], ["dims_of_it"]))
    for axis in sorted(set(itertools.chain(*pairs))):
        graph.initializer.append(helper.make_tensor(f"axis_{axis}", TensorProto.INT64, [],
                                                    [axis]))
        graph.node.append(helper.make_node("Gather", ["dims_of_it", f"axis_{axis}"],
                                           [f"dim_{axis}"]))
    for a, b in pairs:
        graph.node.append(helper.make_node("Sub", [f"dim_{a}", f"dim_{b}"], [f"{a}_{b}"]))
        graph.output.append(helper.make_tensor_value_info(f"{a}_{b}", TensorProto.INT64, []))


def write(source, number, k, to):
    """False where output k has no dims to compare."""
    data = source / "test_data_set_0"
    model = onnx.load(source / "model.onnx")
    output = model.graph.output[k]
    if output.type.WhichOneof("value") != "tensor_type":
        return False
    dims = onnx.load_tensor(data / f"output_{k}.pb").dims
    pairs = [(a, b) for a, b in itertools.combinations(range(len(dims)), 2)
             if dims[a] != dims[b]]
    if not pairs or "" not in {opset.domain for opset in model.opset_import}:
        return False
    forget_shapes(model.graph, number)
    differences(model.graph, output.name, pairs)
    folder = to / data.name
    folder.mkdir(parents=True)
    onnx.save(model, to / "model.onnx")
    for path in data.glob("input_*.pb"):
        (folder / path.name).write_bytes(path.read_bytes())
    for i, (a, b) in enumerate(pairs):
        wanted = helper.make_tensor(f"{a}_{b}", TensorProto.INT64, [], [dims[a] - dims[b]])
        (folder / f"output_{i}.pb").write_bytes(wanted.SerializeToString())
    return True


def main():
    attnrun, cases, made = sys.argv[1], Path(sys.argv[2]), []
    names = set((cases / "names.txt").read_text(encoding="utf-8").split())
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(sorted(names - set(read_expected()))):
            outputs = len(list((cases / name / "test_data_set_0").glob("output_*.pb")))
            for k in range(outputs):
                to = Path(folder) / f"{name.replace('/', '_')}-{k}"
                if write(cases / name, number, k, to):
                    made.append(str(to))
        bad = batches_that_fail(attnrun, made, folder)
    print(f"{len(made)} models")
    return 1 if bad or len(made) < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
