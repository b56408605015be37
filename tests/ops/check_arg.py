"""ArgMax and ArgMin of floats along the last axis and another one, against numpy: short and long
lines, equal elements, zeros of both signs, infinities, NaN in each segment of a line.
Usage: check_arg.py ATTNRUN [SEED]"""
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from exported import run

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 130, 65535, 65536, 65537, 131073)


def write(path, operator, axis, last):
    node = helper.make_node(operator, ["x"], ["y"], axis=axis, keepdims=0, select_last_index=last)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    save(helper.make_model(helper.make_graph([node], "g", [x], [y]),
                           opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def expected(x, operator, axis, last):
    """The first NaN; else the first, or the last, of the best elements."""
    x = np.moveaxis(x, axis, -1)
    best = np.argmax(x, -1) if operator == "ArgMax" else np.argmin(x, -1)
    if last:
        back = x[..., ::-1]
        y = x.shape[-1] - 1 - (np.argmax(back, -1) if operator == "ArgMax" else
                               np.argmin(back, -1))
        best = np.where(np.isnan(x).any(-1), np.isnan(x).argmax(-1), y)
    return best


def inputs(random, n):
    x = random.standard_normal((3, 8, n)).astype("f4")
    x[0, 1] = 0.5  # all equal
    x[0, 2] = np.where(random.random(n) < 0.5, 0.0, -0.0)
    x[0, 3] = -np.inf
    x[0, 4] = np.inf
    x[1] = np.round(x[1])  # many equal ones
    x[2, 0, random.integers(n)] = np.nan
    x[2, 1, -1] = np.nan
    x[2, 2, random.integers(n, size=3)] = np.nan
    x[2, 3, random.integers(n, size=3)] = np.inf
    x[2, 4, [0, -1]] = 9
    return x


def main():
    program, seed = sys.argv[1], int((sys.argv[2:] + ["31"])[0])
    random, failures, n = np.random.default_rng(seed), [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for operator in ("ArgMax", "ArgMin"):
            for axis, last in ((2, 0), (-1, 1), (1, 0)):
                write(folder / "m.onnx", operator, axis, last)
                for length in LENGTHS if axis != 1 else LENGTHS[:5]:
                    x = inputs(random, length)
                    y = run(program, folder / "m.onnx", folder, {"x": x})["y"]
                    n += 1
                    if (y != expected(x, operator, axis, last)).any():
                        failures.append(f"{operator} axis {axis} last {last} length {length}, "
                                        f"seed {seed}")
    print("\n".join(failures + [f"{n} cases, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
