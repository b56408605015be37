#!/usr/bin/env python3
"""Run test folders in ONNX Runtime, which expands the function bodies that they hold.

usage: run_onnxruntime.py FOLDER [--only GLOB]

Each test_data_set is compared with the tolerance of the folder's tol.txt.
"""
import argparse
import fnmatch
import os
import sys
from pathlib import Path

os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # opset 27 is newer than this version

import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import numpy_helper  # noqa: E402


def tensors(data, word):
    """[(name, array)] of input_<i>.pb or output_<i>.pb, in order."""
    found = []
    while (data / f"{word}_{len(found)}.pb").exists():
        proto = onnx.TensorProto()
        proto.ParseFromString((data / f"{word}_{len(found)}.pb").read_bytes())
        found.append((proto.name, numpy_helper.to_array(proto)))
    return found


def difference(got, want, rtol, atol):
    """"" or what is wrong."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if got.dtype.kind != "f":
        return "" if numpy.array_equal(got, want) else "differs"
    worst = numpy.abs(got - want) - (atol + rtol * numpy.abs(want))
    if worst.size and not worst.max() <= 0:
        return f"differs by {numpy.abs(got - want).max():.3g}"
    return ""


def check(folder):
    """[complaint]"""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    runner = onnxruntime.InferenceSession(str(folder / "model.onnx"), options,
                                          providers=["CPUExecutionProvider"])
    rtol, atol = map(float, (folder / "tol.txt").read_text().split())
    wrong = []
    for data in sorted(folder.glob("test_data_set_*")):
        wanted = tensors(data, "output")
        got = runner.run([name for name, _ in wanted], dict(tensors(data, "input")))
        for (name, want), value in zip(wanted, got):
            reason = difference(value, want, rtol, atol)
            if reason:
                wrong.append(f"{data.name} {name}: {reason}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    folders = [path.parent for path in sorted(options.folder.glob("*/model.onnx"))
               if fnmatch.fnmatch(path.parent.name, options.only)]
    bad = 0
    for folder in folders:
        try:
            wrong = check(folder)
        except Exception as error:  # noqa: BLE001 - whatever it refuses
            wrong = [" ".join(str(error).split())[:300]]
        bad += bool(wrong)
        for reason in wrong:
            print(f"FAIL {folder.name}: {reason}")
    print(f"{len(folders) - bad} passed, {bad} failed")
    return 1 if bad or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
