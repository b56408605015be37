"""Windows of keys around queries, per head."""
import torch

from ._heads import positions


def per_head(values, heads, default):
    """(heads, 1, 1) of a list of one element or of one per head."""
    values = [default] if values is None else list(values)
    return torch.tensor(values if len(values) == heads else values * heads)[:, None, None]


def window(q_len, kv_len, left, right, dilation, heads, device):
    """(heads, Nq, Nk): j = p + d t with -left <= t <= right; -1 is without bound."""
    queries, keys = positions(q_len, kv_len, device)
    distance = keys - queries
    left, right = per_head(left, heads, -1), per_head(right, heads, -1)
    step = per_head(dilation, heads, 1)
    steps = torch.div(distance, step, rounding_mode="trunc")
    return ((distance - steps * step == 0) & ((left < 0) | (steps >= -left))
            & ((right < 0) | (steps <= right)))
