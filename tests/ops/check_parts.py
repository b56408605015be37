"""FusedPartsAttention over random sizes, 0 and 1 among them, against softmax in double (NumPy):
windows of blocks, parts that all blocks see, masks that are broadcast and that hide all keys of a
query, on two instruction sets. Sizes and attributes that do not fit fail with a sentence.
Usage: check_parts.py ATTNRUN [SEED]"""
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from exported import attnrun, run

CASES = 40


def draw(random):
    """The inputs and the attribute `parts`."""
    def pick(*sizes):
        return int(random.choice(sizes))

    def numbers(*shape):
        return random.standard_normal(shape).astype("f4")

    b, h, w = pick(0, 1, 2, 2), pick(1, 2, 3), pick(0, 1, 3, 5)
    t, d, e = pick(0, 1, 5, 64, 130), pick(0, 1, 8, 17), pick(0, 1, 8)
    x, parts = {"q": numbers(b, h, w, t, d)}, []
    for i in range(pick(1, 2, 3)):
        window, keys = pick(1, 1, 2, 3), pick(0, 1, 4, 300)
        blocks = 1 if window == 1 and pick(0, 1) else w + window - 1
        x[f"k{i}"], x[f"v{i}"] = numbers(b, h, blocks, keys, d), numbers(b, h, blocks, keys, e)
        parts += [window, pick(0, 1)]
        if parts[-1]:
            shape = [n if pick(0, 1) else 1 for n in (b, h, w, t, keys * window)]
            hides = np.float32(random.choice([-np.inf, -100, -2]))
            x[f"m{i}"] = np.where(random.random(shape) < 0.4, hides, np.float32(0))
    return x, parts


def seen(x, window, blocks):
    if x.shape[2] == 1 and window == 1:
        return np.broadcast_to(x, (*x.shape[:2], blocks, *x.shape[3:]))
    return np.concatenate([x[:, :, i:i + blocks] for i in range(window)], 3)


def attend(x, parts, scale):
    q, blocks, scores, values = x["q"].astype("f8"), x["q"].shape[2], [], []
    for i, window in enumerate(parts[::2]):
        s = scale * q @ seen(x[f"k{i}"], window, blocks).astype("f8").swapaxes(-1, -2)
        scores.append(s + x.get(f"m{i}", 0))
        values.append(seen(x[f"v{i}"], window, blocks))
    s = np.concatenate(scores, -1)
    with np.errstate(invalid="ignore"):  # a query that sees nothing is NaN
        weights = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
    return weights @ np.concatenate(values, 3)


def write(path, x, parts):
    names = ["q"] + [f"{one}{i}" for i in range(len(parts) // 2) for one in "kvm"
                     if f"{one}{i}" in x]
    node = helper.make_node("FusedPartsAttention", names, ["y"], domain="attnrun.fused", scale=0.3,
                            parts=parts)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x[n].shape) for n in names]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    save(helper.make_model(helper.make_graph([node], "g", given, [y]), ir_version=9, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("attnrun.fused", 1)]), path)


def refusals(program, model):
    ones = {name: np.ones((1, 1, 2, 3, 4), "f4") for name in ("q", "k0", "v0", "m0")}
    wrong = {"no parts": ([], {}), "half a part": ([1], {}), "window 0": ([0, 0], {}),
             "window -1": ([-1, 0], {}), "wide window": ([4097, 0], {}),
             "missing mask": ([1, 1], {"m0": None}), "blocks": ([2, 0], {"m0": None}),
             "more inputs": ([1, 0], {}), "keys": ([1, 0], {"m0": None, "v0": (1, 1, 2, 2, 4)}),
             "dim": ([1, 0], {"m0": None, "k0": (1, 1, 2, 3, 5)}),
             "rank": ([1, 0], {"m0": None, "q": (1, 2, 3, 4)}),
             "mask": ([1, 1], {"m0": (1, 1, 2, 3, 2)})}
    failures = []
    for name, (parts, shapes) in wrong.items():
        x = {n: one if n not in shapes else np.ones(shapes[n], "f4") for n, one in ones.items()
             if shapes.get(n, ()) is not None}
        write(model, x, parts or [1])
        done = attnrun(program, "inspect", model)
        if done.returncode not in range(1, 20) or "FusedPartsAttention" not in done.stderr:
            failures.append(f"{name}: {done.returncode}, {done.stderr}")
    return failures


def main():
    program, seed = sys.argv[1], int((sys.argv[2:] + ["37"])[0])
    random, failures = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for case in range(CASES):
            x, parts = draw(random)
            write(folder / "m.onnx", x, parts)
            expected = attend(x, parts, 0.3)
            for options in ((), ("--isa", "base", "--threads", "2")):
                y = run(program, folder / "m.onnx", folder, x, *options)["y"]
                if y.shape != expected.shape or not np.allclose(y, expected, atol=1e-4,
                                                                equal_nan=True):
                    failures.append(f"seed {seed}, case {case} {options}: parts {parts}, "
                                    f"{ {n: one.shape for n, one in x.items()} }")
        failures += refusals(program, folder / "m.onnx")
    print("\n".join(failures + [f"{CASES} cases, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
