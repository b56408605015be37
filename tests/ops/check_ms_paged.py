"""com.microsoft PagedAttention, which ONNX Runtime has on GPUs alone, against the formula of its
schema in double: random sequences, pages and options; and what must be refused.
Usage: check_ms_paged.py ATTNRUN [SEED]"""
import numpy as np

from ms import Case, between, compare, normal, pick, random


def turned(x, cosine, sine, offset, interleaved):
    """x: (…, dim) at one position."""
    half, y = len(cosine), x.copy()
    part = x[..., offset:offset + 2 * half]
    a, b = (part[..., ::2], part[..., 1::2]) if interleaved else np.split(part, 2, -1)
    pair = a * cosine - b * sine, a * sine + b * cosine
    y[..., offset:offset + 2 * half] = (
        np.stack(pair, -1).reshape(part.shape) if interleaved else np.concatenate(pair, -1))
    return y


def normed(x, weight, epsilon):
    return x if weight is None else x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def stored(x, scale):
    """As the cache has it, head by head."""
    if scale is None:
        return x
    return np.clip(np.rint(x / scale.reshape(-1, 1 if scale.size == 1 else x.shape[-1])), -128, 127)


def attention(q, k, v, first, a):
    """q (n, heads, dim) from position `first` on; k, v (len, kv_heads, dim)."""
    n, heads, length = q.shape[0], q.shape[1], len(k)
    at, keys = np.arange(first, first + n)[:, None], np.arange(length)
    seen = (keys <= at) if a["is_causal"] else np.ones((n, length), bool)
    if a["window"] > 0:
        seen &= keys > at - a["window"]
    y = np.zeros((n, heads, v.shape[-1]))
    for h in range(heads):
        kv = h // (heads // k.shape[1])
        scores = q[:, h] @ k[:, kv].T * a["scale"]
        if a["softcap"]:
            scores = a["softcap"] * np.tanh(scores / a["softcap"])
        scores = np.where(seen, scores, -np.inf)
        sink = np.full((n, 1), -np.inf if a["sink"] is None else a["sink"][h])
        all_scores = np.concatenate([scores, sink], -1)
        weights = np.exp(all_scores - all_scores.max(-1, keepdims=True))
        y[:, h] = (weights / weights.sum(-1, keepdims=True))[:, :-1] @ v[:, kv]
    return y


def paged_case(number):
    latent = number % 6 == 5
    kv_heads = 1 if latent else between(1, 3)
    heads, dim, page = kv_heads * between(1, 3), between(2, 12) * 2, between(1, 9)
    batch = between(1, 4)
    lengths, past = random.integers(0, 12, batch), random.integers(0, 20, batch)
    lengths[0] += 1
    if number % 7 == 0:
        lengths[0] = 150
    starts = np.concatenate([[0], lengths.cumsum()])
    tokens, columns = int(starts[-1]), -(-int((lengths + past).max()) // page)
    pages = columns * batch + between(0, 3)
    table = random.permutation(pages)[:columns * batch].reshape(batch, columns)
    for b in range(batch):  # behind the last key there are none
        table[b, -(-(lengths[b] + past[b]) // page):] = -1
    v_dim = between(1, dim) if latent else dim
    packed, norms, rotary = number % 3 == 1 and not latent, number % 4 == 1, number % 2
    quantized = 0 if latent else (0, 0, 1, 2)[number % 4]
    scales = [None, None] if not quantized else [
        np.asarray(random.uniform(0.01, 0.03, 1 if quantized == 1 else (kv_heads, 1, dim)), "f4")
        for _ in range(2)]
    q, k, v = normal(tokens, heads, dim), normal(tokens, kv_heads, dim), normal(
        tokens, kv_heads, dim)
    caches = [normal(pages, page, kv_heads, dim) for _ in range(2)]
    if quantized:
        caches = [random.integers(-128, 128, c.shape).astype("i1") for c in caches]
    half = between(1, dim // 2)
    angles = [normal(int((past + lengths).max()), half) for _ in range(2)]
    offset = (dim - 2 * half) * (number % 4 == 3)
    weights = [normal(dim) if norms else None for _ in range(2)]
    sink = normal(heads) if number % 5 == 2 else None
    slots = np.concatenate([[int(table[b, p // page]) * page + p % page
                             for p in range(past[b], past[b] + lengths[b])] for b in range(batch)])
    slots = np.where(random.uniform(size=tokens) < 0.3, -1, slots).astype("i4")
    if number % 5:
        given_slots = None
        slots = None
    else:
        given_slots = slots
    a = {"is_causal": between(0, 1), "window": pick(-1, -1, between(1, 9)),
         "softcap": pick(0.0, 5.0), "sink": sink,
         "scale": 0.3 if latent or number % 3 else dim**-0.5}
    new = [c.astype("f8") for c in caches]
    y = np.zeros((tokens, heads, v_dim))
    for b in range(batch):
        place = [int(table[b, p // page]) * page + p % page for p in range(past[b] + lengths[b])]
        turned_q = np.zeros((lengths[b], heads, dim))
        for i in range(lengths[b]):
            token, position = starts[b] + i, past[b] + i
            pair = [normed(x[token].astype("f8"), weight, 1e-5)
                    for x, weight in zip((q, k), weights)]
            if rotary:
                pair = [turned(x, *(c[position] for c in angles), offset, number // 2 % 2)
                        for x in pair]
            turned_q[i] = pair[0]
            slot = place[position] if slots is None else slots[token]
            if slot >= 0:
                new[0].reshape(-1, kv_heads, dim)[slot] = stored(pair[1], scales[0])
                new[1].reshape(-1, kv_heads, dim)[slot] = stored(v[token], scales[1])
        flat = [c.reshape(-1, kv_heads, dim)[place] for c in new]
        flat = [c if scale is None else c * scale.reshape(-1, 1 if scale.size == 1 else dim)
                for c, scale in zip(flat, scales)]
        values = flat[0][..., :v_dim] if latent else flat[1]
        y[starts[b]:starts[b + 1]] = attention(turned_q, flat[0], values, past[b], a)
    attributes = {"num_heads": heads, "kv_num_heads": kv_heads, "is_causal": a["is_causal"],
                  "do_rotary": rotary, "rotary_interleaved": number // 2 % 2,
                  "rotary_offset": offset, "local_window_size": a["window"],
                  "softcap": a["softcap"], "qk_norm_epsilon": 1e-5}
    if a["scale"] == 0.3:
        attributes["scale"] = 0.3
    if latent:
        attributes.update(kv_cache_layout="LATENT", v_head_size=v_dim)
    if quantized:
        kind = ("", "PER_TENSOR", "PER_CHANNEL")[quantized]
        attributes.update(k_quant_type=kind, v_quant_type=kind)
    flat_q, flat_k, flat_v = (x.reshape(tokens, -1) for x in (q, k, v))
    if packed:
        flat_q, flat_k, flat_v = np.concatenate([flat_q, flat_k, flat_v], -1), None, None
    cos, sin = angles if rotary else (None, None)
    inputs = [("q", flat_q), ("k", flat_k), ("v", None if latent else flat_v),
              ("kc", caches[0]), ("vc", None if latent else caches[1]),
              ("starts", starts.astype("i4")), ("past", past.astype("i4")),
              ("table", table.astype("i4")), ("cos", cos), ("sin", sin), ("slots", given_slots),
              ("sink", sink), ("qn", weights[0]), ("kn", weights[1]), ("ks", scales[0]),
              ("vs", scales[1]), ("meta", np.zeros(2, "i4") if number % 2 else None)]
    expected = [y.reshape(tokens, -1), new[0]] + ([] if latent else [new[1]])
    if number % 8 == 4:
        expected = expected[:1]  # nobody reads the caches
    half_type = number % 9 == 8 and not quantized
    if half_type:
        inputs = [(name, x.astype("f2") if x is not None and x.dtype == "f4" else x)
                  for name, x in inputs]
    kinds = ["f2" if half_type else "f4"] + 2 * ["i1" if quantized else
                                                 "f2" if half_type else "f4"]
    return Case("PagedAttention", inputs, ["y", "kc2", "vc2"][:len(expected)], attributes,
                expected=[x.astype(kind) for x, kind in zip(expected, kinds)],
                tolerance="2e-2 2e-2" if half_type else "1e-3 1e-3")


def paged_inputs(**others):
    return list({"q": normal(3, 8), "k": normal(3, 8), "v": normal(3, 8),
                 "kc": normal(4, 2, 2, 4), "vc": normal(4, 2, 2, 4),
                 "starts": np.array([0, 1, 3], "i4"), "past": np.array([1, 0], "i4"),
                 "table": np.array([[0], [1]], "i4"), "cos": None, "sin": None, "slots": None,
                 **others}.items())


def i4(*values):
    return np.array(values, "i4")


HEADS = {"num_heads": 2, "kv_num_heads": 2}
HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("PagedAttention", paged_inputs(starts=i4(0, 2, 1), past=i4(0, 0)), HEADS, (), 7, "grow"),
    ("PagedAttention", paged_inputs(starts=i4(0, 1, 2)), HEADS, (), 7, "grow"),
    ("PagedAttention", paged_inputs(starts=i4(0, -2**31, 3)), HEADS, (), 7, "grow"),
    ("PagedAttention", paged_inputs(past=i4(2, 0)), HEADS, (), 7, "pages"),
    ("PagedAttention", paged_inputs(past=i4(-1, 0)), HEADS, (), 7, "pages"),
    ("PagedAttention", paged_inputs(past=i4(2**31 - 1, 0)), HEADS, (), 7, "pages"),
    ("PagedAttention", paged_inputs(table=i4([0], [4])), HEADS, (), 7, "page 4"),
    ("PagedAttention", paged_inputs(table=i4([-1], [1])), HEADS, (), 7, "page -1"),
    ("PagedAttention", paged_inputs(slots=i4(0, 1, 8)), HEADS, (), 7, "holds 8"),
    ("PagedAttention", paged_inputs(slots=i4(0, -2, 7)), HEADS, (), 7, "holds -2"),
    ("PagedAttention", paged_inputs(cos=normal(1, 2), sin=normal(1, 2)),
     {**HEADS, "do_rotary": 1}, (), 7, "rows or more"),
    ("PagedAttention", paged_inputs(cos=normal(9, 2), sin=normal(9, 2)),
     {**HEADS, "do_rotary": 1, "rotary_offset": 2}, (), 5, "rotary_offset"),
    ("PagedAttention", paged_inputs(), {**HEADS, "do_rotary": 1}, (), 5, "cos_cache"),
    ("PagedAttention", paged_inputs(), {**HEADS, "num_heads": 3}, (), 5, "num_heads"),
    ("PagedAttention", paged_inputs(), {**HEADS, "k_cache_dtype": "int4"}, (), 4, "int4"),
    ("PagedAttention", paged_inputs(), {**HEADS, "k_quant_type": "PER_TENSOR"}, (), 5,
     "quant_type"),
    ("PagedAttention", paged_inputs(vc=normal(3, 2, 2, 4)), HEADS, (), 5, "as in key_cache"),
    ("PagedAttention", paged_inputs(k=normal(3, 6)), HEADS, (), 5, "heads * dim"),
]

compare(map(paged_case, range(72)), HOSTILE)
