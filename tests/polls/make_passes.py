"""Models that rewrite passes change: write(folder, models(n)), whose constants a pass reads or
writes while a model is opened; write(folder, lines(n)), whose maps in blocks have long lines."""
import tempfile
from pathlib import Path

import numpy
from onnx import numpy_helper, parser

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\ng '


def models(n):
    """By the name of the pass: text and constants, of n * n numbers the largest."""
    maps = f"(float[1, {n}, 1, 1] x) => (float[1, {n}, 1, 1] y) "
    channels = {"w": numpy.zeros((n, n, 1, 1), "f4"), "b": numpy.zeros(n, "f4")}
    rows = f"(float[1, {n * n}] x) => (float[1, {n * n}] y) "
    return {
        "conv_batch_norm": (maps + "{ c = Conv (x, w) m = Mul (c, two) y = Neg (m) }",
                            channels | {"two": numpy.float32(2)}),
        "merge_convs": (maps + "{ c = Conv (x, w) d = Conv (x, w, b) y = Add (c, d) }", channels),
        "quantized": ("(uint8[1, 1] x) => (uint8[1, n] y) { a = DequantizeLinear (x, s) "
                      "b = DequantizeLinear (w, s) m = MatMul (a, b) y = QuantizeLinear (m, s) }",
                      {"s": numpy.float32(0.1), "w": numpy.zeros((1, 4 * n * n), "i1")}),
        "layer_norm": (rows + "{ s = Mul (x, x) m = ReduceMean <axes = [-1]> (s) "
                       "e = Add (m, one) r = Sqrt (e) i = Reciprocal (r) y = Mul (x, i) }",
                       {"one": numpy.float32(1)}),
    }


def lines(n):
    """By the name of an operator: text and constants. It reads n columns for each of a line."""
    size = 1 << 17
    text = (f"(float[1, 16, 2, {size}] x) => (float[1, 16, 2, {size}] y) "
            "{ a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Conv <pads = [1, 1, 1, 1]> (a, w) y = ")
    pads = f"pads = [0, {n // 2}, 0, {n // 2}]"
    weights = {"w": numpy.zeros((16, 16, 3, 3), "f4"), "d": numpy.zeros((16, 1, 1, n), "f4")}
    return {"depthwise": (text + f"Conv <group = 16, {pads}> (b, d) }}", weights),
            "pool": (text + f"MaxPool <kernel_shape = [1, {n}], {pads}> (b) }}", weights)}


def write(folder, cases):
    """Writes all models; returns their paths by their names."""
    made = {}
    for name, (text, constants) in cases.items():
        model = parser.parse_model(HEAD + text)
        for key, value in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(numpy.asarray(value), key))
        made[name] = Path(tempfile.mkdtemp(dir=folder)) / f"{name}.onnx"
        made[name].write_bytes(model.SerializeToString())
    return made
