"""LongformerAttention: a (dilated) window and global keys for most queries, all keys with
projections of their own for global queries."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._heads import (HEADS, from_heads, key_mask_of, masked_softmax, positions, scale_of,
                     split, to_heads)
from ._windows import window


def _global_operands(q, k, v, given, X, weights, biases, heads):
    """qg, kg, vg of rank 4: given, made of X, or the local ones."""
    if given[0] is not None:
        return [to_heads(x, heads) for x in given]
    if X is None:
        return q, k, v
    made = [X @ w if b is None else X @ w + b for w, b in zip(weights, biases)]
    return [to_heads(x, q.shape[1]) for x in made]


@operator("LongformerAttention",
          inputs=["Q: heads B N", "K: heads B N", "V: heads B N", "key_mask?: B N",
                  "global_mask?: B N", "Qg?: heads B N", "Kg?: heads B N", "Vg?: heads B N",
                  "X?: B N .", "Wqg?", "Wkg?", "Wvg?", "bqg?", "bkg?", "bvg?"],
          outputs=["Y"],
          attributes={**HEADS, "window": REQUIRED, "dilation": None},
          examples=[
              example(q_num_heads=4, is_causal=1, Q=(2, 22, 16), K=(2, 22, 16),
                      V=(2, 22, 16), key_mask=mask(2, 22), window=[1, 2, 3, 2],
                      dilation=[1, 2, 3, 4]),
              example(q_num_heads=2, Q=(2, 19, 8), K=(2, 19, 8), V=(2, 19, 6),
                      key_mask=mask(2, 19), global_mask=mask(2, 19), X=(2, 19, 12),
                      Wqg=(12, 8), Wkg=(12, 8), Wvg=(12, 6), bqg=(8,), bkg=(8,), bvg=(6,),
                      window=[3], tolerance=(1e-4, 1e-5)),
              example(Q=(2, 3, 13, 4), K=(2, 3, 13, 4), V=(2, 3, 13, 5),
                      global_mask=mask(2, 13), Qg=(2, 3, 13, 4), Kg=(2, 3, 13, 4),
                      Vg=(2, 3, 13, 5), window=[2]),
              example(q_num_heads=2, Q=(2, 9, 8), K=(2, 9, 8), V=(2, 9, 8),
                      global_mask=mask(2, 9), window=[1], scale=0.5),
          ])
def longformer_attention(Q, K, V, key_mask, global_mask, Qg, Kg, Vg, X, Wqg, Wkg, Wvg, bqg,
                         bkg, bvg, *, q_num_heads, kv_num_heads, is_causal, scale, window,
                         dilation):
    q, k, v = split(Q, K, V, q_num_heads, kv_num_heads)
    queries, keys = positions(q.shape[2], k.shape[2], Q.device)
    factor = scale_of(scale, q)
    near = _near(q, window, dilation, Q.device)[None]
    seen = key_mask_of(key_mask)
    if global_mask is not None:
        known = global_mask if key_mask is None else global_mask & key_mask
        near = near | known[:, None, None, :]
    allowed = near & (keys <= queries) if is_causal else near
    allowed = allowed if seen is None else allowed & seen
    y = masked_softmax(factor * (q @ k.transpose(-1, -2)), allowed) @ v
    if global_mask is not None:
        qg, kg, vg = _global_operands(q, k, v, (Qg, Kg, Vg), X, (Wqg, Wkg, Wvg),
                                      (bqg, bkg, bvg), q_num_heads)
        wide = masked_softmax(factor * (qg @ kg.transpose(-1, -2)), seen) @ vg
        y = torch.where(known[:, None, :, None], wide, y)
    if key_mask is not None:
        y = y * key_mask[:, None, :, None]
    return from_heads(y, Q)


def _near(q, reach, dilation, device):
    return window(q.shape[2], q.shape[2], reach, reach, dilation, q.shape[1], device)
