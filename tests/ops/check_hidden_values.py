"""A key that a mask, a window or the order of tokens hides has no part in attention: NaN and
infinity in its place, or in that of its values, leave the result as it is.
Usage: PYTHONPATH=BUILD/python check_hidden_values.py [SEED]"""
import sys

import attnrun
import numpy as np
from onnx import TensorProto as T
from onnx import helper

N = 300
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 20261130
TWO = {"q_num_heads": 2, "kv_num_heads": 2}
SPARSE = "SparseTransformerAttention"
QKV = [("x", N, 64)] * 3
KEYS = [*QKV, ("mask", N)]
TYPES = {"mask": T.BOOL, "double": T.DOUBLE, "blocks": T.INT64}
# Operator, inputs, attributes: the keys are input 1, the values input 2, both (batch, tokens, …).
CASES = [
    ("LocalAttention", KEYS, {**TWO, "left_window": [100]}),
    ("LocalAttention", KEYS, {**TWO, "left_window": [100], "is_causal": 1}),
    ("LocalAttention", KEYS, {**TWO, "left_window": [100], "dilation": [2], "num_global": 5}),
    ("LongformerAttention", KEYS, {**TWO, "window": [80]}),
    ("ChunkedLocalAttention", KEYS, {**TWO, "chunk_size": 60}),
    ("LinearAttention", KEYS, TWO),
    ("LinformerAttention", [*QKV, ("w", N, 20), ("w", N, 20), None, None, ("mask", N)], TWO),
    ("TopKAttention", KEYS, {**TWO, "k": 9}),
    *((SPARSE, KEYS, {**TWO, "pattern": pattern, "stride": 30})
      for pattern in (["fixed"], ["strided_merged"], ["local", "strided"])),
    ("BigBirdAttention", [*QKV, ("blocks", 2, 13, 2), ("mask", N)], {**TWO, "block_size": 20}),
    ("CompressedAttention", [*QKV, ("w", 64, 32, 3), *[None] * 5, ("mask", N)], TWO),
    ("Attention", [*QKV, ("mask", 1, 1, N)], TWO),
    ("Attention", [("x", 1, 64), *QKV[1:], ("mask", 1, 1, N)], TWO),
    ("Attention", [("x", 700, 64), *QKV[1:], ("mask", 1, 1, N)], TWO),
    ("Attention", [*QKV, ("added", 1, 1, N)], TWO),
    ("Attention", [("double", N, 64)] * 3 + [("mask", 1, 1, N)], TWO),
]
BATCH = ("x", "mask", "added", "double")


def model_of(op, inputs, attributes):
    typed = [helper.make_tensor_value_info(
        f"i{k}", TYPES.get(one[0], T.FLOAT),
        ([2] if one[0] in BATCH else []) + list(one[1:])) for k, one in enumerate(inputs) if one]
    node = helper.make_node(op, [f"i{k}" if one else "" for k, one in enumerate(inputs)], ["y"],
                            domain="" if op == "Attention" else "attnrun", **attributes)
    kind = T.DOUBLE if inputs[0][0] == "double" else T.FLOAT
    graph = helper.make_graph([node], "g", typed, [helper.make_tensor_value_info("y", kind, None)])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 24), helper.make_opsetid("attnrun", 1)])


def drawn(draw, keep, kind, shape):
    if kind in ("mask", "added"):
        seen = np.broadcast_to(keep, (2, *shape))
        return seen.copy() if kind == "mask" else np.where(seen, 0, -np.inf).astype("f")
    if kind == "blocks":
        return np.full(shape, 7, "i8")
    x = draw.normal(size=([2] if kind in BATCH else []) + list(shape))
    return x if kind == "double" else x.astype("f")


def check(draw, case, keep):
    op, inputs, attributes = case
    model = attnrun.Model(model_of(*case).SerializeToString())
    given = {f"i{k}": drawn(draw, keep, one[0], one[1:]) for k, one in enumerate(inputs) if one}
    want, wrong = model(**given)["y"], []
    for which in ("i1", "i2"):
        for value in (np.nan, np.inf, -np.inf):
            other = {**given, which: np.where(keep[:, None], given[which], value).astype(
                given[which].dtype)}
            got = model(**other)["y"]
            if not np.allclose(got, want, rtol=1e-4, atol=1e-5):
                wrong.append(f"{which} of {value}: {np.mean(~np.isfinite(got)):.2f} not finite")
    if wrong:
        print(f"FAIL {op} {attributes}, seed {SEED}: {'; '.join(wrong)}")
    return not wrong


def causal(draw, op, queries, attributes):
    """A value that only later queries see, and one that a query sees."""
    case = op, [("x", queries, 64)] * 3, {**TWO, **attributes, "is_causal": 1}
    model = attnrun.Model(model_of(*case).SerializeToString())
    given = {f"i{k}": drawn(draw, None, "x", (queries, 64)) for k in range(3)}
    want = model(**given)["y"]
    given["i2"][:, 20] = np.nan
    got = model(**given)["y"]
    good = np.allclose(got[:, :20], want[:, :20], rtol=1e-4, atol=1e-5) and np.all(
        np.isnan(got[:, 20]))
    if not good:
        print(f"FAIL {op} {attributes}, causal, of {queries} queries, seed {SEED}")
    return good


def main():
    draw = np.random.default_rng(SEED)
    end, inner, some = np.ones((3, N), bool)
    end[N - 37:] = inner[N // 2:N // 2 + 7] = False
    some[1:] = draw.random(N - 1) < 0.5
    done = [check(draw, case, keep) for case in CASES for keep in (end, inner, some)]
    done += [causal(draw, op, n, more) for n in (30, 70, 300)
             for op, more in (
                 ("Attention", {}), ("LocalAttention", {"left_window": [50]}),
                 ("LinearAttention", {}),
                 ("PerformerAttention", {"features": "generalized", "kernel_fn": "exp"}))]
    print(f"{len(done)} cases, {done.count(False)} failures")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
