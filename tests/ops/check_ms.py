"""com.microsoft operators that move, cut and measure, against ONNX Runtime 1.32.0, which
defines them: random shapes, attributes and element types, and what must be refused.
Usage: check_ms.py ATTNRUN [SEED]"""
import itertools

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from ms import between, compare, normal, pick, random

NUMBERS = ("f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")


def array_of(kind, *shape):
    if kind == "O":
        return np.array([pick("", "a", "bc", "é", "word " * 9) for _ in
                         range(int(np.prod(shape)))], object).reshape(shape)
    return np.asarray(random.integers(0, 2 if kind == "?" else 100, shape), kind)


def words(*shape):
    letters = "ab cX,;.19éß€𝄞\n_-"
    return np.array(["".join(random.choice(list(letters), between(0, 20)))
                     for _ in range(int(np.prod(shape)))], object).reshape(shape)


def tokenizer_cases():
    fixed = {"pad_value": "#", "mark": 0, "mincharnum": 1}
    text = np.array(["ab1cc22ddd", "é4b", "", "  x  y"], object)
    for separators in ([""], [" "], ["[0-9]*"], ["c", "[0-9]+", "d$"], ["1", "", "b"], ["^"],
                       ["cc", "1c"], ["a|ab|ab1", "dd?"], [r"\d", "."]):
        yield "Tokenizer", [("x", text)], ["y"], {**fixed, "separators": separators}
    for tokenexp in ("a|ab|[0-9]*", r"\b\w\w+\b", "^.", ".+", "(?:c|d).", "[^a-z]+", "x?"):
        yield "Tokenizer", [("x", text)], ["y"], {**fixed, "tokenexp": tokenexp}
    yield ("Tokenizer", [("x", text)], ["y"],
           {**fixed, "separators": [" "], "tokenexp": "[a-z]"})
    for shape in ((0,), (3, 0), (0, 2)):
        yield ("Tokenizer", [("x", np.zeros(shape, object))], ["y"],
               {**fixed, "mark": 1, "separators": [" "]})
    for i in range(60):
        attributes = {"pad_value": pick("", "#", "pad"), "mark": i % 2,
                      "mincharnum": between(1, 3)}
        if i % 3 == 0:
            attributes["separators"] = [""]
            attributes["mincharnum"] = 1
        elif i % 3 == 1:
            attributes["separators"] = [
                pick(" ", ",", ";", "[0-9]", "[^a-z ]+", "a+", r"\s", "b|bé", "é€?", "X*", r"\.")
                for _ in range(between(1, 4))]
        else:
            attributes["tokenexp"] = pick(
                "[a-zA-Z0-9_]+", r"\w+", r"\b\w", ".", "[^ ]+", "a|ab| ab", "é.", r"[a-z]+|\d+",
                r"(a|b)*c?", ".{2,3}", r"\W+$", "^[^,]*")
            if attributes["tokenexp"] == ".":
                attributes["mincharnum"] = 1
        shape = (between(0, 5),) if i % 2 else (between(1, 3), between(1, 3))
        yield "Tokenizer", [("x", words(*shape))], ["y"], attributes


def hash_cases():
    for i, kind in enumerate(("i4", "u4", "i8", "u8", "f4", "f8", "O") * 4):
        shape = [between(0, 5) for _ in range(i % 4)]
        x = words(*shape) if kind == "O" else normal(*shape).astype("f8") * 1e6
        x = np.abs(x) if kind[0] == "u" else x
        yield ("MurmurHash3", [("x", x if kind == "O" else x.astype(kind))], ["y"],
               {"positive": i % 2, "seed": pick(0, 1, 2**31 + 7, 2**32 - 1)}, (), None,
               {"y": 12 if i % 2 else 6})


def number_cases():
    for i in range(40):
        kind = pick("f4", "f8")
        m, n, k = between(0, 150), between(0, 150), between(1, 600)
        yield ("CDist", [("a", normal(m, k, kind=kind)), ("b", normal(n, k, kind=kind))], ["y"],
               {"metric": pick("euclidean", "sqeuclidean")})
    for i in range(20):
        kind, size = ("f4", "f8", "f2")[i % 3], between(0, 12)
        x = normal(*[between(1, 3) for _ in range(i % 3)], size, size, kind="f8")
        x = x + 3 * np.eye(size)
        yield "Inverse", [("x", x.astype(kind))], ["y"], {}
    for i in range(12):
        x = random.choice(np.array([0.0, -0.0, 1.5, 2.5, np.nan, np.inf, -3], "f4"), between(0, 30))
        yield "Unique", [("x", x)], ["y", "i", "c"], {}
    for i in range(20):
        batch, length, vocabulary = between(1, 4), between(0, 40), between(1, 6)
        yield ("NGramRepeatBlock", [
            ("x", random.integers(0, vocabulary, (batch, length))),
            ("s", normal(batch, vocabulary))], ["y"], {"ngram_size": between(1, 5)})
    for i in range(24):
        kind = ("f4", "f8", "i2", "i4", "i8")[i % 5]
        start, delta = between(-20, 20), pick(-3, -1, 1, 2, 7)
        limit = start + delta * between(-2, 20)
        inputs = [("s", start), ("l", limit), ("d", delta)]
        inputs = [(name, np.array(value, kind)) for name, value in inputs]
        if i % 3 == 0:
            inputs = [inputs[0], ("l", np.array(start + between(0, 9), kind))]
        yield "Range", inputs, ["y"], {}


def move_cases():
    for i, kind in enumerate(NUMBERS + ("O",)):
        shape = [between(1, 4) for _ in range(between(1, 4))]
        x = array_of(kind, *shape)
        axis = np.array(between(-len(shape) - 1, len(shape)), "i4")
        yield "ExpandDims", [("x", x), ("a", axis.reshape((1,) * (i % 2)))], ["y"], {}, ("a",)
        yield "ExpandDims", [("x", x), ("a", axis)], ["y"], {}
        dim = between(-len(shape), len(shape) - 1)
        # ONNX Runtime names all types but moves numbers of 4 and 8 bytes only.
        yield ("UnfoldTensor", [("x", array_of(pick("f4", "f8", "i4", "i8"), *shape))], ["y"],
               {"dim": dim, "size": between(1, shape[dim]), "step": between(1, 3)})
        length = between(1, len(shape))
        at = np.stack([random.integers(0, n, (2, 3)) for n in shape[:length]], -1)
        yield "GatherND", [("x", x), ("i", at.astype(pick("i4", "i8")))], ["y"], {}
    for i in range(20):
        shape = [between(2, 5) for _ in range(between(1, 4))]
        mode = ("constant", "reflect", "edge")[i % 3]
        pads = random.integers(0, 2, 2 * len(shape))
        pads = pads.reshape(1, -1) if i % 2 else pads
        inputs = [("x", normal(*shape)), ("p", pads)]
        if mode == "constant" and i % 2:
            inputs.append(("v", normal()))
        yield "Pad", inputs, ["y"], {"mode": mode}, pick(("p",), ())
        kind = pick("f4", "f8", "i8")
        shape = [between(0, 5) for _ in range(between(2, 4))]
        diagonal = np.array(between(-6, 6), "i8")
        yield ("Trilu", [("x", array_of(kind, *shape)), ("k", diagonal if i % 4 else None)], ["y"],
               {"upper": i % 2})
        m, n, k = between(1, 20), between(1, 20), between(1, 20)
        turned = between(0, 1), between(0, 1)
        yield ("TransposeMatMul", [
            ("a", normal(2, *((k, m) if turned[0] else (m, k)))),
            ("b", normal(2, *((n, k) if turned[1] else (k, n))))], ["y"],
            {"transA": turned[0], "transB": turned[1], "alpha": 0.5})


def image_cases():
    for i in range(30):
        channels, h, w, boxes = between(1, 3), between(1, 9), between(1, 9), between(0, 4)
        yield ("CropAndResize", [
            ("x", normal(2, channels, h, w)),
            ("r", random.uniform(-0.2, 1.2, (boxes, 4)).astype("f4")),
            ("b", random.integers(0, 2, boxes).astype("i4")),
            ("s", np.array([between(1, 6), between(1, 6)], "i4"))], ["y"],
            {"mode": pick("bilinear", "nearest"), "extrapolation_value": 0.7},
            ("s",) * (i % 2))
        yield ("GridSample", [
            ("x", normal(2, channels, h, w)),
            ("g", random.uniform(-1.3, 1.3, (2, 3, 4, 2)).astype("f4"))], ["y"],
            {"mode": pick("bilinear", "nearest", "bicubic"), "align_corners": i % 2,
             "padding_mode": pick("zeros", "border", "reflection")})
        group, inner, outer, n = between(1, 2), between(1, 3), between(1, 3), 2
        kernel = [between(1, 4) for _ in range(n)]
        stride = [between(1, 3) for _ in range(n)]
        dilation = [between(1, 2) for _ in range(n)]
        size = [between(3, 7) for _ in range(n)]
        pads = [between(0, 1) for _ in range(2 * n)]
        bias = ("b", normal(group * outer)) if i % 3 else ("b", None)
        yield ("ConvTransposeWithDynamicPads", [
            ("x", normal(2, group * inner, *size)), ("w", normal(group * inner, outer, *kernel)),
            ("p", np.array(pads, "i8")), bias], ["y"],
            {"group": group, "strides": stride, "dilations": dilation, "kernel_shape": kernel,
             "output_padding": [between(0, s - 1) for s in stride]},
            ("w",) * (i % 2) + ("p",) * (i % 3 == 0))


def linear_cases():
    for i, kind in enumerate(("i1", "u1", "i2", "u2", "i4") * 6):
        shape = [between(1, 6) for _ in range(between(1, 4))]
        axis = between(0, len(shape) - 1)
        some = () if i % 3 == 0 else (shape[axis],)
        attributes = {} if i % 3 == 0 else {"axis": axis - (i % 2) * len(shape)}
        scale = np.asarray(random.uniform(0.01, 0.2, some), "f4")
        info = np.iinfo(kind)
        low, high = max(info.min, -2**16), min(info.max, 2**16)
        zero = np.asarray(random.integers(low, high, some), kind)
        zero = np.asarray(zero * (kind != "i4"), kind)
        x = random.integers(low, high, shape, endpoint=True).astype(kind)
        yield ("DequantizeLinear", [("x", x), ("s", scale), ("z", zero if i % 4 else None)], ["y"],
               attributes)
        if kind == "i4":
            continue
        x = normal(*shape) * pick(1, 20, 500)
        yield ("QuantizeLinear", [("x", x), ("s", scale),
                                  ("z", zero if i % 4 or kind != "u1" else None)], ["y"],
               attributes)


def four_bit_models():
    """Of four bits, whose values ONNX Runtime's Python cannot take in: there and back."""
    for i in range(12):
        kind, number = ((ml_dtypes.int4, 22), (ml_dtypes.uint4, 21))[i % 2]
        shape = [between(1, 6) for _ in range(between(1, 4))]
        axis = between(0, len(shape) - 1)
        some = () if i % 3 == 0 else (shape[axis],)
        at = {} if i % 3 == 0 else {"axis": axis}
        scale = np.asarray(random.uniform(0.1, 0.4, some), "f4")
        zero = np.asarray(random.integers(-4 if number == 22 else 0, 7, some), "i4").astype(kind)
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"],
                                  domain="com.microsoft", **at),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"],
                                  domain="com.microsoft", **at)]
        x = normal(*shape)
        graph = helper.make_graph(
            nodes, "bits", [helper.make_tensor_value_info("x", 1, x.shape)],
            [helper.make_tensor_value_info("y", 1, None)],
            [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")])
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        y = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
        yield "bits", model, [("x", x)], [("y", y)], "1e-5 1e-6"


def rank_models():
    """The rank of what Tokenizer makes, where the number of strings is a symbol."""
    for texts, rank in ((["a b", "c"], 2), ([], 1)):
        graph = helper.make_graph(
            [helper.make_node("Tokenizer", ["x"], ["t"], domain="com.microsoft", mark=0,
                              mincharnum=1, pad_value="", separators=[" "]),
             helper.make_node("Shape", ["t"], ["s"]), helper.make_node("Shape", ["s"], ["y"])],
            "rank", [helper.make_tensor_value_info("x", 8, ["N"])],
            [helper.make_tensor_value_info("y", 7, None)])
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        yield "rank", model, [("x", np.array(texts, object))], [("y", np.array([rank]))], "0 0"


HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 0, "separators": [" "]}, (), 5, "mincharnum"),
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1}, (), 5, "separators"),
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "tokenexp": "(a"}, (), 4, "tokenexp"),
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "tokenexp": "a{10010}"}, (), 4, "0 to 1000"),
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "separators": ["."] * 33}, (), 4, "32"),
    ("Tokenizer", [("x", np.array([b"a\xe2\x82"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "separators": [""]}, (), 7, "UTF-8"),
    ("Tokenizer", [("x", np.array([b"\xe0\x81\xa1"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "tokenexp": "a"}, (), 7, "UTF-8"),
    ("Tokenizer", [("x", np.array(["a"], object))],
     {"pad_value": "", "mark": 0, "mincharnum": 1, "tokenexp": b"[a-\xff]"}, (), 4, "UTF-8"),
    ("CropAndResize", [("x", normal(1, 1, 2, 2)), ("r", normal(1, 4)),
                       ("b", np.array([1], "i4")), ("s", np.array([2, 2], "i4"))], {}, (), 7,
     "image"),
    ("CropAndResize", [("x", normal(1, 1, 2, 2)), ("r", normal(1, 4)), ("b", np.array([0], "i4")),
                       ("s", np.array([2, -2], "i4"))], {}, (), 5, "sizes"),
    ("NGramRepeatBlock", [("x", np.array([[1, 9, 1]])), ("s", normal(1, 3))], {"ngram_size": 2},
     (), 7, "id"),
    ("NGramRepeatBlock", [("x", np.array([[1, 9, 1]])), ("s", normal(1, 3))], {"ngram_size": 0},
     (), 5, "ngram_size"),
    ("UnfoldTensor", [("x", normal(3))], {"size": 4}, (), 5, "elements"),
    ("UnfoldTensor", [("x", normal(3))], {"size": 1, "step": 0}, (), 5, "step"),
    ("ExpandDims", [("x", normal(3)), ("a", np.array(3, "i4"))], {}, (), 5, "axis"),
    ("Inverse", [("x", normal(3, 2))], {}, (), 5, "square"),
    ("CDist", [("a", normal(3, 2)), ("b", normal(3, 4))], {}, (), 5, "columns"),
    ("CDist", [("a", normal(3, 2)), ("b", normal(3, 2))], {"metric": "cosine"}, (), 5, "metric"),
    ("Unique", [("x", normal(3, 2))], {}, (), 5, "rank"),
    ("ConvTransposeWithDynamicPads", [("x", normal(1, 1, 3)), ("w", normal(1, 1, 2)),
                                      ("p", np.array([1], "i8"))], {}, (), 5, "pads"),
    ("ConvTransposeWithDynamicPads", [("x", normal(1, 1, 3)), ("w", normal(1, 1, 2)),
                                      ("p", np.array([-1, 2**62], "i8"))], {}, (), 5, "pads"),
    ("Range", [("s", np.array(0, "i4")), ("l", np.array(3, "i4")), ("d", np.array(0, "i4"))], {},
     (), 7, "delta"),
]


compare(itertools.chain(tokenizer_cases(), hash_cases(), number_cases(), move_cases(),
                        image_cases(), linear_cases()),
        HOSTILE, itertools.chain(four_bit_models(), rank_models()))
