"""Convolution networks in bf16 (--precision bf16) against ONNX Runtime 1.32.0: the error of
Winograd's tiles, maps that are bf16 between dense convolutions, and residual maps.
Usage: check_blocked_bf16.py ATTNRUN [SEED]"""
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import blocked_networks
from blocked_networks import BF16, PAIRS, SEED, WAYS, between, random, run
from check_blocked import Network


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype("f4")


def check_winograd(folder):
    """Products of bf16 in tiles of 2 x 2: the error is at most twice that of operands that are
    rounded as they are, and lanes beyond the channels, which hold infinities here, stay apart.
    Inputs in words of bf16 need two thirds of the scratch of floats, or less."""
    wrong = 0
    for channels, columns, group in ((64, 64, 1), (71, 80, 1), (96, 67, 1), (192, 128, 2)):
        shape = (1, channels, 20, between(17, 30))
        x = rounded(1 / (np.maximum(random.standard_normal(shape), 0).astype("f4") + 0.5))
        inputs = channels // group
        w = (random.standard_normal((columns, inputs, 3, 3)) / np.sqrt(9 * inputs)).astype("f4")
        before = np.zeros((channels, channels, 1, 1), "f4")
        before[np.arange(channels), np.arange(channels)] = 1
        nodes = [helper.make_node("Conv", ["x", "before"], ["c"]),
                 helper.make_node("Div", ["one", "c"], ["r"]),
                 helper.make_node("Conv", ["r", "w"], ["y"], pads=[1] * 4, group=group)]
        graph = helper.make_graph(
            nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name)
             for array, name in ((before, "before"), (w, "w"), (np.float32(1), "one"))])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                    ir_version=9), f"{folder}/net.onnx")
        np.save(f"{folder}/x.npy", x)
        session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                               providers=["CPUExecutionProvider"])
        exact = session.run(None, {"x": x})[0]
        graph.initializer[1].CopyFrom(numpy_helper.from_array(rounded(w), "w"))
        session = onnxruntime.InferenceSession(helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)],
            ir_version=9).SerializeToString(), providers=["CPUExecutionProvider"])
        direct = np.square(session.run(None, {"x": 1 / rounded(1 / x)})[0] - exact).mean() ** 0.5
        for way in WAYS:  # those without Winograd's tiles multiply what is rounded directly
            got = run(["--threads", "1", *way], folder)
            error = np.inf if "failed" in got else np.square(got["y"] - exact).mean() ** 0.5
            if not error <= 2 * direct:
                wrong += 1
                print(f"seed {SEED}, {way}, {channels} to {columns} channels in {group}: "
                      f"error {error}, "
                      f"direct {direct}: {got.get('failed', '')}")
        words, floats = (blocked_networks.scratch(folder, "--threads", "1", *how)
                         for how in (BF16, ["--precision", "f32"]))
        if "BlockedConv" not in blocked_networks.operators(folder) or (
                PAIRS and words > 0.7 * floats):
            wrong += 1
            print(f"seed {SEED}, tiles of {channels} channels: {words} bytes of scratch with bf16, "
                  f"{floats} of floats, {blocked_networks.operators(folder)}")
    return wrong


def check_rounded(folder):
    """Maps that dense convolutions alone read are bf16, and so are the bits that they get."""
    wrong = 0
    for channels, kernel in ((32, 1), (48, 3), (16, 3)):
        network = Network()
        network.shape = [2, between(1, 3), between(20, 40), between(20, 40)]
        network.sizes["x"] = tuple(network.shape[1:])
        x = network.conv("x", 32, (3, 3))
        x = network.add("Relu", [network.conv(x, channels, (3, 3), 1, True)],
                        (channels, *network.sizes[x][1:]))
        x = network.conv(x, 40, (kernel, kernel), 1, False)
        network.save(x, folder)
        np.save(f"{folder}/x.npy", random.standard_normal(network.shape, dtype=np.float32))
        same = True
        for way in WAYS:
            plain = run([*way, "--disable-pass", "blocked_epilogue"], folder)
            got = run(way, folder)
            same = same and "failed" not in got and np.array_equal(got[x].view("i4"),
                                                                   plain[x].view("i4"))
        inspected = subprocess.run([sys.argv[1], "inspect", *BF16, f"{folder}/net.onnx"],
                                   capture_output=True, text=True, check=True)
        if not same or PAIRS != ("blocked_epilogue" in inspected.stdout):
            wrong += 1
            print(f"seed {SEED}, maps of bf16, {channels} channels: {got.get('failed', '')} "
                  f"{inspected.stdout}")
    return wrong


def check_residual(folder):
    """Residual maps between dense convolutions are bf16, too. Each sum is a float and is rounded
    once, so the error stays near that of maps of floats."""
    wrong = 0
    for channels, few in ((64, 16), (96, 40), (208, 48)):
        network = Network()
        network.shape = [1, 3, between(18, 30), between(18, 30)]
        network.sizes["x"] = tuple(network.shape[1:])
        x = network.add("Relu", [network.conv("x", channels, (3, 3), 1, True, True)],
                        (channels, *network.shape[2:]))
        for _ in range(4):
            size, y = network.sizes[x], x
            for m, kernel in ((few, 1), (few, 3), (channels, 1)):
                y = network.conv(y, m, (kernel, kernel), 1, True, True)
                y = network.add("Relu", [y], network.sizes[y]) if m == few else y
            x = network.add("Relu", [network.add("Add", [y, x], size)], size)
        network.save(x, folder)
        given = random.standard_normal(network.shape, dtype=np.float32)
        np.save(f"{folder}/x.npy", given)
        exact = onnxruntime.InferenceSession(
            f"{folder}/net.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": given})[0]
        for way in WAYS:
            errors = [np.square(run([*way, *more], folder)[x] - exact).mean() ** 0.5
                      for more in ([], ["--disable-pass", "blocked_epilogue"])]
            size = np.square(exact).mean() ** 0.5
            if not errors[0] <= min(1.6 * errors[1], 0.01 * size):
                wrong += 1
                print(f"seed {SEED}, residual maps of {channels} channels, {way}: errors {errors}, "
                      f"results of {size}")
    return wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        failed = check_winograd(folder) + check_rounded(folder) + check_residual(folder)
    print(f"{failed} failures, {len(WAYS)} instruction sets")
    sys.exit(failed > 0)


main()
