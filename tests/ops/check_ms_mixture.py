"""com.microsoft MoE and QMoE against ONNX Runtime 1.32.0: random shapes and options. What its
kernel for CPUs has not (fc3, swiglu_fusion 2, relu2, geglu, limits after the activation) is
compared with the formula of its schema, in double, which is compared with ONNX Runtime wherever
that answers; use_sparse_mixer with transformers (PhiMoE).
Usage: check_ms_mixture.py ATTNRUN [SEED]"""
import itertools

import numpy as np

from ms import Case, answer, any_bytes, between, compare, normal, pick, random


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def activate(attributes, gate, factor):
    name = attributes.get("activation_type", "relu")
    if name == "swiglu":
        limit = attributes.get("swiglu_limit", np.inf)
        after = attributes.get("swiglu_limit_after_activation", 0)
        gate = gate if after else np.minimum(gate, limit)
        gate = gate * sigmoid(attributes.get("activation_alpha", 1) * gate)
        gate = np.minimum(gate, limit) if after else gate
        return gate * (np.clip(factor, -limit, limit) + attributes.get("activation_beta", 0))
    y = {"relu": lambda x: np.maximum(x, 0), "relu2": lambda x: np.maximum(x, 0)**2,
         "gelu": gelu, "geglu": gelu, "silu": lambda x: x * sigmoid(x),
         "identity": lambda x: x}[name](gate)
    return y if factor is None else y * factor


def sparse_weights(logits):
    import torch
    from transformers.models.phimoe.modeling_phimoe import sparsemixer
    weights, chosen = sparsemixer(torch.from_numpy(logits), 0.01, False)
    return chosen.numpy(), weights.numpy()


def route(attributes, logits, mix=None):
    """The experts of each token and their weights."""
    if attributes.get("use_sparse_mixer", 0):
        return sparse_weights(logits)
    with np.errstate(invalid="ignore"):
        soft = np.exp(logits - logits.max(-1, keepdims=True).astype("f8"))
    soft /= soft.sum(-1, keepdims=True)
    chosen = np.argsort(-(soft if mix is None else logits), -1)[:, :attributes.get("k", 1)]
    weights = np.take_along_axis(soft if mix is None else mix, chosen, -1)
    if attributes.get("normalize_routing_weights", 0):
        weights = weights / weights.sum(-1, keepdims=True)
    return chosen, weights


def mixture(attributes, x, logits, fc1, b1, fc2, b2, fc3, b3, mix=None):
    """Weights are (experts, columns, elements), in double."""
    rows = x.reshape(-1, x.shape[-1]).astype("f8")
    chosen, weights = route(attributes, logits, mix)
    y = np.zeros_like(rows)
    for token, expert_of, weight_of in zip(range(len(rows)), chosen, weights):
        for e, weight in zip(expert_of, weight_of):
            gate = fc1[e] @ rows[token] + (0 if b1 is None else b1[e])
            factor = None
            fusion = attributes.get("swiglu_fusion", 0)
            if attributes.get("activation_type") not in ("swiglu", "geglu"):
                fusion = 0
            if fusion == 1:
                gate, factor = gate[::2], gate[1::2]
            elif fusion == 2:
                gate, factor = np.split(gate, 2)
            elif fc3 is not None:
                factor = fc3[e] @ rows[token] + (0 if b3 is None else b3[e])
            inner = activate(attributes, gate, factor)
            y[token] += weight * (fc2[e] @ inner + (0 if b2 is None else b2[e]))
    return y.reshape(x.shape).astype(x.dtype)


def options(number, native):
    """Attributes, and whether there is an fc3."""
    attributes = {"normalize_routing_weights": between(0, 1)}
    if native:
        attributes["activation_type"] = ("relu", "gelu", "silu", "identity", "swiglu")[number % 5]
        if number % 5 == 4:
            attributes["swiglu_fusion"] = 1
        fc3 = False
    else:
        attributes["activation_type"] = ("relu2", "geglu", "swiglu", "swiglu", "silu")[number % 5]
        if number % 5 in (1, 2):
            attributes["swiglu_fusion"] = pick(1, 2) if number % 5 == 1 else 2
        fc3 = number % 5 > 2
    if attributes["activation_type"] == "swiglu":
        attributes.update(activation_alpha=pick(1.0, 1.702), activation_beta=pick(0.0, 1.0))
        if number % 2:
            attributes["swiglu_limit"] = pick(0.5, 7.0)
        if not native and number % 4 > 1:
            attributes["swiglu_limit_after_activation"] = 1
    return attributes, fc3


def some_bias(number, *shape):
    return normal(*shape) if number % 3 else None


def moe_case(number, native, kind="f4"):
    attributes, fc3 = options(number, native)
    fused = 2 if attributes.get("swiglu_fusion") else 1
    experts, hidden, inner = between(1, 9), between(1, 80), pick(between(1, 90), 600)
    attributes["k"] = between(1, experts)
    if not native and number % 6 == 0:
        experts = max(experts, 2)
        attributes.update(use_sparse_mixer=1, k=2, normalize_routing_weights=0)
    shape = (between(1, 12),) if number % 2 else (2, between(1, 90))
    size = hidden**-0.5
    arrays = [normal(*shape, hidden), normal(int(np.prod(shape)), experts),
              size * normal(experts, fused * inner, hidden),
              some_bias(number, experts, fused * inner),
              inner**-0.5 * normal(experts, hidden, inner),
              some_bias(number + 1, experts, hidden),
              size * normal(experts, inner, hidden) if fc3 else None,
              some_bias(number, experts, inner) if fc3 else None]
    arrays = [a if a is None else a.astype(kind) for a in arrays]
    inputs = list(zip(("x", "r", "w1", "b1", "w2", "b2", "w3", "b3"), arrays))
    case = Case("MoE", inputs, ["y"], attributes,
                ("w1", "w2", "w3", "b1")[:number % 5] if number % 4 else ("w1", "w2", "w3"))
    wide = [a if a is None else a.astype("f4") for a in arrays]
    y = mixture(attributes, *wide)
    if native:
        given = answer(case)[2][0][1]
        assert np.allclose(y, given, rtol=1e-2, atol=1e-2), (number, abs(y - given).max())
        return case
    return case._replace(expected=[y.astype(kind)])


def moe_cases():
    for number in range(40):
        yield moe_case(number, True)
    for number in range(40):
        yield moe_case(number, False)
    for number in range(5):
        yield moe_case(number, True, "f2")
    # Equal logits: the experts that come later are preferred.
    inputs = [("x", normal(3, 4)), ("r", np.zeros((3, 5), "f4")), ("w1", normal(5, 6, 4)),
              ("b1", None), ("w2", normal(5, 4, 6))]
    yield Case("MoE", inputs, ["y"], {"k": 2})
    # Weights that are 0 in f32, and files whose weights have their last dims exchanged.
    logits = np.array([[0, 200, 0], [100, 0, -100]], "f4")
    yield Case("MoE", [("x", normal(2, 4)), ("r", logits), ("w1", normal(3, 4, 6)), ("b1", None),
                       ("w2", normal(3, 6, 4))], ["y"], {"k": 3, "activation_type": "silu"})


def nan_cases():
    """A logit that is no number: so is the token's row, and no other. (ONNX Runtime takes experts
    in an order that comparisons with it happen to give.)"""
    x, w1, w2 = normal(4, 32), normal(5, 64, 32), normal(5, 32, 64)
    logits = normal(4, 5)
    logits[1, 3] = np.nan
    for attributes in ({"k": 2}, {"k": 5, "normalize_routing_weights": 1}):
        y = mixture(attributes, x, logits, w1, None, w2, None, None, None)
        assert np.isnan(y).all(1).tolist() == [False, True, False, False]
        yield Case("MoE", [("x", x), ("r", logits), ("w1", w1), ("b1", None), ("w2", w2)], ["y"],
                   attributes, ("w1", "w2"), expected=[y])
    w1, w2 = quantized(4, 16, 5, 64, 32, False), quantized(4, 16, 5, 32, 64, False)
    y = mixture({"k": 2, "normalize_routing_weights": 1}, x, logits, w1[3], None, w2[3], None, None,
                None)
    yield Case("QMoE", [("x", x), ("r", logits), ("w1", w1[0]), ("s1", w1[1]), ("b1", None),
                        ("w2", w2[0]), ("s2", w2[1])], ["y"], {"k": 2, "block_size": 16},
               ("w1", "w2", "s1", "s2"), expected=[y], tolerance="1e-3 1e-4")


def quantized(bits, block, experts, columns, elements, zeros):
    """Bytes, scales, zero points, and the numbers that they stand for."""
    q = random.integers(0, 2**bits, (experts, columns, elements))
    blocks = elements // block if block else 1
    scale = np.asarray(random.uniform(0.5, 1.5, (experts, columns, blocks)), "f4")
    scale *= np.float32(elements**-0.5 / 2**(bits - 1))
    zero = np.full((experts, columns, blocks), 2**(bits - 1))
    if zeros:
        zero = random.integers(0, 2**bits, zero.shape)
    each = np.repeat(scale, elements // blocks, 2), np.repeat(zero, elements // blocks, 2)
    stored = zero if block else zero[..., 0]
    return (packed(bits, q), scale if block else scale[..., 0],
            packed(bits, stored) if zeros else None, (q - each[1]) * each[0].astype("f8"))


def packed(bits, q):
    """Along the last axis, the first in the low bits."""
    per = 8 // bits
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % per)])
    q = q.reshape(*q.shape[:-1], -1, per).astype("u1")
    return np.bitwise_or.reduce(q << (np.arange(per) * bits).astype("u1"), -1)


def qmoe_case(number, native, rounded=False):
    attributes, fc3 = options(number, native)
    fused = 2 if attributes.get("swiglu_fusion") else 1
    bits, block = pick(4, 8) if native else pick(2, 4, 8), pick(0, 16, 32)
    experts = between(1, 6)
    hidden, inner = (between(1, 5) * 32 for _ in range(2))
    if not native and not block:
        hidden, inner = (between(1, 20) * 4 for _ in range(2))
    attributes["k"] = between(1, experts)
    attributes["expert_weight_bits"] = bits
    if block:
        attributes["block_size"] = block
    each = [bits] * 3
    if not native and number % 2:
        each = [pick(2, 4, 8) for _ in range(3)]
        attributes.update((f"fc{i + 1}_expert_weight_bits", n) for i, n in enumerate(each))
    shape = (between(1, 12),) if number % 2 else (2, between(1, 60))
    zeros = number % 3 == 0
    w1 = quantized(each[0], block, experts, fused * inner, hidden, zeros)
    w2 = quantized(each[1], block, experts, hidden, inner, zeros)
    zeros_3 = random.integers(2) == 1 if rounded else zeros
    w3 = quantized(each[2], block, experts, inner, hidden, zeros_3) if fc3 else (None,) * 4
    x, logits = normal(*shape, hidden), normal(int(np.prod(shape)), experts)
    mix = abs(normal(*logits.shape)) if number % 7 == 3 else None
    if mix is not None:  # where it chooses alone, a logit may be infinite
        logits[0, random.integers(experts)] = np.inf
    b1, b2 = some_bias(number, experts, fused * inner), some_bias(number, experts, hidden)
    b3 = some_bias(number, experts, inner) if fc3 else None
    inputs = list(zip(("x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2",
                       "z3", "mix"),
                      (x, logits, *w1[:2], b1, *w2[:2], b2, *w3[:2], b3, w1[2], w2[2], w3[2],
                       mix)))
    constants = ("w1", "s1", "w2", "s2", "w3", "s3", "z1", "z2", "z3")
    # Their softmax is over the chosen experts, unless router_weights take its place.
    routing = attributes if mix is not None else {**attributes, "normalize_routing_weights": 1}
    y = mixture(routing, x, logits, w1[3], b1, w2[3], b2, w3[3], b3, mix)
    case = Case("QMoE", inputs, ["y"], attributes, constants if number % 4 else ())
    if native:
        given = answer(case)[2][0][1]
        size = abs(y).max(initial=1)  # activations are bytes there with 8 bits and blocks
        assert np.allclose(y, given, rtol=2e-2, atol=2e-2 * size), (number, abs(y - given).max())
    size = abs(y).max(initial=1)
    if rounded:
        attributes["accuracy_level"] = 4
        return case._replace(expected=[y], tolerance=f"2e-2 {2e-2 * size}")
    return case._replace(expected=[y], tolerance=f"1e-3 {1e-4 * size}")


def qmoe_cases():
    for number in range(40):
        yield qmoe_case(number, True)
    for number in range(40):
        yield qmoe_case(number, False)
    for number in range(40):  # rows become bytes; those of fc1 serve fc3 if both want the same
        yield qmoe_case(number, False, True)


def good(**others):
    given = {"x": normal(2, 4), "r": normal(2, 3), "w1": normal(3, 6, 4), "b1": None,
             "w2": normal(3, 4, 6), "b2": None, "w3": None, "b3": None}
    return list({**given, **others}.items())


def q_good(**others):
    given = {"x": normal(2, 16), "r": normal(2, 3), "w1": any_bytes(3, 16, 8),
             "s1": normal(3, 16), "b1": None, "w2": any_bytes(3, 16, 8), "s2": normal(3, 16),
             "b2": None, "w3": None, "s3": None, "b3": None, "z1": None, "z2": None, "z3": None,
             "mix": None}
    return list({**given, **others}.items())


HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("MoE", good(), {"k": 4}, (), 5, "k is 4"),
    ("MoE", good(), {"k": -2**62}, (), 5, "k is"),
    ("MoE", good(), {"k": 3, "use_sparse_mixer": 1}, (), 5, "use_sparse_mixer"),
    ("MoE", good(), {"activation_type": "swiglu"}, ("w1", "w2"), 5, "swiglu_fusion"),
    ("MoE", good(w3=normal(3, 6, 4)), {"activation_type": "swiglu", "swiglu_fusion": 1}, (), 5,
     "fc3"),
    ("MoE", good(), {"activation_type": "tanh"}, (), 5, "activation_type"),
    ("MoE", good(w1=normal(3, 6, 5)), {}, ("w1", "w2"), 5, "inner size"),
    ("MoE", good(w2=normal(3, 5, 6)), {}, ("w1", "w2"), 5, "inner size"),
    ("MoE", good(w2=normal(2, 4, 6)), {}, (), 5, "experts"),
    ("MoE", good(r=normal(2, 4)), {}, ("w1",), 5, "experts"),
    ("MoE", good(r=normal(3, 3)), {}, ("w1",), 5, "tokens"),
    ("MoE", good(b1=normal(3, 5)), {}, ("w1", "w2"), 5, "columns"),
    ("MoE", good(w3=normal(3, 6, 4), b3=normal(2, 6)), {}, ("w1", "w2"), 5, "experts"),
    ("MoE", good(x=normal(2, 0), w1=normal(3, 6, 0), w2=normal(3, 0, 6)), {}, (), 5,
     "hidden size"),
    ("QMoE", q_good(), {"expert_weight_bits": 3}, (), 4, "expert_weight_bits"),
    ("QMoE", q_good(), {"expert_weight_bits": 5}, (), 5, "expert_weight_bits"),
    ("QMoE", q_good(), {"quant_type": "fp8"}, (), 4, "quant_type"),
    ("QMoE", q_good(), {"weights_prepacked": 1}, (), 4, "weights_prepacked"),
    ("QMoE", q_good(), {"block_size": 24}, (), 5, "block_size"),
    ("QMoE", q_good(), {"block_size": 32}, ("w1", "s1", "w2", "s2"), 5, "block_size"),
    ("QMoE", q_good(s1=None), {}, ("w1", "w2", "s2"), 5, "scales"),
    ("QMoE", q_good(s1=normal(3, 15)), {}, ("w1", "s1", "w2", "s2"), 5, "elements"),
    ("QMoE", q_good(z2=any_bytes(3, 7)), {}, ("w1", "s1", "w2", "s2", "z2"), 5, "elements"),
    ("QMoE", q_good(w1=any_bytes(3, 16, 9)), {}, ("w1", "s1", "w2", "s2"), 5, "inner size"),
    ("QMoE", q_good(mix=normal(2, 4)), {}, ("w1",), 5, "experts"),
]

compare(itertools.chain(moe_cases(), qmoe_cases(), nan_cases()), HOSTILE)
