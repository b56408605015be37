"""Products of bytes that are scaled, as quantize_dynamic writes them, against ONNX Runtime 1.32.0
without its optimisations: random shapes, types, scales and zero points, each one operator
(integer_to_float); and what must stay as it is. Usage: check_integer_to_float.py ATTNRUN [SEED]"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from cases import check, write_case
from exact_bytes import exact_weights
from ms import any_bytes, between, normal, pick, SEED

ATTNRUN = sys.argv[1]
KINDS = {"f4": 1, "u1": 2, "i1": 3, "f8": 11}


class Product:
    """DynamicQuantizeLinear, or bytes, and the four nodes behind it. `change` is a near miss."""

    def __init__(self, change=""):
        self.nodes, self.constants, self.feeds, self.lines = [], [], [], change == "lines"
        rows, k, n = [pick(1, 2, 3), between(1, 9)], between(1, 70), between(1, 50)
        a_scale, a_zero = self.operand(rows, k, change)
        kind, by_column = pick("i1", "u1"), change == "" and between(0, 1)
        one = () if change or between(0, 1) else (1,)
        zero = [self.constant(any_bytes(*([n] if by_column else one), kind=kind))]
        scale = self.constant(np.abs(normal(*([n] if by_column else one))) + np.float32(0.01))
        count = 2 if change == "computed" else 1
        terms = [exact_weights(any_bytes(k, n, kind=kind), count) for _ in range(count)]
        b = self.constant(terms[0])
        if change == "computed":
            b = self.node("Add", [b, self.feed(terms[1])])
        product = self.node("MatMulInteger", [
            "a", b, a_zero, *(zero if change == "" and between(0, 2) else [])])
        real = self.node("Cast", [product], to=KINDS["f8" if change == "double" else "f4"])
        both = self.node("Mul", [a_scale, scale])
        if change == "double":
            both = self.node("Cast", [both], to=KINDS["f8"])
        if change == "rows":
            both = self.node("Mul", [both, self.constant(normal(rows[-1], 1))])
        y = self.node("Mul", [real, both] if between(0, 1) else [both, real])
        if change == "" and between(0, 2):
            bias = self.constant(normal(*([1] if between(0, 1) else []), n))
            y = self.node("Add", [y, bias] if between(0, 1) else [bias, y])
        if change == "shared":
            y = self.node("Add", [y, self.node("Neg", [real])])
        self.y, self.kind = y, "f8" if change == "double" else "f4"

    def operand(self, rows, k, change):
        if change == "lines" or between(0, 1):
            kind = pick("u1", "i1")
            self.feeds.append(("a", any_bytes(*rows, k, kind=kind)))
            zeros = any_bytes(*([rows[-1]] if change == "lines" else []), kind=kind)
            return self.constant(np.float32(0.02)), self.constant(zeros)
        self.nodes.append(helper.make_node(
            "DynamicQuantizeLinear", [self.feed(normal(*rows, k))], ["a", "as", "az"]))
        return "as", "az"

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value),
                                                      f"c{len(self.constants)}"))
        return self.constants[-1].name

    def feed(self, value):
        self.feeds.append((f"x{len(self.feeds)}", value))
        return self.feeds[-1][0]

    def node(self, op, inputs, **attributes):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def of_lines(self):
        """ONNX Runtime has no zero points of rows."""
        value = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.constants}
        a, b = self.feeds[0][1].astype("i8"), value[self.nodes[0].input[1]].astype("i8")
        zeros = value[self.nodes[0].input[2]].astype("i8")
        scale = value[self.nodes[2].input[1]] * np.float32(0.02)
        return ((a - zeros[:, None]) @ b).astype("f4") * scale

    def of_onnxruntime(self, model):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, dict(self.feeds))[0]

    def write(self, folder):
        graph = helper.make_graph(
            self.nodes, "product",
            [helper.make_tensor_value_info(name, numpy_helper.from_array(value).data_type,
                                           value.shape) for name, value in self.feeds],
            [helper.make_tensor_value_info(self.y, KINDS[self.kind], None)], self.constants)
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
        want = self.of_lines() if self.lines else self.of_onnxruntime(model)
        write_case(folder, model, self.feeds, [(self.y, want)],
                   f"1e-5 {1e-6 * max(1.0, float(np.abs(want).max()))}")


def applied(path):
    done = subprocess.run([ATTNRUN, "inspect", "--json", path], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)["passes"]["integer_to_float"]


def main():
    print("seed", SEED)
    with tempfile.TemporaryDirectory() as folder:
        wrong = 0
        changes = [""] * 32 + ["lines", "computed", "double", "rows", "shared"]
        for number, change in enumerate(changes):
            path = os.path.join(folder, f"{number:02}{change}")
            Product(change).write(path)
            if applied(f"{path}/model.onnx") != (change == ""):
                wrong += 1
                print(f"seed {SEED}, case {number} {change}: applied "
                      f"{applied(f'{path}/model.onnx')} times")
        if wrong:
            sys.exit(1)
        check(ATTNRUN, folder)


main()
