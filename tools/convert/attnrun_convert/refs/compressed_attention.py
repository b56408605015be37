"""CompressedAttention: softmax attention over keys and values of a strided convolution."""
import torch

from ..operators import example, mask, operator
from ._heads import HEADS, all_of, from_heads, masked_softmax, scale_of, to_heads


def compress(x, weight, bias, ratio, pad, groups, allowed):
    """(B, N, C) -> (B, slots, C)."""
    if allowed is not None:
        x = x * allowed[:, :, None]
    x = torch.cat([x.new_zeros(x.shape[0], ratio, x.shape[2]), x], dim=1)
    x = x[:, ratio - pad:]
    width = weight.shape[0]
    x = x.reshape(x.shape[0], -1, ratio, groups, width // groups)
    w = weight.reshape(groups, width // groups, width // groups, ratio)
    slots = torch.einsum("bctgi,goit->bcgo", x, w).flatten(2)
    return slots if bias is None else slots + bias


@operator("CompressedAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "Wk", "bk?", "Wv?",
                  "bv?", "null_k?", "null_v?", "key_mask?: B Nk"],
          outputs=["Y"], attributes={**HEADS, "compression": 3, "groups": None},
          examples=[
              example(q_num_heads=2, Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 8), Wk=(8, 4, 3),
                      tolerance=(1e-4, 1e-5)),
              example(q_num_heads=2, is_causal=1, compression=2, groups=1, scale=0.3,
                      Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 6), Wk=(8, 8, 2), bk=(8,),
                      Wv=(6, 6, 2), bv=(6,), null_k=(8,), null_v=(6,),
                      key_mask=mask(2, 7), tolerance=(1e-4, 1e-5)),
              example(is_causal=1, Q=(2, 3, 7, 4), K=(2, 3, 7, 4), V=(2, 3, 7, 4),
                      Wk=(12, 4, 3), bk=(12,), sizes={"Nq": 10, "Nk": 10},
                      tolerance=(1e-4, 1e-5)),
          ])
def compressed_attention(Q, K, V, Wk, bk, Wv, bv, null_k, null_v, key_mask, *, q_num_heads,
                         kv_num_heads, is_causal, scale, compression, groups):
    heads = q_num_heads if q_num_heads is not None else Q.shape[1]
    groups = groups if groups is not None else heads
    q, r = to_heads(Q, heads), compression
    k, v = (x if x.dim() == 3 else x.transpose(1, 2).flatten(2) for x in (K, V))
    n = k.shape[1]
    pad = (r - n % r) % r
    bv = bv if bv is not None or Wv is not None else bk
    allowed = key_mask
    k = compress(k, Wk, bk, r, pad, groups, allowed)
    v = compress(v, Wk if Wv is None else Wv, bv, r, pad, groups, allowed)
    ends = (torch.arange(k.shape[1], device=q.device) + 1) * r - pad - 1
    at = torch.arange(q.shape[2], device=q.device)[:, None] + (n - q.shape[2])
    below = (ends <= at)[None, None] if is_causal else None
    if allowed is not None:
        some = torch.cat([allowed.new_zeros(allowed.shape[0], r), allowed], dim=1)
        some = some[:, r - pad:].reshape(allowed.shape[0], -1, r).to(q.dtype).sum(dim=2) > 0
        allowed = some[:, None, None, :]
    seen = all_of(below, allowed)
    if null_k is not None:
        batch = k.shape[0]
        k = torch.cat([null_k.expand(batch, 1, -1), k], dim=1)
        v = torch.cat([null_v.expand(batch, 1, -1), v], dim=1)
        if seen is not None:
            seen = torch.cat([torch.ones_like(seen[..., :1]), seen], dim=-1)
    scores = scale_of(scale, q) * (q @ to_heads(k, heads).transpose(-1, -2))
    return from_heads(masked_softmax(scores, seen) @ to_heads(v, heads), Q)
