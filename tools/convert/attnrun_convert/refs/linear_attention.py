"""LinearAttention: scale f(q) S / g(f(q) z), S = sum of f(k)^T v, z = sum of f(k)."""
import torch

from ..operators import example, mask, operator
from ._heads import HEADS, from_heads, lowest, positions, repeat, to_heads


def features(x, name, allowed):
    if name == "elu1":
        return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))
    if name == "relu":
        return torch.relu(x)
    if name == "exp":
        return torch.exp(x)
    if name == "softmax_d":
        return torch.softmax(x, dim=-1)
    if name == "softmax_n":
        if allowed is not None:
            x = torch.where(allowed, x, torch.full_like(x, lowest(x)))
        return torch.softmax(x, dim=-2)
    return x


def masked(k, allowed):
    """Features of masked keys are zeros, even where they were infinite."""
    return k if allowed is None else torch.where(allowed, k, torch.zeros_like(k))


def attend(q, k, v, allowed, is_causal, past=None):
    """(f(q) S, f(q) z, whether a query sees a key) of features of rank 4; `allowed` None or
    (B, 1, Nk, 1); `past` None or (S, z)."""
    k = masked(k, allowed)
    v = masked(v, allowed)
    seen = allowed if allowed is not None else torch.ones_like(k[:, :1, :, :1]) > 0
    if is_causal:
        at, keys = positions(q.shape[2], k.shape[2], q.device)
        below = keys <= at
        weights = (q @ k.transpose(-1, -2)) * below
        top, sums = weights @ v, weights.sum(dim=-1, keepdim=True)
        seen = (seen.to(q.dtype).transpose(-1, -2) * below).sum(dim=-1, keepdim=True) > 0
    else:
        top = q @ (k.transpose(-1, -2) @ v)
        sums = (q * k.sum(dim=2, keepdim=True)).sum(dim=-1, keepdim=True)
        seen = seen.to(q.dtype).sum(dim=2, keepdim=True) > 0
    if past is not None:
        top, sums = top + q @ past[0], sums + q @ past[1][..., None]
    if past is not None or (allowed is None and not is_causal):
        seen = torch.ones_like(sums) > 0
    return top, sums, seen


def safe_divide(top, sums, seen):
    return torch.where(seen, top / torch.where(seen, sums, torch.ones_like(sums)),
                       torch.zeros_like(top))


@operator("LinearAttention",
          inputs=["Q: heads B N", "K: heads B N", "V: heads B N", "key_mask?: B N",
                  "past_kv?: B . . .", "past_z?: B . ."],
          outputs=["Y", "present_kv", "present_z"],
          attributes={**HEADS, "scale": 1.0, "feature_map_q": "elu1", "feature_map_k": "elu1",
                      "denominator": "add", "epsilon": 1e-6, "dims_first": 0},
          examples=[
              example(q_num_heads=2, Q=(2, 5, 8), K=(2, 5, 8), V=(2, 5, 6)),
              example(q_num_heads=4, kv_num_heads=2, is_causal=1, feature_map_k="exp",
                      feature_map_q="softmax_d", denominator="clamp", epsilon=1e-3,
                      Q=(2, 6, 12), K=(2, 6, 6), V=(2, 6, 10), key_mask=mask(2, 6)),
              example(feature_map_q="softmax_d", feature_map_k="softmax_n", scale=0.5,
                      denominator="none", Q=(2, 3, 7, 8), K=(2, 3, 7, 8), V=(2, 3, 7, 6),
                      key_mask=mask(2, 7)),
              example(q_num_heads=2, is_causal=1, outputs=3, feature_map_q="relu",
                      feature_map_k="relu", epsilon=0.5, Q=(2, 5, 8), K=(2, 5, 8),
                      V=(2, 5, 6), past_kv=(2, 2, 4, 3), past_z=torch.ones(2, 2, 4),
                      sizes={"B": 2}),
              example(q_num_heads=4, kv_num_heads=2, is_causal=1, denominator="add_keys",
                      epsilon=0.25, Q=(2, 5, 8), K=(2, 5, 4), V=(2, 5, 6)),
              example(q_num_heads=1, outputs=3, feature_map_k="exp", Q=(1, 3, 2),
                      K=torch.tensor([[[0.5, -1], [1e4, 1e4], [1, 2]]]), V=(1, 3, 4),
                      key_mask=torch.tensor([[True, False, True]]), sizes=None),
              example(q_num_heads=2, dims_first=1, feature_map_q="softmax_d",
                      feature_map_k="softmax_n", denominator="none", Q=(2, 8, 5), K=(2, 8, 5),
                      V=(2, 6, 5), sizes=None),
          ])
def linear_attention(Q, K, V, key_mask, past_kv, past_z, *, q_num_heads, kv_num_heads,
                     is_causal, scale, feature_map_q, feature_map_k, denominator, epsilon,
                     dims_first):
    if dims_first:
        Q, K, V = (x.transpose(-1, -2) for x in (Q, K, V))
    kv = kv_num_heads if kv_num_heads is not None else q_num_heads
    q, k, v = to_heads(Q, q_num_heads), to_heads(K, kv), to_heads(V, kv)
    allowed = None if key_mask is None else key_mask[:, None, :, None]
    groups = q.shape[1] // k.shape[1]
    q, k = features(q, feature_map_q, None), features(k, feature_map_k, allowed)
    present_k = masked(k, allowed)
    past = None if past_kv is None else (repeat(past_kv, groups), repeat(past_z, groups))
    top, sums, seen = attend(q, repeat(k, groups), repeat(v, groups), allowed, is_causal, past)
    if denominator == "clamp":
        sums = sums.clamp(min=epsilon)
    elif denominator == "add":
        sums = sums + epsilon
    elif denominator == "add_keys":
        sums = sums + epsilon * q.sum(dim=-1, keepdim=True)
    else:
        sums = torch.ones_like(sums)
    y = scale * safe_divide(top, sums, seen)
    state, z = present_k.transpose(-1, -2) @ masked(v, allowed), present_k.sum(dim=2)
    if past_kv is not None:
        state, z = state + past_kv, z + past_z
    y = from_heads(y, Q)
    return y.transpose(-1, -2) if dims_first else y, state, z
