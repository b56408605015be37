"""OpenBLAS is loaded by a model that multiplies matrices of doubles and by no other; where it
cannot be loaded, the products are right nevertheless.
Usage: check_blas_loaded.py ATTNRUN"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper

LIBRARY = "libopenblas.so.0"


def run(folder, kind, more):
    """What the loader of libraries printed, and the product."""
    x = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(kind)
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])], "net",
        [helper.make_tensor_value_info(n, dtype, [64, 64]) for n in "ab"],
        [helper.make_tensor_value_info("y", dtype, [64, 64])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=9), f"{folder}/net.onnx")
    for name, value in zip("ab", x):
        np.save(f"{folder}/{name}.npy", value)
    done = subprocess.run(
        [sys.argv[1], "run", f"{folder}/net.onnx", *[f"-i{n}={folder}/{n}.npy" for n in "ab"],
         "-o", f"{folder}/y.npz"], capture_output=True, text=True, timeout=120,
        env={**os.environ, "LD_DEBUG": "files", **more})
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stderr[-300:]}", None
    with np.load(f"{folder}/y.npz") as values:
        y = values["y"]
    apart = np.abs(y - x[0].astype("f8") @ x[1].astype("f8")).max()
    return done.stderr, apart


def main():
    doctor = subprocess.run([sys.argv[1], "doctor", "--json"], capture_output=True, text=True,
                            check=True)
    if json.loads(doctor.stdout)["blas"] == "none":
        print("this library is built without OpenBLAS")
        return
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/broken")
        with open(f"{folder}/broken/{LIBRARY}", "w", encoding="ascii") as file:
            file.write("no library")
        broken = {"LD_LIBRARY_PATH": f"{folder}/broken"}
        for what, kind, more, loads, limit in [
                ("floats", "f4", {}, False, 1e-4), ("doubles", "f8", {}, True, 1e-12),
                ("doubles without the library", "f8", broken, False, 1e-12)]:
            printed, apart = run(folder, kind, more)
            loaded = any(
                "calling init" in line and "openblas" in line for line in printed.splitlines())
            if apart is None or not apart <= limit or loaded != loads:
                failed += 1
                print(f"{what}: loaded {loaded}, expected {loads}; {apart} apart, at most {limit}: "
                      f"{printed if apart is None else ''}")
    print(f"{failed} failures")
    sys.exit(failed > 0)


main()
