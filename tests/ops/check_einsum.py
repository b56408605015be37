"""Random Einsum equations of two and three operands, with sizes that loading knows or not, against
numpy in double: what loading makes of them gives what they say.
Usage: check_einsum.py ATTNRUN [SEED] [EQUATIONS]"""
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from exported import attnrun, run
from onnx import TensorProto, helper

PASSES = ("einsum_sums", "einsum_pairs", "einsum_outer")


def draw(choose):
    """Operands' labels, the result's, and the size of each label."""
    labels = "abcdef"[:choose.randint(2, 5)]
    operands = ["".join(choose.sample(labels, choose.randint(1, min(4, len(labels)))))
                for _ in range(choose.choice([2, 2, 3]))]
    used = sorted(set("".join(operands)))
    least = 0 if choose.random() < 0.1 else 1
    result = "".join(choose.sample(used, choose.randint(least, min(5, len(used)))))
    return operands, result, {label: choose.randint(1, 5) for label in labels}


def write(path, operands, equation, sizes, choose):
    inputs = [helper.make_tensor_value_info(
        f"x{i}", TensorProto.FLOAT,
        [sizes[label] if choose.random() < 0.8 else f"n{label}" for label in labels])
        for i, labels in enumerate(operands)]
    node = helper.make_node("Einsum", [x.name for x in inputs], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)


def main():
    program = sys.argv[1]
    seed, count = [int(x) for x in (*sys.argv[2:], *("1", "150")[len(sys.argv) - 2:])]
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    failures, changed = [], dict.fromkeys(PASSES, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(count):
            operands, result, sizes = draw(choose)
            equation = f"{','.join(operands)}->{result}"
            model = folder / "model.onnx"
            write(model, operands, equation, sizes, choose)
            x = {f"x{i}": numbers.standard_normal([sizes[label] for label in labels]).astype("f4")
                 for i, labels in enumerate(operands)}
            expected = np.einsum(equation, *[one.astype("f8") for one in x.values()])
            found = run(program, model, folder, x)["y"]
            if found.shape != expected.shape or (
                    np.abs(found - expected) > 1e-4 * (1 + np.abs(expected))).any():
                failures.append(f"seed {seed}: {equation} of {sizes}")
            applied = json.loads(attnrun(program, "inspect", "--json", model).stdout)["passes"]
            for one in PASSES:
                changed[one] += applied.get(one, 0) > 0
    failures += [f"{one} changed nothing" for one in PASSES if changed[one] == 0]
    print("\n".join([*failures, f"{count} equations, {changed}, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
