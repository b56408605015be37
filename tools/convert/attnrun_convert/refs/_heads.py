"""What references of attention share. Everything here exports: no .item(), no branch on
data, shapes only through reshape and arange."""
import torch

# The attributes of heads; None: absent.
HEADS = {"q_num_heads": None, "kv_num_heads": None, "is_causal": 0, "scale": None}


def to_heads(x, heads):
    """(B, N, heads * D) as (B, heads, N, D); rank 4 is that already."""
    if x.dim() == 4:
        return x
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(1, 2)


def from_heads(y, like):
    """(B, heads, N, D) in the layout of `like`."""
    if like.dim() == 4:
        return y
    return y.transpose(1, 2).flatten(2)


def split(Q, K, V, q_num_heads, kv_num_heads):
    """q, k, v of rank 4, with the key heads repeated for the query heads."""
    kv = kv_num_heads if kv_num_heads is not None else q_num_heads
    q, k, v = to_heads(Q, q_num_heads), to_heads(K, kv), to_heads(V, kv)
    groups = q.shape[1] // k.shape[1]
    return q, repeat(k, groups), repeat(v, groups)


def repeat(k, groups):
    """Head h of the result is head h // groups of k."""
    return k if groups == 1 else k.repeat_interleave(groups, dim=1)


def scale_of(scale, q):
    return scale if scale is not None else q.shape[-1] ** -0.5


def positions(q_len, kv_len, device):
    """Positions of queries (Nq, 1) and keys (Nk): causal is keys <= queries."""
    queries = torch.arange(q_len, device=device)[:, None] + (kv_len - q_len)
    return queries, torch.arange(kv_len, device=device)


def lowest(x):
    """What stands for "not allowed" among the scores x; float16 ends at -65504."""
    return -1e30 if x.dtype != torch.float16 else torch.finfo(x.dtype).min


def tiniest(x, wanted=1e-30):
    """The bound below which x is no divisor; float16 has nothing below 6e-5."""
    return wanted if x.dtype != torch.float16 else torch.finfo(x.dtype).tiny


def masked_softmax(scores, allowed=None):
    """Softmax over the last dim of what is allowed (None: all); zeros where nothing is."""
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    scores = torch.where(allowed, scores, torch.full_like(scores, lowest(scores)))
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True)) * allowed
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=tiniest(weights))


def all_of(*conditions):
    """The conjunction of what is not None."""
    both = None
    for condition in conditions:
        if condition is not None:
            both = condition if both is None else both & condition
    return both


def key_mask_of(key_mask):
    """(B, Nk) against scores (B, H, Nq, Nk)."""
    return None if key_mask is None else key_mask[:, None, None, :]
