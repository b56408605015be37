"""Random convolution networks against ONNX Runtime 1.32.0, on each instruction set and without
fusion: channels that are no multiples of 16, groups, strides, dilations, pads, residuals, gates,
pooling, Concat, and nodes in between that know no blocks of channels. All numbers of threads
give the same bits.
Usage: check_blocked.py ATTNRUN [SEED]"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 5
NETWORKS = 40
BF16 = ["--precision", "bf16"]
random = np.random.default_rng(SEED)


def between(low, high):
    return int(random.integers(low, high + 1))


def chance(share):
    return random.random() < share


class Network:
    """Nodes over maps; what it knows of a value is its channels, height and width."""

    def __init__(self):
        self.nodes, self.constants, self.sizes = [], [], {}
        self.shape = [between(1, 2), between(1, 20), between(9, 30), between(9, 30)]
        self.sizes["x"] = tuple(self.shape[1:])

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, inputs, size, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.sizes[name] = size
        return name

    def conv(self, x, channels=None, kernel=None, group=1, same=False, plain=False):
        c, h, w = self.sizes[x]
        channels = channels or between(1, 70)
        kernel = kernel or [(1, 1), (3, 3), (3, 3), (5, 5), (2, 3), (7, 7), (1, 4)][between(0, 6)]
        stride, dilation = [1, 1], [1, 1]
        pads = [k // 2 for k in kernel] + [(k - 1) // 2 for k in kernel]
        if not same:
            stride = [between(1, 2), between(1, 3)] if chance(0.4) else stride
            pads = [between(0, k - 1) for k in kernel * 2] if chance(0.4) else pads
            if chance(0.25):
                most = 2 if chance(0.5) else 12
                dilation = [between(1, most), between(1, most)]
                pads = [d * p for d, p in zip(dilation * 2, pads)]
        out = [(n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
               for i, n in enumerate((h, w))]
        if min(out) < 1 or h + pads[0] + pads[2] <= dilation[0] * (kernel[0] - 1):
            return self.conv(x, channels, (1, 1), group, same)
        weights = random.standard_normal((channels, c // group, *kernel)) / np.sqrt(
            c // group * kernel[0] * kernel[1])
        inputs = [x, self.constant(weights.astype("f4"))]
        if chance(0.7):
            inputs.append(self.constant(random.standard_normal(channels).astype("f4")))
        y = self.add("Conv", inputs, (channels, *out), group=group, strides=stride,
                     dilations=dilation, pads=pads)
        return y if plain else self.activation(y)

    def depthwise(self, x):
        return self.conv(x, self.sizes[x][0], [(3, 3), (5, 5), (7, 7), (1, 3), (3, 2)][
            between(0, 4)], self.sizes[x][0])

    def grouped(self, x):
        group = between(2, 3)
        x = self.conv(x, group * [16, 32, 5][between(0, 2)], (1, 1))
        return self.conv(x, group * [16, 48, 7][between(0, 2)], (3, 3), group)

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

    def pool(self, x):
        c, h, w = self.sizes[x]
        kernel, stride = [between(1, 3), between(1, 3)], [between(1, 2), between(1, 2)]
        pads = [between(0, k - 1) for k in kernel * 2]
        out = [(n + pads[i] + pads[i + 2] - kernel[i]) // stride[i] + 1
               for i, n in enumerate((h, w))]
        if min(out) < 1:
            return x
        more = {"count_include_pad": between(0, 1)} if chance(0.5) else {}
        return self.add("AveragePool" if more else "MaxPool", [x], (c, *out), kernel_shape=kernel,
                        strides=stride, pads=pads, **more)

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

    def outside(self, x):
        return self.add("Softmax", [x], self.sizes[x], axis=1)

    def model(self):
        x = "x"
        layers = (self.conv, self.conv, self.conv, self.depthwise, self.depthwise, self.residual,
                  self.residual, self.gate, self.pool, self.concat, self.parts, self.grouped,
                  self.number, self.outside)
        for _ in range(between(4, 9)):
            x = layers[between(0, len(layers) - 1)](x)
        outputs = {x, f"v{between(0, len(self.nodes) - 1)}"} if self.nodes else {x}
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                                              self.symbolic())],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in sorted(outputs)],
            self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        return model

    def symbolic(self):
        return ["N", self.shape[1], "H", "W"] if chance(0.5) else self.shape


def run(arguments, folder):
    path = f"{folder}/y.npz"
    done = subprocess.run([sys.argv[1], "run", f"{folder}/net.onnx", "-i", f"x={folder}/x.npy",
                           "-o", path, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return {"failed": done.stderr.strip()[-400:]}
    with np.load(path) as values:
        return dict(values)


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
    for way in [["--isa", isa] for isa in isas] + [["--no-fusion"], BF16]:
        got = run(["--threads", "1", *way], folder)
        wrong = compare(wanted, got, 0.05 if way == BF16 else 3e-5)
        threads = between(2, 4)
        if not wrong and number % 2 == 0:
            other = run(["--threads", str(threads), *way], folder)
            if any(not np.array_equal(got[n].view("i4"), other[n].view("i4")) for n in wanted):
                wrong = f"{threads} threads give other bits"
        if wrong:
            failed += 1
            print(f"seed {SEED}, network {number}, {way}: {wrong}")
    inspected = subprocess.run([sys.argv[1], "inspect", "--json", f"{folder}/net.onnx"],
                               capture_output=True, text=True, check=True)
    return failed, "BlockedConv" in inspected.stdout


def named_by_file():
    """Nodes of the pass in a file of somebody's: what does not fit, and the exit code."""
    w = np.ones((16, 16, 3, 3), "f4")
    x, few = [1, 1, 8, 8, 16], {"channels": 16}
    yield "BlockedConv", [x, w], few, 0
    yield "BlockedConv", [x, w], {"channels": 17}, 5
    yield "BlockedConv", [x, w], {"channels": 2**62}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "group": 16}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "winograd": 1, "strides": [2, 2]}, 5
    yield "BlockedConv", [x, w], {"channels": 16, "plain": 1}, 5
    yield "BlockedConv", [[1, 1, 8, 8, 8], w], few, 5
    yield "BlockedConv", [[1, 2, 8, 8, 16], w], few, 5
    yield "BlockedConv", [x, w, np.ones(15, "f4")], few, 5
    yield "BlockedConv", [x, [16, 16, 3, 3]], few, 4  # weights that are no constant
    yield "BlockedConv", [x, np.ones((32, 8, 3, 3), "f4")], {"channels": 16, "group": 2}, 4
    yield "BlockedPool", [x], {"kernel_shape": [3]}, 5
    yield "BlockedPool", [x], {"kernel_shape": []}, 5
    yield "BlockedPool", [x], {"kernel_shape": [9, 9]}, 5
    yield "BlockedGate", [x, [1, 2, 1, 1, 16]], {}, 5
    yield "BlockedMean", [[1, 1, 8, 16]], {}, 5
    yield "ToBlocked", [x], {}, 5
    yield "FromBlocked", [x], {"channels": 33}, 5
    yield "FromBlocked", [x], {"channels": -1}, 5


def check_named(folder):
    failed = 0
    for op, operands, attributes, wanted in named_by_file():
        names = [f"i{i}" for i in range(len(operands))]
        empty = attributes.get("kernel_shape") == []
        graph = helper.make_graph(
            [helper.make_node(op, names, ["y"], domain="attnrun.fused",
                              **({"kernel_shape": [1]} if empty else attributes))], "net",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, o)
             for n, o in zip(names, operands) if isinstance(o, list)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(o, n) for n, o in zip(names, operands)
             if not isinstance(o, list)])
        if empty:
            del graph.node[0].attribute[0].ints[:]
        onnx.save(helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("attnrun.fused", 1)],
            ir_version=9), f"{folder}/net.onnx")
        done = subprocess.run([sys.argv[1], "run", f"{folder}/net.onnx"], capture_output=True,
                              text=True, timeout=60)
        if done.returncode != wanted:
            failed += 1
            print(f"{op} {attributes}: exit code {done.returncode}, expected {wanted}: "
                  f"{done.stderr.strip()[-200:]}")
    return failed


def main():
    doctor = subprocess.run([sys.argv[1], "doctor", "--json"], capture_output=True, text=True,
                            check=True)
    isas = [isa for isa in json.loads(doctor.stdout)["isas"]
            if not isa.endswith(("vnni", "amx", "dot"))]
    failed = blocked = 0
    with tempfile.TemporaryDirectory() as folder:
        failed += check_named(folder)
        for number in range(NETWORKS):
            wrong, used = check_network(number, folder, isas)
            failed, blocked = failed + wrong, blocked + used
            os.remove(f"{folder}/net.onnx")
    print(f"{NETWORKS} networks, {blocked} with blocks, {failed} failures")
    sys.exit(failed > 0 or blocked < NETWORKS // 2)


main()
