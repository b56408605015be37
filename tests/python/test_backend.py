#!/usr/bin/env python3
"""ONNX's own backend tests through attnrun.backend, with the tolerances of the onnx package.

usage: PYTHONPATH=BUILD/python test_backend.py [--every N] [--readme]

Takes one case in N (10 by default; 1: all of them); the kinds whose models are downloaded are
left out. KNOWN lists what fails and why; a case of it that passes is an error too, and so is a
list in tools/python/README.md that is another one. --readme writes it there (with --every 1,
where all cases were what KNOWN says)."""
import argparse
import functools
import os
import sys
import unittest
import warnings

import attnrun
import attnrun.backend
import numpy as np
import onnx
import onnx.backend.test
from onnx import helper

import models

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "bench"))
import written  # noqa: E402

KNOWN = {
    "test_dft_inverse_cpu": "1.6e-15 where 1.9e-7 is expected: the true value is 0",
    "test_dft_inverse_opset19_cpu": "1.6e-15 where 1.9e-7 is expected: the true value is 0",
    "test_loop16_seq_none_cpu": "the package's runner cannot compare lists of scalars",
    **{f"test_{name}_cpu": "random numbers: not comparable" for name in (
        "bernoulli", "bernoulli_double", "bernoulli_double_expanded", "bernoulli_expanded",
        "bernoulli_seed", "bernoulli_seed_expanded", "training_dropout",
        "training_dropout_default", "training_dropout_default_mask",
        "training_dropout_mask")},
    **{f"test_image_decoder_decode_{name}_cpu": "not supported: ImageDecoder-20" for name in (
        "bmp_rgb", "jpeg2k_rgb", "jpeg_bgr", "jpeg_grayscale", "jpeg_rgb", "png_rgb",
        "pnm_rgb", "tiff_rgb", "webp_rgb")},
    **{f"test_gradient_of_{name}_cpu": "not supported: ai.onnx.preview.training.Gradient"
       for name in ("add", "add_and_mul")},
}
MINIMUM = 2000  # cases of onnx 1.23.2 without downloads


@functools.cache
def all_cases():
    tests = onnx.backend.test.BackendTest(attnrun.backend, __name__).test_cases
    cases = [(kind, name) for kind in tests.values() for name in dir(kind)
             if name.startswith("test_") and name.endswith("_cpu")
             and not kind.__name__.startswith(("OnnxBackendReal", "OnnxBackendLight"))]
    return sorted(cases, key=lambda case: (case[0].__name__, case[1]))


class Calls(unittest.TestCase):
    def test_model_by_position_and_by_name(self):
        weights = np.eye(4, 3, dtype="f")
        model = onnx.ModelProto.FromString(models.linear(weights))
        x = np.arange(8, dtype="f").reshape(2, 4) - 3
        prepared = attnrun.backend.prepare(model)
        for inputs in ([x], (x,), {"x": x}, x):
            made = prepared.run(inputs)
            np.testing.assert_array_equal(made[0], x @ weights)
            np.testing.assert_array_equal(made.z, np.maximum(x @ weights, 0))
        with self.assertRaises(attnrun.Error):
            prepared.run([x, x])

    def test_node(self):
        node = helper.make_node("Clip", ["x", "", "high"], ["y"])
        made = attnrun.backend.run_node(node, [np.arange(5, dtype="f"), np.float32(2)])
        np.testing.assert_array_equal(made[0], [0, 1, 2, 2, 2])

    def test_node_of_a_domain(self):
        x = np.arange(8, dtype="f").reshape(2, 2, 2)
        node = helper.make_node("Softmax", ["x"], ["y"], domain="ai.onnx")
        want = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        np.testing.assert_allclose(attnrun.backend.run_node(node, [x])[0], want, rtol=1e-6)
        node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
                                keys_int64s=[1, 2], values_floats=[1.5, 2.5])
        got = attnrun.backend.run_node(node, [np.array([2, 1])])[0]
        np.testing.assert_array_equal(got, [2.5, 1.5])

    def test_devices_and_compatibility(self):
        self.assertTrue(attnrun.backend.supports_device("CPU"))
        self.assertFalse(attnrun.backend.supports_device("CUDA"))
        model = onnx.ModelProto.FromString(models.linear(np.eye(4, 3, dtype="f")))
        self.assertTrue(attnrun.backend.is_compatible(model))
        model.graph.node[0].op_type = "NoSuch"
        self.assertFalse(attnrun.backend.is_compatible(model))


def run_cases(every):
    """[(name, passed, the last line of what it said)]"""
    cases = all_cases()
    if len(cases) < MINIMUM:
        sys.exit(f"only {len(cases)} cases are there, at least {MINIMUM} are expected")
    results = []
    for kind, name in cases[::every]:
        outcome = unittest.TestResult()
        kind(name).run(outcome)
        problems = outcome.errors + outcome.failures
        said = problems[0][1].strip().splitlines()[-1] if problems else ""
        results.append((name, not problems and not outcome.skipped, said))
    return results


README = os.path.join(ROOT, "tools", "python", "README.md")
PART = "backend cases"


def listing():
    """The part of the README: how many pass, and all that do not, by reason."""
    reasons = {}
    for name, reason in KNOWN.items():
        short = name.removeprefix("test_").removesuffix("_cpu")
        reasons.setdefault(reason, []).append(f"`{short}`")
    count = len(all_cases())
    rows = "\n".join(f"| {len(names)}: {', '.join(names)} | {reason} |"
                     for reason, names in reasons.items())
    return (f"Of the {count:,} cases of onnx {onnx.__version__} that need no download "
            f"{count - len(KNOWN):,} pass with the package's own\ntolerances. These "
            f"{len(KNOWN)} do not (written by `tests/python/test_backend.py`):\n\n"
            f"| cases | why |\n|---|---|\n{rows}\n")


def readme_is_true(write):
    if written.cut(README, PART)[1] == listing():
        return True
    if write:
        written.write(README, PART, listing())
        return True
    print("FAIL tools/python/README.md lists other backend cases: --every 1 --readme writes them")
    return False


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args()
    bad = not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful()
    results = run_cases(options.every)
    for name, passed, said in results:
        if passed == (name in KNOWN):
            bad = True
            print(f"{'PASS, but listed in KNOWN' if passed else 'FAIL'} {name}: {said}")
    bad = not readme_is_true(options.readme and options.every == 1 and not bad) or bad
    print(f"{sum(passed for _, passed, _ in results)} of {len(results)} backend cases pass")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
