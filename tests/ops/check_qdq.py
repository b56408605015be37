"""Graphs of DequantizeLinear, an operator and QuantizeLinear, as ONNX Runtime's quantisers write
them, against ONNX Runtime 1.32.0 without its optimisations: random operators, shapes, types and
scales, each result within one step; nets of quantize_static in its modes; and that the operators
on bytes take their places, and only theirs; QuantizeLinear alone, in all types that it divides in.
Usage: check_qdq.py ATTNRUN [SEED]"""
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime import quantization

from cases import check, write_case
from ms import any_bytes, between, normal, pick, random, SEED

ATTNRUN = sys.argv[1]
KINDS = {"f4": 1, "u1": 2, "i1": 3, "i2": 5, "i4": 6}


class Graph:
    """A model in the making: constants, inputs of bytes or floats, nodes."""

    def __init__(self):
        self.nodes, self.constants, self.feeds, self.n, self.opset = [], [], [], 0, 17

    def name(self):
        self.n += 1
        return f"v{self.n}"

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), self.name()))
        return self.constants[-1].name

    def node(self, op, inputs, domain="", **attributes):
        out = self.name()
        self.nodes.append(helper.make_node(op, inputs, [out], domain=domain, **attributes))
        return out

    def feed(self, value):
        self.feeds.append((self.name(), np.asarray(value)))
        return self.feeds[-1][0]

    def pair(self, kind, scale=None, zero=None):
        scale = random.uniform(0.01, 0.05) if scale is None else scale
        return (self.constant(np.float32(scale)),
                self.constant(any_bytes(kind=kind) if zero is None else np.asarray(zero, kind)))

    def real(self, kind, *shape, pair=None):
        """Floats that come from bytes, which are an input."""
        pair = pair or self.pair(kind)
        return self.node("DequantizeLinear", [self.feed(any_bytes(*shape, kind=kind)), *pair])

    def weights(self, kind, shape, axis, scales):
        zeros = np.zeros(scales.shape, kind)
        attributes = {"axis": axis} if scales.ndim else {}
        return self.node("DequantizeLinear", [
            self.constant(any_bytes(*shape, kind=kind)), self.constant(scales),
            self.constant(zeros)], **attributes)

    def bias(self, n, scales):
        attributes = {"axis": 0} if np.ndim(scales) else {}
        return self.node("DequantizeLinear", [
            self.constant(random.integers(-5000, 5000, n).astype("i4")),
            self.constant(np.asarray(scales, "f4")),
            self.constant(np.zeros(np.shape(scales), "i4"))], **attributes)

    def model(self, out, kind):
        graph = helper.make_graph(
            self.nodes, "qdq",
            [helper.make_tensor_value_info(name, numpy_helper.from_array(value).data_type,
                                           value.shape) for name, value in self.feeds],
            [helper.make_tensor_value_info(out, KINDS[kind], None)], self.constants)
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)])


def product_graph(op, kind):
    """Conv, MatMul or Gemm with weights of one scale or one each."""
    graph = Graph()
    k, n, scale = between(1, 20), between(1, 12), random.uniform(0.01, 0.03)
    some = (n,) if between(0, 1) else ()
    scales = np.asarray(random.uniform(0.005, 0.02, some), "f4")
    weights = pick("i1", "i1", "u1")
    pair = graph.pair(kind, scale)
    scale = np.float32(scale)
    bias = []
    if op == "Conv":
        x = graph.real(kind, 2, k, between(4, 7), between(4, 7), pair=pair)
        w = graph.weights(weights, (n, k, 3, pick(1, 2)), 0, scales)
        attributes = {"pads": [1, 0, 1, 0], "strides": [between(1, 2), 1]}
    elif op == "Gemm":
        turned = between(0, 1)
        x = graph.real(kind, 5, k, pair=pair)
        w = graph.weights(weights, (n, k) if turned else (k, n), 1 - turned, scales)
        attributes = {"transB": turned}
    else:
        x = graph.real(kind, 2, 3, k, pair=pair)
        w, attributes = graph.weights(weights, (k, n), 1, scales), {}
    if op != "MatMul" and between(0, 2):
        bias = [graph.bias(n, scale * scales)]
    y = graph.node(op, [x, w, *bias], **attributes)
    if op == "Conv" and between(0, 1):
        y = graph.node("Relu", [y])
        return graph, y, graph.pair(kind, 0.1, 0 if kind == "u1" else -128)
    return graph, y, graph.pair(kind, 0.1)


def view_of_mean(graph, y, keeps):
    """The mean of the pixels, mostly with the view behind it that networks have."""
    kinds = ["none", "Reshape", "Flatten"] + ["Squeeze"] * keeps
    kind = kinds[between(0, len(kinds) - 1)]
    if kind == "none":
        return y
    more = {"Reshape": [[0, -1]], "Squeeze": [[2, 3]]}.get(kind, [])
    return graph.node(kind, [y, *[graph.constant(np.array(a, "i8")) for a in more]])


def other_graph(op, kind):
    graph, shape = Graph(), [between(1, 3), between(1, 5), between(4, 7), between(4, 7)]
    pair = graph.pair(kind)
    attributes = {
        "AveragePool": {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1],
                        "count_include_pad": between(0, 1)},
        "MaxPool": {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]},
        "Concat": {"axis": pick(1, -3)}, "Softmax": {"axis": pick(-1, 1)},
        "LeakyRelu": {"alpha": pick(0.01, 0.3)}, "Transpose": {"perm": [0, 2, 3, 1]},
        "ReduceMean": {"axes": pick([2, 3], [-1, -2]), "keepdims": between(0, 1)},
        "Flatten": {"axis": 2}}.get(op, {})
    moves = op in ("Transpose", "Reshape", "Flatten", "MaxPool")
    inputs = [graph.real(kind, *shape, pair=pair)]
    if op in ("Add", "Mul", "Where"):
        inputs.append(graph.real(kind, *[pick(n, 1) for n in shape]))
    if op == "Where":
        inputs.insert(0, graph.feed(random.integers(0, 2, shape).astype(bool)))
    if op == "Concat":
        inputs += [graph.real(kind, shape[0], between(1, 4), *shape[2:]) for _ in range(2)]
    if op == "Reshape":
        inputs.append(graph.constant(np.array([0, -1], "i8")))
    y = graph.node(op, inputs, **attributes)
    if op in ("ReduceMean", "GlobalAveragePool"):
        y = view_of_mean(graph, y, attributes.get("keepdims", 1))
    fine = (1 / 256, 0 if kind == "u1" else -128) if op in ("Softmax", "Sigmoid") else ()
    return graph, y, pair if moves else graph.pair(kind, *fine)


TAKES = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Gemm": "QGemm",
         "ReduceMean": "QLinearGlobalAveragePool",
         **{op: op for op in ("Transpose", "Reshape", "Flatten", "MaxPool")}}


def reference(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(feeds))


def write(folder, model, feeds, tolerance):
    values = reference(model, feeds)
    write_case(folder, model, feeds, [(info.name, value) for info, value in
                                      zip(model.graph.output, values)], tolerance)


def passes(path):
    """How often the pass applied, and the operators that are left."""
    run = subprocess.run([ATTNRUN, "inspect", path], capture_output=True, text=True, check=True,
                         timeout=60)
    lines = run.stdout.splitlines()
    count = sum(line.split()[-3:-2] == ["quantized,"] for line in lines)
    return count, run.stdout


def single_cases(folder):
    failed, ops = 0, ("Conv", "MatMul", "Gemm", "Add", "Mul", "Where", "Concat", "AveragePool",
                      "GlobalAveragePool", "Softmax", "Sigmoid", "LeakyRelu", "Transpose",
                      "Reshape", "Flatten", "MaxPool", "ReduceMean")
    for number in range(8 * len(ops)):
        op, kind = ops[number % len(ops)], pick("u1", "i1")
        make = product_graph if op in ("Conv", "MatMul", "Gemm") else other_graph
        graph, y, pair = make(op, kind)
        y = graph.node("QuantizeLinear", [y, *pair])
        path = f"{folder}/{number:03}_{op}"
        write(path, graph.model(y, kind), graph.feeds, "0 1")
        count, text = passes(f"{path}/model.onnx")
        if not count or TAKES.get(op, f"QLinear{op}") not in text or "DequantizeLinear" in text:
            print(f"{op} stays in floats:\n{text}")
            failed += 1
    return failed


def apart_graphs():
    """What must stay as it is: a division of f16, a bias of another scale, one that is no i32, a
    result that others read, a Relu whose 0 is no end of the bytes, another scale behind a
    Transpose, a mean over other axes, and one whose view others read."""
    graph = Graph()
    graph.opset = 23
    x = graph.node("DequantizeLinear", [graph.feed(any_bytes(3, 4)), *graph.pair("u1", 1000, 0)])
    y = graph.node("MatMul", [x, graph.weights("i1", (4, 5), 1, np.asarray(1, "f4"))])
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 60000, 128)],
                            precision=onnx.TensorProto.FLOAT16), "u1"  # most are infinite in f16
    graph = Graph()
    x = graph.real("u1", 1, 3, 4, pair=graph.pair("u1", 0.02))
    w = graph.weights("i1", (4, 5), 1, np.asarray(0.01, "f4"))
    y = graph.node("MatMul", [x, w])
    z = graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.1)])
    z = graph.node("DequantizeLinear", [z, *graph.pair("u1", 0.1)])
    yield graph, graph.node("Add", [y, z]), "f4"
    for bias in (lambda g: g.bias(5, np.float32(0.3)), lambda g: g.constant(normal(5))):
        graph = Graph()
        x = graph.real("u1", 3, 4, pair=graph.pair("u1", 0.02))
        w = graph.weights("i1", (4, 5), 1, np.asarray(0.01, "f4"))
        y = graph.node("Gemm", [x, w, bias(graph)])
        yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.1)]), "u1"
    graph = Graph()
    x = graph.real("u1", 1, 2, 4, 4, pair=graph.pair("u1", 0.02))
    w = graph.weights("i1", (3, 2, 2, 2), 0, np.asarray(0.01, "f4"))
    y = graph.node("Relu", [graph.node("Conv", [x, w])])
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.1, 7)]), "u1"
    graph = Graph()
    y = graph.node("Transpose", [graph.real("u1", 2, 3, pair=graph.pair("u1", 0.02, 3))])
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.03, 3)]), "u1"
    graph = Graph()
    y = graph.node("ReduceMean", [graph.real("u1", 2, 3, 4, 5)], axes=[1, 2], keepdims=0)
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.03)]), "u1"
    graph = Graph()
    y = graph.node("ReduceMean", [graph.real("u1", 2, 3, 4, 5)], axes=[2, 3], keepdims=1)
    y = graph.node("Flatten", [y])
    z = graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.1)])
    z = graph.node("DequantizeLinear", [z, *graph.pair("u1", 0.1)])
    yield graph, graph.node("Add", [y, z]), "f4"


def negative_graphs():
    """Scales below 0, whose largest byte is the least number, and those by which ratios of scales
    are infinite: these stay as they are, too."""
    graph = Graph()
    x = graph.real("u1", 1, 2, 4, 4, pair=graph.pair("u1", 0.02))
    w = graph.weights("i1", (3, 2, 2, 2), 0, np.asarray(0.01, "f4"))
    y = graph.node("Relu", [graph.node("Conv", [x, w])])
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", -0.1, 0)]), "u1"
    graph = Graph()
    y = graph.node("MaxPool", [graph.real("i1", 1, 2, 4, 4, pair=graph.pair("i1", -0.02, 3))],
                   kernel_shape=[2, 2])
    yield graph, graph.node("QuantizeLinear", [y, *graph.pair("i1", -0.02, 3)]), "i1"
    for op, scale, scale_y in (("GlobalAveragePool", np.inf, 0.1), ("Add", 0.1, 1e-44)):
        graph = Graph()
        x = graph.node("DequantizeLinear", [graph.feed(np.asarray([[[[3, 3, 200]]]], "u1")),
                                            *graph.pair("u1", scale, 3)])
        y = graph.node(op, [x] if op != "Add" else [x, x])
        yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", scale_y, 3)]), "u1"


def wide_graphs():
    """Sums that do not fit in 32 bits: with a bias as quantize_static gives it to a channel of tiny
    weights, and of very many products, also of operands that both are computed."""
    for op in ("Conv", "Gemm"):
        graph, scales = Graph(), np.asarray([0.01, 4e-9], "f4")
        shape = (1, 3, 4, 4) if op == "Conv" else (5, 30)
        pair = graph.pair("u1", 0.02, 0)
        x = graph.node("DequantizeLinear", [graph.feed(any_bytes(*shape) | 128), *pair])
        w = graph.constant(np.full((2, 3, 3, 3) if op == "Conv" else (2, 30), 127, "i1"))
        w = graph.node("DequantizeLinear", [w, graph.constant(scales)], axis=0)
        bias = graph.node("DequantizeLinear", [
            graph.constant(np.asarray([5, 2**31 - 200], "i4")),
            graph.constant(scales * np.float32(0.02))], axis=0)
        y = graph.node(op, [x, w, bias], **({"transB": 1} if op == "Gemm" else {}))
        yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 0.1, 0)]), "u1"
    for operand in (Graph.constant, Graph.feed):
        graph = Graph()
        pair = graph.pair("u1", 0.001, 0)
        x = graph.node("DequantizeLinear", [graph.feed(np.full((1, 40000), 255, "u1")), *pair])
        w = graph.node("DequantizeLinear", [operand(graph, np.full((40000, 2), 255, "u1")),
                                            graph.constant(np.float32(0.001))])
        y = graph.node("MatMul", [x, w])
        yield graph, graph.node("QuantizeLinear", [y, *graph.pair("u1", 10, 0)]), "u1"


def apart_cases(folder, graphs):
    failed = 0
    for number, (graph, y, kind) in enumerate(graphs()):
        path = f"{folder}/{graphs.__name__}_{number}"
        write(path, graph.model(y, kind), graph.feeds, "1e-4 1e-4" if kind == "f4" else "0 1")
        count, text = passes(f"{path}/model.onnx")
        if count:
            print(f"case {number} is no operator on bytes:\n{text}")
            failed += 1
    return failed


def division_cases(folder):
    """QuantizeLinear of x and of a scale of either type, with and without a precision."""
    types = (("f4", "f2"), ("f4", "f2"), ({}, {"precision": 1}, {"precision": 10}))
    for number, (kind, of_scale, attributes) in enumerate(itertools.product(*types)):
        graph = Graph()
        graph.opset = 23
        operands = [graph.feed(1000 * normal(500, kind=kind)),
                    graph.constant(np.asarray(2.7, of_scale)), graph.constant(np.int16(3))]
        y = graph.node("QuantizeLinear", operands, **attributes)
        write(f"{folder}/division_{number}", graph.model(y, "i2"), graph.feeds, "0 0")


def net():
    """A convolution net of floats with the operators that quantize_static knows."""
    graph = Graph()
    x = graph.feed(normal(2, 3, 12, 12))

    def conv(x, n, k, size, **attributes):
        return graph.node("Conv", [x, graph.constant(0.3 * normal(n, k, size, size)),
                                   graph.constant(0.1 * normal(n))], **attributes)

    a = graph.node("Relu", [conv(x, 8, 3, 3, pads=[1] * 4)])
    b = graph.node("LeakyRelu", [conv(a, 8, 8, 1)], alpha=0.1)
    c = graph.node("Concat", [graph.node("Add", [a, b]), graph.node("Sigmoid", [b])], axis=1)
    d = graph.node("MaxPool", [c], kernel_shape=[2, 2], strides=[2, 2])
    e = graph.node("AveragePool", [conv(d, 6, 16, 3)], kernel_shape=[2, 2])
    f = graph.node("Flatten", [graph.node("GlobalAveragePool", [e])])
    g = graph.node("Gemm", [f, graph.constant(normal(6, 5)), graph.constant(normal(5))])
    return graph, graph.node("Softmax", [graph.node("MatMul", [g, graph.constant(normal(5, 7))])])


class Reader(quantization.CalibrationDataReader):
    def __init__(self, name, values):
        self.rest = [{name: value} for value in values]

    def get_next(self):
        return self.rest.pop() if self.rest else None


def net_cases(folder):
    types = quantization.QuantType
    modes = [(activations, weights, per_channel) for activations in (types.QUInt8, types.QInt8)
             for weights in (types.QInt8, types.QUInt8) for per_channel in (False, True)
             if (activations, weights) != (types.QInt8, types.QUInt8)]
    failed = 0
    for number, (activations, weights, per_channel) in enumerate(modes):
        graph, y = net()
        name, x = graph.feeds[0]
        source, target = f"{folder}_float.onnx", f"{folder}_qdq.onnx"
        onnx.save(graph.model(y, "f4"), source)
        with contextlib.redirect_stdout(None):
            quantization.quantize_static(
                source, target, Reader(name, [x] + [normal(*x.shape) for _ in range(3)]),
                quant_format=quantization.QuantFormat.QDQ, activation_type=activations,
                weight_type=weights, per_channel=per_channel)
        path = f"{folder}/net_{number}"
        # Probabilities: a step of 1/256, and of what comes before.
        write(path, onnx.load(target), [(name, x)], "0 0.02")
        count, text = passes(f"{path}/model.onnx")
        if "QLinearConv" not in text or " Conv-" in text or "QLinearMatMul" not in text:
            print(f"mode {number} stays in floats:\n{text}")
            failed += 1
        for path in (source, target):
            os.remove(path)
    return failed


print("seed", SEED)
with tempfile.TemporaryDirectory() as top:
    cases = f"{top}/cases"
    os.mkdir(cases)
    if single_cases(cases) + apart_cases(cases, apart_graphs) + net_cases(cases) + \
            apart_cases(cases, negative_graphs) + apart_cases(cases, wide_graphs):
        sys.exit(1)
    division_cases(cases)
    check(ATTNRUN, cases)
