#!/usr/bin/env python3
"""Tensors of every element type in every form of storage, against bytes packed here.

usage: test_tensors.py SHOW_CONSTANT

Each case is a model with one constant; SHOW_CONSTANT prints what the library has of it.
Forms: raw_data, typed field, typed field not packed, external file (aligned or not), the
value of a Constant node, sparse; small ones and ones that stay in the file. What onnx itself
reads is compared too, so that the expectations are right.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

COPY = 1
RNG = np.random.default_rng(7)
# dtype -> (bits of an element, typed field)
TYPES = {
    "FLOAT": (32, "float_data"), "UINT8": (8, "int32_data"), "INT8": (8, "int32_data"),
    "UINT16": (16, "int32_data"), "INT16": (16, "int32_data"), "INT32": (32, "int32_data"),
    "INT64": (64, "int64_data"), "BOOL": (8, "int32_data"), "FLOAT16": (16, "int32_data"),
    "DOUBLE": (64, "double_data"), "UINT32": (32, "uint64_data"),
    "UINT64": (64, "uint64_data"), "COMPLEX64": (64, "float_data"),
    "COMPLEX128": (128, "double_data"), "BFLOAT16": (16, "int32_data"),
    "FLOAT8E4M3FN": (8, "int32_data"), "FLOAT8E4M3FNUZ": (8, "int32_data"),
    "FLOAT8E5M2": (8, "int32_data"), "FLOAT8E5M2FNUZ": (8, "int32_data"),
    "UINT4": (4, "int32_data"), "INT4": (4, "int32_data"), "FLOAT4E2M1": (4, "int32_data"),
    "FLOAT8E8M0": (8, "int32_data"), "UINT2": (2, "int32_data"), "INT2": (2, "int32_data"),
    "FLOAT6E2M3": (6, "int32_data"), "FLOAT6E3M2": (6, "int32_data"),
}
SIGNED = {"INT8", "INT16", "INT32"}
SHAPES = {"small": [3, 5], "large": [41, 45], "empty": [0, 3], "scalar": []}


def pack(codes, bits):
    """Elements from the low bits upwards, as one string of bytes."""
    whole = 0
    for k, code in enumerate(codes):
        whole |= int(code) << (k * bits)
    return whole.to_bytes((len(codes) * bits + 7) // 8, "little")


def make_codes(name, count):
    bits = TYPES[name][0]
    if name == "BOOL":
        return [int(v) for v in RNG.integers(0, 2, count)]
    if name in ("FLOAT", "COMPLEX64", "DOUBLE", "COMPLEX128"):
        parts = 2 if "COMPLEX" in name else 1
        dtype = np.float32 if name in ("FLOAT", "COMPLEX64") else np.float64
        data = RNG.standard_normal(count * parts).astype(dtype).tobytes()
        return [int.from_bytes(data[k * bits // 8:(k + 1) * bits // 8], "little")
                for k in range(count)]
    return [int.from_bytes(RNG.bytes(16), "little") & ((1 << bits) - 1) for _ in range(count)]


def typed_values(name, codes):
    bits, field = TYPES[name]
    raw = pack(codes, bits)
    if field == "float_data":
        return np.frombuffer(raw, np.float32).tolist()
    if field == "double_data":
        return np.frombuffer(raw, np.float64).tolist()
    if field == "int64_data":
        return np.frombuffer(raw, np.int64).tolist()
    if bits in (2, 4):
        return list(raw)
    if name in SIGNED:
        return [c - (1 << bits) if c >> (bits - 1) else c for c in codes]
    return codes


def tensor(name, dims):
    made = TensorProto(name="c", data_type=getattr(TensorProto, name))
    made.dims.extend(dims)
    return made


def constant_model(made, how="initializer"):
    graph = onnx.GraphProto(name="g")
    if how == "initializer":
        graph.initializer.append(made)
    elif how == "sparse":
        graph.sparse_initializer.append(made)
    else:
        graph.node.append(helper.make_node("Constant", [], ["c"], value=made))
    value = onnx.ValueInfoProto(name="c")
    graph.output.append(value)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def write_varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def unpacked(made, field):
    """The tensor with one tag for each number, as writers before proto3 do."""
    number = made.DESCRIPTOR.fields_by_name[field].number
    values = list(getattr(made, field))
    rest = TensorProto()
    rest.CopyFrom(made)
    rest.ClearField(field)
    out = rest.SerializeToString()
    for value in values:
        if field == "float_data":
            out += write_varint(number << 3 | 5) + np.float32(value).tobytes()
        elif field == "double_data":
            out += write_varint(number << 3 | 1) + np.float64(value).tobytes()
        else:
            out += write_varint(number << 3) + write_varint(value)
    return out


class Cases:
    def __init__(self, folder):
        self.folder, self.paths, self.wanted, self.names = folder, [], [], []

    def add(self, name, model, wanted):
        path = os.path.join(self.folder, f"{name}.onnx")
        with open(path, "wb") as f:
            f.write(model if isinstance(model, bytes) else model.SerializeToString())
        self.paths.append(path)
        self.wanted.append(wanted)
        self.names.append(name)

    def check(self, tool, flags):
        bad = 0
        for at in range(0, len(self.paths), 200):
            done = subprocess.run([tool, str(flags), "c", *self.paths[at:at + 200]], check=True,
                                  capture_output=True, text=True)
            lines = done.stdout.splitlines()
            part = slice(at, at + 200)
            assert len(lines) == len(self.paths[part]), done.stderr
            for name, line, wanted in zip(self.names[part], lines, self.wanted[part]):
                if not line.startswith(wanted) or (wanted[0] == "0" and line != wanted):
                    print(f"FAIL {name} (flags {flags}): {line[:160]}\n  expected {wanted[:160]}")
                    bad += 1
        return bad


def expected(name, dims, data):
    text = "".join(f"{d}," for d in dims)
    return f"0 {getattr(TensorProto, name)} {text} {data.hex()}"


def add_numbers(cases, name, shape):
    bits, field = TYPES[name]
    dims = SHAPES[shape]
    codes = make_codes(name, int(np.prod(dims)))
    data = pack(codes, bits)
    wanted = expected(name, dims, data)
    raw, typed = tensor(name, dims), tensor(name, dims)
    raw.raw_data = data
    getattr(typed, field).extend(typed_values(name, codes))
    assert numpy_helper.to_array(raw).tobytes() == numpy_helper.to_array(typed).tobytes(), name
    label = f"{name}_{shape}"
    cases.add(f"{label}_raw", constant_model(raw), wanted)
    cases.add(f"{label}_typed", constant_model(typed), wanted)
    cases.add(f"{label}_node", constant_model(raw, "node"), wanted)
    model = constant_model(raw)
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    graph.ClearField("initializer")
    wire = unpacked(typed, field)
    body = graph.SerializeToString() + b"\x2a" + write_varint(len(wire)) + wire
    model.ClearField("graph")
    cases.add(f"{label}_unpacked",
              model.SerializeToString() + b"\x3a" + write_varint(len(body)) + body, wanted)
    for offset in (0, 3, 64):
        with open(os.path.join(cases.folder, f"{label}_{offset}.bin"), "wb") as f:
            f.write(b"\xff" * offset + data + b"\xff" * 5)
        outside = tensor(name, dims)
        outside.data_location = TensorProto.EXTERNAL
        for key, value in (("location", f"{label}_{offset}.bin"), ("offset", str(offset)),
                           ("length", str(len(data)))):
            outside.external_data.add(key=key, value=value)
        cases.add(f"{label}_external_{offset}", constant_model(outside), wanted)
    add_wrong(cases, label, raw, typed, field)


def add_wrong(cases, label, raw, typed, field):
    short, both, twice = TensorProto(), TensorProto(), TensorProto()
    short.CopyFrom(raw)
    short.raw_data = raw.raw_data + b"\0"
    cases.add(f"{label}_long", constant_model(short), "302 ")
    if not raw.raw_data:
        return
    short.raw_data = raw.raw_data[:-1]
    cases.add(f"{label}_short", constant_model(short), "302 ")
    both.CopyFrom(raw)
    getattr(both, field).extend(getattr(typed, field))
    cases.add(f"{label}_both", constant_model(both), "302 ")
    twice.CopyFrom(typed)
    getattr(twice, field).append(1)
    cases.add(f"{label}_one_more", constant_model(twice), "302 ")


def add_strings(cases):
    words = [b"", b"a", "ä".encode(), b"with\0nul", b"x" * 3000]
    made = tensor("STRING", [5])
    made.string_data.extend(words)
    wanted = "0 8 5, " + "".join("/" + w.hex() for w in words)
    cases.add("strings", constant_model(made), wanted)
    cases.add("strings_node", constant_model(made, "node"), wanted)
    # Lists of an attribute share the text of equal words; the start of a word is another word.
    words = [b"abc", b"ab", b"", b"abc", b"a", b"abcd", b"ab", b"b", b"abc", b"a", b""]
    node = constant_model(made, "node")
    node.graph.node[0].ClearField("attribute")
    node.graph.node[0].attribute.append(helper.make_attribute("value_strings", words))
    cases.add("strings_list", node, f"0 8 {len(words)}, " + "".join("/" + w.hex() for w in words))
    del made.string_data[4]
    cases.add("strings_short", constant_model(made), "302 ")


def add_bools(cases):
    for count in (4, 4000):
        made = tensor("BOOL", [count])
        made.raw_data = bytes([0, 1, 2, 255]) * (count // 4)
        cases.add(f"bool_garbage_{count}", constant_model(made),
                  expected("BOOL", [count], bytes([0, 1, 1, 1]) * (count // 4)))


def add_sparse(cases):
    dense = np.zeros((4, 3), np.float32)
    dense[[0, 3], [1, 2]] = 5, 7
    values = numpy_helper.from_array(np.float32([5, 7]), "c")
    flat = numpy_helper.from_array(np.int64([1, 11]), "i")
    by_axis = numpy_helper.from_array(np.int64([[0, 1], [3, 2]]), "i")
    wanted = expected("FLOAT", [4, 3], dense.tobytes())
    cases.add("sparse_flat", constant_model(
        helper.make_sparse_tensor(values, flat, [4, 3]), "sparse"), wanted)
    cases.add("sparse_by_axis", constant_model(
        helper.make_sparse_tensor(values, by_axis, [4, 3]), "sparse"), wanted)
    node = constant_model(helper.make_sparse_tensor(values, flat, [4, 3]), "sparse")
    attr = onnx.AttributeProto(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    attr.sparse_tensor.CopyFrom(node.graph.sparse_initializer[0])
    node.graph.ClearField("sparse_initializer")
    made = node.graph.node.add(op_type="Constant", output=["c"])
    made.attribute.append(attr)
    cases.add("sparse_node", node, wanted)
    for label, index in (("over", 12), ("negative", -1), ("far", 2**62)):
        bad = numpy_helper.from_array(np.int64([1, index]), "i")
        cases.add(f"sparse_{label}", constant_model(
            helper.make_sparse_tensor(values, bad, [4, 3]), "sparse"), "302 ")
    cases.add("sparse_wrap", constant_model(
        helper.make_sparse_tensor(values, flat, [2**32, 2**32]), "sparse"), "601 ")


def add_shapes(cases):
    for label, dims, status in (
            ("negative", [-1], "302 "), ("two_negative", [-2, -1], "302 "),
            ("wraps", [2**32, 2**32], "601 "), ("huge", [2**40], "601 "),
            ("zero_times_huge", [0, 2**62], "601 "), ("rank_9", [1] * 9, "601 ")):
        made = tensor("FLOAT", dims)
        cases.add(f"dims_{label}", constant_model(made), status)
    made = tensor("FLOAT", [2])
    made.raw_data = bytes(8)
    made.segment.begin = 0
    cases.add("segment", constant_model(made), "400 ")
    for number in (0, 29, 99, -1):
        made = TensorProto(name="c", dims=[1], data_type=number, raw_data=bytes(4))
        cases.add(f"dtype_{number}", constant_model(made), "302 ")


def main():
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(folder)
        for name in TYPES:
            for shape in SHAPES:
                add_numbers(cases, name, shape)
        add_strings(cases)
        add_bools(cases)
        add_sparse(cases)
        add_shapes(cases)
        bad = sum(cases.check(sys.argv[1], flags) for flags in (0, COPY))
    print(f"{2 * len(cases.paths)} loads, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
