"""Attention whose pattern says how often a query sees a key."""
import torch

from ._heads import from_heads, key_mask_of, lowest, positions, scale_of, split, tiniest


def counted_softmax(scores, counts):
    """exp(scores) times counts over their sum along the last dim; zeros where all counts
    are. Counts broadcast and are not negative."""
    seen = counts > 0
    scores = torch.where(seen, scores, torch.full_like(scores, lowest(scores)))
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True)) * counts
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=tiniest(weights))


def counted_attention(Q, K, V, counts, key_mask, q_num_heads, kv_num_heads, is_causal, scale):
    """counts (..., Nq, Nk), of 0s where a pair is not seen, before is_causal and key_mask."""
    q, k, v = split(Q, K, V, q_num_heads, kv_num_heads)
    counts = counts.to(q.dtype)
    if key_mask is not None:
        counts = counts * key_mask_of(key_mask)
    if is_causal:
        queries, keys = positions(q.shape[2], k.shape[2], Q.device)
        counts = counts * (keys <= queries)
    scores = scale_of(scale, q) * (q @ k.transpose(-1, -2))
    return from_heads(counted_softmax(scores, counts) @ v, Q)


def tokens_of(x):
    """(query tokens, key tokens) of a layout: rank 3 (B, N, …) or rank 4 (B, H, N, …)."""
    return x.shape[1] if x.dim() == 3 else x.shape[2]


def blocks_to_tokens(counts, block, q_len, kv_len):
    """(..., blocks of queries, blocks of keys) as (..., q_len, kv_len)."""
    rows = torch.arange(q_len, device=counts.device) // block
    columns = torch.arange(kv_len, device=counts.device) // block
    return counts.index_select(-2, rows).index_select(-1, columns)
