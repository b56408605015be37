"""Nodes that compute f16 and bf16 in f32, with more operands than one word has bits, and with both
types in one node, or with subgraphs: results have the type of the operand that ONNX names.
Usage: check_narrow_types.py ATTNRUN [SEED]"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 3
F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT
NAMES = {F16: "f16", BF16: "bf16"}
node = helper.make_node


def run(attnrun, folder, nodes, inputs, kinds, options):
    """y, which is y16 in f32. `kinds`: the types of the inputs, which are cast, and of y16."""
    info = helper.make_tensor_value_info
    casts = [node("Cast", [f"{name}_f32"], [name], to=kinds[name]) for name in inputs]
    graph = helper.make_graph(
        [*casts, *nodes, node("Cast", ["y16"], ["y"], to=F32)], "g",
        [info(f"{name}_f32", F32, value.shape) for name, value in inputs.items()],
        [info("y", F32, None)], value_info=[info("y16", kinds["y16"], None)])
    made = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.preview", 1)])
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(made.SerializeToString())
    np.savez(os.path.join(folder, "in.npz"),
             **{f"{name}_f32": value for name, value in inputs.items()})
    subprocess.run([attnrun, "run", "model.onnx", "-q", "-n", "1", "-i", "in.npz", "-o", "out.npz",
                    *options], cwd=folder, check=True, timeout=60)
    with np.load(os.path.join(folder, "out.npz")) as found:
        return found["y"]


def many_cases(random):
    """Operands 62 to 130 of variadic operators."""
    a, b = random.integers(-8, 8, (2, 5)).astype("f4")
    for op, of in (("Sum", sum), ("Mean", lambda x: np.mean(x, 0)), ("Max", lambda x: np.max(x, 0)),
                   ("Min", lambda x: np.min(x, 0))):
        for n in (63, 64, 65, 130):
            for kind in (F16, BF16):
                names = ["a" if k % 3 else "b" for k in range(n)]
                yield (f"{op} of {n} {NAMES[kind]}", [node(op, names, ["y16"])], {"a": a, "b": b},
                       {"a": kind, "b": kind, "y16": kind},
                       of([a if k % 3 else b for k in range(n)]))


def mixed_cases(random):
    """Operands of both types, of which the last is not that of the result."""
    q = random.integers(-8, 8, (1, 1, 3, 4)).astype("f4")
    scores = q @ q.swapaxes(2, 3) / 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    attended = weights / weights.sum(-1, keepdims=True) @ q
    image, grid = q.reshape(1, 1, 3, 4), np.zeros((1, 1, 1, 2), "f4")
    for first, last in ((F16, BF16), (BF16, F16)):
        name = f"{NAMES[first]} and {NAMES[last]}"
        yield (f"Attention of {name}", [node("Attention", ["q", "q", "v"], ["y16"])],
               {"q": q, "v": q}, {"q": first, "v": last, "y16": first}, attended)
        yield (f"GridSample of {name}", [node("GridSample", ["x", "grid"], ["y16"])],
               {"x": image, "grid": grid}, {"x": first, "grid": last, "y16": first},
               image[:, :, 1:2, 1:3].mean(-1, keepdims=True))


def modified_cases(random):
    """FlexAttention, whose modifiers are subgraphs in f32."""
    q = random.integers(-8, 8, (1, 2, 70, 4)).astype("f4") / 4
    scores = q @ q.swapaxes(2, 3) / 2
    s, t = (helper.make_tensor_value_info(name, F32, None) for name in "st")
    square = helper.make_graph([node("Mul", ["s", "s"], ["t"])], "square", [s], [t])
    for kind in (F16, BF16):
        for modifier in ("score_mod", "prob_mod"):
            modified = scores**2 if modifier == "score_mod" else scores
            weights = np.exp(modified - modified.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            yield (f"FlexAttention with {modifier} of {NAMES[kind]}",
                   [node("FlexAttention", ["q", "q", "q"], ["y16"], domain="ai.onnx.preview",
                         **{modifier: square})],
                   {"q": q}, {"q": kind, "y16": kind},
                   (weights if modifier == "score_mod" else weights**2) @ q)


def main():
    attnrun, bad, n = os.path.abspath(sys.argv[1]), 0, 0
    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        for name, nodes, inputs, kinds, want in (*many_cases(random), *mixed_cases(random),
                                                 *modified_cases(random)):
            for options in ([], ["--no-fusion"]):
                found, n = run(attnrun, folder, nodes, inputs, kinds, options), n + 1
                if found.shape != want.shape or not np.allclose(found, want, 0.02, 0.02):
                    print(f"FAIL {name} {options}, seed {SEED}: {found!r}, expected {want!r}")
                    bad += 1
    print(f"{n} runs, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
