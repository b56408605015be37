"""Models of one node from operators.txt: make_operators.py FOLDER writes them there."""
import ast
import re
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16,
         "i8": TensorProto.INT8, "i16": TensorProto.INT16, "i32": TensorProto.INT32,
         "i64": TensorProto.INT64, "u8": TensorProto.UINT8, "b8": TensorProto.BOOL,
         "string": TensorProto.STRING}
INPUT = re.compile(r"(?P<type>[a-z]+\d*)(?P<fill>[%=][\d.]+|tri\d+)?(?P<values>\([^)]*\))?"
                   r"(?P<shape>\[[\d,]*\])?$")


def numbers(text):
    return [ast.literal_eval(word) for word in text[1:-1].split(",") if word]


def triangle(n):
    """The columns of the lower triangle of n x n blocks, row by row."""
    return [column for row in range(n) for column in range(row + 1)]


def constant(name, match):
    dtype = helper.tensor_dtype_to_np_dtype(TYPES[match["type"]])
    values = (triangle(int(match["fill"][3:])) if match["values"] is None
              else numbers(match["values"]))
    array = numpy.array(values, dtype)
    if match["shape"] is not None:
        array = array.reshape(numbers(match["shape"]))
    elif len(values) == 1 and match["type"] not in ("i64",):
        array = array.reshape(())
    return numpy_helper.from_array(array, name)


def attribute(text):
    """A literal, range(n), or full(n, literal): n of these."""
    n = re.fullmatch(r"range\((\d+)\)", text)
    if n:
        return list(range(int(n[1])))
    n = re.fullmatch(r"full\((\d+), (.*)\)", text)
    return [ast.literal_eval(n[2])] * int(n[1]) if n else ast.literal_eval(text)


def make(line):
    fields = [field.strip() for field in line.split("|")] + [""] * 3
    head, operands, attributes, n_outputs = fields[:4]
    domain, _, name = head.rpartition(":")
    op_type, _, version = name.partition("@")
    inputs, weights, names = [], [], []
    for k, word in enumerate(operands.split()):
        if word == "-":
            names.append("")
            continue
        match = INPUT.match(word)
        fill = match["fill"] or ""
        names.append(f"x{k}{fill}")
        if match["values"] is not None or fill.startswith("tri"):
            weights.append(constant(names[-1], match))
        else:
            inputs.append(helper.make_tensor_value_info(
                names[-1], TYPES[match["type"]], numbers(match["shape"])))
    pairs = [item.partition("=") for item in attributes.split(";") if item.strip()]
    attrs = {key.strip(): attribute(value.strip()) for key, _, value in pairs}
    outputs = [f"y{k}" for k in range(int(n_outputs or 1))]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attrs)
    graph = helper.make_graph([node], "g", inputs,
                              [onnx.ValueInfoProto(name=out) for out in outputs], weights)
    opset = 28 if domain else int(version)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, int(version)))
    return f"{domain + '.' if domain else ''}{op_type}", helper.make_model(
        graph, opset_imports=imports, ir_version=13)


def lines():
    text = Path(__file__).with_name("operators.txt").read_text()
    return [line for line in text.split("\n") if line and line[0] != "#"]


def write(folder):
    """Writes all models; returns their paths and the lines that they are made of."""
    made = []
    for k, line in enumerate(lines()):
        name, model = make(line)
        path = Path(folder) / f"{k:03d}_{name}.onnx"
        path.write_bytes(model.SerializeToString())
        made.append((path, line))
    return made


if __name__ == "__main__":
    for path, _ in write(sys.argv[1]):
        print(path)
