"""BlockedSeparable gives the bits of the BlockedConv nodes that it stands for, on each
instruction set and with several threads: windows, strides, dilations, pads, activations, maps
that are added, nodes without the first or the last product. Networks of MobileNet's layers at
sizes where the pass makes such nodes agree with ONNX Runtime 1.32.0, with and without the pass.
Usage: check_blocked_separable.py ATTNRUN [SEED [PART]], one of PART cases"""
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import blocked_networks
from blocked_networks import PART, SEED, between, chance, random, run

CASES, NETWORKS = 60 // PART, 12 // PART
ACTIVATIONS = [{"activation": "none"}, {"activation": "relu"}, {"activation": "relu6"},
               {"activation": "clip", "alpha": -0.5, "beta": 0.75}, {"activation": "silu"},
               {"activation": "hardswish"}, {"activation": "leakyrelu", "alpha": 0.1}]
PREFIXES = {"first": "expand", "own": "", "last": "project"}


def renamed(activation, part):
    """The attributes of a BlockedConv under the names that they have in BlockedSeparable."""
    prefix = PREFIXES[part]
    return {prefix if prefix and k == "activation" else f"{prefix}_{k}" if prefix else k: v
            for k, v in activation.items()}


class Case:
    """The same layers as one node and as several."""

    def __init__(self):
        self.n, self.c, self.own, self.m = (between(1, 2), between(1, 40), between(2, 70),
                                            between(1, 70))
        self.h, self.w = between(1, 40), between(1, 30)
        self.first, self.last = chance(0.7), chance(0.7)
        if not self.first and not self.last:
            self.first = self.last = True
        if not self.first:
            self.own = self.c = max(self.c, 2)
        if not self.last:
            self.m = self.own
        self.kernel = [(3, 3), (5, 5), (7, 7), (1, 3), (4, 2), (3, 1)][between(0, 5)]
        dilation = [between(1, 2), between(1, 2)] if chance(0.2) else [1, 1]
        pads = [between(0, k) for k in self.kernel * 2]
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, self.kernel)]
        self.h, self.w = max(self.h, reach[0]), max(self.w, reach[1])
        self.window = {"kernel_shape": self.kernel, "dilations": dilation, "pads": pads,
                       "strides": [between(1, 2), between(1, 3)] if chance(0.4) else [1, 1]}
        self.out = [(n + pads[i] + pads[i + 2] - reach[i]) // self.window["strides"][i] + 1
                    for i, n in enumerate((self.h, self.w))]
        self.activations = {part: ACTIVATIONS[between(0, len(ACTIVATIONS) - 1)]
                            for part in PREFIXES}
        self.weights = {}
        self.dtype = [np.float32, np.float32, np.float16, ml_dtypes.bfloat16][between(0, 3)]
        self.draw("own", (self.own, 1, *self.kernel))
        if self.first:
            self.draw("first", (self.own, self.c, 1, 1))
        if self.last:
            self.draw("last", (self.m, self.own, 1, 1))
        self.adds = self.last and chance(0.4)

    def draw(self, part, shape):
        scale = np.sqrt(np.prod(shape[1:]))
        self.weights[part] = (random.standard_normal(shape) / scale).astype(self.dtype)
        if chance(0.7):
            self.weights[f"{part}_bias"] = random.standard_normal(shape[0]).astype("f4")
        if chance(0.3):
            self.weights[f"{part}_scale"] = random.uniform(0.5, 2, -(-shape[0] // 16) * 16).astype(
                "f4")

    def inputs(self, part):
        names = [part, f"{part}_bias", f"{part}_scale"]
        return [name if name in self.weights else "" for name in names]

    def model(self, nodes):
        z = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [self.n, self.m, *self.out])]
        nodes = [helper.make_node("ToBlocked", ["x"], ["b"], domain="attnrun.fused"),
                 *([helper.make_node("ToBlocked", ["z"], ["zb"], domain="attnrun.fused")]
                   if self.adds else []), *nodes,
                 helper.make_node("FromBlocked", ["r"], ["y"], domain="attnrun.fused",
                                  channels=self.m)]
        graph = helper.make_graph(
            nodes, "net", [helper.make_tensor_value_info(
                "x", TensorProto.FLOAT, [self.n, self.c, self.h, self.w]),
                *(z if self.adds else [])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, name) for name, w in self.weights.items()])
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("attnrun.fused", 1)])

    def joined(self):
        attributes = {**self.window, "channels": self.c}
        for part in PREFIXES:
            if part == "own" or getattr(self, part):
                attributes.update(renamed(self.activations[part], part))
        inputs = ["b", *self.inputs("own"), *self.inputs("first"), *self.inputs("last"),
                  "zb" if self.adds else ""]
        return self.model([helper.make_node("BlockedSeparable", inputs, ["r"],
                                            domain="attnrun.fused", **attributes)])

    def apart(self):
        nodes, value = [], "b"
        for part in ["first", "own", "last"]:
            if part != "own" and not getattr(self, part):
                continue
            more = ({**self.window, "group": self.own} if part == "own" else {})
            channels = self.c if part == "first" else self.own
            w, b, s = self.inputs(part)
            z = "zb" if part == "last" and self.adds else ""
            nodes.append(helper.make_node(
                "BlockedConv", [value, w, b, z, s], [part + "_y"],
                domain="attnrun.fused", channels=channels, **more, **self.activations[part]))
            value = part + "_y"
        nodes[-1].output[0] = "r"
        return self.model(nodes)


def check_case(number, folder, isas):
    case = Case()
    np.save(f"{folder}/x.npy", random.standard_normal((case.n, case.c, case.h, case.w),
                                                      dtype=np.float32))
    more = []
    if case.adds:
        np.save(f"{folder}/z.npy", random.standard_normal((case.n, case.m, *case.out),
                                                          dtype=np.float32))
        more = ["-i", f"z={folder}/z.npy"]
    failed = 0
    onnx.save(case.apart(), f"{folder}/net.onnx")
    ways = [["--isa", isa, "--threads", str(t)] for isa in isas for t in (1, between(2, 5))]
    wanted = [run([*more, *way, "--disable-pass", "blocked_separable"], folder) for way in ways]
    onnx.save(case.joined(), f"{folder}/net.onnx")
    for way, want in zip(ways, wanted):
        got = run([*more, *way], folder)
        wrong = want.get("failed") or got.get("failed") or ""
        if not wrong and got["y"].shape != want["y"].shape:
            wrong = f"y is {got['y'].shape}, expected {want['y'].shape}"
        if not wrong and not np.array_equal(got["y"].view("i4"), want["y"].view("i4")):
            wrong = f"other bits, up to {np.abs(got['y'] - want['y']).max()} apart"
        if wrong:
            failed += 1
            shown = {k: v for k, v in vars(case).items() if k != "weights"}
            print(f"seed {SEED}, case {number} {shown}, {way}: {wrong}")
    return failed


class Network(blocked_networks.Maps):
    """Inverted residuals on maps that are large enough for strips."""

    def __init__(self):
        super().__init__()
        self.shape = [between(1, 2), 3, between(96, 150), between(96, 150)]
        self.sizes["x"] = tuple(self.shape[1:])

    def conv(self, x, channels, kernel, group=1, stride=1, act=True):
        c = self.sizes[x][0]
        weights = random.standard_normal((channels, c // group, kernel, kernel)) / np.sqrt(
            c // group * kernel * kernel)
        out = [(n - 1) // stride + 1 for n in self.sizes[x][1:]]
        y = self.node("Conv", [x, self.constant(weights.astype("f4")),
                               self.constant(random.standard_normal(channels).astype("f4"))],
                      (channels, *out), group=group, strides=[stride] * 2,
                      kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)
        if not act:
            return y
        op = ["Relu", "HardSwish", "Clip"][between(0, 2)]
        limits = [self.constant(np.float32(0)), self.constant(np.float32(6))]
        return self.node(op, [y, *limits] if op == "Clip" else [y], self.sizes[y])

    def block(self, x, channels):
        stride, kernel = (2 if chance(0.3) else 1), [3, 5][between(0, 1)]
        y, wide = x, self.sizes[x][0]
        if chance(0.7):
            wide = self.sizes[x][0] * between(2, 5)
            y = self.conv(x, wide, 1)
        y = self.conv(y, wide, kernel, wide, stride)
        if chance(0.2):  # the gate of squeeze and excitation
            mean = self.node("GlobalAveragePool", [y], (wide, 1, 1))
            gate = self.node("Sigmoid", [mean], (wide, 1, 1))
            y = self.node("Mul", [y, gate], self.sizes[y])
        y = self.conv(y, channels, 1, act=False)
        if self.sizes[y] == self.sizes[x]:
            y = self.node("Add", [y, x], self.sizes[y])
        return y

    def model(self):
        y = self.conv("x", 16 * between(1, 2), 3)
        for _ in range(3):
            y = self.block(y, self.sizes[y][0] if chance(0.5) else between(9, 40))
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                 ir_version=9), y


def check_network(number, folder, isas):
    """Returns failures, and the nodes that the pass made."""
    network = Network()
    model, y = network.model()
    x = random.standard_normal(network.shape, dtype=np.float32)
    np.save(f"{folder}/x.npy", x)
    onnx.save(model, f"{folder}/net.onnx")
    session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                           providers=["CPUExecutionProvider"])
    wanted, = session.run(None, {"x": x})
    failed = 0
    for isa in isas:
        got = run(["--isa", isa, "--threads", str(between(1, 3))], folder)
        same = run(["--isa", isa, "--disable-pass", "blocked_separable"], folder)
        wrong = got.get("failed") or same.get("failed") or ""
        if not wrong and not np.array_equal(got[y].view("i4"), same[y].view("i4")):
            wrong = f"other bits without the pass, up to {np.abs(got[y] - same[y]).max()} apart"
        if not wrong and not np.abs(got[y] - wanted).max() <= 3e-5 * np.abs(wanted).max():
            wrong = f"differs by {np.abs(got[y] - wanted).max()}"
        if wrong:
            failed += 1
            print(f"seed {SEED}, network {number}, {isa}: {wrong}")
    return failed, blocked_networks.operators(folder).count("BlockedSeparable")


def named_by_file():
    """Nodes in a file of somebody's: what does not fit, and the exit code."""
    x, own, few = ("f4", 1, 1, 8, 8, 16), np.ones((16, 1, 3, 3), "f4"), {"channels": 16}
    late, one = ("f4", "?", 1, 1, 8, 8, 16), np.ones((16, 16, 1, 1), "f4")
    bias, op = np.ones(16, "f4"), "BlockedSeparable"
    yield op, [x, own, None, None, one], few, 0
    yield op, [x, own, *[None] * 5, one], few, 0
    yield op, [late, own, bias, bias, one, bias, bias, one, bias, bias], few, 0
    yield op, [x, own, None, None, one, *[None] * 2, one, *[None] * 2, x], {**few,
                                                                          "pads": [1] * 4}, 0
    yield op, [x, own, None, None, one, *[None] * 2, one, *[None] * 2, x], few, 5
    yield op, [x, own, None, None, one, *[None] * 5, x], few, 5
    yield op, [x, own], few, 5
    yield op, [x, own, None, None, one], {"channels": 17}, 5
    yield op, [x, own, None, None, one], {"channels": 2**62}, 5
    yield op, [x, own, *[None] * 5, one], {"channels": -16}, 5
    yield op, [x, own, None, None, np.ones((16, 15, 1, 1), "f4")], few, 5
    yield op, [x, own, None, None, np.ones((16, 16, 1, 2), "f4")], few, 5
    yield op, [x, own, None, None, np.ones((16, 16), "f4")], few, 5
    yield op, [x, own, *[None] * 5, np.ones((16, 17, 1, 1), "f4")], few, 5
    yield op, [x, own, *[None] * 5, np.ones((0, 16, 1, 1), "f4")], few, 5
    yield op, [x, np.ones((16, 2, 3, 3), "f4"), None, None, one], few, 5
    yield op, [x, own, bias[:15], None, one], few, 5
    yield op, [x, own, None, bias[:15], one], few, 5
    yield op, [x, own, None, None, one, bias[:15]], few, 5
    yield op, [x, own, None, None, one, None, bias[:15]], few, 5
    yield op, [x, own, None, None, one.astype("f2")], few, 5
    yield op, [late, own, None, None, one], {**few, "strides": [-1, 1]}, 5
    yield op, [late, own, None, None, one], {**few, "kernel_shape": [3, 4]}, 5
    yield op, [late, own, None, None, one], {**few, "pads": [2**31 - 1] * 4}, 6
    yield op, [x, ("f4", 16, 1, 3, 3), None, None, one], few, 4
    yield op, [x, own, None, None, ("f4", 16, 16, 1, 1)], few, 4
    yield op, [("f4", 1, 1, 8, 8, 8), own, None, None, one], few, 5
    yield op, [("f4", 1, 1, 0, 8, 16), own, None, None, one], few, 5
    yield op, [("f4", 1, 1, 0, 8, 16), own, None, None, one], {**few, "pads": [1] * 4}, 0
    yield op, [("f4", 0, 1, 8, 8, 16), own, None, None, one], few, 0


def main():
    isas = [isa for isa in blocked_networks.isas()
            if not isa.endswith(("vnni", "amx", "dot", "bf16"))]
    made = 0
    with tempfile.TemporaryDirectory() as folder:
        failed = blocked_networks.check_named(named_by_file(), folder)
        for number in range(CASES):
            failed += check_case(number, folder, isas)
        for number in range(NETWORKS):
            wrong, nodes = check_network(number, folder, isas)
            failed, made = failed + wrong, made + nodes
    print(f"{CASES} nodes, {NETWORKS} networks with {made} nodes of the pass, {failed} failures")
    sys.exit(failed > 0 or made < NETWORKS)


main()
