"""Plans of layers of vision networks at the sizes that they have there, for two threads: each
convolution that takes a while has two tasks for each thread, no worker has more than 2 MiB of
scratch, the arena is the bound, and no reorder stands inside a network.
Usage: check_blocked_plan.py ATTNRUN"""
import json
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

THREADS, LONG_NS, MAX_SCRATCH = 2, 50000, 2 << 20
# Pixels of a side, channels, output channels, kernel, stride, groups.
LAYERS = [
    (224, 3, 64, 7, 2, 1), (56, 64, 64, 3, 1, 1), (56, 64, 256, 1, 1, 1), (56, 256, 512, 1, 2, 1),
    (28, 128, 128, 3, 1, 1), (28, 256, 256, 3, 2, 1), (14, 256, 256, 3, 1, 1),
    (14, 1024, 256, 1, 1, 1), (7, 512, 512, 3, 1, 1), (7, 2048, 512, 1, 1, 1),  # ResNet
    (112, 32, 32, 3, 1, 32), (28, 192, 32, 1, 1, 1), (14, 576, 96, 1, 1, 1),
    (7, 960, 320, 1, 1, 1), (28, 240, 240, 5, 2, 240), (7, 1152, 1152, 5, 1, 1152),  # mobile
    (56, 96, 96, 7, 1, 96), (14, 384, 1536, 1, 1, 1), (14, 384, 768, 2, 2, 1),  # ConvNeXt
    (256, 64, 64, 3, 1, 1), (16, 1024, 1024, 3, 1, 1), (32, 1024, 512, 3, 1, 1),  # U-Net
    (20, 64, 64, 3, 1, 1), (20, 256, 64, 3, 1, 1), (80, 64, 80, 3, 1, 1),
    (40, 80, 80, 1, 1, 1),  # YOLO
    (28, 256, 256, 3, 1, 16), (14, 1024, 1024, 3, 1, 32),  # ResNeXt
]
UPS = [(16, 1024, 512), (32, 512, 256), (64, 256, 128), (128, 128, 64), (20, 100, 30)]


def save(folder, nodes, weights, shape, more={}):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.full(s, 0.01, "f4"), n) for n, s in weights] +
        [numpy_helper.from_array(array, name) for name, array in more.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=9), f"{folder}/net.onnx")


def layer(folder, side, channels, rows, kernel, stride, groups):
    """Behind a first convolution, before the mean of the pixels."""
    pads = [kernel // 2 if kernel % 2 else 0] * 4
    nodes = [helper.make_node("Conv", ["x", "v"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Conv", ["r", "w"], ["d"], kernel_shape=[kernel] * 2, pads=pads,
                              strides=[stride] * 2, group=groups),
             helper.make_node("Relu", ["d"], ["e"]),
             helper.make_node("Conv", ["e", "z"], ["f"]),
             helper.make_node("GlobalAveragePool", ["f"], ["y"])]
    if channels == 3:
        nodes[2].input[0] = "x"
    save(folder, nodes[2 if channels == 3 else 0:],
         [("v", (channels, 3, 1, 1))][channels == 3:] +
         [("w", (rows, channels // groups, kernel, kernel)), ("z", (16, rows, 1, 1))],
         (1, 3, side, side))


def up(folder, side, channels, rows):
    nodes = [helper.make_node("Conv", ["x", "v"], ["c"]),
             helper.make_node("ConvTranspose", ["c", "w"], ["u"], strides=[2, 2]),
             helper.make_node("Conv", ["u", "z"], ["y"])]
    save(folder, nodes, [("v", (channels, 16, 1, 1)), ("w", (channels, rows, 2, 2)),
                         ("z", (16, rows, 1, 1))], (1, 16, side, side))


def detector(folder):
    """The neck of a detector: nearest pixels twice, joined with an earlier map."""
    nodes = [helper.make_node("Conv", ["x", "v"], ["a"]),
             helper.make_node("Conv", ["a", "w"], ["b"], strides=[2, 2]),
             helper.make_node("Resize", ["b", "", "twice"], ["c"], mode="nearest",
                              coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
             helper.make_node("Concat", ["c", "a"], ["d"], axis=1),
             helper.make_node("Conv", ["d", "z"], ["y"])]
    save(folder, nodes, [("v", (64, 16, 1, 1)), ("w", (64, 64, 2, 2)), ("z", (80, 128, 1, 1))],
         (1, 16, 80, 80), {"twice": np.float32([1, 1, 2, 2])})


def segmenter(folder):
    """Pooled pixels beside dilated ones, joined, and the map of classes at the image's size."""
    nodes = [helper.make_node("Conv", ["x", "v"], ["a"], strides=[16, 16]),
             helper.make_node("GlobalAveragePool", ["a"], ["g"]),
             helper.make_node("Conv", ["g", "p"], ["h"]),
             helper.make_node("Resize", ["h", "", "", "small"], ["i"], mode="linear"),
             helper.make_node("Conv", ["a", "w"], ["d"], dilations=[6, 6], pads=[6] * 4),
             helper.make_node("Concat", ["i", "d"], ["e"], axis=1),
             helper.make_node("Conv", ["e", "z"], ["f"]),
             helper.make_node("Resize", ["f", "", "", "large"], ["y"], mode="linear",
                              coordinate_transformation_mode="pytorch_half_pixel")]
    save(folder, nodes, [("v", (64, 3, 16, 16)), ("p", (64, 64, 1, 1)), ("w", (64, 64, 3, 3)),
                         ("z", (32, 128, 1, 1))], (1, 3, 448, 448),
         {"small": np.array([1, 64, 28, 28]), "large": np.array([1, 32, 448, 448])})


def asked(*words):
    done = subprocess.run([sys.argv[1], *words, "--json"], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def check(folder, what, precision):
    net, wrong = f"{folder}/net.onnx", []
    plan = asked("plan", net, "--threads", str(THREADS), "--precision", precision)
    counts = {op["op_type"]: op["nodes"]
              for op in asked("inspect", net, "--precision", precision)["ops"]}
    if not set(counts) <= {"BlockedConv", "BlockedMean", "BlockedResize", "BlockedSeparable",
                           "Concat", "FromBlocked", "ToBlocked"}:
        wrong.append(f"becomes {counts}")
    if counts.get("ToBlocked", 0) + counts.get("FromBlocked", 0) > 2:
        wrong.append(f"a reorder stands inside: {counts}")
    for phase in plan["phases"]:
        if (phase["tasks"] < 2 * THREADS and "Conv" in phase["op_type"] and
                phase["tasks"] * phase["task_ns"] >= LONG_NS):
            wrong.append(f"{phase['tasks']} tasks of {phase['task_ns']} ns")
    scratch = max((b["bytes"] for b in plan["blocks"] if b["name"] == "scratch"), default=0)
    if scratch > MAX_SCRATCH * THREADS:
        wrong.append(f"{scratch / THREADS:.0f} bytes of scratch a thread")
    if plan["arena_over_bound"] > 1.05:
        wrong.append(f"the arena is {plan['arena_over_bound']} of the bound")
    for why in wrong:
        print(f"{what} in {precision}: {why}")
    return len(wrong)


def check_shared(folder, own):
    """Convolutions of the same weights are packed once, with one bias; those with biases of their
    own would be packed with each of them, and stay plain."""
    nodes, biases = [], [f"b{k if own else 0}" for k in range(12)]
    for k, bias in enumerate(biases):
        nodes += [helper.make_node("Conv", [f"r{k - 1}" if k else "x", "w", bias], [f"c{k}"],
                                   pads=[1] * 4),
                  helper.make_node("Relu", [f"c{k}"], [f"r{k}" if k < 11 else "y"])]
    save(folder, nodes, [("w", (64, 64, 3, 3)), *((b, (64,)) for b in sorted(set(biases)))],
         (1, 64, 14, 14))
    told = asked("inspect", f"{folder}/net.onnx")
    blocked = "BlockedConv" in {op["op_type"] for op in told["ops"]}
    if blocked == own:
        print(f"shared weights, biases of their own: {own}, blocked: {blocked}")
    return blocked == own


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        failed += sum(check_shared(folder, own) for own in (False, True))
        for make, cases in ((layer, LAYERS), (up, UPS), (detector, [()]), (segmenter, [()])):
            for case in cases:
                make(folder, *case)
                failed += sum(check(folder, f"{make.__name__} {case}", p)
                              for p in ("f32", "bf16"))
    print(f"{len(LAYERS) + len(UPS) + 2} layers, {failed} failures")
    sys.exit(failed > 0)


main()
