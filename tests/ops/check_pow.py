"""Pow of f32 by one constant exponent: whole powers from 4 to 64, and those that are no f32, are
rounded once, others as powf rounds them; signs, infinities, zeros and NaN as in double precision.
Of integers by the largest exponents: they wrap.
Usage: check_pow.py ATTNRUN"""
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exported import run

EXPONENTS = {4: 0, 5: 0, 9: 0, 31: 0, 64: 0, 65: 1, 7.5: 1, -5: 1,  # and how many ulps are allowed
             np.int64(2**24 + 1): 0, np.float64(1 / 3): 0, np.float64(0.5 + 1e-9): 0}
BASES = np.array([3, 5, -1, 7, 2, -3], "i4")
LARGEST = np.array([2**63, 2**63 + 1, 2**64 - 1, 2**63 + 2, 2**63 - 1, 2**64 - 3], "u8")
EDGES = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-30, -1e30, 3e38, 1e-9, -1e-7]


def main():
    program, failures = sys.argv[1], []
    x = np.concatenate([np.random.default_rng(5).standard_normal(3000), EDGES]).astype("f4")
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "pow.onnx"
        for exponent, allowed in EXPONENTS.items():
            graph = helper.make_graph(
                [helper.make_node("Pow", ["x", "e"], ["y"])], "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
                [numpy_helper.from_array(exponent if isinstance(exponent, np.generic)
                                         else np.float32(exponent), "e")])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)],
                                        ir_version=8), model)
            found = run(program, model, Path(name), {"x": x})["y"]
            with np.errstate(all="ignore"):
                right = (x.astype("f8") ** exponent).astype("f4")
                off = np.where(found == right, 0, np.abs(found.astype("f8") - right)
                               / np.spacing(np.abs(right)).astype("f8"))
            number = ~np.isnan(right)
            if (np.isnan(found) == number).any() or (off[number] > allowed).any() or (
                    np.signbit(found) != np.signbit(right))[number].any():
                failures.append(f"to the power {exponent}: {np.nanmax(off):g} ulp, "
                                f"expected {allowed}")
        graph = helper.make_graph(
            [helper.make_node("Pow", ["x", "e"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.INT32, BASES.shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, BASES.shape)],
            [numpy_helper.from_array(LARGEST, "e")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)],
                                    ir_version=8), model)
        right = [pow(int(base), int(e), 2**32) for base, e in zip(BASES, LARGEST)]
        found = run(program, model, Path(name), {"x": BASES})["y"].astype("u4").tolist()
        if found != right:
            failures.append(f"integers: {found}, expected {right}")
    print("\n".join([*failures, f"{len(EXPONENTS)} exponents, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
