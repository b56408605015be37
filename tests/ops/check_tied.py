"""A table that is an embedding and, transposed, the last product of a language model: in f32, f16
and bf16, against numpy in float64.

usage: check_tied.py ATTNRUN

Transposing it at load would need it twice, and `--limit fold_bytes` forbids that here, as the size
of real tables does. The product must read the table itself: no Transpose or Cast of it may stay.
"""
import json
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

ROWS, WIDTH, SEED = 700, 48, 7
LIMIT = ("--limit", "fold_bytes=1024")
TYPES = {"f32": (TensorProto.FLOAT, np.float32, 1e-5),
         "f16": (TensorProto.FLOAT16, np.float16, 4e-3),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 3e-2)}


def save(path, kind, table):
    data_type = TYPES[kind][0]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["x"]),
         helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
         helper.make_node("MatMul", ["x", "turned"], ["y"])],
        "tied", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["B", "S"])],
        [helper.make_tensor_value_info("y", data_type, ["B", "S", ROWS])],
        [helper.make_tensor("table", data_type, table.shape, table.tobytes(), raw=True)])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              path)


def call(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(attnrun):
    rng, failed = np.random.default_rng(SEED), 0
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tied.onnx"
        for kind, (_, dtype, bound) in TYPES.items():
            table = rng.standard_normal((ROWS, WIDTH)).astype(dtype)
            save(path, kind, table)
            said = json.loads(call(attnrun, "inspect", path, "--layers", "--json", *LIMIT))
            steps = [n["op_type"] for n in said["layers"]]
            if "Transpose" in steps or steps.count("Cast") > (kind != "f32") * 2:
                failed += 1
                print(f"FAIL {kind}: the steps are {steps}")
            for batch, tokens in ((1, 1), (3, 40)):
                ids = rng.integers(0, ROWS, (batch, tokens))
                np.save(f"{folder}/ids.npy", ids)
                call(attnrun, "run", path, "-i", f"ids={folder}/ids.npy", "-o",
                     f"{folder}/out.npz", *LIMIT)
                exact = table.astype(np.float64)[ids] @ table.astype(np.float64).T
                with np.load(f"{folder}/out.npz") as out:
                    y = out["y"]
                if kind == "bf16" and y.dtype.kind != "f":
                    y = y.view(ml_dtypes.bfloat16)
                error = np.abs(y.astype(np.float64) - exact).max() / np.abs(exact).max()
                if not error <= bound:
                    failed += 1
                    print(f"FAIL {kind} {batch}x{tokens} seed {SEED}: off by {error}")
    print(f"6 products, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
