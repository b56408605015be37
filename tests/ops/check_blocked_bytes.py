"""Random quantized convolution networks: the bytes of blocked maps are those of the nodes of the
file on each instruction set and with each number of threads, and within a step of ONNX Runtime
1.32.0's (two where differences add up). Bytes u8 and i8, weights with and without zero points,
one scale or one for each channel; strides, dilations, groups, each channel by itself, few
channels, sums, products, gates, functions, pooling, Concat.
Usage: check_blocked_bytes.py ATTNRUN [SEED]"""
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import blocked_networks
from blocked_networks import SEED, between, chance, random, run
from exact_bytes import exact_weights

NETWORKS = 30


def dilate(pads):
    return [between(1, 3), between(1, 3)] if chance(0.2) else [1, 1], pads


class Network(blocked_networks.Maps):
    """Of maps of bytes: of each value also its scale and zero point."""

    def __init__(self):
        super().__init__()
        self.pairs = {}
        self.dtype = np.uint8 if chance(0.5) else np.int8
        self.symmetric = chance(0.5)
        self.shape = [between(1, 2), between(1, 40), between(6, 24), between(6, 24)]
        if chance(0.4):
            self.shape[1] = between(1, 4)
        self.sizes["x"] = tuple(self.shape[1:])
        self.pairs["x"] = self.pair(0.02)

    def pair(self, scale):
        info = np.iinfo(self.dtype)
        return self.constant(np.float32(scale)), self.constant(
            self.dtype(between(info.min, info.max) // 2 + (info.min + info.max) // 4))

    def scale(self, x):
        name = self.pairs[x][0]
        return float(numpy_helper.to_array(next(c for c in self.constants if c.name == name)))

    def add(self, op, inputs, size, pair, domain="com.microsoft", **attributes):
        name = self.node(op, inputs, size, domain=domain, **attributes)
        self.pairs[name] = pair
        return name

    def operand(self, x):
        return [x, *self.pairs[x]]

    def weights(self, shape):
        """W, scales, zero points."""
        channels = shape[0]
        dtype = np.int8 if self.dtype == np.int8 or chance(0.6) else np.uint8
        middle = 0 if dtype == np.int8 else 128
        w = random.integers(-128, 128, shape) + middle
        if dtype == np.int8:
            w = exact_weights(w.astype(dtype))
        many = not self.symmetric and chance(0.5) and dtype == np.uint8
        zero = np.full(channels, middle)
        if many:
            zero += random.integers(-9, 10)
        scales = (random.random(channels) * 0.01 + 0.001).astype("f4")
        if chance(0.5):
            return [self.constant(w.astype(dtype)), self.constant(scales),
                    self.constant(zero.astype(dtype))], float(scales.mean())
        return [self.constant(w.astype(dtype)), self.constant(scales[0]),
                self.constant(dtype(zero[0]))], float(scales[0])

    def conv(self, x, channels=None, kernel=None, group=1, same=False):
        c = self.sizes[x][0]
        channels = channels or between(1, 70)
        kernel = kernel or [(1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (2, 3), (7, 7)][between(0, 6)]
        found = self.window(x, kernel, same, dilate)
        if found is None:
            return self.conv(x, channels, (1, 1), group, same)
        out, attributes = found
        weights, scale = self.weights((channels, c // group, *kernel))
        k = c // group * kernel[0] * kernel[1]
        factor = self.scale(x) * scale * np.sqrt(k) * 74 * 74 / 60
        pair = self.pair(factor)
        inputs = [*self.operand(x), *weights, *pair]
        if chance(0.7):
            inputs.append(self.constant(random.integers(-20000, 20000, channels).astype("i4")))
        return self.add("QLinearConv", inputs, (channels, *out), pair, "", group=group,
                        **attributes)

    def depthwise(self, x):
        c = self.sizes[x][0]
        return self.conv(x, c, [(3, 3), (5, 5), (7, 7), (1, 3), (3, 2)][between(0, 4)], c)

    def narrow(self, x):
        """Groups of few channels, which are merged: 4 or 8 of 16, or more results than inputs."""
        of_group, rows, group = [(4, 4, 8), (8, 8, 4), (1, 2, 16), (2, 4, 8), (1, 3, 2), (5, 3, 4),
                                 (3, 1, 5), (4, 8, 12)][between(0, 7)]
        x = self.conv(x, group * of_group, (1, 1))
        return self.conv(x, group * rows, [(3, 3), (5, 5), (1, 1)][between(0, 2)], group)

    def grouped(self, x):
        group = between(2, 3)
        x = self.conv(x, group * [16, 32, 5][between(0, 2)], (1, 1))
        return self.conv(x, group * [16, 48, 7][between(0, 2)], (3, 3), group)

    def residual(self, x):
        y = self.conv(x, self.sizes[x][0], None, 1, True)
        operands = [y, x] if chance(0.5) else [x, y]
        pair = self.pair(self.scale(y) + self.scale(x))
        return self.add("QLinearAdd", [*self.operand(operands[0]), *self.operand(operands[1]),
                                       *pair], self.sizes[x], pair)

    def function(self, x):
        if chance(0.5):
            return self.add("QLinearLeakyRelu", [*self.operand(x), *self.pairs[x]],
                            self.sizes[x], self.pairs[x], alpha=0.25)
        pair = self.pair(1 / 256)
        s = self.add("QLinearSigmoid", [*self.operand(x), *pair], self.sizes[x], pair)
        if chance(0.3):
            return s
        return self.product(x, s)

    def product(self, x, s):
        pair = self.pair(self.scale(x) * self.scale(s) * 128)
        operands = [x, s] if chance(0.5) else [s, x]
        return self.add("QLinearMul", [*self.operand(operands[0]), *self.operand(operands[1]),
                                       *pair], self.sizes[x], pair)

    def mean(self, x):
        pair = self.pair(self.scale(x) / 4)
        return self.add("QLinearGlobalAveragePool", [*self.operand(x), *pair],
                        (self.sizes[x][0], 1, 1), pair, channels_last=0)

    def gate(self, x):
        few = self.conv(self.mean(x), between(1, 20), (1, 1), 1, True)
        return self.product(x, self.conv(few, self.sizes[x][0], (1, 1), 1, True))

    def pool(self, x):
        found = self.pool_window(x)
        if found is None:
            return x
        out, window = found
        return self.add("MaxPool", [x], (self.sizes[x][0], *out), self.pairs[x], "", **window)

    def concat(self, x):
        a = self.conv(x, 16 * between(1, 3), (1, 1))
        b = self.conv(a, between(1, 40), (3, 3), 1, True)
        c = self.conv(a, between(1, 3) * 16, (3, 3), 1, True)
        pair = self.pair(max(self.scale(n) for n in (a, b, c)))
        sizes = [self.sizes[n] for n in (a, c, b)]
        return self.add("QLinearConcat", [*pair, *self.operand(a), *self.operand(c),
                                          *self.operand(b)],
                        (sum(s[0] for s in sizes), *sizes[0][1:]), pair, axis=1)

    def model(self):
        x = "x"
        layers = (self.conv, self.conv, self.conv, self.depthwise, self.depthwise, self.residual,
                  self.residual, self.gate, self.pool, self.concat, self.grouped, self.function,
                  self.narrow, self.narrow)
        x = self.conv(x)
        for _ in range(between(1, 4)):
            x = layers[between(0, len(layers) - 1)](x)
        outputs = {x, f"v{between(0, len(self.nodes) - 1)}"}
        kind = TensorProto.UINT8 if self.dtype == np.uint8 else TensorProto.INT8
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", kind, self.shape)],
            [helper.make_tensor_value_info(n, kind, None) for n in sorted(outputs)],
            self.constants)
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])


def check_narrow(folder):
    """One convolution of groups of 4 channels is a region of its own, with 4 groups as one."""
    network = Network()
    network.dtype, network.shape = np.uint8, [1, 32, 12, 12]
    network.sizes["x"] = (32, 12, 12)
    network.pairs["x"] = network.pair(0.02)
    network.conv("x", 32, (3, 3), 8, True)
    graph = helper.make_graph(
        network.nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, network.shape)],
        [helper.make_tensor_value_info("v0", TensorProto.UINT8, None)], network.constants)
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]),
              f"{folder}/net.onnx")
    found = blocked_networks.operators(folder)
    if "BlockedQLinearConv" in found:
        return 0
    print(f"a convolution of narrow groups became {found}")
    return 1


def check_wide(folder):
    """Weights that are as far from their zero points as bytes can be, each channel by itself."""
    wrong = 0
    for dtype, zero in ((np.uint8, 0), (np.uint8, 255), (np.int8, -128), (np.int8, 127)):
        network = Network()
        network.dtype, shape = np.uint8, [1, 20, 12, 12]
        network.sizes["x"], network.pairs["x"] = (20, 12, 12), network.pair(0.02)
        w = random.integers(0, 256, (20, 1, 3, 3)).astype("u1").view(dtype)
        w[:, 0, 1, 1] = {0: 255, 255: 0, -128: 127, 127: -128}[zero]
        network.weights = lambda _, w=w, zero=zero, of=network: (
            [of.constant(w), of.constant(np.float32(0.01)), of.constant(w.dtype.type(zero))], 0.01)
        network.conv("x", 20, (3, 3), 20, True)
        graph = helper.make_graph(
            network.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
            [helper.make_tensor_value_info("v0", TensorProto.UINT8, None)], network.constants)
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]),
            f"{folder}/net.onnx")
        np.save(f"{folder}/x.npy", random.integers(0, 256, shape).astype("u1"))
        got, plain = run([], folder), run(["--no-fusion"], folder)
        if not same(got, plain):
            wrong += 1
            print(f"seed {SEED}, weights of {dtype.__name__} and zero point {zero}:",
                  got.get("failed") or "other bytes")
    return wrong


def same(a, b):
    return "failed" not in a and all(np.array_equal(a[n], b[n]) for n in b)


def far(wanted, got):
    """What is further from ONNX Runtime than allowed, or ""."""
    for name, y in wanted.items():
        apart = np.abs(got[name].astype(int) - y.astype(int))
        if got[name].shape != y.shape or apart.max() > 2 or (apart > 1).mean() > 0.01:
            return f"{name}: {apart.max()} steps, {(apart > 1).mean():.4f} of it more than 1"
    return ""


def check_network(number, folder, isas):
    network = Network()
    onnx.save(network.model(), f"{folder}/net.onnx")
    info = np.iinfo(network.dtype)
    x = random.integers(info.min, info.max + 1, network.shape).astype(network.dtype)
    np.save(f"{folder}/x.npy", x)
    session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                           providers=["CPUExecutionProvider"])
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x})))
    plain = run(["--no-fusion"], folder)
    wrong = [plain.get("failed") or far(wanted, plain)]
    for way in [["--threads", "1", "--isa", isa] for isa in isas] + [
            ["--threads", str(between(2, 4))], ["--disable-pass", "blocked_layout"]]:
        got = run(way, folder)
        wrong.append("" if same(got, plain) else f"{way}: {got.get('failed') or 'other bytes'}")
    for sentence in filter(None, wrong):
        print(f"seed {SEED}, network {number}: {sentence}")
    return any(wrong), "BlockedQLinearConv" in blocked_networks.operators(folder)


def check_pad(folder):
    """Pad between DequantizeLinear and QuantizeLinear becomes pads of the convolution: no Pad is
    left, and the numbers are those of the nodes of the file."""
    def constant(name, array):
        return numpy_helper.from_array(np.asarray(array), name)

    wrong = 0
    for dtype, auto_pad in ((np.uint8, "VALID"), (np.int8, "NOTSET")):
        quantize = [("x", "q0"), ("p", "q1"), ("c", "q2")]
        nodes = [helper.make_node("QuantizeLinear", [a, "s", "z"], [b]) for a, b in quantize]
        nodes += [helper.make_node("DequantizeLinear", [b, "s", "z"], [f"d{i}"])
                  for i, (_, b) in enumerate(quantize)]
        nodes += [helper.make_node("DequantizeLinear", ["w", "ws"], ["dw"]),
                  helper.make_node("Pad", ["d0", "pads", "none"], ["p"]),
                  helper.make_node("Conv", ["d1", "dw"], ["c"], strides=[2, 2],
                                   auto_pad=auto_pad)]
        nodes = [nodes[i] for i in (0, 3, 7, 1, 4, 6, 8, 2, 5)]
        constants = [constant("s", np.float32(0.05)), constant("z", dtype(17)),
                     constant("ws", np.float32(0.01)), constant("none", np.float32(0)),
                     constant("w", exact_weights(
                         random.integers(-127, 128, (20, 5, 3, 3)).astype("i1"))),
                     constant("pads", np.array([0, 0, 0, 1, 0, 0, 1, 2]))]
        graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info(
            "x", TensorProto.FLOAT, [1, 5, 9, 8])], [helper.make_tensor_value_info(
                "d2", TensorProto.FLOAT, None)], constants)
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18)]), f"{folder}/net.onnx")
        x = random.standard_normal((1, 5, 9, 8), dtype=np.float32)
        np.save(f"{folder}/x.npy", x)
        session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                               providers=["CPUExecutionProvider"])
        wanted = session.run(None, {"x": x})[0]
        got = run([], folder)
        left = blocked_networks.operators(folder)
        if "failed" in got or np.abs(got["d2"] - wanted).max() > 0.051 or "Pad" in left:
            wrong += 1
            print(f"seed {SEED}, Pad of {dtype.__name__}, {auto_pad}: {got}, nodes {left}")
    return wrong


def check_halves(folder):
    """Sums, products and means that lie between two bytes, with even and odd zero points: the
    byte is that of ONNX Runtime, on blocked maps and by the nodes of the file."""
    wrong = 0
    for dtype, zero in ((np.uint8, 6), (np.uint8, 7), (np.int8, -6), (np.int8, -7)):
        maps, info = Network(), np.iinfo(dtype)
        maps.constants.clear()
        maps.dtype, shape = dtype, (1, 20, 6, 5)
        maps.sizes["x"] = shape[1:]

        def pair(scale, point):
            return maps.constant(np.float32(scale)), maps.constant(dtype(point))

        maps.pairs["x"] = pair(1, 3)
        w = maps.constant(random.integers(-3, 4, (20, 20, 1, 1)).astype("i1"))
        c = maps.add("QLinearConv", [*maps.operand("x"), w, *(maps.constant(v) for v in (
            np.float32(1 / 8), np.int8(0))), *pair(1, 5)], shape[1:], (), "")
        maps.pairs[c] = pair(1, 5)
        a = maps.add("QLinearAdd", [*maps.operand(c), *maps.operand("x"), *pair(2, zero)],
                     shape[1:], pair(2, zero))
        m = maps.add("QLinearMul", [*maps.operand(a), *maps.operand("x"), *pair(256, zero)],
                     shape[1:], ())
        p = maps.add("QLinearAveragePool", [*maps.operand("x"), *pair(1, zero)], (20, 6, 4), (),
                     kernel_shape=[1, 2])
        kind = TensorProto.UINT8 if dtype == np.uint8 else TensorProto.INT8
        graph = helper.make_graph(
            maps.nodes, "net", [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(n, kind, None) for n in (a, m, p)], maps.constants)
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]),
            f"{folder}/net.onnx")
        x = random.integers(info.min, info.max + 1, shape).astype(dtype)
        np.save(f"{folder}/x.npy", x)
        session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                               providers=["CPUExecutionProvider"])
        wanted = dict(zip((a, m, p), session.run([a, m, p], {"x": x})))
        for way in ([], ["--no-fusion"]):
            got = run(way, folder)
            if not same(got, wanted):
                wrong += 1
                print(f"seed {SEED}, halves of {dtype.__name__}, zero {zero}, {way}:",
                      got.get("failed") or [(got[n] != wanted[n]).mean() for n in wanted])
    return wrong


def named(w, attributes, wanted, x=("u1", 1, 1, 8, 8, 16), z=None, bias=None, factor=None,
          zero=None, table=None):
    """A BlockedQLinearConv in a file of somebody's."""
    factor = np.ones(w.shape[0], "f4") if factor is None else factor
    zero = np.zeros((), w.dtype) if zero is None else zero
    return "BlockedQLinearConv", [x, w, bias, z, factor, zero, table], attributes, wanted


def named_by_file():
    w, alone, few = np.ones((16, 16, 3, 3), "i1"), np.ones((32, 1, 3, 3), "i1"), {"channels": 16}
    late, z = ("u1", "?", 1, 1, 8, 8, 16), ("u1", 1, 1, 6, 6, 16)
    two, of_two = ("u1", 1, 2, 9, 9, 16), {"channels": 32, "group": 32}
    yield named(w, few, 0)
    yield named(w, few, 0, late)
    for value in (np.nan, np.inf, -np.inf):
        yield named(w, {**few, "ratio": value}, 0, z=z)
        yield named(w, {**few, "z_ratio": value}, 0, z=z)
        yield named(w, few, 0, factor=np.full(16, value, "f4"))
    yield named(w, {**few, "low": 200, "high": 3}, 0)
    yield named(w, {**few, "x_zero": 256}, 5)
    yield named(w, {**few, "sum_zero": -1}, 5)
    yield named(w, few, 5, z=("u1", 1, 1, 6, 5, 16))
    for x in (("u1", 1, 1, 8, 8, 16), late):
        yield named(w, few, 5, x, factor=np.ones(3, "f4"))
        yield named(w, few, 5, x, bias=np.ones(3, "i4"))
        yield named(w, few, 5, x, zero=np.ones(3, "i1"))
        yield named(w, few, 5, x, zero=np.ones(0, "i1"))
        yield named(w, few, 5, x, table=np.zeros(255, "u1"))
        yield named(w, {"channels": 17}, 5, x)
        yield named(w, {"channels": 16, "group": 3}, 5, x)
        yield named(np.ones((16, 16, 0, 3), "i1"), few, 5, x)
        yield named(np.ones((0, 16, 3, 3), "i1"), few, 5, x)
        for strides in ([-5, -5], [0, 1], [2**62, 1]):
            yield named(w, {**few, "strides": strides}, 5, x)
    yield named(alone, of_two, 0, two)
    yield named(alone, of_two, 0, ("u1", "?", 1, 2, 9, 9, 16))
    yield named(alone, {**of_two, "strides": [-5, -5]}, 5, ("u1", "?", 1, 2, 9, 9, 16))
    yield named(alone, {**of_two, "strides": [4, 4]}, 4, two)
    yield named(alone, {**of_two, "dilations": [2, 2]}, 4, two)
    map_, gate = ("u1", 1, 2, 9, 9, 16), ("u1", 1, 2, 1, 1, 16)
    for zero, code in ((255, 0), (256, 5), (-1, 5), (2**62, 5)):
        for name in ("x_zero", "y_zero"):
            yield "BlockedMean", [map_], {name: zero}, code
            yield "BlockedGate", [map_, gate], {name: zero}, code
        yield "BlockedGate", [map_, gate], {"gate_zero": zero}, code
    wide, pad = 2**31 - 1, 2**30 - 1  # only the taps that see the map cost time
    yield "BlockedPool", [map_], {"kernel_shape": [wide, wide], "pads": [pad] * 4}, 0
    plain = ("u1", 1, 2, 8, 8, 4)
    yield named(np.ones((16, 5, 3, 3), "i1"), {"channels": 5, "plain": 1}, 5, plain)


def main():
    isas = blocked_networks.isas()
    failed = blocked = 0
    with tempfile.TemporaryDirectory() as folder:
        failed += blocked_networks.check_named(named_by_file(), folder)
        failed += check_narrow(folder) + check_wide(folder)
        failed += check_pad(folder) + check_halves(folder)
        for number in range(NETWORKS):
            wrong, used = check_network(number, folder, isas)
            failed, blocked = failed + wrong, blocked + used
    print(f"{NETWORKS} networks, {blocked} with blocks, {failed} failures")
    sys.exit(failed > 0 or blocked < NETWORKS // 2)


main()
