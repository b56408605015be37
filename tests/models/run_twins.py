#!/usr/bin/env python3
"""The exported model families with their weights in f16 and bf16.

usage: run_twins.py ATTNRUN FAMILIES FOLDER [--only GLOB] [--every N]

FAMILIES holds the f32 models of make_families.py. Of each, FOLDER gets a twin whose floats
are f16 or bf16 (weights, inputs, outputs, casts). The expected outputs come from ONNX Runtime:
the f32 model with weights and inputs rounded to the type, its outputs rounded once. Checked:

  - the error is at most 4 steps of the type at the largest output;
  - the twin has the nodes of the f32 model but for casts, so that all is fused that was;
  - its arena for two threads is at most 1.05 of the f32 model's;
  - its packed weights are half as large.
"""
import argparse
import fnmatch
import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

TYPES = {"f16": (TensorProto.FLOAT16, np.float16, 11), "bf16": (TensorProto.BFLOAT16,
                                                             ml_dtypes.bfloat16, 8)}
# Operands that stay f32 whatever the type of the data: the scales of Resize.
STAYS = {"Resize": (1, 2)}
# Name -> nodes more than in f32, and why. GPT-2: one Pow is left beside its chain.
EXTRA_NODES = {"gpt2_o13": 1}


def rounded(array, kind):
    """The values in the narrow type, within its range; infinities stay."""
    limit = float(ml_dtypes.finfo(TYPES[kind][1]).max)
    return np.where(np.isinf(array), array, np.clip(array, -limit, limit)).astype(TYPES[kind][1])


def tensor_of(array, name):
    if array.dtype == ml_dtypes.bfloat16:
        return onnx.helper.make_tensor(name, TensorProto.BFLOAT16, array.shape,
                                       array.view(np.uint16).tobytes(), raw=True)
    return numpy_helper.from_array(array, name)


def change_tensor(tensor, kind, narrow):
    if tensor.data_type != TensorProto.FLOAT:
        return
    array = rounded(numpy_helper.to_array(tensor), kind)
    name = tensor.name
    tensor.CopyFrom(tensor_of(array if narrow else array.astype(np.float32), name))


def change_graph(graph, kind, narrow):
    """Rounds all floats to the type; with `narrow` they have it too."""
    dtype = TYPES[kind][0]
    stays = {node.input[i] for node in graph.node for i in STAYS.get(node.op_type, ())
             if i < len(node.input)}
    for tensor in graph.initializer:
        if tensor.name not in stays:
            change_tensor(tensor, kind, narrow)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if narrow and value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = dtype
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and node.output[0] not in stays:
                change_tensor(attribute.t, kind, narrow)
            if attribute.type == onnx.AttributeProto.GRAPH:
                change_graph(attribute.g, kind, narrow)
            if narrow and attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = dtype


def read_inputs(folder, model, kind):
    """{name: array} of test_data_set_0, floats rounded to the type."""
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    inputs = {}
    for index, name in enumerate(names):
        with open(os.path.join(folder, "test_data_set_0", f"input_{index}.pb"), "rb") as file:
            tensor = onnx.TensorProto.FromString(file.read())
        inputs[name] = numpy_helper.to_array(tensor)
        if inputs[name].dtype == np.float32:
            inputs[name] = rounded(inputs[name], kind).astype(np.float32)
    return inputs


def write_tensors(folder, word, arrays, kind):
    for index, array in enumerate(arrays):
        if array.dtype == np.float32:
            array = rounded(array, kind)
        path = os.path.join(folder, "test_data_set_0", f"{word}_{index}.pb")
        with open(path, "wb") as file:
            file.write(tensor_of(np.ascontiguousarray(array), "").SerializeToString())


def run_reference(model, inputs):
    """Outputs by ONNX Runtime; by the evaluator of the onnx package where that refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception:  # pylint: disable=broad-except # its exceptions share no base
        return ReferenceEvaluator(model).run(None, inputs)


def make_twin(folder, twin, kind):
    """Writes the twin with ONNX Runtime's outputs and the tolerance."""
    os.makedirs(os.path.join(twin, "test_data_set_0"), exist_ok=True)
    model = onnx.load(os.path.join(folder, "model.onnx"))
    inputs = read_inputs(folder, model, kind)
    reference = onnx.ModelProto()
    reference.CopyFrom(model)
    change_graph(reference.graph, kind, False)
    outputs = run_reference(reference, inputs)
    change_graph(model.graph, kind, True)
    onnx.save(model, os.path.join(twin, "model.onnx"))
    write_tensors(twin, "input", inputs.values(), kind)
    write_tensors(twin, "output", outputs, kind)
    largest = max([float(np.max(np.abs(y[np.isfinite(y)]), initial=0)) for y in outputs
                   if y.dtype == np.float32], default=0)
    step = 2.0 ** (np.frexp(largest)[1] - TYPES[kind][2]) if largest > 0 else 0
    with open(os.path.join(twin, "tol.txt"), "w", encoding="ascii") as file:
        file.write(f"0 {4 * step:g}\n")


def run_json(attnrun, *arguments):
    done = subprocess.run([attnrun, *arguments, "--json"], capture_output=True, text=True,
                          errors="replace")
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no answer"])[-1])
    return json.loads(done.stdout)


def facts(attnrun, folder):
    """Nodes but casts, arena and packed bytes."""
    path = os.path.join(folder, "model.onnx")
    plan = run_json(attnrun, "plan", "--threads", "2", path)
    layers = run_json(attnrun, "inspect", "--layers", path)["layers"]
    nodes = sum(1 for node in layers if node["op_type"] != "Cast")
    return nodes, plan["arena_bytes"], plan["packed_bytes"]


def complaints(attnrun, folder, twin, name):
    nodes, arena, packed = facts(attnrun, folder)
    twin_nodes, twin_arena, twin_packed = facts(attnrun, twin)
    if twin_nodes > nodes + EXTRA_NODES.get(name, 0):
        yield f"{twin_nodes} nodes besides casts, {nodes} in f32"
    if twin_arena > 1.05 * arena:
        yield f"an arena of {twin_arena} bytes, {arena} in f32"
    if packed > 0 and twin_packed > 0.56 * packed:
        yield f"{twin_packed} bytes of packed weights, {packed} in f32"
    done = subprocess.run([attnrun, "check", "--quiet", twin], capture_output=True, text=True,
                          errors="replace")
    if done.returncode != 0:
        yield ((done.stdout + done.stderr).strip().splitlines() or ["check failed"])[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnrun")
    parser.add_argument("families")
    parser.add_argument("folder")
    parser.add_argument("--only", default="*")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    names = sorted(name for name in os.listdir(options.families)
                   if fnmatch.fnmatch(name, options.only) and
                   os.path.exists(os.path.join(options.families, name, "model.onnx")))
    failed = checked = 0
    for name in names[::options.every]:
        folder = os.path.join(options.families, name)
        for kind in TYPES:
            twin = os.path.join(options.folder, kind, name)
            make_twin(folder, twin, kind)
            wrong = list(complaints(options.attnrun, folder, twin, name))
            for reason in wrong:
                print(f"FAIL {kind} {name}: {reason}")
            checked += 1
            failed += bool(wrong)
    print(f"{checked - failed} of {checked} twins pass")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
