"""PerformerAttention (FAVOR+): f(q) S / g(f(q) z), f random features by a projection."""
import math

import torch

from ..operators import example, mask, operator
from ._heads import HEADS, from_heads, lowest, repeat, scale_of, to_heads
from .linear_attention import attend, safe_divide

KERNELS = {
    "relu": torch.relu, "requ": lambda x: torch.relu(x) ** 2, "exp": torch.exp,
    "elu1": lambda x: torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0))),
    "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5))), "abs": torch.abs,
    "cos": torch.cos, "sin": torch.sin, "identity": lambda x: x}


def features_of(x, w, allowed, is_query, a):
    """x of rank 4; `allowed`: keys that count for the maximum, or None."""
    u = x if w is None else x @ w.transpose(-1, -2)
    norm = (x * x).sum(dim=-1, keepdim=True) / 2
    if a["features"] == "generalized":
        if a["feature_ratio"] and w is not None:
            u = u * w.shape[-2] ** -0.5
        return KERNELS[a["kernel_fn"]](u) + a["kernel_epsilon"]
    rows = w.shape[-2]
    if a["features"] == "softmax_hyp":
        most = 2 * norm.amax(dim=-2, keepdim=True) if a["stabilizer"] else 0
        return torch.cat([torch.exp(u - norm - most), torch.exp(-u - norm - most)],
                         dim=-1) * (2 * rows) ** -0.5
    if a["features"] == "softmax_trig":
        return (torch.cat([torch.cos(u), torch.sin(u)], dim=-1) * rows ** -0.5
                * torch.exp(norm - norm.amax(dim=-2, keepdim=True)))
    seen = u if allowed is None else torch.where(allowed, u, torch.full_like(u, lowest(u)))
    most = seen.amax(dim=-1, keepdim=True)
    if not is_query:
        most = most.amax(dim=-2, keepdim=True)
    if not a["stabilizer"]:
        most = torch.zeros_like(most)
    # No key counts: nothing of this is used.
    most = torch.where(most <= lowest(u), torch.zeros_like(most), most)
    return rows ** -0.5 * (torch.exp(u - norm - most) + a["feature_epsilon"])


@operator("PerformerAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "projection?",
                  "key_mask?: B Nk"],
          outputs=["Y"],
          attributes={**HEADS, "features": "softmax_pos", "kernel_fn": "relu",
                      "normalize_inputs": 1, "feature_epsilon": 1e-4, "kernel_epsilon": 1e-3,
                      "feature_ratio": 0, "stabilizer": 1, "mask_in_max": 0,
                      "denominator": "none", "denominator_epsilon": 1e-6},
          examples=[
              example(q_num_heads=2, Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 6), projection=(9, 4),
                      tolerance=(1e-3, 1e-5)),
              example(q_num_heads=4, kv_num_heads=2, is_causal=1, denominator="add_keys",
                      Q=(2, 6, 12), K=(2, 6, 6), V=(2, 6, 10), projection=(2, 5, 3),
                      key_mask=mask(2, 6), sizes={"Nq": 9, "Nk": 9},
                      tolerance=(1e-3, 1e-5)),
              example(features="softmax_hyp", denominator="add", Q=(2, 3, 5, 4),
                      K=(2, 3, 7, 4), V=(2, 3, 7, 6), projection=(6, 4),
                      tolerance=(1e-3, 1e-5)),
              example(q_num_heads=2, features="generalized", kernel_fn="gelu", scale=0.5,
                      feature_ratio=1, kernel_epsilon=0.5, denominator="guard", Q=(2, 5, 8),
                      K=(2, 7, 8), V=(2, 7, 6), projection=(9, 4), key_mask=mask(2, 7),
                      tolerance=(1e-3, 1e-5)),
              example(q_num_heads=2, features="generalized", kernel_fn="sigmoid",
                      normalize_inputs=0, Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 6)),
          ])
def performer_attention(Q, K, V, projection, key_mask, *, q_num_heads, kv_num_heads,
                        is_causal, scale, denominator, denominator_epsilon,
                        normalize_inputs, mask_in_max, **a):
    kv = kv_num_heads if kv_num_heads is not None else q_num_heads
    q, k, v = to_heads(Q, q_num_heads), to_heads(K, kv), to_heads(V, kv)
    allowed = None if key_mask is None else key_mask[:, None, :, None]
    groups = q.shape[1] // k.shape[1]
    if normalize_inputs:
        root = scale_of(scale, q) ** 0.5
        q, k = q * root, k * root
    w = projection
    q_w = repeat(w[None], groups)[0] if w is not None and w.dim() == 3 else w
    q = features_of(q, q_w, None, True, a)
    k = features_of(k, w, allowed if mask_in_max else None, False, a)
    top, sums, seen = attend(q, repeat(k, groups), repeat(v, groups), allowed, is_causal)
    d = denominator_epsilon
    if denominator == "add":
        sums = sums + d
    elif denominator == "add_keys":
        sums = sums + d * q.sum(dim=-1, keepdim=True)
    elif denominator == "guard":
        sums = sums + 2 * d * (sums.abs() <= d).to(sums.dtype)
    return from_heads(safe_divide(top, sums, seen), Q)
