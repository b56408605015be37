"""Forms of convolution networks against ONNX Runtime 1.32.0, each in blocks of channels: blocks
with channels that are last, BatchNormalization without a Conv, spread and dilated convolutions,
old forms of Resize, and pyramids of sizes that are known at run only.
Usage: check_blocked_forms.py ATTNRUN [SEED]"""
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import blocked_networks
from blocked_networks import SEED, between, chance, random, run
from check_blocked import Network, compare


def check_dense(folder):
    """Three layers of a DenseNet: one run of blocked maps, with no copy and no activation of its
    own inside."""
    network = Network()
    network.shape = [1, 3, 20, 24]
    network.sizes["x"] = (3, 20, 24)
    x = network.conv("x", 48, (3, 3), 1, True, True)
    for channels in (48, 80, 112):
        vectors = [network.constant(random.uniform(0.5, 2, channels).astype("f4"))
                   for _ in range(4)]
        y = network.add("BatchNormalization", [x, *vectors], (channels, 20, 24))
        y = network.add("Relu", [y], (channels, 20, 24))
        y = network.conv(y, 32, (3, 3), 1, True, True)
        x = network.add("Concat", [x, y], (channels + 32, 20, 24), axis=1)
    network.save(x, folder)
    found = sorted(set(blocked_networks.operators(folder)))
    if found == ["BlockedConv", "Concat", "FromBlocked"]:
        return 0
    print(f"layers of a DenseNet became {found}")
    return 1


def check_last(folder, shape):
    """A block with channels that are last, between two convolutions: one run of blocked maps,
    with no copy inside, the factors in the weights and the sums in the convolutions."""
    network = Network()
    network.shape, c = shape, 40
    network.sizes["x"] = (3, 20, 24)
    x = network.conv("x", c, (3, 3), 1, True, True)
    vector = lambda n: network.constant(random.standard_normal(n).astype("f4"))
    y = network.add("Transpose", [network.depthwise_same(x)], (20, 24, c), perm=[0, 2, 3, 1])
    y = normed = network.add("LayerNormalization", [y, vector(c), vector(c)], (20, 24, c))
    for n, m in ((c, 4 * c), (4 * c, c)):
        y = network.add("MatMul", [y, vector((n, m))], (20, 24, m))
        y = network.add("Add", [y, vector(m)], (20, 24, m))
        y = network.add("Relu", [y], (20, 24, m)) if n == c else y
    y = network.add("Add", [network.add("Mul", [y, vector(c)], (20, 24, c)), normed],
                    (20, 24, c))
    y = network.add("Transpose", [y], (c, 20, 24), perm=[0, 3, 1, 2])
    y = network.add("Add", [y, x], (c, 20, 24))
    network.save(y, folder)
    found = sorted(blocked_networks.operators(folder))
    if found == ["Add", "BlockedConv", "BlockedNorm", "FromBlocked"]:
        return 0
    print(f"seed {SEED}, channels that are last, {shape}: {found}")
    return 1


def check_spread(folder):
    """A spread convolution with strides, which the pass does not write but a file may hold: map
    lines of its result are no lines of its input."""
    x = random.standard_normal((1, 1, 64, 64, 16)).astype("f4")
    w = random.standard_normal((16, 64, 1, 1)).astype("f4")
    node = helper.make_node("BlockedConv", ["x", "w"], ["y"], domain="attnrun.fused", channels=16,
                            transposed=1, spread_h=2, spread_w=2, strides=[2, 2])
    graph = helper.make_graph(
        [node], "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("attnrun.fused", 1)]),
        f"{folder}/net.onnx")
    np.savez(f"{folder}/x.npz", x=x)
    subprocess.run([sys.argv[1], "run", f"{folder}/net.onnx", "-q", "-i", f"{folder}/x.npz", "-o",
                    f"{folder}/y.npz"], check=True)
    sums = np.einsum("bkhwc,cm->hwm", x[:, :, ::2, ::2], w[:, :, 0, 0])
    want = np.zeros_like(x)
    for tap in range(4):
        want[0, 0, tap // 2::2, tap % 2::2] = sums[..., 16 * tap:16 * tap + 16]
    with np.load(f"{folder}/y.npz") as got:
        wrong = abs(got["y"] - want).max()
    if wrong > 1e-4:
        print(f"seed {SEED}, a spread convolution with strides: off by {wrong}")
    return wrong > 1e-4


def of_blocks(x):
    """The map [N, C, H, W] of blocks of 16 channels [N, C / 16, H, W, 16]."""
    n, blocks, h, w, lanes = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, h, w)


def check_dilated(folder, isas):
    """Tiles of 2 x 2 outputs of dilated convolutions, with each kind of weights, against ONNX
    Runtime: phases without a pixel, or of an odd number of them, and all that may follow."""
    wrong = 0
    for case in range(24):
        group = between(1, 2)
        inputs, rows = group * 16 * between(1, 3), group * 16 * between(1, 3)
        dilations, pads = [between(1, 9), between(1, 9)], [between(0, 9) for _ in range(4)]
        n, size = between(1, 2), [between(1, 12) + 2 * d for d in dilations]
        x = random.standard_normal((n, inputs // 16, *size, 16)).astype("f4")
        w = (random.standard_normal((rows, inputs // group, 3, 3)) / np.sqrt(inputs)).astype("f4")
        w = w.astype("f2") if chance(0.3) else w
        bias = random.standard_normal(rows).astype("f4")
        window = {"dilations": dilations, "pads": pads, "group": group}
        activation = ("none", "relu", "silu")[between(0, 2)]
        conv = helper.make_model(helper.make_graph(
            [helper.make_node("Conv", ["x", "w", "b"], ["y"], **window)], "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 4)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a, name) for a, name in ((w.astype("f4"), "w"), (bias, "b"))]),
            opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        session = onnxruntime.InferenceSession(conv.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        want = session.run(None, {"x": of_blocks(x)})[0]
        z = random.standard_normal((n, rows // 16, *want.shape[2:], 16)).astype("f4")
        want = want + of_blocks(z)
        want = {"none": want, "relu": np.maximum(want, 0),
                "silu": want / (1 + np.exp(-want))}[activation]
        node = helper.make_node("BlockedConv", ["x", "w", "b", "z"], ["y"],
                                domain="attnrun.fused", channels=inputs, winograd=1,
                                activation=activation, **window)
        onnx.save(helper.make_model(helper.make_graph(
            [node], "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a, name) for a, name in ((w, "w"), (bias, "b"), (z, "z"))]),
            ir_version=9, opset_imports=[helper.make_opsetid("", 18),
                                         helper.make_opsetid("attnrun.fused", 1)]),
            f"{folder}/net.onnx")
        np.save(f"{folder}/x.npy", x)
        for isa in isas:
            got = run(["--threads", str(between(1, 3)), "--isa", isa], folder)
            why = compare({"y": want}, {"y": of_blocks(got["y"])} if "y" in got else got)
            if why:
                wrong += 1
                print(f"seed {SEED}, dilated case {case}, {isa}, {size}, {window}, {activation}, "
                      f"{w.dtype}: {why}")
    return wrong


def check_old_resizes(folder):
    """Upsample and Resize as they were before operator set 11, between convolutions."""
    wrong = 0
    for opset, op in ((8, "Upsample"), (9, "Upsample"), (10, "Resize"), (10, "Resize")):
        mode, channels = ("nearest", "linear")[between(0, 1)], between(17, 40)
        scales = [1.0, 1.0, (2.0, 3.0, 1.5)[between(0, 2)], (2.0, 0.5)[opset == 10]]
        more = {"scales": scales} if opset < 9 else {}
        v, w = (random.standard_normal(s).astype("f4") for s in (
            (channels, 8, 3, 3), (16, channels, 1, 1)))
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "v"], ["a"]),
             helper.make_node(op, ["a"] + ["scales"] * (opset > 8), ["b"], mode=mode, **more),
             helper.make_node("Conv", ["b", "w"], ["y"])], "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 14, 12])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(array, "f4"), name)
             for array, name in ((v, "v"), (w, "w"), (scales, "scales"))])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                    ir_version=8), f"{folder}/net.onnx")
        x = random.standard_normal((2, 8, 14, 12), dtype=np.float32)
        np.save(f"{folder}/x.npy", x)
        session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                               providers=["CPUExecutionProvider"])
        why = compare({"y": session.run(None, {"x": x})[0]}, run(["--threads", "2"], folder))
        if not why and "BlockedResize" not in blocked_networks.operators(folder):
            why = f"no BlockedResize: {blocked_networks.operators(folder)}"
        if why:
            wrong += 1
            print(f"seed {SEED}, {op} of operator set {opset}, {mode}, {scales}: {why}")
    return wrong


def check_wide_pools(folder):
    """Pools whose kernel is far wider than the map: only the taps that see it cost time."""
    options = onnxruntime.SessionOptions()  # its own blocks take a turn for each tap of the kernel
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wrong, kernel, pads = 0, [3, 2**31 - 1], [1, 2**30 - 1] * 2
    for op in ("MaxPool", "AveragePool"):
        network = Network()
        network.shape, network.sizes["x"] = [1, 16, 20, 24], (16, 20, 24)
        x = network.conv(network.conv("x", 24, (3, 3), 1, True), 24, (3, 3), 1, True)
        y = network.add(op, [x], (24, 20, 24), kernel_shape=kernel, pads=pads)
        network.save(y, folder)
        x = random.standard_normal(network.shape, dtype=np.float32)
        np.save(f"{folder}/x.npy", x)
        session = onnxruntime.InferenceSession(f"{folder}/net.onnx", options,
                                               providers=["CPUExecutionProvider"])
        why = compare({y: session.run(None, {"x": x})[0]}, run([], folder))
        if not why and "BlockedPool" not in blocked_networks.operators(folder):
            why = f"no BlockedPool: {blocked_networks.operators(folder)}"
        if why:
            wrong += 1
            print(f"seed {SEED}, {op} with a wide kernel: {why}")
    return wrong


def check_pyramid(folder):
    """A feature pyramid of any height and width: the sizes of its sum are equal or 1, which is
    known at run only, and blocks stay blocks."""
    network, c = Network(), between(1, 40)
    network.shape, network.sizes["x"] = ["N", 3, "H", "W"], (3, 32, 48)
    conv = lambda x, n, kernel, size, **stride: network.add("Conv", [x, network.constant(
        (random.standard_normal((n, network.sizes[x][0], *kernel)) / 9).astype("f4"))],
        (n, *size), **stride)
    half = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    low = conv("x", 18, (3, 3), (16, 24), **half)
    high = conv(low, 20, (3, 3), (8, 12), **half)
    twice = network.constant(np.float32([1, 1, 2, 2]))
    up = network.add("Resize", [conv(high, c, (1, 1), (8, 12)), "", twice], (c, 16, 24),
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    y = network.add("Add", [conv(low, c, (1, 1), (16, 24)), up][::between(0, 1) * 2 - 1],
                    (c, 16, 24))
    network.save(conv(y, 9, (3, 3), (14, 22), pads=[1, 1, 1, 1]), folder)
    found = sorted(blocked_networks.operators(folder))
    if wrong := int(found != ["Add", "BlockedConv", "BlockedResize", "FromBlocked"]):
        print(f"seed {SEED}, pyramid: {found}")
    session = onnxruntime.InferenceSession(f"{folder}/net.onnx",
                                           providers=["CPUExecutionProvider"])
    y = session.get_outputs()[0].name
    for size in ((32, 48), (1, 48), (4, 1), (1, 1), (64, 36)):
        x = random.standard_normal((between(1, 2), 3, *size), dtype=np.float32)
        np.save(f"{folder}/x.npy", x)
        why = compare({y: session.run(None, {"x": x})[0]}, run(["--threads", "2"], folder))
        if why:
            wrong += 1
            print(f"seed {SEED}, pyramid of {c} channels, {size}: {why}")
    np.save(f"{folder}/x.npy", np.zeros((1, 3, 34, 48), "f4"))  # 17 and 18 lines
    if "failed" in run([], folder):
        return wrong
    print(f"seed {SEED}, pyramid of {c} channels: 17 and 18 lines were added")
    return wrong + 1


def main():
    isas = [isa for isa in blocked_networks.isas() if not isa.endswith(("vnni", "amx", "dot"))]
    with tempfile.TemporaryDirectory() as folder:
        failed = check_dense(folder) + check_last(folder, [1, 3, 20, 24])
        failed += check_last(folder, ["N", 3, "H", "W"]) + check_spread(folder)
        failed += check_old_resizes(folder) + check_pyramid(folder) + check_dilated(folder, isas)
        failed += check_wide_pools(folder)
    print(f"{failed} failures")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
