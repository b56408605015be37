"""Writes test folders (model.onnx, test_data_set_0) of one node each, and lets
`attnrun check` compare them."""
import json
import os
import shutil
import subprocess
import sys

import onnx
from onnx import helper, numpy_helper


def one_node_model(op, inputs, outputs, constants=(), domain="", opset=18, **attributes):
    """inputs: (name, array or None) pairs in the node's order; None is absent. Returns the
    model and the pairs that are its inputs. Output types are set by write_case()."""
    given = [(name, value) for name, value in inputs if value is not None]
    node = helper.make_node(op, [name if value is not None else "" for name, value in inputs],
                            outputs, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "case",
        [helper.make_tensor_value_info(name, numpy_helper.from_array(value).data_type,
                                       value.shape)
         for name, value in given if name not in constants],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in given if name in constants])
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return model, [(name, value) for name, value in given if name not in constants]


def write_case(folder, model, inputs, outputs, tolerance):
    """outputs: (name, array) pairs; tolerance: "rtol atol"."""
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    for (name, value), info in zip(outputs, model.graph.output):
        kind = numpy_helper.from_array(value).data_type
        info.CopyFrom(helper.make_tensor_value_info(name, kind, None))
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for kind, values in (("input", inputs), ("output", outputs)):
        for i, (name, value) in enumerate(values):
            path = os.path.join(data, f"{kind}_{i}.pb")
            with open(path, "wb") as file:
                file.write(numpy_helper.from_array(value, name).SerializeToString())
    with open(os.path.join(folder, "tol.txt"), "w") as file:
        file.write(tolerance + "\n")


def check(attnrun, folder):
    """Checks all cases of a folder on each instruction set; ends the process. What the environment
    names as ATTNRUN_BATCH_CASES gets a copy of them, for check_batch_walk.py."""
    if "ATTNRUN_BATCH_CASES" in os.environ:
        kept = os.path.join(os.environ["ATTNRUN_BATCH_CASES"], os.path.basename(sys.argv[0]))
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
    cases = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    failed = 0
    doctor = subprocess.run([attnrun, "doctor", "--json"], capture_output=True, text=True,
                            check=True)
    for isa in json.loads(doctor.stdout)["isas"]:
        for threads in ("1", "2"):
            run = subprocess.run([attnrun, "check", "--isa", isa, "--threads", threads] + cases,
                                 capture_output=True, text=True, timeout=600)
            print(isa, threads, (run.stdout + run.stderr).strip()[-2000:])
            failed += run.returncode != 0
    sys.exit(failed > 0)
