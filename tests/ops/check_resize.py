"""Resize of integers against ONNX Runtime 1.32.0 and torch 2.13.0: with antialias they round
after each axis, without it ONNX Runtime and ONNX's reference cut sums off. Sums that end in
1/2 (or are whole) fall to either side by the last bit of a weight, so elements may differ by 1,
but few may. ONNX Runtime clamps signed bytes to 0 with antialias; they are compared with its
result for the same bytes plus 128. With antialias an infinity or a NaN among floats reaches the
same elements as there.
Usage: check_resize.py ATTNRUN [SEED]"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

from cases import one_node_model

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 7
random = np.random.default_rng(SEED)
KINDS = {"u1": (0, 256), "i1": (-128, 128), "i4": (-1000, 1000)}


def between(low, high):
    return int(random.integers(low, high + 1))


def model_of(x, sizes, **attributes):
    model, _ = one_node_model("Resize", [("x", x), ("roi", None), ("scales", None),
                                         ("sizes", np.array(sizes))], ["y"], ("sizes",),
                              opset=19, **attributes)
    model.graph.output[0].type.tensor_type.elem_type = numpy_helper.from_array(x).data_type
    return model


def reference(x, sizes, **attributes):
    signed = x.dtype == np.int8 and attributes["antialias"]
    given = (x.astype("i2") + 128).astype("u1") if signed else x
    session = onnxruntime.InferenceSession(
        model_of(given, sizes, **attributes).SerializeToString())
    y = session.run(None, {"x": given})[0]
    return (y.astype("i2") - 128).astype("i1") if signed else y


def reference_by_axis(x, sizes, **attributes):
    """ONNX Runtime's resize of one axis, from the last axis to the first."""
    for axis in reversed(range(x.ndim)):
        lines = np.moveaxis(x, axis, -1)
        flat = lines.reshape(1, 1, -1, x.shape[axis])
        y = reference(flat, [1, 1, flat.shape[2], sizes[axis]], **attributes)
        x = np.moveaxis(y.reshape(lines.shape[:-1] + (sizes[axis],)), -1, axis)
    return x


def cases():
    """Yields a group's name, the elements that may differ, x, sizes, attributes, y."""
    for number in range(120):
        kind, smooth = ("u1", "i1", "i4")[number % 3], number // 3 % 2
        mode = ("linear", "cubic")[number // 6 % 2] if smooth else "linear"
        n = between(2, 3) if mode == "linear" and number % 4 == 0 else 2
        lead = [between(1, 3), between(1, 3)]
        x = random.integers(*KINDS[kind], lead + [between(2, 24) for _ in range(n)]).astype(kind)
        sizes = lead + [between(1, 28) for _ in range(n)]
        attributes = {"mode": mode, "antialias": smooth,
                      "exclude_outside": number % 2 if smooth else 0,
                      "coordinate_transformation_mode": (
                          "half_pixel", "asymmetric", "align_corners",
                          "pytorch_half_pixel")[between(0, 3)]}
        if mode == "cubic":
            attributes["cubic_coeff_a"] = (-0.75, -0.5)[number % 2]
        yield (f"{mode} {kind} antialias {smooth}", 0.04 if smooth else 0.1, x, sizes, attributes,
               reference(x, sizes, **attributes))
    for number in range(24):  # more images between two axes than two
        kind = ("u1", "i1", "i4")[number % 3]
        shape = [between(2, 6) for _ in range(between(4, 5))]
        x = random.integers(*KINDS[kind], shape).astype(kind)
        sizes = [n + (-1, 1, 2)[between(0, 2)] for n in shape]
        attributes = {"mode": "linear", "antialias": 1}
        yield (f"{len(shape)} axes {kind}", 0.1, x, sizes, attributes,
               reference_by_axis(x, sizes, **attributes))
    for number in range(40):
        mode = ("linear", "cubic")[number % 2]
        x = random.integers(0, 256, [2, 3, between(2, 40), between(2, 40)]).astype("u1")
        sizes = [2, 3, between(1, 48), between(1, 48)]
        y = torch.nn.functional.interpolate(
            torch.from_numpy(x), sizes[2:], mode={"linear": "bilinear", "cubic": "bicubic"}[mode],
            antialias=True)
        yield (f"torch {mode}", 0.04, x, sizes,
               {"mode": mode, "antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5},
               y.numpy())


def run(folder, x, sizes, attributes):
    onnx.save(model_of(x, sizes, **attributes), f"{folder}/model.onnx")
    np.save(f"{folder}/x.npy", x)
    subprocess.run([sys.argv[1], "run", f"{folder}/model.onnx", "-i", f"x={folder}/x.npy",
                    "-o", f"{folder}/y.npz", "--threads", "2"], check=True,
                   stdout=subprocess.DEVNULL, timeout=60)
    with np.load(f"{folder}/y.npz") as values:
        y = values["y"]
    os.remove(f"{folder}/y.npz")
    return y


def spreads(folder):
    """How many maps have an element that is not finite in another place than ONNX Runtime's."""
    failed = 0
    for number in range(36):
        shape = [[1, 2, 1, 16], [1, 2, 16, 1], [1, 16, 1, 32]][number % 3]
        axis = 1 + (2, 1, 0)[number % 3]
        x = random.standard_normal(shape).astype("f4")
        place = (0, between(0, shape[1] - 1)) + tuple(between(0, n - 1) for n in shape[2:])
        x[place] = (np.inf, np.nan)[number // 3 % 2]
        sizes = [between(5, 15) if i == axis else n for i, n in enumerate(shape)]
        attributes = {"mode": ("linear", "cubic")[number // 6 % 2], "antialias": 1,
                      "exclude_outside": number // 12 % 2}
        y, want = run(folder, x, sizes, attributes), reference(x, sizes, **attributes)
        finite = np.isfinite(want)
        if np.any(np.isfinite(y) != finite) or not np.allclose(y[finite], want[finite], 1e-4, 1e-4):
            print(f"seed {SEED}: {shape} to {sizes} {attributes}: {x[place]} at {place}: differs")
            failed += 1
    return failed


def main():
    differ, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, few, x, sizes, attributes, y in cases():
            apart = np.abs(run(folder, x, sizes, attributes).astype("i8") - y)
            if apart.max() > 2:  # two axes that fall differently
                print(f"seed {SEED}: {name} {x.shape} to {sizes} {attributes}: an element differs "
                      f"by {apart.max()}")
                failed += 1
            count = differ.setdefault(name, [few, 0, 0])
            count[1] += np.count_nonzero(apart)
            count[2] += apart.size
        failed += spreads(folder)
    for name, (few, some, total) in differ.items():
        print(f"{name}: {some} of {total} elements differ by 1")
        if some > few * total:
            print(f"seed {SEED}: {name}: more than {few:.0%}")
            failed += 1
    sys.exit(failed > 0)


main()
