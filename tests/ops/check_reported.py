"""Models like those for which users of other runtimes reported wrong results: positions of Resize
that are ties or whole, by exact fractions; and others, each with a line that says what went wrong,
against ONNX Runtime 1.32.0 without its optimizations or a formula.
Usage: check_reported.py ATTNRUN"""
import os
import sys
import tempfile
from fractions import Fraction

import numpy as np
import onnxruntime
from onnx import ValueInfoProto, helper, numpy_helper

import cases

random = np.random.default_rng(29)
HALF = Fraction(1, 2)
# Output i of b in an input of length a, before it is rounded and clamped.
PLACES = {
    "half_pixel": lambda i, a, b, scale: (i + HALF) / scale - HALF,
    "pytorch_half_pixel": lambda i, a, b, scale: (i + HALF) / scale - HALF if b > 1 else 0,
    "asymmetric": lambda i, a, b, scale: i / scale,
    "align_corners": lambda i, a, b, scale: Fraction(i * (a - 1), b - 1) if b > 1 else 0,
}
ROUNDED = {
    "round_prefer_floor": lambda x: -((HALF - x) // 1),
    "round_prefer_ceil": lambda x: (x + HALF) // 1,
    "floor": lambda x: x // 1,
    "ceil": lambda x: -(-x // 1),
}
LENGTHS = [(a, b) for a in (1, 3, 5, 6, 7, 10, 12, 20, 26)
           for b in (1, 2, 3, 4, 5, 6, 8, 9, 10, 15, 18, 30)]


def f32(*shape):
    return random.standard_normal(shape).astype("f4")


def whole(*values):
    return np.array(values, "i8")


def graph(nodes, inputs, constants, outputs, opset):
    made = helper.make_graph(
        nodes, "case",
        [helper.make_tensor_value_info(name, numpy_helper.from_array(x).data_type, x.shape)
         for name, x in inputs.items()], [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def nearest(place, rounded, by):
    """Resize of many lengths in one model; `by`: sizes, or scales in f32 as exporters write."""
    nodes, constants, outputs = [], {}, {}
    inputs = {f"x{a}": np.arange(a, dtype="f4") for a, _ in LENGTHS}
    for a, b in LENGTHS:
        scale = np.float32(b) / np.float32(a)
        if by == "scales" and int(np.float32(a) * scale) != b:
            continue
        name = f"{a}_{b}"
        constants[f"to{name}"] = whole(b) if by == "sizes" else scale.reshape(1)
        nodes.append(helper.make_node(
            "Resize", [f"x{a}", "", *([""] if by == "sizes" else []), f"to{name}"], [f"y{name}"],
            mode="nearest", coordinate_transformation_mode=place, nearest_mode=rounded))
        y = [ROUNDED[rounded](PLACES[place](i, a, b, Fraction(b, a))) for i in range(b)]
        outputs[f"y{name}"] = np.clip(np.array(y, "f4"), 0, a - 1)
    return graph(nodes, inputs, constants, outputs, 19), inputs, outputs


def aspect(policy, shape, sizes):
    """Both axes by one scale, the other size rounded half up."""
    choose = min if policy == "not_larger" else max
    scale = choose(Fraction(b, a) for a, b in zip(shape, sizes, strict=True))
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    index = []
    for a in shape:
        n = int((a * scale + HALF) // 1)
        index.append([min(max(int(ROUNDED["round_prefer_floor"](
            PLACES["half_pixel"](i, a, n, scale))), 0), a - 1) for i in range(n)])
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest",
                            keep_aspect_ratio_policy=policy, axes=[0, 1])
    outputs = {"y": x[np.ix_(*index)]}
    return graph([node], {"x": x}, {"sizes": whole(*sizes)}, outputs, 19), {"x": x}, outputs


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def mean_square(axes, scale):
    """x / sqrt(mean(x * x) + e), times a scale."""
    return [node("Mul", "x x", "q"), node("ReduceMean", "q", "v", axes=axes),
            node("Add", "v e", "w"), node("Sqrt", "w", "s"), node("Div", "x s", "n"),
            node("Mul", scale, "y")]


def quantized(inner, *tail):
    """Nodes between DequantizeLinear and QuantizeLinear of the same scale and zero."""
    return [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"), *inner,
            node("QuantizeLinear", "m s z", "r"), node("DequantizeLinear", "r s z", "y"), *tail]


def reported():
    """(what went wrong, nodes, inputs, constants, outputs: their names or their values)"""
    x, image = f32(2, 3, 8), f32(2, 4, 7, 6)
    e = np.array(1e-5, "f4")
    scales = {"s": np.array(0.05, "f4"), "z": np.array(3, "i1")}
    negative = {"s": np.array(-0.05, "f4"), "z": np.array(3, "i1")}
    two = {"two": np.array(2, "f4")}
    return [
        ("a scale that makes the normalized value larger became that of the norm",
         mean_square([-1], "g n"), {"x": f32(1, 1)}, {"e": e, "g": f32(2)}, "y"),
        ("the same with more rows", mean_square([-1], "n g"), {"x": f32(3, 1)},
         {"e": e, "g": f32(2, 1, 8)}, "y"),
        ("a scale for the axis before the last became one for the last",
         mean_square([-1], "n g"), {"x": x}, {"e": e, "g": f32(3, 1)}, "y"),
        ("a norm over two axes with a scale of one", mean_square([-2, -1], "g n"), {"x": x},
         {"e": e, "g": f32(8)}, "y"),
        ("a sum as large as the output of a grouped convolution became its bias",
         [node("Conv", "x w", "c", group=2), node("Add", "c b", "y")], {"x": image},
         {"w": f32(6, 2, 1, 1), "b": f32(1, 6, 7, 6)}, "y"),
        ("padding went into an average that does not count padding",
         [node("Pad", "x p", "a"), node("AveragePool", "a", "y", kernel_shape=[3, 3])],
         {"x": image}, {"p": whole(0, 0, 1, 1, 0, 0, 1, 1)}, "y"),
        ("the same with padding of its own",
         [node("Pad", "x p", "a"), node("AveragePool", "a", "y", kernel_shape=[3, 3],
                                        pads=[1, 0, 1, 1], strides=[2, 2], ceil_mode=1)],
         {"x": image}, {"p": whole(0, 0, 0, 2, 0, 0, 1, 0)}, "y"),
        ("padding with zeros went into a maximum", [node("Pad", "x p", "a"),
                                                    node("MaxPool", "a", "y", kernel_shape=[2, 2])],
         {"x": image - 5}, {"p": whole(0, 0, 1, 1, 0, 0, 1, 1)}, "y"),
        ("a crop went into the padding of a convolution",
         [node("Pad", "x p", "a"), node("Conv", "a w", "y", pads=[1, 1, 1, 1])], {"x": image},
         {"p": whole(0, 0, -1, 1, 0, 0, 1, -1), "w": f32(3, 4, 3, 3)}, "y"),
        ("windows of ceil_mode that begin behind the input gave NaN",
         [node("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1),
          node("MaxPool", "x", "z", kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1],
               ceil_mode=1)], {"x": image}, {}, "y z"),
        ("padding at the end was not counted",
         [node("AveragePool", "x", "y", kernel_shape=[5, 1], auto_pad="SAME_LOWER",
               count_include_pad=1)], {"x": image}, {}, "y"),
        ("the size of a dilated transposed convolution was that without dilation",
         [node("ConvTranspose", "x w", "y", strides=[2, 1], dilations=[3, 1], pads=[4, 2, 4, 2])],
         {"x": image}, {"w": f32(4, 2, 3, 5)}, "y"),
        ("the maximum of bytes of a negative scale is the minimum of what they mean",
         quantized([node("MaxPool", "d", "m", kernel_shape=[2, 2])]), {"x": image}, negative, "y"),
        ("bytes were clipped as if their scale were positive",
         quantized([node("Relu", "d", "m")]), {"x": image}, negative, "y"),
        ("0 as padding of bytes is their zero point",
         quantized([node("Pad", "d p", "m")]), {"x": image},
         {**scales, "p": whole(0, 0, 1, 0, 0, 0, 0, 2)}, "y"),
        ("a value that is also read as floats went through bytes",
         quantized([node("Abs", "d", "m")], node("Neg", "m", "w")), {"x": image}, scales, "y w"),
        ("signed bytes became unsigned behind a Reshape",
         [node("DequantizeLinear", "b s z", "d"), node("Reshape", "d h", "t"),
          node("Mul", "x t", "y")], {"x": f32(4, 2)},
         {**scales, "b": np.array([12, -45, 7, -3], "i1"), "h": whole(4, 1)}, "y"),
        ("the memory of a concatenation was reused while its parts were read",
         [node("Abs", "x", "a"), node("Expand", "k h", "b"), node("Concat", "a b", "c", axis=2),
          node("MatMul", "c w", "m"), node("Tanh", "m", "t"), node("Concat", "c m t", "y", axis=2)],
         {"x": x}, {"k": f32(1, 1, 4), "h": whole(2, 3, 1), "w": f32(12, 5)}, "y"),
        ("an output in the middle of a fused chain was overwritten",
         [node("Add", "x x", "a"), node("Reshape", "a h", "b"), node("Exp", "a", "c"),
          node("Mul", "b b", "y")], {"x": x}, {"h": whole(-1)}, "b c y"),
        ("sums over axes that no other operand has", [node("Einsum", "x", "y", equation="ijk->ki"),
                                                      node("Einsum", "x w v", "z",
                                                           equation="abc,cd,def->abd")],
         {"x": x}, {"w": f32(8, 4), "v": f32(4, 2, 3)}, "y z"),
        ("tuples of indices of another length than their rank",
         [node("ScatterND", "x i u", "y")], {"x": x},
         {"i": whole(0, 2, 1, -1).reshape(1, 2, 2), "u": f32(1, 2, 8)}, "y"),
        ("integers above 2^53 went through doubles",
         [node("Div", "x b", "d"), node("Mod", "x b", "m"), node("Pow", "b t", "p")],
         {"x": whole(2**62 + 1, -2**62 - 1, 2**31 - 1, 2**40 + 7)},
         {"b": whole(11, 13, -11, 3), "t": whole(17, 15, 3, 39)},
         {"d": whole(2**62 // 11, -(2**62 // 13), -(2**31 // 11), (2**40 + 7) // 3),
          "m": whole((2**62 + 1) % 11, (-2**62 - 1) % 13, (2**31 - 1) % -11, (2**40 + 7) % 3),
          "p": whole(11**17, 13**15, -11**3, 3**39)}),
        ("NaN in some lanes of a maximum was lost",
         [node("ReduceMax", "x", "y", axes=[1], keepdims=0),
          node("ReduceMin", "x", "z", axes=[1], keepdims=0)],
         {"x": np.where(np.eye(20, 37, 3), np.nan, f32(20, 37)).astype("f4")}, {},
         {"y": np.full(20, np.nan, "f4"), "z": np.full(20, np.nan, "f4")}),
        ("boxes of the second image were compared with those of the first",
         [node("NonMaxSuppression", "x b m", "y")],
         {"x": (np.arange(48).reshape(2, 6, 4) * 7 % 5).astype("f4"), "b": f32(2, 2, 6)},
         {"m": whole(4)}, "y"),
        ("parts of a Split that have no name at its end were not counted",
         [helper.make_node("Split", ["x"], ["a", "b", ""], axis=1),
          helper.make_node("Split", ["x", "k"], ["c", "", ""], axis=1)],
         {"x": (cut := f32(2, 12))}, {"k": whole(5, 4, 3)},
         {"a": cut[:, :4], "b": cut[:, 4:8], "c": cut[:, :5]}),
        ("two constants of one shape were taken for one", [node("Div", "x two", "a"),
                                                               node("Mul", "x four", "b"),
                                                               node("Add", "a b", "y")],
         {"x": x}, {**two, "four": np.array(4, "f4")}, "y"),
    ]


def expected(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def main():
    with tempfile.TemporaryDirectory() as folder:
        def write(name, model, inputs, outputs, tolerance):
            cases.write_case(os.path.join(folder, name), model, list(inputs.items()),
                             list(outputs.items()), tolerance)
        for by in ("sizes", "scales"):
            for place in PLACES:
                for rounded in ROUNDED:
                    write(f"nearest_{by}_{place}_{rounded}", *nearest(place, rounded, by), "0 0")
        for k, sizes in enumerate(([13, 1000], [13, 20], [19, 11])):
            for policy in ("not_larger", "not_smaller"):
                write(f"{policy}_{k}", *aspect(policy, (6, 27), sizes), "0 0")
        for k, (_, nodes, inputs, constants, outputs) in enumerate(reported()):
            given = isinstance(outputs, dict)
            model = graph(nodes, inputs, constants, list(outputs if given else outputs.split()), 13)
            write(f"reported_{k}", model, inputs, outputs if given else expected(model, inputs),
                  "1e-5 1e-5")
        cases.check(sys.argv[1], folder)


main()
