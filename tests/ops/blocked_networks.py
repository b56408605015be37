"""blocked_networks.py - what the checks of random networks on blocked maps share: the seed (the
second argument), nodes over maps, runs of the command line, and files that name operators of
the passes themselves."""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 5
PART = int(sys.argv[3]) if len(sys.argv) > 3 else 1  # one of so many cases
random = np.random.default_rng(SEED)
KINDS = {"f4": TensorProto.FLOAT, "f2": TensorProto.FLOAT16, "u1": TensorProto.UINT8,
         "i1": TensorProto.INT8}


def between(low, high):
    return int(random.integers(low, high + 1))


def chance(share):
    return random.random() < share


class Maps:
    """Nodes over maps; what it knows of a value is its channels, height and width."""

    def __init__(self):
        self.nodes, self.constants, self.sizes = [], [], {}

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, size, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.sizes[name] = size
        return name

    def window(self, x, kernel, same, dilate):
        """Height and width, and the attributes, of a convolution; None where it does not fit.
        `dilate` gives dilations and pads, from pads."""
        _, h, w = self.sizes[x]
        stride, dilation = [1, 1], [1, 1]
        pads = [k // 2 for k in kernel] + [(k - 1) // 2 for k in kernel]
        if not same:
            stride = [between(1, 2), between(1, 3)] if chance(0.4) else stride
            pads = [between(0, k - 1) for k in kernel * 2] if chance(0.4) else pads
            dilation, pads = dilate(pads)
        out = [(n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
               for i, n in enumerate((h, w))]
        if min(out) < 1 or h + pads[0] + pads[2] <= dilation[0] * (kernel[0] - 1):
            return None
        return out, {"strides": stride, "dilations": dilation, "pads": pads}

    def pool_window(self, x):
        """The same of a pool."""
        kernel, stride = [between(1, 3), between(1, 3)], [between(1, 2), between(1, 2)]
        pads = [between(0, k - 1) for k in kernel * 2]
        out = [(n + pads[i] + pads[i + 2] - kernel[i]) // stride[i] + 1
               for i, n in enumerate(self.sizes[x][1:])]
        if min(out) < 1:
            return None
        return out, {"kernel_shape": kernel, "strides": stride, "pads": pads}


def isas():
    doctor = subprocess.run([sys.argv[1], "doctor", "--json"], capture_output=True, text=True,
                            check=True)
    return json.loads(doctor.stdout)["isas"]


# Maps are bf16 where the set multiplies pairs of it; such a set is not always the one chosen.
PAIRS = "avx512_bf16" in isas()
BF16 = ["--precision", "bf16", *(["--isa", "avx512_bf16"] if PAIRS else [])]
TILES = ["--precision", "bf16", "--isa", "avx512_amx_bf16"]  # has no tiles of Winograd
WAYS = [BF16, TILES] if "avx512_amx_bf16" in isas() else [BF16]


def run(arguments, folder):
    """The outputs of net.onnx there for x.npy, or the sentence of a failure as "failed"."""
    path = f"{folder}/y.npz"
    done = subprocess.run([sys.argv[1], "run", f"{folder}/net.onnx", "-i", f"x={folder}/x.npy",
                           "-o", path, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return {"failed": done.stderr.strip()[-400:]}
    with np.load(path) as values:
        return dict(values)


def operators(folder):
    """Those that net.onnx there becomes."""
    inspected = subprocess.run([sys.argv[1], "inspect", "--json", f"{folder}/net.onnx"],
                               capture_output=True, text=True, check=True)
    return [op["op_type"] for op in json.loads(inspected.stdout)["ops"]]


def scratch(folder, *options):
    """The bytes of scratch of the step of net.onnx there that needs the most."""
    plan = subprocess.run([sys.argv[1], "plan", "--json", f"{folder}/net.onnx", *options],
                          capture_output=True, text=True, check=True)
    return max(block["bytes"] for block in json.loads(plan.stdout)["blocks"]
               if block["name"] == "scratch")


def check_named(cases, folder):
    """Files that name an operator of the passes: (op, inputs, attributes, exit code). An input is
    a constant, None, or dtype and shape, "?" where the file states none: it is run as the dims
    behind that. Returns failures."""
    failed = 0
    for op, operands, attributes, wanted in cases:
        names = [f"i{i}" if o is not None else "" for i, o in enumerate(operands)]
        given = [(n, o) for n, o in zip(names, operands) if isinstance(o, tuple)]
        shapes = [f"--shape={n}={'x'.join(map(str, o[2:]))}" for n, o in given if o[1] == "?"]
        empty = attributes.get("kernel_shape") == []
        graph = helper.make_graph(
            [helper.make_node(op, names, ["y"], domain="attnrun.fused",
                              **({"kernel_shape": [1]} if empty else attributes))], "net",
            [helper.make_tensor_value_info(n, KINDS[o[0]], None if o[1] == "?" else o[1:])
             for n, o in given],
            [helper.make_tensor_value_info("y", KINDS[given[0][1][0]], None)],
            [numpy_helper.from_array(o, n) for n, o in zip(names, operands)
             if isinstance(o, np.ndarray)])
        if empty:
            del graph.node[0].attribute[0].ints[:]
        onnx.save(helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("attnrun.fused", 1)],
            ir_version=9), f"{folder}/net.onnx")
        done = subprocess.run([sys.argv[1], "run", f"{folder}/net.onnx", *shapes],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != wanted:
            failed += 1
            shown = [o if isinstance(o, tuple) or o is None else o.shape for o in operands]
            print(f"{op} {shown} {attributes}: exit code {done.returncode}, expected {wanted}: "
                  f"{done.stderr.strip()[-200:]}")
    return failed
