"""What references of attention without heads and of pooling share."""
import torch

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}


def additive_scores(query, keys, v, bias, activation="tanh"):
    """v . f(q_i + k_j + bias) as (B, Nq, Nk)."""
    if bias is not None:
        query = query + bias
    return ACTIVATIONS[activation](query[:, :, None] + keys[:, None]) @ v


def over_tokens(key_mask):
    """(B, Nk) against scores (B, rows, Nk)."""
    return None if key_mask is None else key_mask[:, None]
