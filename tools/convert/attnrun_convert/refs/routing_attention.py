"""RoutingAttention: softmax attention within clusters, and the mean over a query's."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._heads import HEADS, all_of, from_heads, lowest, positions, scale_of, split, tiniest


def _unit(x):
    return x / (x * x).sum(dim=-1, keepdim=True).sqrt().clamp(min=tiniest(x, 1e-12))


def _members(x, means, window):
    """(B, H, clusters, N): the `window` tokens nearest to each mean; of equal ones the
    first."""
    distance = torch.einsum("hcd,bhnd->bhcn", means, _unit(x))
    place, other = positions(x.shape[2], x.shape[2], x.device)
    mine, theirs = distance[..., :, None], distance[..., None, :]
    before = (theirs > mine) | ((theirs == mine) & (other < place))
    return before.sum(dim=-1) < window


def _seen(queries, keys, key_mask, query_mask, is_causal, self_pairs):
    """(B, H, clusters, Nq, Nk)"""
    q_len, kv_len = queries.shape[-1], keys.shape[-1]
    query, key = positions(q_len, kv_len, keys.device)
    pairs = all_of(key_mask[:, None, None, None, :] if key_mask is not None else None,
                   query_mask[:, None, None, :, None] if query_mask is not None else None,
                   key <= query if is_causal else None)
    if pairs is not None and self_pairs:
        pairs = pairs | (key == query)
    return all_of(queries[..., :, None] & keys[..., None, :], pairs)


@operator("RoutingAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "means", "mem_k?",
                  "mem_v?", "key_mask?: B Nk", "query_mask?: B Nq"],
          outputs=["Y"],
          attributes={**HEADS, "window": REQUIRED, "context_window": None, "shared_qk": 0,
                      "epsilon": 1e-5},
          examples=[
              example(q_num_heads=2, window=4, Q=(2, 11, 16), K=(2, 14, 16), V=(2, 14, 12),
                      means=(2, 3, 8)),
              example(q_num_heads=2, window=5, context_window=6, is_causal=1, scale=0.3,
                      Q=(2, 14, 16), K=(2, 14, 16), V=(2, 14, 16), means=(2, 4, 8),
                      mem_k=(2, 4, 2, 8), mem_v=(2, 4, 2, 8), key_mask=mask(2, 14),
                      query_mask=mask(2, 14)),
              example(window=5, shared_qk=1, is_causal=1, epsilon=0.1, Q=(1, 2, 12, 8),
                      K=(1, 2, 12, 8), V=(1, 2, 12, 6), means=(2, 3, 8),
                      key_mask=mask(1, 12), sizes={"Nq": 15, "Nk": 15}),
          ])
def routing_attention(Q, K, V, means, mem_k, mem_v, key_mask, query_mask, *, q_num_heads,
                      kv_num_heads, is_causal, scale, window, context_window, shared_qk,
                      epsilon):
    q, k, v = split(Q, K, V, q_num_heads, kv_num_heads)
    queries = _members(q, means, window)
    chosen_by = q if shared_qk else k
    keys = _members(chosen_by, means, window if context_window is None else context_window)
    scores = scale_of(scale, q) * (q @ (_unit(q) if shared_qk else k).transpose(-1, -2))
    if shared_qk:
        query, key = positions(q.shape[2], k.shape[2], q.device)
        scores = torch.where(query == key, torch.full_like(scores, -5e4), scores)
    seen = _seen(queries, keys, key_mask, query_mask, is_causal, shared_qk)
    scores = torch.where(seen, scores[:, :, None], torch.full_like(scores[:, :, None],
                                                                     lowest(scores)))
    most = scores.amax(dim=-1, keepdim=True)
    if mem_k is not None:
        memory = scale_of(scale, q) * torch.einsum("bhnd,hcmd->bhcnm", q, mem_k)
        most = torch.maximum(most, memory.amax(dim=-1, keepdim=True))
    weights = torch.exp(scores - most) * seen
    total = weights.sum(dim=-1, keepdim=True)
    y = weights @ v[:, :, None]
    if mem_k is not None:
        weights = torch.exp(memory - most)
        total = total + weights.sum(dim=-1, keepdim=True)
        y = y + torch.einsum("bhcnm,hcmd->bhcnd", weights, mem_v)
    y = y / total.clamp(min=tiniest(total))
    y = torch.where(queries[..., None], y, torch.zeros_like(y)).sum(dim=2)
    count = queries.to(y.dtype).sum(dim=2)[..., None]
    y = torch.where(count > 0, y / (count + epsilon).clamp(min=tiniest(y)), torch.zeros_like(y))
    return from_heads(y, Q)
