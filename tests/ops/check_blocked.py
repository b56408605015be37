"""Random convolution networks against ONNX Runtime 1.32.0, on each instruction set and without
fusion: channels that are no multiples of 16, groups, strides, dilations, pads, residuals, gates,
pooling, Concat, and nodes in between that know no blocks of channels. All numbers of threads
give the same bits.
Usage: check_blocked.py ATTNRUN [SEED]"""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import blocked_networks
from blocked_networks import SEED, WAYS, between, chance, random, run

NETWORKS = 40


def dilate(pads):
    if not chance(0.25):
        return [1, 1], pads
    most = 2 if chance(0.5) else 12
    dilation = [between(1, most), between(1, most)]
    return dilation, [d * p for d, p in zip(dilation * 2, pads)]


class Network(blocked_networks.Maps):
    def __init__(self):
        super().__init__()
        self.shape = [between(1, 2), between(1, 20), between(9, 30), between(9, 30)]
        self.sizes["x"] = tuple(self.shape[1:])
        self.add = self.node

    def conv(self, x, channels=None, kernel=None, group=1, same=False, plain=False):
        c = self.sizes[x][0]
        channels = channels or between(1, 70)
        kernel = kernel or [(1, 1), (3, 3), (3, 3), (5, 5), (2, 3), (7, 7), (1, 4), (3, 1)][
            between(0, 7)]
        found = self.window(x, kernel, same, dilate)
        if found is None:
            return self.conv(x, channels, (1, 1), group, same)
        out, attributes = found
        weights = random.standard_normal((channels, c // group, *kernel)) / np.sqrt(
            c // group * kernel[0] * kernel[1])
        inputs = [x, self.constant(weights.astype("f4"))]
        if chance(0.7):
            inputs.append(self.constant(random.standard_normal(channels).astype("f4")))
        y = self.add("Conv", inputs, (channels, *out), group=group, **attributes)
        return y if plain else self.activation(y)

    def depthwise(self, x):
        return self.conv(x, self.sizes[x][0], [(3, 3), (5, 5), (7, 7), (1, 3), (3, 2)][
            between(0, 4)], self.sizes[x][0])

    def grouped(self, x):
        group = [2, 3, 4, 8][between(0, 3)]
        x = self.conv(x, group * [16, 32, 5, 64, 4, 8, 24][between(0, 6)], (1, 1))
        return self.conv(x, group * [16, 48, 7, 64, 4, 8, 24][between(0, 6)], (3, 3), group)

    def activation(self, x):
        size = self.sizes[x]
        kind = between(0, 8)
        if kind == 0:
            return self.add("Clip", [x, self.constant(np.float32(0)),
                                     self.constant(np.float32(6))], size)
        if kind == 1:
            return self.add("Mul", [x, self.add("Sigmoid", [x], size)], size)
        if kind in (2, 3, 4, 5):
            return self.add(("HardSwish", "Sigmoid", "LeakyRelu", "HardSigmoid")[kind - 2], [x],
                            size)
        return self.add("Relu", [x], size) if kind < 8 else x

    def residual(self, x):
        y = self.conv(x, self.sizes[x][0], None, 1, True, True)
        y = self.add("Add", [y, x] if chance(0.5) else [x, y], self.sizes[x])
        return self.add("Relu", [y], self.sizes[x]) if chance(0.5) else y

    def gate(self, x):
        size = self.sizes[x]
        mean = (self.add("GlobalAveragePool", [x], (size[0], 1, 1)) if chance(0.5) else
                self.add("ReduceMean", [x, self.constant(np.array([2, 3]))], (size[0], 1, 1)))
        few = self.conv(mean, between(1, 20), (1, 1), 1, True)
        gate = self.conv(few, size[0], (1, 1), 1, True, True)
        gate = self.add(("Sigmoid", "HardSigmoid")[between(0, 1)], [gate], (size[0], 1, 1))
        return self.add("Mul", [x, gate] if chance(0.5) else [gate, x], size)

    def cbam(self, x):
        """CBAM as PyTorch exports it: a gate of channels of one pool or both, one of pixels, or
        one of these alone; perhaps a residual and Relu behind it."""
        c, h, w = size = self.sizes[x]
        if min(h, w) < 2:
            return x
        y, both = x, chance(0.8)
        if chance(0.8):
            few = between(1, 9)
            weights = [self.constant((random.standard_normal((m, n, 1, 1)) / np.sqrt(n)).astype(
                "f4")) for m, n in ((few, c), (c, few))]
            gates = []
            for op in ("GlobalAveragePool", "GlobalMaxPool")[:1 + both]:
                u = self.add("Conv", [self.add(op, [x], (c, 1, 1)), weights[0]], (few, 1, 1))
                gates.append(self.add("Conv", [self.add("Relu", [u], (few, 1, 1)), weights[1]],
                                      (c, 1, 1)))
            gate = self.add("Add", gates, (c, 1, 1)) if both else gates[0]
            y = self.add("Mul", [x, self.add("Sigmoid", [gate], (c, 1, 1))], size)
        if both or y == x:
            axes = self.constant(np.array([1]))
            pools = [self.add(op, [y, axes], (1, h, w), keepdims=1)
                     for op in ("ReduceMean", "ReduceMax")]
            pools = pools if chance(0.5) else pools[::-1]
            k = (3, 7)[between(0, 1)]
            inputs = [self.add("Concat", pools, (2, h, w), axis=1),
                      self.constant(random.standard_normal((1, 2, k, k)).astype("f4"))]
            if chance(0.5):
                inputs.append(self.constant(random.standard_normal(1).astype("f4")))
            s = self.add("Conv", inputs, (1, h, w), pads=[k // 2] * 4)
            y = self.add("Mul", [y, self.add("Sigmoid", [s], (1, h, w))], size)
        if chance(0.5):
            y = self.add("Add", [y, x], size)
            y = self.add("Relu", [y], size) if chance(0.5) else y
        return y

    def pool(self, x):
        found = self.pool_window(x)
        if found is None:
            return x
        out, window = found
        more = {"count_include_pad": between(0, 1)} if chance(0.5) else {}
        return self.add("AveragePool" if more else "MaxPool", [x],
                        (self.sizes[x][0], *out), **window, **more)

    def concat(self, x):
        size = self.sizes[x]
        parts = [self.conv(x, [16, 32, between(1, 40)][between(0, 2)], (3, 3), 1, True)
                 for _ in range(between(2, 3))]
        channels = sum(self.sizes[p][0] for p in parts)
        return self.add("Concat", parts, (channels, *size[1:]), axis=1)

    def parts(self, x):
        """Two parts of the channels, cut between blocks mostly, swapped and joined."""
        c, *pixels = self.sizes[x]
        if c < 17:
            return self.concat(x)
        at = [16, c // 16 * 16, between(1, c - 1)][between(0, 2)]
        at = at if 0 < at < c else 16
        if chance(0.5):
            sizes = self.constant(np.array([at, c - at]))
            a, b = f"v{len(self.nodes)}", f"w{len(self.nodes)}"
            self.nodes.append(helper.make_node("Split", [x, sizes], [a, b], axis=1))
        else:
            a, b = (self.add("Slice", [x, self.constant(np.array([low])),
                                       self.constant(np.array([high])),
                                       self.constant(np.array([axis]))], (high - low, *pixels))
                    for low, high, axis in ((0, at, 1), (at, c, -3)))
        self.sizes[a], self.sizes[b] = (at, *pixels), (c - at, *pixels)
        a = self.conv(a, at, (3, 3), 1, True)
        return self.add("Concat", [b, a] if chance(0.5) else [a, b], (c, *pixels), axis=1)

    def number(self, x):
        op = ("Add", "Mul", "Sub", "Div")[between(0, 3)]
        return self.add(op, [x, self.constant(np.float32([[[1.5]]]))], self.sizes[x])

    def mlp(self, x):
        """A block with channels that are last, as ConvNeXt has."""
        c, *pixels = self.sizes[x]
        wide, vector = between(1, 70), lambda n: self.constant(
            random.standard_normal(n).astype("f4"))
        y = self.depthwise_same(x) if chance(0.5) else x
        last = (*pixels, c)
        y = self.add("Transpose", [y], last, perm=[0, 2, 3, 1])
        if chance(0.8):
            y = self.add("LayerNormalization", [y, vector(c)] + [vector(c)] * between(0, 1),
                         last, epsilon=1e-3, axis=(-1, 3)[between(0, 1)])
        for n, m in ((c, wide), (wide, c)):
            w = random.standard_normal((n, m)).astype("f4") / np.sqrt(n)
            y = self.add("MatMul", [y, self.constant(w.astype("f4"))], (*pixels, m))
            if chance(0.7):
                y = self.add("Add", [y, vector(m)], (*pixels, m))
            if m == wide and chance(0.8):
                y = self.add(("Relu", "Sigmoid", "HardSwish")[between(0, 2)], [y], (*pixels, m))
            if chance(0.2):
                y = self.add("Softmax", [y], (*pixels, m), axis=-1)
        if chance(0.5):
            y = self.add("Mul", [vector(c), y] if chance(0.5) else [y, vector(c)], last)
        y = self.add("Transpose", [y], (c, *pixels), perm=[0, 3, 1, 2])
        if chance(0.3):
            y = self.add("Mul", [y, self.constant(random.standard_normal(
                (c, 1, 1)).astype("f4"))], (c, *pixels))
        return self.add("Add", [y, x], (c, *pixels)) if chance(0.7) else y

    def up(self, x):
        """ConvTranspose, mostly one whose tiles of outputs do not overlap."""
        c, h, w = self.sizes[x]
        if h * w > 1600:
            return x
        channels, k = [16, 32, between(1, 40)][between(0, 2)], [between(1, 3), between(1, 3)]
        strides = k if chance(0.8) else [1, 1]
        weights = random.standard_normal((c, channels, *k)) / np.sqrt(c)
        inputs = [x, self.constant(weights.astype("f4"))]
        if chance(0.7):
            inputs.append(self.constant(random.standard_normal(channels).astype("f4")))
        size = [(n - 1) * s + m for n, s, m in zip((h, w), strides, k)]
        y = self.add("ConvTranspose", inputs, (channels, *size), strides=strides)
        return self.activation(y) if chance(0.5) else y

    def resize(self, x):
        """Resize or Upsample in each mode and each place of the pixels; scales, or sizes that are
        constants or come from the shape of a map."""
        c, h, w = self.sizes[x]
        if h * w > 1200 or h * w == 0:
            return x
        mode = ("nearest", "linear", "cubic")[min(between(0, 3), between(0, 2))]
        where = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")[between(0, 3)]
        factors = [(1, 2, 3, 0.5, 1.5, 2.5)[between(0, 5)] for _ in range(2)]
        if mode == "nearest" or where == "align_corners":
            # Where the size is no whole number ONNX Runtime takes other corners than ONNX says,
            # and rounds what lies between two pixels in floats.
            factors = [f if n * f == int(n * f) else 1 for n, f in zip((h, w), factors)]
        size = [max(1, int(np.floor(n * f))) for n, f in zip((h, w), factors)]
        more = {"mode": mode, "coordinate_transformation_mode": where}
        if mode == "nearest":
            more["nearest_mode"] = ("round_prefer_floor", "round_prefer_ceil", "floor",
                                    "ceil")[between(0, 3)]
        elif chance(0.3) and min(factors) < 1:
            more["antialias"] = 1
        if chance(0.4) and min(n * f for n, f in zip((h, w), factors)) >= 1:
            inputs = ["", self.constant(np.float32([1, 1, *factors]))]
        elif chance(0.5):
            inputs = ["", "", self.constant(np.array([self.shape[0], c, *size]))]
        else:
            names = [f"s{len(self.nodes) + i}" for i in range(3)]
            self.nodes += [
                helper.make_node("Shape", [x], [names[0]], start=0, end=2),
                helper.make_node("Concat", [names[0], self.constant(np.array(size))], [names[1]],
                                 axis=0)]
            inputs = ["", "", names[1]]
        return self.add("Resize", [x, *inputs], (c, *size), **more)

    def dense(self, x):
        """Blocks that normalize before they multiply, as DenseNet has."""
        for _ in range(between(1, 3)):
            c, *pixels = self.sizes[x]
            vectors = [self.constant(random.uniform(0.5, 2, c).astype("f4")) for _ in range(4)]
            y = self.add("BatchNormalization", [x, *vectors], (c, *pixels), epsilon=1e-3)
            y = self.activation(y) if chance(0.8) else y
            y = self.conv(y, (16, 32, between(1, 40))[between(0, 2)], (3, 3), 1, True, True)
            x = self.add("Concat", [x, y], (c + self.sizes[y][0], *pixels), axis=1)
        return x

    def depthwise_same(self, x):
        return self.conv(x, self.sizes[x][0], (7, 7), self.sizes[x][0], True, True)

    def outside(self, x):
        return self.add("Softmax", [x], self.sizes[x], axis=1)

    def model(self):
        x = "x"
        layers = (self.conv, self.conv, self.conv, self.depthwise, self.depthwise, self.residual,
                  self.residual, self.gate, self.pool, self.concat, self.parts, self.grouped,
                  self.number, self.outside, self.mlp, self.mlp, self.up, self.up,
                  self.resize, self.resize, self.cbam, self.cbam, self.dense, self.dense)
        for _ in range(between(4, 9)):
            x = layers[between(0, len(layers) - 1)](x)
        outputs = {x, [*self.sizes][between(0, len(self.sizes) - 1)]} - {"x"} or {x}
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                                              self.symbolic())],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in sorted(outputs)],
            self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        return model

    def save(self, y, folder):
        """Writes net.onnx with output y there."""
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)], self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                    ir_version=9), f"{folder}/net.onnx")

    def symbolic(self):
        return ["N", self.shape[1], "H", "W"] if chance(0.5) else self.shape


def compare(wanted, got, tolerance=3e-5):
    """What is wrong with a result, or ""."""
    if "failed" in got:
        return got["failed"]
    for name, y in wanted.items():
        if got[name].shape != y.shape:
            return f"{name} is {got[name].shape}, expected {y.shape}"
        apart = np.abs(got[name] - y).max(initial=0)
        if not apart <= tolerance * max(1.0, np.abs(y).max(initial=0)):
            return f"{name} differs by {apart}"
    return ""


def check_network(number, folder, isas):
    """Returns failures, and whether blocks were used."""
    network = Network()
    model = network.model()
    x = random.standard_normal(network.shape, dtype=np.float32)
    np.save(f"{folder}/x.npy", x)
    onnx.save(model, f"{folder}/net.onnx")
    session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                           providers=["CPUExecutionProvider"])
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x})))
    failed = 0
    for way in [["--isa", isa] for isa in isas] + [["--no-fusion"], *WAYS]:
        got = run(["--threads", "1", *way], folder)
        wrong = compare(wanted, got, 0.05 if way in WAYS else 3e-5)
        threads = between(2, 4)
        if not wrong and number % 2 == 0:
            other = run(["--threads", str(threads), *way], folder)
            if any(not np.array_equal(got[n].view("i4"), other[n].view("i4")) for n in wanted):
                wrong = f"{threads} threads give other bits"
        if wrong:
            failed += 1
            print(f"seed {SEED}, network {number}, {way}: {wrong}")
    return failed, "BlockedConv" in blocked_networks.operators(folder)


def named_by_file():
    """Nodes of the pass in a file of somebody's: what does not fit, and the exit code."""
    w = np.ones((16, 16, 3, 3), "f4")
    x, few = ("f4", 1, 1, 8, 8, 16), {"channels": 16}
    late = ("f4", "?", 1, 1, 8, 8, 16)  # packed before its shape is known
    yield "BlockedConv", [x, w], few, 0
    yield "BlockedConv", [x, w], {"channels": 17}, 5
    yield "BlockedConv", [x, w], {"channels": 2**62}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "group": 16}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "winograd": 1, "strides": [2, 2]}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "winograd": 1, "dilations": [2, 3]}, 0
    yield "BlockedConv", [x, w], {"channels": 16, "winograd": 1, "dilations": [2**40, 1],
                                  "pads": [2**40, 0, 2**40, 0]}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "plain": 1}, 5
    yield "BlockedConv", [("f4", 1, 1, 8, 8, 8), w], few, 5
    yield "BlockedConv", [("f4", 1, 2, 8, 8, 16), w], few, 5
    yield "BlockedConv", [x, w, np.ones(15, "f4")], few, 5
    yield "BlockedConv", [x, ("f4", 16, 16, 3, 3)], few, 4  # weights that are no constant
    yield "BlockedConv", [x, np.ones((32, 8, 3, 3), "f4")], {"channels": 16, "group": 2}, 4
    one, some = np.ones((16, 32, 1, 1), "f4"), np.ones(32, "f4")
    yield "BlockedConv", [x, one, some, None, some], {"channels": 16, "transposed": 1}, 0
    yield "BlockedConv", [x, one, some, None, some[:31]], {"channels": 16, "transposed": 1}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "transposed": 1}, 5
    yield "BlockedConv", [x, one], {"channels": 16}, 5
    yield "BlockedConv", [x, w, None, None, some[:16]], {"channels": 16, "winograd": 1}, 0
    yield "BlockedConv", [("f4", 1, 2, 8, 8, 16), np.ones((32, 16, 3, 3), "f4"), some], {
        "channels": 32, "group": 2, "winograd": 1}, 0
    yield "BlockedConv", [x, w[:, :1]], {"channels": 16, "group": 16, "winograd": 1}, 5
    half = w.astype("f2")
    yield "BlockedConv", [x, half], few, 0
    yield "BlockedConv", [x, half, None, None, some[:16]], {"channels": 16, "winograd": 1}, 0
    yield "BlockedConv", [x, half, None, None, some[:15]], few, 5
    yield "BlockedConv", [x, half[:, :1], None, None, some[:16]], {"channels": 16, "group": 16}, 0
    yield "BlockedConv", [x, one.astype("f2"), some], {"channels": 16, "transposed": 1}, 0
    yield "BlockedConv", [x, ("f4", 16, 16, 3, 3), some[:16], None, some[:16]], few, 4
    yield "BlockedConv", [x, w, None, x], {"channels": 16, "to_bf16": 1,
                                             "activation": "silu"}, 4
    yield "BlockedConv", [("f2", 1, 1, 8, 8, 16), w], few, 4
    yield "BlockedConv", [late, w], {"channels": 16, "to_bf16": 1, "winograd": 1}, 4
    four = {"channels": 16, "transposed": 1, "spread_h": 2}
    yield "BlockedConv", [x, one], four, 0
    yield "BlockedConv", [x, one], {**four, "spread_w": 2}, 5
    yield "BlockedConv", [x, one], {**four, "spread_h": -2}, 5
    yield "BlockedConv", [x, one], {**four, "spread_h": 2**62}, 5
    yield "BlockedConv", [x, one, None, x], four, 5
    yield "BlockedNorm", [x, some[:16], some[:16]], {}, 0
    yield "BlockedNorm", [x, some], {}, 5
    yield "BlockedNorm", [late, some[:9], some[:10]], {}, 5
    yield "BlockedNorm", [x, np.ones((16, 1), "f4")], {}, 5
    yield "BlockedPool", [x], {"kernel_shape": [3]}, 5
    yield "BlockedPool", [x], {"kernel_shape": []}, 5
    yield "BlockedPool", [x], {"kernel_shape": [9, 9]}, 5
    two, both = np.float32([2, 2]), {"axes": [2, 3]}
    yield "BlockedResize", [x, two], both, 0
    yield "BlockedResize", [late, two], {**both, "mode": "cubic"}, 0
    yield "BlockedResize", [x, None, np.array([3, 5])], {**both, "mode": "linear"}, 0
    yield "BlockedResize", [x, None, np.array([3, -5])], both, 5
    yield "BlockedResize", [x, None, np.array([2**62, 2**62])], both, 6
    yield "BlockedResize", [x, two], {}, 5
    yield "BlockedResize", [x, two], {"axes": [3, 2]}, 5
    yield "BlockedResize", [x, two], {**both, "coordinate_transformation_mode":
                                      "tf_crop_and_resize"}, 5
    yield "BlockedResize", [("f4", 1, 1, 8, 8, 8), two], both, 5
    dense = [x, np.ones((2, 13), "f4"), None, np.ones((13, 2), "f4"), None]
    wide = np.ones((1, 2, 7, 7), "f4")
    yield "BlockedCBAM", [*dense, wide], {"channels": 13}, 0
    yield "BlockedCBAM", [late, *[None] * 4, wide, None, x], {"channels": 1}, 0
    yield "BlockedCBAM", dense, {"channels": 13, "pools": ["max"]}, 0
    yield "BlockedCBAM", dense, {"channels": 13, "pools": ["lse"]}, 5
    yield "BlockedCBAM", dense, {"channels": 14}, 5
    yield "BlockedCBAM", [x, *[None] * 4, wide], {"channels": 17}, 5
    yield "BlockedCBAM", [x, *[None] * 4, wide], {"channels": 0}, 5
    yield "BlockedCBAM", [late, *[None] * 4, wide], {"channels": 2**62}, 5
    yield "BlockedCBAM", [x], {"channels": 16}, 5
    yield "BlockedCBAM", [*dense, wide, None, ("f4", 1, 1, 8, 9, 16)], {"channels": 13}, 5
    yield "BlockedCBAM", [("f4", 1, 1, 0, 8, 16), *dense[1:]], {"channels": 13}, 5
    yield "BlockedGate", [x, ("f4", 1, 2, 1, 1, 16)], {}, 5
    yield "BlockedMean", [("f4", 1, 1, 8, 16)], {}, 5
    yield "ToBlocked", [x], {}, 5
    yield "FromBlocked", [x], {"channels": 33}, 5
    yield "FromBlocked", [x], {"channels": -1}, 5
    yield "BlockedConv", [late, w], few, 0
    yield "BlockedConv", [late, w], {"channels": 80, "group": 5}, 5
    yield "BlockedConv", [late, w], {"channels": 16, "strides": [-1, 1]}, 5
    yield "BlockedConv", [late, np.ones((16, 16, 2, 3), "f4")], {"channels": 16, "winograd": 1}, 5
    yield "BlockedConv", [late, np.ones((0, 16, 3, 3), "f4")], few, 5
    yield "BlockedConv", [late, np.ones((16, 16), "f4")], few, 5
    yield "BlockedConv", [late, w, np.ones(3, "f4")], few, 5


def main():
    isas = [isa for isa in blocked_networks.isas() if not isa.endswith(("vnni", "amx", "dot"))]
    failed = blocked = 0
    with tempfile.TemporaryDirectory() as folder:
        failed += blocked_networks.check_named(named_by_file(), folder)
        for number in range(NETWORKS):
            wrong, used = check_network(number, folder, isas)
            failed, blocked = failed + wrong, blocked + used
            os.remove(f"{folder}/net.onnx")
    print(f"{NETWORKS} networks, {blocked} with blocks, {failed} failures")
    sys.exit(1 if failed or blocked < NETWORKS // 2 else 0)


if __name__ == "__main__":
    main()
