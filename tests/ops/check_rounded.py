"""Numbers rounded to 8 bits beside weights of few bits: what `--precision auto` and
accuracy_level 4 permit (attnrun.h).

Each element of MatMulNBits stays inside the stated bound, worked out in doubles: a number of A
is off by at most 1/254 of the largest one in its part of the row, which is a block of the weights
or 128 numbers of a longer one. On sets with products of bytes the results must differ from those
of floats, or nothing was rounded; on the others they are the same bits. A row has the same bits
with three threads, and beside other rows. With auto, sets with tiles of bf16 multiply 32 rows and
more in bf16 instead. `attnrun check --precision auto` prints the error.

Usage: check_rounded.py ATTNRUN [SEED]"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

from cases import one_node_model, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 18
PART = 128
F32 = 4e-6  # of the sum of magnitudes: what sums of floats are off by


def case(draw, number):
    """Inputs and attributes of a node, and its weights in doubles."""
    bits, block = (4, 8, 4, 2)[number % 4], 16 << int(draw.integers(0, 6))
    k, n = int(draw.choice([37, 96, 384, 900])), int(draw.integers(1, 90))
    rows, blocks = int(draw.choice([1, 2, 4, 5, 9, 33, 140])), -(-k // block)
    q = draw.integers(0, 1 << bits, (n, blocks * block))
    per = 8 // bits
    packed = sum(q.reshape(n, blocks, -1, per)[..., i] << i * bits for i in range(per))
    zeros, packed_zeros = np.full((n, blocks), 1 << bits - 1, "f8"), None
    if number % 3 == 1:
        zeros = draw.integers(0, 1 << bits, (n, blocks))
        filled = np.zeros((n, -(-blocks // per) * per), "i8")
        filled[:, :blocks] = zeros
        packed_zeros = sum(filled.reshape(n, -1, per)[..., i] << i * bits for i in range(per))
        packed_zeros = packed_zeros.astype("u1")
    elif number % 3 == 2:
        zeros = packed_zeros = draw.uniform(0, 1 << bits, (n, blocks)).astype("f4")
    scales = draw.normal(0, 0.05, (n, blocks)).astype("f4")
    weights = (q - np.repeat(zeros, block, 1)) * np.repeat(scales.astype("f8"), block, 1)
    a = draw.standard_normal((rows, k)).astype("f4")
    a[0, 0] = 50  # one large number: its part of the row has a coarse step
    inputs = [("a", a), ("b", packed.astype("u1")), ("s", scales), ("z", packed_zeros),
              ("g", None), ("bias", draw.standard_normal(n).astype("f4") if number % 2 else None)]
    return inputs, {"K": k, "N": n, "bits": bits, "block_size": block}, weights[:, :k]


def largest_beside(a, block):
    """For each number the largest magnitude of its part of the row."""
    large = np.empty(a.shape)
    for start in range(0, a.shape[1], block):
        for first in range(start, min(start + block, a.shape[1]), PART):
            last = min(first + PART, start + block, a.shape[1])
            large[:, first:last] = np.abs(a[:, first:last]).max(1, keepdims=True)
    return large


class Tool:
    def __init__(self, attnrun, folder):
        self.attnrun, self.folder = attnrun, Path(folder)

    def __call__(self, *arguments):
        done = subprocess.run([self.attnrun, *map(str, arguments)], capture_output=True,
                              text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {(done.stdout + done.stderr).strip()[-500:]}")
        return done.stdout

    def save(self, inputs, attributes, name):
        model, _ = one_node_model("MatMulNBits", inputs, ["y"], [n for n, _ in inputs[1:]],
                                  domain="com.microsoft", **attributes)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        onnx.save(model, self.folder / name)
        return self.folder / name

    def run(self, model, a, *options):
        np.save(self.folder / "a.npy", a)
        self("run", "-q", model, "-i", f"a={self.folder}/a.npy", "-o", self.folder / "y.npy",
             *options)
        return np.load(self.folder / "y.npy")

    def rounds(self, model, isa):
        """Whether the set has products of bytes; inspect must say so."""
        said = json.loads(self("inspect", model, "--json", "--isa", isa, "--precision", "auto"))
        rounds = isa.endswith(("vnni", "bf16", "amx", "dot"))
        assert said["precision"].endswith("i8") == rounds, f"{isa}: {said['precision']}"
        return rounds


def check_case(tool, number, isas):
    """Sentences of what is wrong."""
    inputs, attributes, weights = case(np.random.default_rng((SEED, number)), number)
    a, bias = inputs[0][1], inputs[5][1]
    plain = tool.save(inputs, attributes, "plain.onnx")
    level_4 = tool.save(inputs, {**attributes, "accuracy_level": 4}, "level_4.onnx")
    exact = a.astype("f8") @ weights.T + (0 if bias is None else bias)
    floats = F32 * (np.abs(a) @ np.abs(weights.T) + (0 if bias is None else np.abs(bias)))
    bound = largest_beside(a, attributes["block_size"]) @ np.abs(weights.T) / 254 + floats
    words = np.abs(a) @ np.abs(weights.T) / 256 + floats
    wrong = []
    for isa in isas:
        here, rounds = ("--isa", isa, "--threads", 1), tool.rounds(plain, isa)
        f32 = tool.run(plain, a, *here)
        if (np.abs(f32 - exact) > floats).any():
            wrong.append(f"{isa}: without accuracy_level it is not that of floats")
        auto = tool.run(plain, a, *here, "--precision", "auto")
        at_4 = tool.run(level_4, a, *here)
        for what, got in (("auto", auto), ("accuracy_level 4", at_4)):
            if (np.abs(got - exact) > bound).any():
                wrong.append(f"{isa}, {what}: {(np.abs(got - exact) / bound).max():.2f} bounds")
        if rounds and (np.abs(at_4 - exact) <= floats).all():
            wrong.append(f"{isa}: accuracy_level 4 rounds nothing")
        if not rounds and at_4.tobytes() != f32.tobytes():
            wrong.append(f"{isa}: without products of bytes accuracy_level 4 has other bits")
        tiles = isa == "avx512_amx_bf16" and len(a) >= 32
        if tiles and auto.tobytes() != tool.run(plain, a, *here, "--precision",
                                                "bf16").tobytes():
            wrong.append(f"{isa}: auto is not bf16 where many rows are multiplied by tiles")
        if tiles and (np.abs(auto - exact) > words).any():
            wrong.append(f"{isa}, auto by tiles: {(np.abs(auto - exact) / words).max():.2f} bounds")
        if rounds and not tiles and auto.tobytes() != at_4.tobytes():
            wrong.append(f"{isa}: auto and accuracy_level 4 differ")
        if at_4.tobytes() != tool.run(level_4, a, "--isa", isa, "--threads", 3).tobytes():
            wrong.append(f"{isa}: other bits with three threads")
        if rounds and at_4[-1].tobytes() != tool.run(level_4, a[-1:], *here)[0].tobytes():
            wrong.append(f"{isa}: a row has other bits by itself")
    return wrong


def check_groups(tool):
    """With g_idx nothing is rounded."""
    inputs, attributes, _ = case(np.random.default_rng(SEED), 0)
    blocks = inputs[2][1].shape[1]
    groups = np.arange(attributes["K"], dtype="i4") % blocks
    inputs[4] = ("g", groups)
    model = tool.save(inputs, {**attributes, "accuracy_level": 4}, "groups.onnx")
    other = tool.save(inputs, attributes, "plain.onnx")
    a = inputs[0][1]
    return [] if (tool.run(model, a) == tool.run(other, a)).all() else ["g_idx is rounded"]


def check_inputs(tool, isas):
    """Weights that only a run knows give the bits of constant ones, for many rows and for few."""
    wrong = []
    for number in range(4):
        inputs, attributes, _ = case(np.random.default_rng((SEED, number)), number)
        inputs[0] = ("a", np.random.default_rng(SEED).normal(
            size=(140, attributes["K"])).astype("f4"))
        constant = tool.save(inputs, {**attributes, "accuracy_level": 4}, "constant.onnx")
        model, given = one_node_model("MatMulNBits", inputs, ["y"], [], domain="com.microsoft",
                                      **attributes, accuracy_level=4)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        onnx.save(model, tool.folder / "inputs.onnx")
        options = []
        for name, value in given[1:]:
            np.save(tool.folder / f"{name}.npy", value)
            options += ["-i", f"{name}={tool.folder}/{name}.npy"]
        for isa in isas:
            for rows in (140, 9, 3):
                here = (inputs[0][1][:rows], "--isa", isa, "--threads", 2)
                if tool.run(tool.folder / "inputs.onnx", *here, *options).tobytes() != \
                        tool.run(constant, *here).tobytes():
                    wrong.append(f"case {number}, {isa}, {rows} rows: weights that are inputs "
                                 "give other bits")
    return wrong


def check_packed(tool, isas):
    """A file that was packed with auto rounds, whatever it is opened with."""
    inputs, attributes, _ = case(np.random.default_rng(SEED), 0)
    a, isa = inputs[0][1], ("--isa", isas[-1])
    model = tool.save(inputs, attributes, "plain.onnx")
    tool("pack", model, "-o", tool.folder / "packed", "--precision", "auto", *isa)
    auto = tool.run(model, a, "--precision", "auto", *isa)
    wrong = []
    for options in ((), ("--precision", "auto")):
        if tool.run(tool.folder / "packed", a, *options, *isa).tobytes() != auto.tobytes():
            wrong.append(f"packed with auto, opened with {options}: other bits")
    return wrong


def check_command(tool, isas):
    """`check --precision auto` passes and shows an error, where something is rounded."""
    inputs, attributes, weights = case(np.random.default_rng(SEED), 0)
    inputs[0][1][0, 0] = 1
    model, given = one_node_model("MatMulNBits", inputs, ["y"], [n for n, _ in inputs[1:]],
                                  domain="com.microsoft", **attributes)
    want = (inputs[0][1] @ weights.T + (0 if inputs[5][1] is None else inputs[5][1]))
    folder = tool.folder / "case"
    write_case(folder, model, given, [("y", want.astype("f4"))], "1e-3 1e-4")
    (folder / "tol.txt").unlink()
    said = json.loads(tool("check", folder, "--precision", "auto", "--json"))
    error = said["folders"][0]["outputs"][0]["max_abs"]
    rounds = tool.rounds(folder / "model.onnx", isas[-1])
    text = tool("check", folder, "--precision", "auto")
    wrong = [] if not rounds or error > 1e-4 else [f"check shows an error of {error}"]
    return wrong + ([] if "y" in text else ["check names no output"])


def main(attnrun):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(attnrun, folder)
        isas = json.loads(tool("doctor", "--json"))["isas"]
        for number in range(16):
            for text in check_case(tool, number, isas):
                print(f"case {number} (seed {SEED}), {text}")
                failed += 1
        for text in (check_groups(tool) + check_inputs(tool, isas) + check_packed(tool, isas) +
                     check_command(tool, isas)):
            print(f"seed {SEED}: {text}")
            failed += 1
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
