"""ChunkedLocalAttention: softmax over the keys of a query's chunk and its neighbours."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._heads import (HEADS, from_heads, key_mask_of, lowest, positions, scale_of, split,
                     tiniest)


def _times(queries, keys, n, chunk, before, after, wrap):
    """How often key chunks come for a query (Nq, Nk); n: chunks, a number or a symbol."""
    near = torch.div(keys, chunk, rounding_mode="floor")
    own = torch.div(queries, chunk, rounding_mode="floor")
    if not wrap:
        far = (near - own < -before) | (near - own > after)
        return (~far).to(torch.int64)
    # Numbers k with -before <= near - own + k n <= after.
    highest = torch.div(after - (near - own), n, rounding_mode="floor")
    lowest = -torch.div(before + (near - own), n, rounding_mode="floor")
    return (highest - lowest + 1).clamp(min=0)


@operator("ChunkedLocalAttention",
          inputs=["Q: heads B N", "K: heads B N", "V: heads B N", "key_mask?: B N"],
          outputs=["Y"],
          attributes={**HEADS, "chunk_size": REQUIRED, "chunks_before": 1,
                      "chunks_after": None, "edge": "pad", "exact_window": 0, "shared_qk": 0},
          examples=[
              example(q_num_heads=2, Q=(2, 11, 8), K=(2, 11, 8), V=(2, 11, 6), chunk_size=4),
              example(q_num_heads=4, kv_num_heads=2, is_causal=1, Q=(2, 13, 16), K=(2, 13, 8),
                      V=(2, 13, 8), chunk_size=3, chunks_before=2, exact_window=1,
                      key_mask=mask(2, 13)),
              example(Q=(2, 3, 12, 4), K=(2, 3, 12, 4), V=(2, 3, 12, 4), chunk_size=4,
                      edge="wrap", shared_qk=1, key_mask=mask(2, 12), sizes={"N": 20}),
              example(q_num_heads=1, Q=(1, 6, 4), K=(1, 6, 4), V=(1, 6, 4), chunk_size=3,
                      edge="wrap", chunks_before=2, sizes={"N": 9}),
          ])
def chunked_local_attention(Q, K, V, key_mask, *, q_num_heads, kv_num_heads, is_causal, scale,
                            chunk_size, chunks_before, chunks_after, edge, exact_window,
                            shared_qk):
    q, k, v = split(Q, Q if shared_qk else K, V, q_num_heads, kv_num_heads)
    if shared_qk:
        k = k / (k * k).sum(-1, keepdim=True).sqrt().clamp(min=tiniest(k, 1e-12))
    after = chunks_after if chunks_after is not None else 1 - is_causal
    queries, keys = positions(q.shape[2], q.shape[2], Q.device)
    n = torch.div(keys[-1:] + chunk_size, chunk_size, rounding_mode="floor")
    some = 1
    if edge == "wrap":  # a single chunk is not its own neighbour
        some = (n > 1).to(torch.int64)
    times = _times(queries, keys, n, chunk_size, chunks_before * some, after * some,
                   edge == "wrap")
    if exact_window:
        distance = keys - queries
        times = times * ((distance >= -chunks_before * chunk_size)
                         & (distance <= after * chunk_size))
    if is_causal:
        times = times * (keys <= queries)
    times = times[None, None].to(q.dtype)
    if key_mask is not None:
        times = times * key_mask_of(key_mask).to(q.dtype)
    scores = scale_of(scale, q) * (q @ k.transpose(-1, -2))
    if shared_qk:
        scores = torch.where(keys == queries, torch.full_like(scores, -5e4), scores)
    seen = torch.where(times > 0, scores, torch.full_like(scores, lowest(scores)))
    weights = torch.exp(seen - seen.amax(-1, keepdim=True)) * times
    y = (weights / weights.sum(-1, keepdim=True).clamp(min=tiniest(weights))) @ v
    return from_heads(y, Q)
