#!/usr/bin/env python3
"""Operators of PyTorch's own database: exported, and run with and without fusion.

usage: torch_operators.py ATTNRUN [--every N] [--samples N] [--seed S] [--type float32] [--dynamo]
                          [NAME...]

op_db of torch 2.13.0 has 702 rows, each with samples of its arguments: scalars, empty tensors,
odd strides, axes from the back. Of every N-th row, or of the rows that are named, some samples
become models. What ONNX Runtime, without its optimizations, computes as PyTorch does, attnrun must
compute, too. Where ONNX Runtime does not, the model is wrong or has random numbers, and attnrun
must only end without a signal. Operators and samples that the exporter refuses are left out.
"""
import argparse
import contextlib
import io
import random
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

import numpy
import onnx
import onnxruntime
import torch
from torch.utils import _pytree

LEAST = 40  # models that must be compared: a database that cannot be exported is no test
TOLERANCE = {numpy.dtype("f4"): (1e-3, 1e-4), numpy.dtype("f8"): (1e-6, 1e-8),
             numpy.dtype("f2"): (2e-2, 2e-2)}
# What ONNX Runtime and PyTorch do, but ONNX does not.
EXPECTED = {
    "nn.functional.upsample_bilinear":
        "from corner to corner, ONNX divides by the length before rounding (the backend case "
        "resize_downsample_scales_linear_align_corners), and a scale of 1.7 gives a fraction",
}
# The exporter itself divides by zero where a tensor is empty.
NOT_EMPTY = {"nn.functional.group_norm", "nn.functional.unfold", "take"}


def database():
    """op_db. Its modules import expecttest, of which they use no more than a base class here."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db
    return op_db


def name_of(row):
    return row.name + (f"/{row.variant_test_name}" if row.variant_test_name else "")


class Call(torch.nn.Module):
    """One sample; its tensors are the inputs."""

    def __init__(self, op, sample):
        super().__init__()
        self.op = op
        self.leaves, self.form = _pytree.tree_flatten(
            ((sample.input, *sample.args), sample.kwargs))
        self.given = [x for x in self.leaves if isinstance(x, torch.Tensor)]

    def forward(self, *tensors):
        left = iter(tensors)
        args, kwargs = _pytree.tree_unflatten(
            [next(left) if isinstance(x, torch.Tensor) else x for x in self.leaves], self.form)
        results = _pytree.tree_leaves(self.op(*args, **kwargs))
        return tuple(x for x in results if isinstance(x, torch.Tensor))


def export(call, dynamo):
    """A model of all inputs, or None. The exporters print what they refuse."""
    file, quiet = io.BytesIO(), io.StringIO()
    tensors = tuple(x.clone() for x in call.given)
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            if dynamo:
                model = torch.onnx.export(call, tensors, dynamo=True, verbose=False).model_proto
            else:
                torch.onnx.export(call, tensors, file, dynamo=False)
                model = onnx.ModelProto.FromString(file.getvalue())
    except Exception:  # noqa: BLE001 - each refusal has another class
        return None
    return model if len(model.graph.input) == len(tensors) and model.graph.output else None


def in_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception:  # noqa: BLE001 - not all of its errors have one class
        return None


def in_attnrun(attnrun, model, feeds, *options):
    """(outputs or None, exit code, what it said)"""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/model.onnx")
        given = []
        for i, (name, array) in enumerate(feeds.items()):
            numpy.save(f"{folder}/{i}.npy", array)
            given += ["-i", f"{name}={folder}/{i}.npy"]
        result = subprocess.run([attnrun, "run", f"{folder}/model.onnx", *given, *options,
                                 "--threads", "1", "-o", f"{folder}/out.npz"],
                                capture_output=True, text=True, timeout=120)
        if result.returncode != 0:
            return None, result.returncode, result.stderr.strip()
        with numpy.load(f"{folder}/out.npz") as file:
            return [file[value.name] for value in model.graph.output], 0, ""


def difference(got, wanted):
    """What is not as in `wanted`, or None."""
    if len(got) != len(wanted):
        return f"{len(got)} outputs, expected {len(wanted)}"
    for i, (a, b) in enumerate(zip(got, wanted)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"output {i} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        rtol, atol = TOLERANCE.get(b.dtype, (0, 0))
        if not numpy.allclose(a, b, rtol, atol, equal_nan=b.dtype.kind == "f"):
            return f"output {i} has other values"
    return None


class Sweep:
    def __init__(self, options):
        self.options, self.compared, self.failures = options, 0, []

    def try_model(self, where, call):
        with torch.no_grad():
            results = call(*[x.clone() for x in call.given])
        if any(x.is_complex() for x in (*call.given, *results)):
            return
        model = export(call, self.options.dynamo)
        if model is None:
            return
        feeds = {value.name: x.contiguous().numpy() for value, x in
                 zip(model.graph.input, call.given)}
        wanted = [x.numpy() for x in results]
        peer = in_onnxruntime(model, feeds)
        right = peer is not None and difference(peer, wanted) is None
        self.compared += right
        for flags in ((), ("--no-fusion",)):
            got, code, said = in_attnrun(self.options.attnrun, model, feeds, *flags)
            wrong = said if got is None else difference(got, wanted)
            if code < 0 or right and wrong:
                shapes = [list(x.shape) for x in call.given]
                self.failures.append(f"{where} of {shapes} {' '.join(flags)}: {wrong}")

    def try_row(self, row):
        name = name_of(row)
        dtype = getattr(torch, self.options.type)
        if dtype not in row.dtypes or name in EXPECTED:
            return
        try:
            samples = list(row.sample_inputs("cpu", dtype, requires_grad=False))
        except Exception:  # noqa: BLE001 - a few need what this build of torch has not
            return
        for k in sorted(random.sample(range(len(samples)),
                                      min(len(samples), self.options.samples))):
            call = Call(row.op, samples[k]).eval()
            if name in NOT_EMPTY and any(x.numel() == 0 for x in call.given):
                continue
            try:
                self.try_model(f"{name} {self.options.type} sample {k}", call)
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                print(f"left out: {name} sample {k}: {str(error).splitlines()[:1]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnrun")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--type", default="float32")
    parser.add_argument("--dynamo", action="store_true")
    options = parser.parse_intermixed_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # No graph of each operator that the exporter refuses; each export would switch it on again.
    torch._C._jit_set_onnx_log_enabled(False)
    torch._C._jit_set_onnx_log_enabled = lambda enabled: None
    rows = [row for row in database() if not options.names or name_of(row) in options.names]
    sweep = Sweep(options)
    for i, row in enumerate(rows):
        # a seed of its own, so that a row alone has the samples that it has among all
        random.seed(f"{options.seed} {name_of(row)}")
        torch.manual_seed(options.seed)
        if options.names or i % options.every == options.seed % options.every:
            sweep.try_row(row)
    for failure in sweep.failures:
        print(failure)
    print(f"{sweep.compared} models compared, {len(sweep.failures)} failed")
    sys.exit(bool(sweep.failures) or not options.names and sweep.compared < LEAST)


if __name__ == "__main__":
    main()
