"""Compares models of one node of domain com.microsoft with ONNX Runtime (or with numbers that
a case brings along), and sees that what is wrong is refused. The seed of all cases is the
second argument of the program that imports this."""
import itertools
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

import numpy as np
import onnx
import onnxruntime

from cases import check, one_node_model, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 15
random = np.random.default_rng(SEED)


def normal(*shape, kind="f4"):
    return np.asarray(random.standard_normal(shape), kind)


def between(low, high):
    return int(random.integers(low, high + 1))


def pick(*choices):
    return choices[int(random.integers(len(choices)))]


def any_bytes(*shape, kind="u1"):
    return np.asarray(random.integers(0, 256, shape), "u1").astype(kind)


class Case(NamedTuple):
    op: str
    inputs: list  # of (name, array or None): None is absent
    outputs: list
    attributes: dict
    constants: tuple = ()  # names of inputs that are initializers
    apart: Optional[dict] = None  # attributes for ONNX Runtime, where they are others
    types: Optional[dict] = None  # of outputs that ONNX Runtime cannot infer
    expected: Optional[list] = None  # values, where they are not ONNX Runtime's
    tolerance: Optional[str] = None
    opset: int = 21


def ms_model(case, inputs, attributes):
    """one_node_model() where an attribute may be called as one of its arguments."""
    rest = {name: value for name, value in attributes.items() if name != "opset"}
    model, given = one_node_model(case.op, inputs, case.outputs, case.constants,
                                  domain="com.microsoft", opset=case.opset, **rest)
    if "opset" in attributes:
        model.graph.node[0].attribute.append(
            onnx.helper.make_attribute("opset", attributes["opset"]))
    model.ir_version = 10
    return model, given


def answer(case):
    """The model, its inputs and the expected outputs; of f16 operands by ONNX Runtime in f32,
    since sums are f32 here."""
    model, given = ms_model(case, case.inputs, case.attributes)
    if case.expected is not None:
        return model, given, list(zip(case.outputs, case.expected))
    half = any(value is not None and value.dtype == "f2" for _, value in case.inputs)
    wide = [(name, value.astype("f4") if value is not None and value.dtype == "f2" else value)
            for name, value in case.inputs]
    reference, feeds = ms_model(case, wide, case.apart or case.attributes)
    for info in reference.graph.output:
        if case.types and info.name in case.types:
            info.type.tensor_type.elem_type = case.types[info.name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(reference.SerializeToString(), options)
    names = [name for name in case.outputs if name]
    values = session.run(names, {name: np.asarray(value) for name, value in feeds})
    return model, given, [
        (name, value.astype("f2") if half and value.dtype == "f4" else value)
        for name, value in zip(names, values)]


def tolerance_of(case, values):
    if case.tolerance is not None:
        return case.tolerance
    kinds = {value.dtype.str[1:] for _, value in values}
    size = max(np.abs(value[np.isfinite(value)]).max(initial=1) if value.dtype.kind == "f" else 1
               for _, value in values)
    if "f2" in kinds:
        return f"1e-2 {1e-3 * size}"
    if kinds & {"f4", "f8"}:
        return f"1e-3 {1e-4 * size}"
    # Bytes may be rounded otherwise where a sum ends in 1/2.
    return "0 1" if case.op.startswith("Q") else "0 0"


def check_hostile(attnrun, folder, hostile):
    """Each of (op, inputs, attributes, constants, exit code, word) must end with its exit code
    and a sentence about the right thing."""
    failed = 0
    for number, (op, inputs, attributes, constants, code, word) in enumerate(hostile):
        path = f"{folder}/{number:03}_{op}"
        outputs = ["y", "i", "c"] if op == "Unique" else ["y"]
        model, given = ms_model(Case(op, inputs, outputs, attributes, constants, opset=17),
                                inputs, attributes)
        same = op in ("Tokenizer", "Range")  # their output has the type of the input
        result = given[0][1] if same else normal(1)
        write_case(path, model, given, [(name, result) for name in outputs], "0 0")
        feeds = itertools.chain.from_iterable(
            ("-i", f"{name}={path}/test_data_set_0/input_{i}.pb")
            for i, (name, _) in enumerate(given))
        run = subprocess.run([attnrun, "run", f"{path}/model.onnx", *feeds, "-o", f"{path}/y.npz"],
                             capture_output=True, text=True, timeout=60)
        if run.returncode != code or word not in run.stderr:
            print(f"{op} {attributes}: exit code {run.returncode}, expected {code} and "
                  f"'{word}': {run.stderr.strip()[:300]}")
            failed += 1
    return failed


def compare(cases, hostile=(), more=()):
    """cases: Case or its members; more: (name, model, inputs, outputs, tolerance). Ends the
    process."""
    print("seed", SEED)
    attnrun = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as refused:
        for number, members in enumerate(cases):
            case = Case(*members)
            model, given, values = answer(case)
            write_case(f"{folder}/{number:03}_{case.op}", model, given, values,
                       tolerance_of(case, values))
        for number, (name, *rest) in enumerate(more):
            write_case(f"{folder}/more_{number:03}_{name}", *rest)
        if check_hostile(attnrun, refused, hostile):
            sys.exit(1)
        check(attnrun, folder)
