"""TopKAttention: softmax over the k largest scores of each query; of equal ones at the end
all (threshold) or those with the lower places (exact)."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._heads import (HEADS, all_of, from_heads, key_mask_of, lowest, masked_softmax, positions,
                     scale_of, split)


@operator("TopKAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "key_mask?: B Nk",
                  "attn_mask?"],
          outputs=["Y"], attributes={**HEADS, "k": REQUIRED, "tie_rule": "threshold"},
          examples=[
              example(q_num_heads=2, k=3, Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 8)),
              example(q_num_heads=4, kv_num_heads=2, scale=0.3, k=4, tie_rule="exact",
                      is_causal=1, Q=(2, 6, 12), K=(2, 9, 6), V=(2, 9, 10),
                      key_mask=mask(2, 9)),
              example(k=2, Q=(1, 3, 4, 8), K=(1, 3, 7, 8), V=(1, 3, 7, 6),
                      attn_mask=mask(3, 4, 7), sizes=None),
          ])
def top_k_attention(Q, K, V, key_mask, attn_mask, *, q_num_heads, kv_num_heads, is_causal,
                    scale, k, tie_rule):
    q, key, v = split(Q, K, V, q_num_heads, kv_num_heads)
    scores = scale_of(scale, q) * (q @ key.transpose(-1, -2))
    queries, keys = positions(q.shape[2], key.shape[2], Q.device)
    allowed = all_of((keys <= queries) if is_causal else None, key_mask_of(key_mask),
                     attn_mask)
    if allowed is not None:
        scores = torch.where(allowed, scores, torch.full_like(scores, lowest(scores)))
    # k places more than there are keys, all of the lowest score
    padded = torch.cat([scores, torch.full_like(scores[..., :1], lowest(scores)).repeat(
        1, 1, 1, k)], dim=-1)
    last = torch.topk(padded, k, dim=-1).values[..., -1:]
    kept = scores >= last
    if tie_rule == "exact":
        equal = scores == last
        above = scores > last
        left = k - above.to(scores.dtype).sum(-1, keepdim=True)
        kept = above | (equal & (equal.to(scores.dtype).cumsum(-1) <= left))
    return from_heads(masked_softmax(scores, all_of(allowed, kept)) @ v, Q)
