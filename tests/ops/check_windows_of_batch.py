"""FusedAttention whose batch is windows of samples, one after the other, against NumPy: random
sizes and layouts of the operands, a bias of heads and a mask that tells windows, samples or both
apart. And what it refuses. No file has the operator; rewrite passes make it (forms_shifted.py).
Usage: check_windows_of_batch.py ATTNRUN [SEED]"""
import sys
import tempfile
from pathlib import Path

import numpy as np
from exported import attnrun, differ, run
from onnx import TensorProto, helper, save

CASES, ADD, FLAT = 40, 8, 3  # ADD: the opcode of mask_code.h; FLAT: the layout of Y without heads
TRANSPOSED = {0: (0, 1, 2, 3), 1: (0, 2, 1, 3), 2: (2, 0, 1, 3)}  # layouts of (batch, heads, …)


def draw(random):
    """Operands (batch, heads, tokens, dim), a bias, a mask (samples, windows, …), windows."""
    samples, windows, heads = (int(random.integers(1, 5)) for _ in range(3))
    n, keys = (int(x) for x in random.choice([1, 5, 49, 64, 70, 130], 2))
    dim, v_dim = (int(x) for x in random.choice([4, 8, 20], 2))
    normal = random.standard_normal
    bias = normal((1, heads, n, keys)).astype("f4")
    mask = normal([one if random.random() < 0.7 else 1 for one in (samples, windows, heads)]
                  + [n, keys]).astype("f4") * 3
    mask[random.random(mask.shape) < 0.3] = -np.inf
    mask[..., 0] = 0
    q, k, v = (normal((samples * windows, heads, *size)).astype("f4")
               for size in ((n, dim), (keys, dim), (keys, v_dim)))
    return {"q": q, "k": k, "v": v, "bias": bias, "mask": mask}, windows


def attend(q, k, v, bias, mask, windows):
    scores = (0.3 * q @ k.swapaxes(2, 3) + bias).reshape(-1, windows, *bias.shape[1:]) + mask
    scores = scores.reshape(-1, *bias.shape[1:])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def placed(x, layouts):
    """The operands as their layouts say; of layouts 0 and 2 also those of rank 3."""
    found = {}
    for (name, one), layout in zip(x.items(), layouts):
        one = np.ascontiguousarray(one.transpose(TRANSPOSED[layout]))
        found[name] = one.reshape(*one.shape[:2], -1) if layout == 2 else one
    return found


def write(path, x, layouts, windows, heads, dims):
    columns = [0, 0, 0, *dims]
    node = helper.make_node(
        "FusedAttention", ["q", "k", "v", "", "", "", "", "bias", "mask"], ["y"],
        domain="attnrun.fused", scale=0.3, layouts=layouts, columns=columns, windows=windows,
        q_num_heads=heads, kv_num_heads=heads, code=[ADD, 0, 1, 0], mask=[-1, 2, 0, -1, -1],
        axes=[-1, -1, 1, 2, 3, 1, 0, 2, 3, 4])
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, one.shape)
             for name, one in x.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    save(helper.make_model(helper.make_graph([node], "g", given, [y]), ir_version=9, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("attnrun.fused", 1)]), path)


def refusals(program, model):
    ones = {name: np.ones(shape, "f4") for name, shape in {
        "q": (6, 2, 3, 4), "k": (6, 2, 3, 4), "v": (6, 2, 3, 4), "bias": (1, 2, 3, 3),
        "mask": (1, 3, 1, 3, 3)}.items()}
    failures = []
    for windows, words in ((0, "windows is 0"), (-3, "windows is -3"), (4, "divisor"),
                           (7, "divisor"), (2, "cannot be broadcast to 2"),
                           (6, "cannot be broadcast to 6")):
        write(model, ones, [0, 0, 0, 0], windows, 2, (4, 4))
        done = attnrun(program, "run", model)
        if done.returncode not in range(1, 20) or words not in done.stderr:
            failures.append(f"windows {windows}: {done.returncode}, {done.stderr}")
    return failures


def main():
    program, seed = sys.argv[1], int((sys.argv[2:] + ["41"])[0])
    random, failures = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.onnx"
        for case in range(CASES):
            x, windows = draw(random)
            layouts = [int(layout) for layout in random.choice([0, 1, 2], 3)]
            layouts.append(int(random.integers(0, FLAT + 1)))
            given = {**placed(dict(list(x.items())[:3]), layouts), "bias": x["bias"],
                     "mask": x["mask"]}
            write(model, given, layouts, windows, x["q"].shape[1],
                  (x["q"].shape[3], x["v"].shape[3]))
            expected = attend(**x, windows=windows)
            expected = expected.transpose(TRANSPOSED[layouts[3] % FLAT if layouts[3] < FLAT else 1])
            if layouts[3] == FLAT:
                expected = expected.reshape(*expected.shape[:2], -1)
            for options in ((), ("--isa", "base", "--threads", "2")):
                why = differ(run(program, model, Path(folder), given, *options)["y"], expected)
                failures += [f"case {case}, seed {seed}, {x['q'].shape}, {windows} windows, "
                             f"{layouts}, {options}: {why}"] * (why is not None)
        failures += refusals(program, model)
    print(f"{CASES} cases, {len(failures)} failures")
    return "\n".join(failures) or None


if __name__ == "__main__":
    sys.exit(main())
