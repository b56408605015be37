"""degenerate_attention.py - attention that nobody would write, for check_degenerate.py.

A case is (name, nodes, inputs, constants, output, what NumPy says). Queries of no heads, divisors
whose inverse is no number, keys of minus infinity in front, features of no column or no key, pads
of other numbers, scales near the ends of float, masks of several terms, and ties.
"""
import numpy as np
from onnx import helper


def no_heads_cases():
    """Queries of no heads, for some or no heads of keys."""
    return [(f"{op} of no heads", [helper.make_node(op, [*names], ["y"], domain="attnrun")],
             {name: np.ones(shape, "f4") for name, shape in names.items()}, {}, "y",
             np.zeros((2, 0, 5, 4), "f4"))
            for op, names in (
                ("LinearAttention", {"q": (2, 0, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 4)}),
                ("PerformerAttention", {"q": (2, 0, 5, 4), "k": (2, 3, 7, 4),
                                        "v": (2, 3, 7, 4), "w": (6, 4)}),
                ("FastformerAttention", {"q": (2, 0, 5, 4), "k": (2, 0, 5, 4),
                                         "v": (2, 0, 5, 4), "wq": (0, 0), "wk": (0, 0)}))]


def tiny_case(random, op, layout, **attributes):
    """Divisors whose inverse is over the largest float: features of about 1e-20."""
    q, k = (np.full((1, 2, n, 1), x, "f4") * (1 + np.arange(n, dtype="f4")[:, None] / 4)
            for n, x in ((5, 1e-20), (4, 4e-20)))
    v = random.standard_normal((1, 2, 4, 3)).astype("f4")
    want = (k * v).sum(2, keepdims=True) / k.sum(2, keepdims=True)
    want = np.repeat(want, 5, 2)
    inputs = {"q": q, "k": k, "v": v}
    if layout == "causal":
        inputs["q"] = q[:, :, :4]
        want = (k * v).cumsum(2) / k.cumsum(2)
    if layout == "columns":
        inputs = {name: x.swapaxes(2, 3) for name, x in inputs.items()}
        want = want.swapaxes(2, 3)
    node = helper.make_node(op, ["q", "k", "v"], ["y"], domain="attnrun",
                            is_causal=int(layout == "causal"), **attributes)
    return f"tiny sums of {op} {layout}", [node], inputs, {}, "y", want


def tiny_cases(random):
    linear = {"feature_map_q": "identity", "feature_map_k": "identity", "epsilon": 0.0}
    return [tiny_case(random, "LinearAttention", "rows", **linear),
            tiny_case(random, "LinearAttention", "causal", **linear),
            tiny_case(random, "LinearAttention", "columns", **linear, dims_first=1),
            tiny_case(random, "PerformerAttention", "rows", features="generalized",
                      normalize_inputs=0, kernel_fn="identity", kernel_epsilon=0.0)]


def late_case(random, dims_first):
    """Softmax over keys, of which some feature is minus infinity in more than the first tile."""
    q, k, v = (random.standard_normal((1, 2, n, 4)).astype("f4") for n in (5, 700, 700))
    k[0, 1, :300, 2] = -np.inf
    weights = np.exp(k - k.max(2, keepdims=True))
    want = q @ ((weights / weights.sum(2, keepdims=True)).swapaxes(2, 3) @ v)
    if dims_first:
        q, k, v, want = (x.swapaxes(2, 3) for x in (q, k, v, want))
    node = helper.make_node("LinearAttention", ["q", "k", "v"], ["y"], domain="attnrun",
                            feature_map_q="identity", feature_map_k="softmax_n",
                            denominator="none", dims_first=dims_first)
    return f"late keys {dims_first}", [node], {"q": q, "k": k, "v": v}, {}, "y", want


def written_case(random, name, batch, columns, epsilon, keys=7):
    """Attention by features q and k, which a number of rank 4 makes of a and b."""
    node = helper.make_node
    a, b = (random.standard_normal((*batch, 2, n, columns)).astype("f4") for n in (5, keys))
    v = random.standard_normal((1, 2, keys, 3)).astype("f4")
    nodes = [node("Elu", ["a"], ["c"]), node("Add", ["c", "one"], ["q"]),
             node("Elu", ["b"], ["f"]), node("Add", ["f", "one"], ["k"]),
             node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
             node("MatMul", ["t", "v"], ["s"]), node("MatMul", ["q", "s"], ["n"]),
             node("ReduceSum", ["k", "keys"], ["z"]), node("Mul", ["q", "z"], ["r"]),
             node("ReduceSum", ["r", "last"], ["d"]), node("Add", ["d", "e"], ["g"]),
             node("Div", ["n", "g"], ["y"])]
    q, k = (np.where(x > 0, x + 1, np.exp(x)).reshape(1, 2, n, columns)
            for x, n in ((a, 5), (b, keys)))
    sums = (q * k.sum(2, keepdims=True)).sum(3, keepdims=True) + np.float32(epsilon)
    with np.errstate(invalid="ignore"):  # 0 / 0
        want = q @ (k.swapaxes(2, 3) @ v) / sums
    constants = {"keys": np.array([2]), "last": np.array([3]), "e": np.float32(epsilon),
                 "one": np.ones((1, 1, 1, 1), "f4")}
    return name, nodes, {"a": a, "b": b, "v": v}, constants, "y", want


def padded_case(random, pad, size):
    """Attention of two blocks to themselves and to the block before, of which the first has none:
    a Pad writes it, and its scores are larger than the number that is to hide them."""
    node = helper.make_node
    q, k, v = (random.uniform(0.5, 1, (1, 2, 4, size)).astype("f4") for _ in range(3))
    q, k = q * np.float32(-1e32), k * np.float32(1e-32)
    mask = np.zeros((1, 2, 1, 8), "f4")
    mask[:, 0, :, :4] = -1e30

    def beside(x):
        rows = np.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0)), constant_values=pad)
        return np.concatenate([rows[:, :2], rows[:, 1:]], 2)
    nodes = [made for x in "kv" for made in (
        node("Pad", [x, "pads", "p"], [x + "0"]),
        node("Slice", [x + "0", "0", "2", "1"], [x + "1"]),
        node("Slice", [x + "0", "1", "3", "1"], [x + "2"]),
        node("Concat", [x + "1", x + "2"], [x + "3"], axis=2))]
    nodes += [node("Transpose", ["k3"], ["t"], perm=[0, 1, 3, 2]),
              node("MatMul", ["q", "t"], ["s"]), node("Add", ["s", "m"], ["a"]),
              node("Softmax", ["a"], ["w"]), node("MatMul", ["w", "v3"], ["y"])]
    scores = q.astype("f8") @ beside(k).swapaxes(2, 3) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ beside(v)
    constants = {"pads": np.array([0, 1, 0, 0, 0, 0, 0, 0]), "p": np.float32(pad), "m": mask,
                 **{str(i): np.array([i]) for i in range(4)}}
    return f"blocks behind a pad of {pad}, {size}", nodes, {"q": q, "k": k, "v": v}, constants, \
        "y", want


def scaled_case(random, alpha):
    """Attention by FusedMatMul, whose products are small and are scaled by a large number."""
    q, k, v = (random.standard_normal((1, 2, n, 8)).astype("f4") for n in (5, 6, 6))
    k *= np.float32(1 / alpha)
    node = helper.make_node
    nodes = [node("FusedMatMul", ["q", "k"], ["s"], domain="com.microsoft", transB=1, alpha=alpha),
             node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"])]
    scores = alpha * (q.astype("f8") @ k.swapaxes(2, 3))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    return f"FusedMatMul times {alpha}", nodes, {"q": q, "k": k, "v": v}, {}, "y", want


def sliding_case(random, terms):
    """Attention over a window of three tokens, whose mask is a product of ones and `terms` rows of
    numbers of the keys."""
    node, n = helper.make_node, 6
    q, k, v = (random.standard_normal((2, n, 4)).astype("f4") for _ in range(3))
    m = random.standard_normal((terms, n)).astype("f4")
    near = np.arange(n)[:, None] + np.arange(3)
    beyond = (near < 1) | (near > n)
    nodes = [made for x in "kvm" for made in (
        node("Pad", [x, "pm" if x == "m" else "p"], [x + "0"]),
        node("Gather", [x + "0", "near"], [x + "1"], axis=1))]
    nodes += [node("Reshape", ["q", "a"], ["q1"]),
              node("Einsum", ["q1", "k1"], ["s0"], equation="hnxd,hnyd->hnxy"),
              node("Reshape", ["s0", "c"], ["s1"]),
              node("Transpose", ["s1"], ["s2"], perm=[0, 2, 1, 3]),
              node("Where", ["beyond", "none", "s2"], ["s3"]),
              node("Transpose", ["m1"], ["m2"], perm=[1, 2, 0]),
              node("Einsum", ["ones", "m2"], ["m3"], equation="nxd,nyd->nxy"),
              node("Reshape", ["m3", "e"], ["m4"]), node("Add", ["s3", "m4"], ["t"]),
              node("Softmax", ["t"], ["w0"]),
              node("Transpose", ["w0"], ["w1"], perm=[0, 2, 1, 3]),
              node("Reshape", ["w1", "b"], ["w2"]),
              node("Einsum", ["w2", "v1"], ["y"], equation="hnxy,hnyd->hnxd")]
    scores = q @ k.swapaxes(1, 2) + m.sum(0)
    seen = np.abs(np.arange(n)[:, None] - np.arange(n)) <= 1
    weights = np.exp(scores) * seen
    want = (weights / weights.sum(-1, keepdims=True) @ v)[:, :, None]
    constants = {"p": np.array([0, 1, 0, 0, 1, 0]), "pm": np.array([0, 1, 0, 1]), "near": near,
                 "a": np.array([2, n, 1, 4]), "b": np.array([2, n, 1, 3]),
                 "c": np.array([1, 2, n, 3]), "e": np.array([1, n, 1, 3]),
                 "beyond": beyond[None, :, None], "none": np.float32(-np.inf),
                 "ones": np.ones((n, 1, terms), "f4")}
    inputs = {"q": q, "k": k, "v": v, "m": m}
    return f"a mask of {terms} terms", nodes, inputs, constants, "y", want


def pooled_case(random):
    """Weights of AttentionPooling whose sum is a number below the smallest normal one."""
    x = random.standard_normal((2, 4, 3)).astype("f4")
    node = helper.make_node("AttentionPooling", ["x", "w", "c", "", "bias"], ["y"], epsilon=0.0,
                            domain="attnrun", normalizer="exp_sum")
    constants = {"w": np.eye(3, dtype="f4"), "c": np.zeros(3, "f4"),
                 "bias": np.array([-91], "f4")}
    return "tiny sums of AttentionPooling", [node], {"x": x}, constants, "y", x.mean(1)


def tied_case(random, k):
    """TopKAttention of whole numbers, many of whose products are equal; all ties are kept."""
    q, key = (random.integers(-3, 4, (1, 2, n, 11)).astype("f4") for n in (40, 60))
    v = random.standard_normal((1, 2, 60, 5)).astype("f4")
    scores = q @ key.swapaxes(2, 3)
    kept = scores >= np.sort(scores)[..., -k, None]
    weights = np.exp((scores - scores.max(-1, keepdims=True)) / np.sqrt(11)) * kept
    node = helper.make_node("TopKAttention", ["q", "k", "v"], ["y"], domain="attnrun", k=k)
    return (f"ties of TopKAttention, k {k}", [node], {"q": q, "k": key, "v": v}, {}, "y",
            weights @ v / weights.sum(-1, keepdims=True))


def cases(random):
    """All of them, with numbers of this generator."""
    return [
        pooled_case(random), *no_heads_cases(), *tiny_cases(random),
        written_case(random, "features whose rank a number raises", (), 4, 0.0),
        written_case(random, "features of no column", (1,), 0, 1e-3),
        *(written_case(random, "features of no key", (1,), 4, e, 0) for e in (0.0, 1e-3)),
        *(padded_case(random, *case) for case in ((0, 4), (-1, 4), (0, 0))),
        *(scaled_case(random, alpha) for alpha in (0.25, 2.0**127, 2.0**-120)),
        *(sliding_case(random, terms) for terms in (1, 2)),
        *(tied_case(random, k) for k in (1, 4)),
        *(late_case(random, dims_first) for dims_first in (0, 1))]
