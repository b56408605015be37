#!/usr/bin/env python3
"""Products of bf16 (--precision bf16) beside those of floats.

Each golden case of the attention operators and some models of products (odd sizes, packed
and computed operands, convolution, masks) run in both precisions. An output in bf16 may
differ from the one in f32 by BOUND of its largest magnitude; most must differ in a set with
products of pairs, and those with constant weights in others, or the option did nothing. With three
threads the bits are those of one.

usage: run_bf16.py ATTNRUN GOLDEN [--every N]

With --every N, every N-th golden case; ATTNRUN_TEST_SEED says from which one on.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BOUND = 0.02
SEED = 20261123
MIN_DIFFERENT = {"avx512_bf16": 40, "base": 8}


def run(attnrun, model, inputs, folder, *options):
    """{output: array}; the sentence where the run fails."""
    done = subprocess.run([attnrun, "run", "-q", str(model), *inputs, "-o",
                           str(folder / "out.npz"), *options], capture_output=True,
                          text=True, timeout=60, check=False)
    if done.returncode != 0:
        return done.stderr.strip()[-300:]
    with np.load(folder / "out.npz") as got:
        return {name: got[name] for name in got.files}


def product_models(draw):
    """(name, node, {input: shape}, {constant: shape})"""
    for m, k, n in ((1, 7, 5), (3, 64, 33), (17, 65, 40), (40, 801, 70), (130, 33, 1)):
        yield f"matmul_{m}_{k}_{n}", ("MatMul", {}), {"a": (m, k)}, {"b": (k, n)}
        yield f"matmul_free_{m}_{k}_{n}", ("MatMul", {}), {"a": (2, m, k), "b": (2, k, n)}, {}
        yield f"gemm_{m}_{k}_{n}", ("Gemm", {"transA": 1, "transB": 1}), {"a": (k, m)}, {
            "b": (n, k), "c": (n,)}
    yield "conv", ("Conv", {"pads": [1, 1, 1, 1]}), {"a": (1, 19, 14, 15)}, {"b": (24, 19, 3, 3)}
    attention = {"q": (1, 2, 70, 63), "k": (1, 2, 150, 63), "v": (1, 2, 150, 41)}
    yield "attention", ("Attention", {}), attention, {}
    yield "attention_causal", ("Attention", {"is_causal": 1}), attention, {}
    yield "attention_masked", ("Attention", {}), {**attention, "m": (70, 150)}, {}
    long = {"q": (1, 1, 20, 520), "k": (1, 1, 30, 520), "v": (1, 1, 30, 8)}
    yield "attention_of_long_keys", ("Attention", {}), long, {}


def write_models(folder):
    """(name, model path, options for its inputs)"""
    draw = np.random.default_rng(SEED)
    for name, (op, attributes), inputs, constants in product_models(draw):
        def array(shape):
            return draw.standard_normal(shape).astype(np.float32)
        node = helper.make_node(op, [*inputs, *constants], ["y"], **attributes)
        infos = [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)
                 for x, shape in inputs.items()]
        graph = helper.make_graph(
            [node], name, infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array(shape), x) for x, shape in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)],
                                  ir_version=10)
        path = folder / f"{name}.onnx"
        onnx.save(model, str(path))
        options = []
        for x, shape in inputs.items():
            np.save(folder / f"{name}.{x}.npy", array(shape))
            options += ["-i", f"{x}={folder}/{name}.{x}.npy"]
        yield name, path, options


def differs(got, want):
    """The error beside the largest magnitude, or a sentence."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.dtype.kind != "f":
        return 0.0 if (got == want).all() else "integers differ"
    finite = np.isfinite(want)
    if (np.isfinite(got) != finite).any():
        return "other elements are finite"
    if not finite.any():
        return 0.0
    error = np.abs(got[finite].astype(np.float64) - want[finite]).max()
    return float(error / max(np.abs(want[finite]).max(), 1e-30))


def compare(attnrun, isa, model, inputs, folder):
    """[sentence] of what is wrong, and how many outputs differ from f32."""
    exact = run(attnrun, model, inputs, folder, "--isa", isa)
    runs = [(isa, ["--threads", "1"]), (f"{isa}, 3 threads", ["--threads", "3"])]
    results = [run(attnrun, model, inputs, folder, "--isa", isa, "--precision", "bf16", *options)
               for _, options in runs]
    for result in (exact, *results):
        if isinstance(result, str):
            return [result], 0
    wrong, different = [], 0
    for name, want in exact.items():
        for (what, _), got in zip(runs, results):
            error = differs(got[name], want)
            if isinstance(error, str) or error > BOUND:
                wrong.append(f"{name}, {what}: {error}")
        different += (results[0][name] != want).any()
        if results[0][name].tobytes() != results[1][name].tobytes():
            wrong.append(f"{name}, {isa}: other bits with 3 threads")
    return wrong, int(different)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("golden")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    attnrun, first = given.attnrun, int(os.environ.get("ATTNRUN_TEST_SEED", "0")) % given.every
    doctor = subprocess.run([attnrun, "doctor", "--json"], capture_output=True, text=True,
                            check=True)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        cases = [(case.name, case / "model.onnx", ["--inputs", str(case / "test_data_set_0")])
                 for case in sorted(Path(given.golden).iterdir())
                 if (case / "model.onnx").is_file()]
        cases = cases[first::given.every]
        cases += write_models(folder)
        for isa in json.loads(doctor.stdout)["isas"]:
            if isa not in MIN_DIFFERENT:
                continue
            n_wrong = n_different = 0
            for name, model, inputs in cases:
                wrong, different = compare(attnrun, isa, model, inputs, folder)
                n_different += different > 0
                n_wrong += bool(wrong)
                for text in wrong:
                    print(f"{name} (seed {SEED}): {text}")
            print(f"{isa}: {len(cases) - n_wrong} of {len(cases)} cases are right in bf16; "
                  f"{n_different} differ from f32")
            failed |= n_wrong > 0 or n_different < MIN_DIFFERENT[isa] // given.every
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
