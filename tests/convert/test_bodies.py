"""References, their bodies and the native operators agree.

For each example of each reference: the model with the body passes the checker and runs in
ONNX Runtime and in attnrun with --force-bodies; attnrun runs the native operator; all
agree with the reference in double, at the example's sizes and at other ones.

usage: test_bodies.py ROOT ATTNRUN [--full] [operator …]

Exporting takes seconds: the short mode takes every other example of each operator; --full
or a named operator takes all.
"""
import json
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy
import onnx
import onnxruntime

ROOT, ATTNRUN = Path(sys.argv[1]), sys.argv[2]
NAMES = [word for word in sys.argv[3:] if word != "--full"]
STEP = 1 if NAMES or "--full" in sys.argv else 2
sys.path.insert(0, str(ROOT / "tools" / "convert"))
from attnrun_convert import bodies, operators, samples  # noqa: E402


def native_operators():
    listing = subprocess.run([ATTNRUN, "ops", "--json"], capture_output=True, text=True,
                             check=True).stdout
    return {op["name"]: op for op in json.loads(listing)["ops"] if op["domain"] == "attnrun"}


def in_onnxruntime(model, tensors, names, expected, tolerance):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    feeds = {name: tensor.numpy() for name, tensor in zip(names, tensors)
             if tensor is not None}
    rtol, atol = tolerance
    for got, want in zip(session.run(None, feeds), expected):
        numpy.testing.assert_allclose(got, want.numpy(), rtol, atol, err_msg="onnxruntime")


def in_attnrun(folder, *options):
    result = subprocess.run([ATTNRUN, "check", *options, str(folder)], capture_output=True,
                            text=True, timeout=120)
    if result.returncode != 0:
        raise AssertionError(f"attnrun check {' '.join(options)}: "
                             f"{(result.stdout + result.stderr).strip()}")


def check_example(operator, example, folder, native):
    _, attributes = samples.split(operator, example)
    sizes = samples.other_sizes(operator, example)
    tensors = samples.operands(operator, example)
    model = bodies.make_model(operator, attributes, tensors, example.outputs,
                              dynamic=sizes is not None)
    onnx.checker.check_model(model, full_check=True)
    names = [operand.name for operand in operator.inputs]
    for run, replaced in enumerate([None] if sizes is None else [None, sizes]):
        tensors = samples.operands(operator, example, replaced, seed=run)
        want = samples.expected(operator, attributes, tensors)[:example.outputs]
        in_onnxruntime(model, tensors, names, want, example.tolerance)
        where = folder / f"run{run}"
        samples.write_folder(where, model, tensors, want, example.tolerance)
        in_attnrun(where, "--force-bodies")
        if native:
            in_attnrun(where)
    return len(model.functions[0].node)


def main():
    known, here, failed = operators.load(), native_operators(), 0
    for name, row in here.items():
        if row["body"] != (name in known):
            failed += 1
            print(f"FAILED {name}: `attnrun ops` says body {row['body']}; "
                  f"a reference {'exists' if name in known else 'is missing'}")
        if not row.get("cost") or not row.get("source"):
            failed += 1
            print(f"FAILED {name}: `attnrun ops` has no cost or no source")
    for name in NAMES or sorted(known):
        operator, sizes = known[name], []
        for number in range(0, len(operator.examples), STEP):
            example = operator.examples[number]
            with tempfile.TemporaryDirectory() as folder:
                try:
                    sizes.append(check_example(operator, example, Path(folder), name in here))
                except Exception as error:  # noqa: BLE001 - the others are tried, too
                    failed += 1
                    while error.__cause__ is not None:  # what the exporter wraps
                        error = error.__cause__
                    print(f"FAILED {name}, example {number}: {example.values}")
                    traceback.print_exception(error, limit=-4, chain=False, file=sys.stdout)
        print(f"{name}: bodies of {sizes} nodes; "
              + ("native operator too" if name in here else "no native operator here"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
