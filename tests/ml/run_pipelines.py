#!/usr/bin/env python3
"""Models of scikit-learn and its kin: each is converted, run by ONNX Runtime and compared
with `attnrun check`; the labels and values are also compared with the package's own.

usage: run_pipelines.py ATTNRUN FOLDER [--only TEXT]

A case fails where ONNX Runtime
runs it and attnrun does not, or gives something else. What needs an operator that is listed
in open.txt is counted as open, and fails once it passes.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import skl2onnx
from onnx import TensorProto, numpy_helper
from skl2onnx.common.data_types import DictionaryType

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def plain(value):
    """skl2onnx 1.20.0 gives booleans among integers, which onnx 1.23.2 does not take."""
    if isinstance(value, (list, np.ndarray)):
        return [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value]
    return value


def make_node(*arguments, **attributes):
    return onnx.helper.make_node(*arguments, **{k: plain(v) for k, v in attributes.items()})


def convert(case):
    if case.convert is not None:
        return case.convert(case.model)
    opset = case.opset or {"": 18, "ai.onnx.ml": 3}
    return skl2onnx.to_onnx(
        case.model, initial_types=case.initial, options=case.options, target_opset=opset
    )


def run_inputs(case, model):
    """The inputs of one run by name; dicts one by one."""
    from data import shown

    x = shown(case.x)
    names = [i.name for i in model.graph.input]
    if case.initial and isinstance(case.initial[0][1], DictionaryType):
        return [{names[0]: d} for d in x[:4]]
    if hasattr(x, "iloc"):
        kinds = {1: "f4", 7: "i8", 8: object}
        return [
            {
                i.name: x[i.name].to_numpy()[:, None].astype(kinds[i.type.tensor_type.elem_type])
                for i in model.graph.input
            }
        ]
    if x.dtype.kind == "U":
        x = x.astype(object)
    return [{names[0]: x}]


def map_proto(entries):
    """As numpy_helper.from_dict, which does not take strings as keys."""
    keys = list(entries)
    text = keys and isinstance(keys[0], str)
    made = onnx.MapProto(key_type=TensorProto.STRING if text else TensorProto.INT64)
    if text:
        made.string_keys.extend(key.encode() for key in keys)
    else:
        made.keys.extend(int(key) for key in keys)
    made.values.tensor_values.extend(
        numpy_helper.from_array(np.asarray(value)) for value in entries.values()
    )
    made.values.elem_type = onnx.SequenceProto.TENSOR
    return made


def to_pb(value):
    """The bytes of a tensor, a map or a list of these."""
    if isinstance(value, dict):
        return map_proto(value).SerializeToString()
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return onnx.SequenceProto(
            elem_type=onnx.SequenceProto.MAP, map_values=map(map_proto, value)
        ).SerializeToString()
    if isinstance(value, list):
        return numpy_helper.from_list(value, "x").SerializeToString()
    return numpy_helper.from_array(np.asarray(value), "x").SerializeToString()


def write_case(folder, model, runs):
    os.makedirs(folder)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for n, (inputs, outputs) in enumerate(runs):
        data = os.path.join(folder, f"test_data_set_{n}")
        os.makedirs(data)
        for kind, values in (("input", inputs), ("output", outputs)):
            for i, value in enumerate(values):
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                    file.write(to_pb(value))
    with open(os.path.join(folder, "tol.txt"), "w") as file:
        file.write("1e-4 1e-5\n")


def prepare(case, folder):
    """ "" and the outputs, or why there is no case."""
    try:
        model = convert(case)
    except Exception as error:  # the converter's own limits
        return f"not converted: {type(error).__name__}: {str(error)[:160]!r}", None
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        runtime = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        runs = [
            (list(inputs.values()), runtime.run(None, inputs))
            for inputs in run_inputs(case, model)
        ]
        if case.expected is not None:
            runs = [(x, [case.expected(x[0]).astype("f4")]) for x, _ in runs]
    except Exception as error:
        return f"onnxruntime refuses: {str(error)[:200]!r}", None
    write_case(folder, model, runs)
    return "", runs


def agrees_with_package(case, runs):
    """How many of the labels or values are the package's own; None where it has none."""
    from data import shown

    if not hasattr(case.model, "predict") or len(runs) != 1:
        return None
    try:
        own = np.asarray(case.model.predict(shown(case.x)))
    except Exception:  # it wants its input in another form
        return None
    got = np.asarray(runs[0][1][0])
    if own.size != got.size or got.dtype.kind == "O" and not isinstance(got.flat[0], str):
        return None
    own, got = own.reshape(-1), got.reshape(-1)
    if own.dtype.kind in "US" or got.dtype.kind in "OUS" or own.dtype.kind == "O":
        return float(np.mean(own.astype(str) == got.astype(str)))
    return float(np.mean(np.isclose(own.astype("f8"), got.astype("f8"), rtol=1e-2, atol=1e-2)))


def chosen_cases(arguments):
    import boosters
    import kinds
    import predictors
    import transformers

    kinds.ONLY.extend([arguments.only] if arguments.only else [])
    for source in (predictors, transformers, boosters):
        for part in source.PARTS:
            for case in part():
                if not arguments.only or arguments.only in case.name:
                    yield case


def needed(folder):
    model = onnx.load(os.path.join(folder, "model.onnx"))
    return {f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain}


def read_open():
    with open(os.path.join(HERE, "open.txt")) as file:
        return {line.strip() for line in file if line.strip() and line[0] != "#"}


def main():
    skl2onnx.common._container.make_node = make_node
    parser = argparse.ArgumentParser()
    parser.add_argument("attnrun")
    parser.add_argument("folder")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    absent, shares = {}, {}
    for case in chosen_cases(arguments):
        why, runs = prepare(case, os.path.join(arguments.folder, case.name))
        if why:
            absent[case.name] = why
        else:
            shares[case.name] = agrees_with_package(case, runs)
    done = subprocess.run(
        [arguments.attnrun, "check", "--json", arguments.folder],
        capture_output=True,
        text=True,
        timeout=3600,
    )
    if not done.stdout:
        sys.exit(done.stderr)
    sys.exit(report(arguments, json.loads(done.stdout), absent, shares))


def report(arguments, result, absent, shares):
    waiting, failed, kinds = read_open(), [], collections.defaultdict(collections.Counter)
    for folder in result["folders"]:
        name = os.path.basename(folder["path"])
        is_open = bool(needed(folder["path"]) & waiting)
        state = "agree" if folder["passed"] else "open" if is_open else "differ"
        if folder["passed"] and is_open:
            failed.append(f"{name}: it agrees, but an operator of open.txt is in it")
        if state == "differ":
            failed.append(f"{name}: {folder['reason']}")
        share = shares.get(name)
        if state == "agree" and share is not None and share < 0.8:
            kinds[name.split("-")[0]]["unlike the package"] += 1
        kinds[name.split("-")[0]][state] += 1
    for name, why in absent.items():
        kinds[name.split("-")[0]][why.split(":")[0]] += 1
    for kind, counts in sorted(kinds.items()):
        print(f"{kind:32} " + ", ".join(f"{n} {state}" for state, n in counts.items()))
    for name, why in absent.items():
        print("-", name, why)
    for line in failed:
        print("FAIL", line)
    total = collections.Counter()
    for counts in kinds.values():
        total.update(counts)
    print(", ".join(f"{n} {state}" for state, n in total.items()))
    missing = missing_kinds(kinds)
    if missing and not arguments.only:
        print("FAIL kinds without a case:", ", ".join(missing))
    return 1 if failed or (missing and not arguments.only) or not kinds else 0


def missing_kinds(kinds):
    """Classes of scikit-learn that skl2onnx converts, and of which there is no case here."""
    from skl2onnx._supported_operators import sklearn_operator_name_map as known

    names = {made.__name__ for made in known if made.__module__.startswith("sklearn")}
    return sorted(name for name in names - set(kinds) if name[0] != "_")


if __name__ == "__main__":
    main()
