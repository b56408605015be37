"""LocalAttention: softmax over a (dilated) window of the keys around each query, and global
tokens, which see and are seen by all."""
from ..operators import REQUIRED, example, mask, operator
from ._heads import (HEADS, all_of, from_heads, key_mask_of, masked_softmax, positions,
                     scale_of, split)
from ._windows import window


@operator("LocalAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "key_mask?: B Nk",
                  "global_mask?: B Nk"],
          outputs=["Y"],
          attributes={**HEADS, "left_window": REQUIRED, "right_window": None,
                      "dilation": None, "num_global": 0},
          examples=[
              example(q_num_heads=2, Q=(2, 11, 8), K=(2, 11, 8), V=(2, 11, 6),
                      left_window=[2], sizes={"Nq": 17, "Nk": 17}),
              example(q_num_heads=4, kv_num_heads=2, is_causal=1, Q=(2, 5, 12), K=(2, 21, 6),
                      V=(2, 21, 6), left_window=[6, 2, -1, 3], dilation=[1, 2, 3, 1],
                      num_global=2),
              example(Q=(2, 3, 10, 4), K=(2, 3, 10, 4), V=(2, 3, 10, 4), left_window=[1],
                      right_window=[0, 1, 2], key_mask=mask(2, 10), global_mask=mask(2, 10),
                      sizes={"Nq": 13, "Nk": 13}),
          ])
def local_attention(Q, K, V, key_mask, global_mask, *, q_num_heads, kv_num_heads, is_causal,
                    scale, left_window, right_window, dilation, num_global):
    q, k, v = split(Q, K, V, q_num_heads, kv_num_heads)
    queries, keys = positions(q.shape[2], k.shape[2], Q.device)
    right = left_window if right_window is None else right_window
    allowed = window(q.shape[2], k.shape[2], left_window, right, dilation, q.shape[1],
                     Q.device)[None]
    if num_global > 0:
        allowed = allowed | (keys < num_global) | ((queries < num_global) & (queries >= 0))
    if global_mask is not None:
        allowed = (allowed | global_mask[:, None, None, :]) | global_mask[:, None, :, None]
    allowed = all_of(allowed, keys <= queries if is_causal else None, key_mask_of(key_mask))
    scores = scale_of(scale, q) * (q @ k.transpose(-1, -2))
    return from_heads(masked_softmax(scores, allowed) @ v, Q)
