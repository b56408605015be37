"""Convolutions whose weights are stored as f16 and bf16, against ONNX Runtime 1.32.0 in f32 with
the same numbers: regions compute in f32, so the results agree as those of an f32 model do. Each
way of computing them is met: blocks (dense, tiles of Winograd, each channel by itself, groups,
plain maps, spread pixels, channels that are last), and planes, strips and columns, of 1 to 3
axes; with BatchNormalization, factors, residuals and activations behind them. The weights are
packed in 16 bits, there are as many nodes as in f32, images of few channels are read in 16 bits,
and all numbers of threads give the same bits.
Usage: check_conv_storage.py ATTNRUN [SEED [PART]], one of PART networks"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import blocked_networks
from blocked_networks import PART, SEED, between, chance, random, run

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "models"))
import run_twins  # pylint: disable=wrong-import-position

ROUNDS = 6 // PART


class Network(blocked_networks.Maps):
    """A network from x to the last node's output; sizes are channels and pixels."""

    def __init__(self, *size):
        super().__init__()
        self.batch = between(1, 2)
        self.sizes["x"] = size

    def normal(self, *shape, scale=1.0):
        return self.constant((random.standard_normal(shape) * scale).astype("f4"))

    def conv(self, x, channels, kernel, group=1, stride=1, norm=None, dilation=1):
        c, *pixels = self.sizes[x]
        taps = [kernel] * len(pixels)
        weights = self.normal(channels, c // group, *taps,
                              scale=(c // group * kernel ** len(pixels)) ** -0.5)
        inputs = [x, weights] + ([self.normal(channels)] if chance(0.5) else [])
        size = (channels, *((n - 1) // stride + 1 for n in pixels))
        y = self.node("Conv", inputs, size, group=group, strides=[stride] * len(pixels),
                      dilations=[dilation] * len(pixels),
                      pads=[kernel // 2 * dilation] * (2 * len(pixels)))
        return self.norm(y) if (chance(0.6) if norm is None else norm) else y

    def norm(self, x):
        c = self.sizes[x][0]
        positive = self.constant((random.random(c) + 0.5).astype("f4"))
        return self.node("BatchNormalization", [x, self.normal(c), self.normal(c),
                                                self.normal(c), positive], self.sizes[x])

    def activation(self, x):
        kind = between(0, 3)
        if kind == 3:
            return self.node("Mul", [x, self.node("Sigmoid", [x], self.sizes[x])], self.sizes[x])
        return self.node(("Relu", "LeakyRelu", "HardSwish")[kind], [x], self.sizes[x])

    def add(self, x, y):
        return self.node("Add", [x, y], self.sizes[x])


def residual(channels=48, low=33, high=70):
    """A network of blocks as of ResNet, whose 3 x 3 are tiles of Winograd where they can be."""
    n = Network(3, between(20, 30), between(20, 30))
    kernel, dilation = ((7, 1), (3, between(2, 9)), (1, 1))[between(0, 2)]
    x = n.activation(n.conv("x", channels, kernel, stride=between(1, 2), dilation=dilation))
    for _ in range(2):
        y = n.activation(n.conv(x, between(low, high), 3))
        x = n.activation(n.add(n.conv(y, channels, 3), x))
    return n, n.conv(x, between(20, 90), 1, stride=between(1, 2))


def narrow():
    """The same with one panel of weights, whose places a worker keeps from task to task."""
    return residual((16, 24, 32)[between(0, 2)], 16, 32)


def inverted():
    """Blocks as of MobileNet: each channel by itself, between dense ones; a gate."""
    n = Network(3, between(14, 20), between(14, 20))
    x = n.activation(n.conv("x", 20, 3))
    y = n.activation(n.conv(x, 72, 1))
    y = n.activation(n.conv(y, 72, (3, 5)[between(0, 1)], group=72))
    mean = n.node("GlobalAveragePool", [y], (72, 1, 1))
    gate = n.node("Relu", [n.conv(mean, 8, 1, norm=False)], (8, 1, 1))
    gate = n.node("Sigmoid", [n.conv(gate, 72, 1, norm=chance(0.3))], (72, 1, 1))
    return n, n.add(n.conv(n.node("Mul", [y, gate], n.sizes[y]), 20, 1), x)


def grouped():
    """Groups of whole blocks, between dense ones."""
    n = Network(5, between(12, 20), between(12, 20))
    x = n.activation(n.conv("x", 96, 3))
    x = n.activation(n.conv(x, 96, 3, group=(2, 3, 6)[between(0, 2)], stride=between(1, 2)))
    return n, n.conv(x, 33, 1)


def spread():
    """A decoder: ConvTranspose whose strides are its kernel."""
    n = Network(3, between(8, 14), between(8, 14))
    x = n.activation(n.conv("x", 64, 3))
    h, w = (2 * k for k in n.sizes[x][1:])
    inputs = [x, n.normal(64, 32, 2, 2, scale=0.1), n.normal(32)]
    x = n.node("ConvTranspose", inputs, (32, h, w), strides=[2, 2])
    return n, n.conv(n.activation(n.conv(x, 40, 3)), 7, 1)


def last():
    """A block of ConvNeXt: channels are last in its middle, with factors behind the products."""
    n = Network(3, between(12, 18), between(12, 18))
    x = n.conv("x", 48, 3, norm=False)
    c, h, w = n.sizes[x]
    y = n.node("Transpose", [n.conv(x, c, 7, group=c, norm=False)], (h, w, c), perm=[0, 2, 3, 1])
    y = n.node("LayerNormalization", [y, n.normal(c), n.normal(c)], (h, w, c))
    for k, m in ((c, 100), (100, c)):
        y = n.node("MatMul", [y, n.normal(k, m, scale=k ** -0.5)], (h, w, m))
        y = n.node("Add", [y, n.normal(m)], (h, w, m))
        y = n.node("Relu", [y], (h, w, m)) if k == c else y
    y = n.node("Mul", [y, n.normal(c)], (h, w, c))
    y = n.add(n.node("Transpose", [y], (c, h, w), perm=[0, 3, 1, 2]), x)
    return n, n.conv(y, 40, 3)


def alone():
    """One convolution by itself, of 1 to 3 axes: planes, strips or columns."""
    axes = between(1, 3)
    group = (1, 1, 3)[between(0, 2)]
    channels = group * (1, between(2, 9), between(40, 90))[between(0, 2)]
    n = Network(channels, *(between(5, 60 // axes ** 2 + 5) for _ in range(axes)))
    rows = group * (1, between(2, 9), between(65, 140))[between(0, 2)]
    y = n.conv("x", rows, (1, 3, 5)[between(0, 2)], group=group, stride=between(1, 2))
    return n, n.activation(y) if chance(0.5) else y


def long_sums():
    """Sums of more than 8,192 products, which are cut in parts."""
    n = Network(1000, 6, 6)
    return n, n.conv("x", 70, 3)


def make_models(network, y, kind):
    """The f32 model of rounded numbers, and the one that stores them in the narrow type."""
    shape = [network.batch, *network.sizes["x"]]
    graph = helper.make_graph(
        network.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)], network.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    stored = onnx.ModelProto()
    stored.CopyFrom(model)
    run_twins.change_graph(model.graph, kind, False)
    run_twins.change_graph(stored.graph, kind, True)
    stored.graph.node.append(helper.make_node("Cast", [y], ["y wide"], to=TensorProto.FLOAT))
    stored.graph.output[0].CopyFrom(helper.make_tensor_value_info("y wide", TensorProto.FLOAT,
                                                                  None))
    return model, stored, shape


def facts(folder):
    """Operators but casts, bytes of packed weights, and the number of casts."""
    plan = subprocess.run([sys.argv[1], "plan", "--json", f"{folder}/net.onnx"],
                          capture_output=True, text=True, check=True)
    layers = subprocess.run([sys.argv[1], "inspect", "--layers", "--json", f"{folder}/net.onnx"],
                            capture_output=True, text=True, check=True)
    casts = sum(node["op_type"] == "Cast" for node in json.loads(layers.stdout)["layers"])
    operators = sorted(op for op in blocked_networks.operators(folder) if op != "Cast")
    return operators, json.loads(plan.stdout)["packed_bytes"], casts


def check(make, kind, folder, isas):
    """What is wrong with a network of this form, sentences."""
    network, y = make()
    model, stored, shape = make_models(network, y, kind)
    x = run_twins.rounded(random.standard_normal(shape).astype("f4"), kind).astype("f4")
    np.save(f"{folder}/x.npy", x)
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=[
        "CPUExecutionProvider"]).run(None, {"x": x})[0]
    onnx.save(model, f"{folder}/net.onnx")
    operators, packed, _ = facts(folder)
    onnx.save(stored, f"{folder}/net.onnx")
    its_operators, its_packed, casts = facts(folder)
    if [op.replace("FusedConv", "Conv") for op in its_operators] != [
            op.replace("FusedConv", "Conv") for op in operators]:
        yield f"{its_operators}, in f32 {operators}"
    if its_packed > 0.56 * packed + 8192:  # biases and factors are floats
        yield f"{its_packed} bytes of packed weights, in f32 {packed}"
    if make in FEW_CHANNELS and casts > 0:
        yield f"{casts} Cast nodes: an image of few channels becomes no f32"
    if kind == "f16":  # files of NumPy hold bf16 as f32
        np.save(f"{folder}/x.npy", x.astype("f2"))
    for way in [["--isa", isa] for isa in isas] + [["--no-fusion"]]:
        got = run(["--threads", "1", *way], folder)
        if "failed" in got:
            yield f"{way}: {got['failed']}"
            continue
        apart = np.abs(got["y wide"] - wanted).max()
        if not apart <= 4e-5 * max(1.0, np.abs(wanted).max()):
            yield f"{way}: off by {apart} of {np.abs(wanted).max()}"
        other = run(["--threads", str(between(2, 4)), *way], folder)
        if not np.array_equal(got["y wide"].view("i4"), other["y wide"].view("i4")):
            yield f"{way}: other bits with more threads"


FEW_CHANNELS = (residual, narrow, inverted, spread, last)


def main():
    isas = [isa for isa in blocked_networks.isas() if not isa.endswith(("vnni", "amx", "dot"))]
    checked = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for form in (residual, narrow, inverted, grouped, spread, last, alone, alone, alone,
                     long_sums):
            for number in range(ROUNDS if form is not long_sums else 1):
                for kind in run_twins.TYPES:
                    wrong = list(check(form, kind, folder, isas))
                    checked += 1
                    failed += bool(wrong)
                    for why in wrong:
                        print(f"seed {SEED}, {form.__name__} {number} in {kind}: {why}")
    print(f"{checked} networks, {failed} failures")
    sys.exit(failed > 0)


main()
