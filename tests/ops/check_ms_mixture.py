"""com.microsoft MoE against ONNX Runtime 1.32.0: random shapes, activations and options. What
its kernel for CPUs has not (fc3, swiglu_fusion 2, relu2, geglu, limits after the activation) is
compared with the formula of its schema, in double, which is compared with ONNX Runtime wherever
that answers; use_sparse_mixer with transformers (PhiMoE).
Usage: check_ms_mixture.py ATTNRUN [SEED]"""
import itertools

import numpy as np

from ms import Case, answer, between, compare, normal, pick, random


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
    soft = np.exp(logits - logits.max(-1, keepdims=True).astype("f8"))
    soft /= soft.sum(-1, keepdims=True)
    chosen = np.argsort(-soft, -1)[:, :attributes.get("k", 1)]
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


def good(**others):
    given = {"x": normal(2, 4), "r": normal(2, 3), "w1": normal(3, 6, 4), "b1": None,
             "w2": normal(3, 4, 6), "b2": None, "w3": None, "b3": None}
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
]

compare(itertools.chain(moe_cases()), HOSTILE)
