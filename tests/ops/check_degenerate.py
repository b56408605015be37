#!/usr/bin/env python3
"""What fuzzing found in models that nobody would write: the results are those of NumPy.

usage: check_degenerate.py ATTNRUN [SEED]

Scores of attention whose values have no columns, masks of one key, which Attention-23 broadcasts,
rows that see no key, products with a constant NaN, factors of one, nodes that read a value twice,
sums of old opsets, one node of two opsets, batches of nothing, numbers at the ends of a type, and
places at the ends of an image. Memory holds other bytes than zeros at first.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper, numpy_helper

import degenerate_attention

DEADLINE_S = 60
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
random = np.random.default_rng(SEED)


def run(attnrun, folder, nodes, inputs, constants, output, options, opset=23, functions=()):
    def info(name, array, shape):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                             shape)
    graph = helper.make_graph(
        nodes, "g", [info(*item, item[1].shape) for item in inputs.items()],
        [info(output, next(iter(inputs.values())), None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("attnrun", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    if functions:
        made.opset_import.append(helper.make_opsetid("f", 1))
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(made.SerializeToString())
    given = []
    for name, array in inputs.items():
        np.save(os.path.join(folder, f"{name}.npy"), array)
        given += ["-i", f"{name}={name}.npy"]
    subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-o", "out.npz", *given,
                    *options], cwd=folder, check=True, timeout=DEADLINE_S,
                   env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=77"})
    with np.load(os.path.join(folder, "out.npz")) as found:
        return found[output]


def scores_case(dtype, queries, keys, heads, mode):
    """Raw scores, or their softmax, beside an output without elements."""
    q = random.standard_normal((2, heads, queries, 8)).astype(dtype)
    k = random.standard_normal((2, 2, keys, 8)).astype(dtype)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "s"],
                            qk_matmul_output_mode=mode)
    want = q @ np.repeat(k, heads // 2, 1).swapaxes(2, 3) / np.sqrt(8)
    if mode == 3:
        want = np.exp(want - want.max(-1, keepdims=True))
        want /= want.sum(-1, keepdims=True)
    inputs = {"q": q, "k": k, "v": np.zeros((2, 2, keys, 0), dtype)}
    return f"scores {dtype} {q.shape} {keys} mode {mode}", [node], inputs, {}, "s", want


def one_key_case(dtype, kind, queries, keys, shape):
    """A mask with one number for all keys of a query, and the scores with it."""
    q, k, v = (random.standard_normal((2, 4, n, 8)).astype(dtype) for n in (queries, keys, keys))
    mask = random.integers(-2, 3, (*shape, 1)).astype(kind if kind != "f" else dtype)
    if kind == "f":
        mask[random.integers(0, 3, mask.shape) == 0] = -np.inf
    node = helper.make_node("Attention", ["q", "k", "v", "m"], ["y", "", "", "s"],
                            qk_matmul_output_mode=2)
    added = np.where(mask, 0, -np.inf) if kind == "?" else mask
    scores = q @ k.swapaxes(2, 3) / np.sqrt(8) + added
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30))
    y = weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    inputs = {"q": q, "k": k, "v": v, "m": mask}
    name = f"mask {dtype} {kind} {mask.shape} of {keys} keys"
    return [(f"{name} {output}", [node], inputs, {}, output, want)
            for output, want in (("y", y), ("s", scores))]


def hidden_case(dtype, what):
    """A query that sees no key gives zeros, whatever its scores are."""
    q, k, v = (random.standard_normal((1, 1, 4, 8)).astype(dtype) for _ in range(3))
    mask = np.zeros((4, 4), dtype)
    mask[1] = -np.inf
    scores = (q @ k.swapaxes(2, 3) / np.sqrt(8) + mask)[0, 0, [0, 2, 3]]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.zeros((1, 1, 4, 8), dtype)
    want[0, 0, [0, 2, 3]] = weights / weights.sum(-1, keepdims=True) @ v[0, 0]
    q[0, 0, 1, 3] = what
    node = helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])
    return f"hidden {dtype} {what}", [node], {"q": q, "k": k, "v": v, "m": mask}, {}, "y", want


def factor_case(op, x):
    given = random.standard_normal((3, 5)).astype("f4")
    want = given * np.float32(x) if op == "Mul" else given / np.float32(x)
    nodes = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node(op, ["b", "c"], ["d"]),
             helper.make_node("Neg", ["d"], ["y"])]
    return f"{op} {x}", nodes, {"a": given}, {"c": np.array(x, "f4")}, "y", want


def twice_case(op, want, **more):
    """x, which nothing reads later, is two operands of the node(s) that make y."""
    nodes = [helper.make_node("Neg", ["a"], ["x"]), *op, helper.make_node("Neg", ["y"], ["z"])]
    x = random.standard_normal((5, 64)).astype("f4")
    inputs = {"a": -x, **{name: value for name, value in more.items() if name != "w"}}
    constants = {"w": more["w"]} if "w" in more else {}
    return f"{op[0].op_type} of a value twice", nodes, inputs, constants, "z", -want(x)


def twice_cases():
    w = random.standard_normal((64, 64)).astype("f4") / 8
    order = np.array([[4], [0], [1], [2], [3]])
    elements = (np.arange(5)[:, None] + np.arange(64) + 1) % 5
    node = helper.make_node

    def scattered(x):
        found = np.empty_like(x)
        np.put_along_axis(found, elements, x, 0)
        return found
    return [
        twice_case([node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "x"], ["y"])],
                   lambda x: x @ w + x, w=w),
        twice_case([node("ScatterND", ["x", "i", "x"], ["y"])],
                   lambda x: x[np.argsort(order[:, 0])], i=order),
        twice_case([node("ScatterElements", ["x", "i", "x"], ["y"])], scattered, i=elements)]


def mean_cases():
    """Batches of nothing, of floats and of bytes."""
    mean = helper.make_node("ReduceMean", ["a", "axes"], ["m"], keepdims=0)
    ends = [helper.make_node("DequantizeLinear", ["x", "s"], ["a"]), mean,
            helper.make_node("QuantizeLinear", ["m", "s", "zero"], ["y"])]
    axes = {"axes": np.array([2, 3])}
    bytes_too = {"s": np.float32(0.5), "zero": np.int8(0), **axes}
    return [("mean of no maps", [mean], {"a": np.zeros((0, 4, 5, 5), "f4")}, axes, "m",
             np.zeros((0, 4), "f4")),
            ("mean of no maps of bytes", ends, {"x": np.zeros((0, 4, 5, 5), "i1")}, bytes_too, "y",
             np.zeros((0, 4), "i1"))]


def old_cases():
    """Square matrices, so that a vector fits along each axis."""
    x, w = (random.standard_normal((4, 4)).astype("f4") for _ in range(2))
    vectors = {name: random.uniform(0.5, 2, 4).astype("f4") for name in "bsmv"}
    b, s, m, v = vectors.values()
    want = x @ w + b[:, None]
    product = helper.make_node("MatMul", ["x", "w"], ["p"])
    total, last = (helper.make_node("Add", ["p", "b"], ["t"], broadcast=1, axis=axis)
                   for axis in (0, -2))
    norm = helper.make_node("BatchNormalization", ["t", "s", "b", "m", "v"], ["y"], is_test=1)
    given = {"x": x}, {"w": w, **vectors}
    heads = {name: random.standard_normal((2, 3, 4, 5, 5)).astype("f4") for name in "qkv"}
    weights = np.exp(heads["q"] @ heads["k"] * np.float32(0.3))
    attention = [helper.make_node("MatMul", ["q", "k"], ["s"]),
                 helper.make_node("Mul", ["s", "c"], ["t"], broadcast=1),
                 helper.make_node("Softmax", ["t"], ["p"], axis=4),
                 helper.make_node("MatMul", ["p", "v"], ["y"])]
    return [("Mul of opset 6 by a number", attention, heads, {"c": np.float32(0.3)}, "y",
             weights / weights.sum(-1, keepdims=True) @ heads["v"], 6),
            ("Add of opset 6", [product, total], *given, "t", want, 6),
            ("Add of opset 6 along axis -2", [product, last], *given, "t", want, 6),
            ("Relu of Add of opset 6", [product, total, helper.make_node("Relu", ["t"], ["y"])],
             *given, "y", np.maximum(want, 0), 6),
            ("BatchNormalization of Add of opset 6", [product, total, norm], *given, "y",
             (want - m) / np.sqrt(v + np.float32(1e-5)) * s + b, 6)]


def trained_cases():
    """BatchNormalization whose outputs say that it is trained, though nobody reads the others."""
    x = random.standard_normal((4, 3, 5)).astype("f4")
    w = random.standard_normal((3, 3, 1)).astype("f4")
    vectors = {name: random.uniform(0.5, 2, 3).astype("f4") for name in "sbmv"}
    s, b = vectors["s"][:, None], vectors["b"][:, None]

    def normed(x):
        return (x - x.mean((0, 2), keepdims=True)) / np.sqrt(
            x.var((0, 2), keepdims=True) + np.float32(1e-5)) * s + b

    def norm(x):
        return helper.make_node("BatchNormalization", [x, *"sbmv"], ["y", "m1", "v1", "sm", "sv"])
    conv = helper.make_node("Conv", ["x", "w"], ["c"])
    return [("BatchNormalization of opset 9 that is trained", [norm("x")], {"x": x}, vectors, "y",
             normed(x), 9),
            ("one behind a Conv", [conv, norm("c")], {"x": x}, {"w": w, **vectors}, "y",
             normed(np.einsum("bcn,oc->bon", x, w[:, :, 0])), 9)]


def version_case():
    """Attention of two opsets in functions: a mask of one key is broadcast, or hides the others."""
    q = random.standard_normal((1, 1, 3, 4)).astype("f4")
    functions = [helper.make_function(
        "f", f"A{opset}", ["q", "m"], ["y"],
        [helper.make_node("Attention", ["q", "q", "q", "m"], ["y"])],
        [helper.make_opsetid("", opset)]) for opset in (23, 24)]
    nodes = [helper.make_node("A23", ["q", "m"], ["a"], domain="f"),
             helper.make_node("A24", ["q", "m"], ["b"], domain="f"),
             helper.make_node("Sub", ["a", "b"], ["y"])]
    weights = np.exp(q @ q.swapaxes(2, 3) / 2)
    want = weights / weights.sum(-1, keepdims=True) @ q - q[:, :, :1]
    inputs = {"q": q, "m": np.zeros((3, 1), "f4")}
    return "Attention of opsets 23 and 24", nodes, inputs, {}, "y", want, 24, functions


def producer_cases():
    """What some exporters write: a body that takes its counter as one element of rank 1, and an
    empty name for pads that are not set."""
    def info(name, dtype):
        return helper.make_tensor_value_info(name, dtype, [1])
    body = helper.make_graph(
        [helper.make_node("Cast", ["i"], ["r"], to=1), helper.make_node("Not", ["c"], ["n"]),
         helper.make_node("Not", ["n"], ["o"])], "body",
        [info("i", 7), info("c", 9)], [info("o", 9), info("r", 1)])
    x = random.standard_normal((1, 1, 5)).astype("f4")
    loop = helper.make_node("Loop", ["m", "go"], ["y"], body=body)
    conv = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="", pads=[1, 1])
    padded = np.pad(x.ravel(), 1)
    return [("a counter of rank 1", [loop], {"x": x},
             {"m": np.array([3]), "go": np.array([True])}, "y",
             np.arange(3, dtype="f4")[:, None]),
            ("pads that are not set", [conv], {"x": x}, {"w": np.ones((1, 1, 3), "f4")}, "y",
             (padded[:-2] + padded[1:-1] + padded[2:])[None, None])]


def empty_map_cases():
    """Padding that keeps the size of a map, if that is nothing, with strides and without."""
    cases = []
    for kernel, stride, pad in ((1, 1, "SAME_UPPER"), (3, 1, "SAME_LOWER"), (1, 2, "SAME_UPPER"),
                                (3, 2, "SAME_LOWER")):
        node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=pad, strides=2 * [stride])
        cases.append((f"Conv {kernel} {stride} {pad} of nothing", [node],
                      {"x": np.zeros((1, 2, 0, 5), "f4")},
                      {"w": np.ones((3, 2, kernel, kernel), "f4")}, "y",
                      np.zeros((1, 3, 0, -(-5 // stride)), "f4")))
    return cases


def empty_gate_cases():
    """Gates over maps without pixels: the result has none, whatever the gate."""
    kernels = {"w": random.standard_normal((4, 32, 1, 1)).astype("f4"),
               "v": random.standard_normal((32, 4, 1, 1)).astype("f4")}
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]),
             helper.make_node("Conv", ["p", "w"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "v"], ["c"]), helper.make_node("Sigmoid", ["c"], ["s"]),
             helper.make_node("Mul", ["x", "s"], ["y"])]
    made = []
    for shape in ((1, 32, 0, 3), (2, 32, 3, 0)):
        x = np.zeros(shape, "f4")
        made.append((f"gate of {shape}", nodes, {"x": x}, kernels, "y", x))
        spatial = helper.make_node("CBAM", ["x", "m", "", "n"], ["y"], domain="attnrun")
        made.append((f"CBAM of {shape}", [spatial], {"x": x}, {
            "m": kernels["w"][..., 0, 0], "n": kernels["v"][..., 0, 0]}, "y", x))
    return made


def body_cases():
    """Bodies that read an optional of nothing and stack texts, and a branch of a false rank."""
    node = helper.make_node

    def graph(nodes, inputs, outputs, dtype=1, shape=None):
        inputs, outputs = ([helper.make_tensor_value_info(name, dtype, shape) for name in names]
                           for names in (inputs, outputs))
        return helper.make_graph(nodes, "body", inputs, outputs)
    x = random.standard_normal((3, 10**5)).astype("f4")
    empty = node("Optional", [], ["o"], type=helper.make_tensor_type_proto(1, None))
    sums = graph([node("OptionalHasElement", ["o"], ["h"]), node("Cast", ["h"], ["f"], to=1),
                  node("Add", ["a", "b"], ["t"]), node("Add", ["t", "f"], ["c"])], "ab", "c")
    texts = graph([node("StringConcat", ["a", "zeros"], ["c"])], "a", "c", 8)
    numbers = np.arange(1, 13).reshape(4, 3)
    branches = {f"{name}_branch": graph([node("Reshape", ["x", "sizes"], ["r"])], "", "r", 1, "q")
                for name in ("then", "else")}
    return [("a Scan that reads an optional of nothing",
             [empty, node("Scan", ["s", "x"], ["y"], body=sums, num_scan_inputs=1)],
             {"x": x, "s": np.ones(10**5, "f4")}, {}, "y", x.sum(0) + 1),
            ("texts that a Scan stacks along the last axis",
             [node("Cast", ["x"], ["t"], to=8),
              node("Scan", ["t"], ["s"], body=texts, num_scan_inputs=1, scan_output_axes=[-1]),
              node("Cast", ["s"], ["y"], to=7)], {"x": numbers},
             {"zeros": np.array(["0" * 15], object)}, "y", numbers.T * 10**15),
            # Of `sizes` not even the length is known before the run.
            ("a branch that says rank 1 and gives 2",
             [node("Slice", ["s", "zero", "n"], ["sizes"]), node("If", ["c"], ["i"], **branches),
              node("Reshape", ["i", "all"], ["y"])],
             {"x": x, "c": np.array(True), "s": np.array([10**5, 3, 7]), "n": np.array([2])},
             {"zero": np.array([0]), "all": np.array([-1])}, "y", x.ravel())]


def dropped_cases():
    """Operators that formulas replace, in a branch and in a body where nobody reads the mask of a
    Dropout."""
    node = helper.make_node

    def graph(nodes, inputs, output):
        inputs = [helper.make_tensor_value_info(*item, None) for item in inputs]
        return helper.make_graph(nodes, "body", inputs, [
            helper.make_tensor_value_info(name, dtype, None) for name, dtype in output])
    x = random.standard_normal((4, 300)).astype("f4")
    nodes = [node("Dropout", ["x"], ["d", "mask"]), node("LpNormalization", ["d"], ["r"])]
    branches = {f"{name}_branch": graph(nodes, [], [("r", 1)]) for name in ("then", "else")}
    body = graph(nodes + [node("Identity", ["c"], ["go"])], [("i", 7), ("c", 9)],
                 [("go", 9), ("r", 1)])
    want = x / np.sqrt((x * x).sum(-1, keepdims=True))
    return [("a branch that drops an output", [node("If", ["c"], ["y"], **branches)],
             {"x": x, "c": np.array(True)}, {}, "y", want, 22),
            ("a body that drops an output", [node("Loop", ["n", ""], ["y"], body=body)],
             {"x": x, "n": np.array(2)}, {}, "y", np.stack([want, want]), 22)]


def odd_cases():
    """Terms of a Conv that are large enough to stay where the file has them, at any address."""
    x = random.standard_normal((1, 1, 1, 1)).astype("f4")
    w, b, more = (random.standard_normal(20000).astype("f4") for _ in range(3))
    given = {"w": w.reshape(-1, 1, 1, 1), "more": more.reshape(1, -1, 1, 1)}
    total = helper.make_node("Add", ["c", "more"], ["y"])
    want = (w * x.ravel() + b + more).reshape(1, -1, 1, 1)
    return [(f"a bias behind a name of {len(name)} letters",
             [helper.make_node("Conv", ["x", "w", name], ["c"]), total], {"x": x},
             {**given, name: b}, "y", want) for name in ("b", "bb", "bbb", "bbbb")]


def kept_case(shape, wanted, sizes):
    """An empty dim is kept, and -1 is what the others leave."""
    x = np.zeros(shape, "f4")
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    return f"{shape} as {wanted}", nodes, {"x": x}, {"s": np.array(wanted)}, "y", x.reshape(sizes)


def crop_case(mode):
    """The last pixel of the first of two rows of 2^24 + 4 pixels: floats round its place up."""
    node = helper.make_node
    nodes = [node("ConstantOfShape", ["s"], ["zeros"]),
             node("Concat", ["zeros", "a"], ["x"], axis=3),
             node("CropAndResize", ["x", "r", "b", "c"], ["y"], domain="com.microsoft", mode=mode)]
    constants = {"s": np.array([1, 1, 2, 2**24 + 3]), "r": np.array([[0, 1, 0, 1]], "f4"),
                 "b": np.zeros(1, "i4"), "c": np.ones(2, "i4")}
    last = np.array([5, 7], "f4").reshape(1, 1, 2, 1)
    return f"CropAndResize {mode}", nodes, {"a": last}, constants, "y", last[:, :, :1]


def grid_case(mode, reach):
    """GridSample at the pixels themselves; a NaN has a weight, if only 0, in `reach`."""
    x = random.standard_normal((1, 1, 5, 5)).astype("f4")
    x[0, 0, 2, 2] = np.nan
    places = np.meshgrid(*2 * [np.linspace(-1, 1, 5)])
    want = x.copy()
    want[0, 0, reach, reach] = np.nan
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, align_corners=1)
    grid = np.stack(places, -1)[None].astype("f4")
    return f"GridSample {mode}", [node], {"x": x}, {"g": grid}, "y", want


def line_case(size):
    """AffineGrid of one pixel along an axis, which is at the first corner."""
    theta = random.standard_normal((2, 2, 3)).astype("f4")
    node = helper.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=1)
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in size), indexing="ij")
    want = np.stack([x, y, np.ones(size)], -1) @ theta.transpose(0, 2, 1)[:, None]
    return (f"AffineGrid {size}", [node], {"t": theta}, {"s": np.array([2, 3, *size])}, "y",
            want.astype("f4"))


def outside_case(dtype, mode):
    """Resize with antialias to 3 x 3 positions, of which the middle one is in the image."""
    x = np.full((1, 4, 6), 50, dtype)
    node = helper.make_node("Resize", ["x", "r", "", "s"], ["y"], mode=mode, antialias=1,
                            coordinate_transformation_mode="tf_crop_and_resize",
                            extrapolation_value=9.7)
    want = np.full((1, 3, 3), 9 if dtype != "f4" else 9.7, dtype)
    want[0, 1, 1] = 50
    constants = {"s": np.array([1, 3, 3]), "r": np.array([0, -1, -1, 1, 2, 2], "f4")}
    return f"Resize {dtype} {mode}", [node], {"x": x}, constants, "y", want


def corners_case(transformation, n, size, by_scale):
    """Resize of n pixels from corner to corner: the places are i (n - 1) / (size - 1)."""
    crop = transformation == "tf_crop_and_resize"
    node = helper.make_node("Resize", ["x", "r" if crop else "", "s" if by_scale else "",
                                       "" if by_scale else "s"], ["y"], mode="nearest",
                            nearest_mode="floor", extrapolation_value=-1.0,
                            coordinate_transformation_mode=transformation)
    x = random.standard_normal((1, n)).astype("f4")
    constants = {"s": np.array([1, size / n], "f4") if by_scale else np.array([1, size])}
    if crop:
        constants["r"] = np.array([0, 0, 1, 1], "f4")
    want = x[:, [(n - 1) // 2 if size == 1 else i * (n - 1) // (size - 1) for i in range(size)]]
    return f"{transformation} {n} to {size}", [node], {"x": x}, constants, "y", want


def number_cases():
    """Numbers at the ends of a type, and those that are none."""
    node = helper.make_node
    return [
        ("OneHot u64", [node("OneHot", ["i", "d", "v"], ["y"])],
         {"i": np.array([1, 2**64 - 1, 2**63, 3], "u8")},
         {"d": np.array(3), "v": np.array([5, 6], "u8")}, "y",
         np.array([[5, 6, 5], [5, 5, 5], [5, 5, 5], [5, 5, 5]], "u8")),
        *[(f"Gemm {dtype} without C", [node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)],
           {"a": np.ones((2, 3), dtype)}, {"b": np.ones((3, 2), dtype),
                                           "c": np.array([np.nan, np.inf], dtype)},
           "y", np.full((2, 2), 3, dtype)) for dtype in ("f4", "f8")],
        ("Split by floats", [node("Split", ["x", "n"], ["a", "y"], axis=0)],
         {"x": np.arange(4, dtype="f4")}, {"n": np.array([1, 3], "f4")}, "y",
         np.arange(1, 4, dtype="f4"), 1),
        # A ratio at which no element is dropped in training.
        ("Dropout f8", [node("Dropout", ["x", "r", "t"], ["y"])],
         {"x": np.array([1e300, 0.1, -7])}, {"r": np.array(1e-30, "f4"), "t": np.array(True)},
         "y", np.array([1e300, 0.1, -7])),
        *[(f"{op} {dtype} of NaN", [node(op, ["x"], ["y"])],
           {"x": np.array([np.nan, 3, -9, 0], dtype)}, {}, "y",
           np.array([np.nan, 1 if op == "HardSigmoid" else 3, 0, middle], dtype))
          for op, middle in (("HardSigmoid", 0.5), ("HardSwish", 0)) for dtype in ("f4", "f8")],
        # What is neither above nor below a bound is "otherwise", a NaN too.
        *[(f"ThresholdedRelu {dtype} of NaN", [node("ThresholdedRelu", ["x"], ["y"])],
           {"x": np.array([np.nan, 3, -9, 1, np.inf, -np.inf], dtype)}, {}, "y",
           np.array([0, 3, 0, 0, np.inf, 0], dtype)) for dtype in ("f2", "f4", "f8")],
        *[(f"Shrink {dtype} of NaN", [node("Shrink", ["x"], ["y"], lambd=0.5, bias=1.0)],
           {"x": np.array([np.nan, 3, -9, 0.25, np.inf, -np.inf], dtype)}, {}, "y",
           np.array([0, 2, -8, 0, np.inf, -np.inf], dtype)) for dtype in ("f2", "f4", "f8")],
        *[(f"RNN {dtype} of NaN, by ThresholdedRelu",
           [node("RNN", ["x", "w", "w"], ["y"], hidden_size=1, activations=["ThresholdedRelu"])],
           {"x": np.array([np.nan, 2], dtype).reshape(2, 1, 1)},
           {"w": np.ones((1, 1, 1), dtype)}, "y",
           np.array([0, 2], dtype).reshape(2, 1, 1, 1)) for dtype in ("f4", "f8")],
        *[(f"RNN {dtype} of NaN",
           [node("RNN", ["x", "w", "w"], ["y"], hidden_size=1, activations=["HardSigmoid"])],
           {"x": np.full((1, 1, 1), np.nan, dtype)}, {"w": np.ones((1, 1, 1), dtype)}, "y",
           np.full((1, 1, 1, 1), np.nan, dtype)) for dtype in ("f4", "f8")]]


def no_line_case():
    """Pooling of lines of nothing between pads."""
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2], pads=[1000, 3])
    return "pools without a line", [node], {"x": np.zeros((1, 4, 0))}, {}, "y", \
        np.zeros((1, 4, 1002))


def far_windows_case(op, first):
    """Pooling of two windows that have no tap in common: the first one sees padding alone. The time
    is that of the taps that see the map."""
    most, x = 2**31 - 1, random.standard_normal((1, 2, 4, 6)).astype("f4")
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[1, most], strides=[1, most],
                            pads=[0, most, 0, most])
    seen = x.max(3) if op == "MaxPool" else np.sqrt((x * x).sum(3))
    return (f"{op} of windows far apart", [node], {"x": x}, {}, "y",
            np.stack([np.full_like(seen, first), seen], 3))


def no_terms_case():
    """QLinearMatMul of no columns and no rows: a zero point for each row of two matrices."""
    zeros = np.arange(6, dtype="u1").reshape(2, 3, 1)
    constants = {"b": np.zeros((0, 5), "u1"), "s": np.ones((), "f4"), "z": np.zeros((), "u1"),
                 "rows": np.ones((2, 3, 1), "f4"), "zeros": zeros}
    node = helper.make_node("QLinearMatMul", ["a", "rows", "zeros", "b", "s", "z", "rows", "zeros"],
                            ["y"])
    return ("zero points of rows without terms", [node], {"a": np.zeros((2, 3, 0), "u1")},
            constants, "y", np.broadcast_to(zeros, (2, 3, 5)))


def halfway_case():
    """Doubles beside the middle of two f16, where a float would be the middle: rounded once."""
    whole = np.arange(0x7c00, dtype="u2").view("f2").astype("f8")
    middle = np.append((whole[1:] + whole[:-1]) / 2, 65520)
    x = np.concatenate([sign * middle * (1 + part) for sign in (1, -1)
                        for part in (0, 1e-12, -1e-12)])
    x = np.append(x, [np.nan, np.inf, 1e300, 1e-320])
    with np.errstate(over="ignore"):
        want = x.astype("f2").astype("f8")
    nodes = [helper.make_node("Cast", ["x"], ["half"], to=10),
             helper.make_node("Cast", ["half"], ["y"], to=11)]
    return "halfway between f16", nodes, {"x": x}, {}, "y", want


def main():
    attnrun, bad = os.path.abspath(sys.argv[1]), 0
    cases = [scores_case(dtype, queries, keys, heads, mode) for dtype in ("f4", "f8")
             for queries, keys, heads in ((1, 3, 2), (5, 300, 4), (70, 90, 2)) for mode in (0, 3)]
    cases += [case for dtype in ("f4", "f8") for kind in "f?i" for queries, keys, shape in (
        (1, 700, ()), (5, 3, (5,)), (70, 300, (2, 1, 70)), (70, 300, (2, 4, 1)), (9, 1, (4, 9)))
              for case in one_key_case(dtype, kind, queries, keys, shape)]
    cases += [hidden_case(dtype, what) for dtype in ("f4", "f8") for what in (np.nan, np.inf)]
    cases += [factor_case(op, x) for op in ("Mul", "Div") for x in (np.nan, 1.0)]
    cases += twice_cases() + mean_cases() + old_cases() + producer_cases() + empty_map_cases()
    cases += empty_gate_cases() + trained_cases()
    cases += odd_cases() + number_cases() + body_cases() + dropped_cases()
    cases += [halfway_case(), version_case(), no_terms_case(), no_line_case()]
    cases += [far_windows_case("MaxPool", -np.inf), far_windows_case("LpPool", 0)]
    cases += degenerate_attention.cases(random)
    cases += [kept_case(*case) for case in (
        ((0, 2, 6), [0, -1], (0, 12)), ((3, 0), [-1, 0], (3, 0)), ((0, 0), [0, -1], (0, 0)),
        ((0, 4, 3), [0, 2, -1], (0, 2, 6)), ((2, 0, 4), [0, 0, 2, -1], (2, 0, 2, 2)))]
    cases += [crop_case(mode) for mode in ("bilinear", "nearest")]
    cases += [outside_case(dtype, mode) for dtype in ("u1", "i1", "i4", "f4")
              for mode in ("linear", "cubic")]
    cases += [line_case(size) for size in ((1, 5), (4, 1), (1, 1), (3, 2))]
    cases += [grid_case("nearest", slice(2, 3)), grid_case("linear", slice(1, 3)),
              grid_case("cubic", slice(0, 4))]
    cases += [corners_case("tf_crop_and_resize", *sizes) for sizes in (
        (11, 15, False), (13, 30, False), (10, 7, True), (3, 1, True), (7, 1, True), (1, 4, False))]
    cases += [corners_case("align_corners", *sizes) for sizes in (
        (11, 15, False), (43, 29, False), (31, 7, True), (99, 15, False))]
    with tempfile.TemporaryDirectory() as folder:
        for name, nodes, inputs, constants, output, want, *opset in cases:
            for options in ([], ["--no-fusion"], ["--isa", "base"]):
                found = run(attnrun, folder, nodes, inputs, constants, output, options, *opset)
                good = found.shape == want.shape and \
                    np.allclose(found, want, 1e-5, 1e-5, equal_nan=True)
                bad += not good
                if not good:
                    print(f"FAIL {name} {options}, seed {SEED}: {found!r}, expected {want!r}")
    print(f"{len(cases)} cases, {bad} runs wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
