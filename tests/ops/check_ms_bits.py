"""com.microsoft operators on weights of few bits, and of the QOperator form, against ONNX
Runtime 1.32.0: random shapes, blocks, bits, zero points; and what must be refused.
Usage: check_ms_bits.py ATTNRUN [SEED]"""
import itertools
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from cases import check, one_node_model, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 4
random = np.random.default_rng(SEED)


def normal(*shape):
    return np.asarray(random.standard_normal(shape), "f4")


def between(low, high):
    return int(random.integers(low, high + 1))


def pick(*choices):
    return choices[int(random.integers(len(choices)))]


def any_bytes(*shape):
    return random.integers(0, 256, shape).astype("u1")


def nbits_case(number, rows=None):
    bits, block = pick(2, 4, 8), 16 << between(0, 4)
    k, n = pick(between(1, 70), between(1, 20) * 16, between(300, 900)), between(1, 140)
    if number % 2:
        k = -(-k // block) * block
    blocks = -(-k // block)
    rows = rows or pick(1, 1, 2, 3, 5, 8, 9, 20, 300)
    flat = number % 3 == 0
    # ONNX Runtime has zero points in floats for 4 bits (and 2) only.
    zeros = (None, any_bytes(n, -(-blocks * bits // 8)),
             normal(n, blocks) + 2 ** (bits - 1))[number % 3 if bits < 8 else number % 2]
    scales = 0.05 * normal(n, blocks)
    if flat:
        scales = scales.reshape(-1)
    if flat and zeros is not None:
        zeros = zeros.reshape(-1)
    group = None
    if number % 5 == 4 and k % block == 0:
        group = random.integers(0, blocks, k).astype("i4") if bits == 4 else None
    inputs = [("a", normal(*pick((rows,), (1, rows), (2, 1, rows))[:], k)),
              ("b", any_bytes(n, blocks, block * bits // 8)), ("s", scales), ("z", zeros),
              ("g", group), ("bias", normal(n) if number % 4 == 1 else None)]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    constants = ("b", "s", "z", "g") if number % 6 else ()
    return "MatMulNBits", inputs, ["y"], attributes, constants


def nbits_cases():
    for number in range(90):
        op, inputs, outputs, attributes, constants = nbits_case(number)
        # ONNX Runtime's answer of the least exact levels is compared with their own: here
        # all are computed in f32, as level 0 there.
        yield (op, inputs, outputs, {**attributes, "accuracy_level": number % 5}, constants,
               attributes)
    # The weights of several columns that fill no panel, by f16 operands.
    for number in range(6):
        op, inputs, outputs, attributes, _ = nbits_case(number)
        halves = [(name, value.astype("f2") if value is not None and value.dtype == "f4" else value)
                  for name, value in inputs]
        yield op, halves, outputs, attributes, ("b", "s", "z", "g"), attributes


def answer(op, inputs, outputs, attributes, constants, apart=None, opset=21):
    """The model, its inputs, and ONNX Runtime's outputs (with other attributes, in f32)."""
    model, given = one_node_model(op, inputs, outputs, constants, domain="com.microsoft",
                                  opset=opset, **attributes)
    half = any(value is not None and value.dtype == "f2" for _, value in inputs)
    wide = [(name, value.astype("f4") if value is not None and value.dtype == "f2" else value)
            for name, value in inputs]
    reference, feeds = one_node_model(op, wide, outputs, constants, domain="com.microsoft",
                                      opset=opset, **(apart or attributes))
    types = {"MatMulNBits": "a", "MatMulBnb4": "a", "GatherBlockQuantized": "scales"}
    kind = numpy_helper.from_array(dict(wide)[types[op]]).data_type if op in types else None
    for info in reference.graph.output:
        info.type.tensor_type.elem_type = kind or out_type(op, inputs)
    model.ir_version = reference.ir_version = 10
    session = onnxruntime.InferenceSession(reference.SerializeToString())
    values = session.run(None, dict(feeds))
    return model, given, [(name, value.astype("f2") if half else value)
                          for name, value in zip(outputs, values)]


def out_type(op, inputs):
    """The element type of an output of the QOperator form: that of its zero point."""
    raise NotImplementedError(op)


GOOD = {"K": 32, "N": 2, "bits": 4, "block_size": 16}
WEIGHTS = [("a", normal(1, 32)), ("b", any_bytes(2, 2, 8)), ("s", normal(2, 2))]
HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("MatMulNBits", WEIGHTS, {**GOOD, "bits": 3}, (), 5, "bits"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "block_size": 24}, (), 5, "block_size"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "K": 2**62}, (), 5, "K"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "N": 2**40}, (), 5, "elements"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "N": 3}, ("b",), 5, "elements"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "accuracy_level": 5}, (), 5, "accuracy_level"),
    ("MatMulNBits", WEIGHTS + [("z", any_bytes(1))], GOOD, (), 5, "elements"),
    ("MatMulNBits", WEIGHTS + [("z", None), ("g", np.full(32, 2, "i4"))], GOOD, (), 7, "g_idx"),
    ("MatMulNBits", WEIGHTS + [("z", None), ("g", np.full(32, -1, "i4"))], GOOD,
     ("b", "s", "g"), 7, "g_idx"),
]


def check_hostile(attnrun, folder):
    """Each must end with its exit code and a sentence about the right thing."""
    failed = 0
    for number, (op, inputs, attributes, constants, code, word) in enumerate(HOSTILE):
        case = f"{folder}/{number:03}_{op}"
        model, given = one_node_model(op, inputs, ["y"], constants, domain="com.microsoft",
                                      opset=17, **attributes)
        write_case(case, model, given, [("y", normal(1))], "0 0")
        feeds = itertools.chain.from_iterable(
            ("-i", f"{name}={case}/test_data_set_0/input_{i}.pb")
            for i, (name, _) in enumerate(given))
        run = subprocess.run([attnrun, "run", f"{case}/model.onnx", *feeds, "-o", f"{case}/y.npz"],
                             capture_output=True, text=True, timeout=60)
        if run.returncode != code or word not in run.stderr:
            print(f"{op} {attributes}: exit code {run.returncode}, expected {code} and "
                  f"'{word}': {run.stderr.strip()[:300]}")
            failed += 1
    return failed


def main():
    print("seed", SEED)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as hostile:
        for number, (op, *rest) in enumerate(itertools.chain(nbits_cases())):
            model, given, values = answer(op, *rest)
            half = values[0][1].dtype == "f2"
            size = 1e-4 * np.abs(values[0][1].astype("f4")).max(initial=1) if half or \
                values[0][1].dtype == "f4" else 0
            write_case(f"{folder}/{number:03}_{op}", model, given, values,
                       f"{1e-2 if half else 1e-3} {10 * size if half else size}")
        if check_hostile(sys.argv[1], hostile):
            sys.exit(1)
        check(sys.argv[1], folder)


main()
