"""What the references of operators over maps (batch, channel, height, width) share."""
import torch
from torch.nn import functional

MAP = "B . h w"
ACTIVATIONS = {"none": lambda x: x, "relu": functional.relu, "silu": functional.silu,
               "gelu": functional.gelu, "hardswish": lambda x: x * hard_sigmoid(x)}


def hard_sigmoid(x):
    return torch.clamp(x / 6 + 0.5, 0, 1)


def gate_of(word, x):
    return hard_sigmoid(x) if word == "hard_sigmoid" else torch.sigmoid(x)


def pooled(word, x):
    """(B, C): a number of each plane."""
    if word == "avg":
        return x.mean((2, 3))
    if word == "max":
        return x.amax((2, 3))
    if word == "lp":
        return (x * x).sum((2, 3)).sqrt()
    most = x.amax((2, 3), keepdim=True)
    return most[:, :, 0, 0] + torch.exp(x - most).sum((2, 3)).log()


def by_channel(vector):
    return vector[:, :, None, None]


def tail(core, identity, post_activation):
    y = core if identity is None else core + identity
    return functional.relu(y) if post_activation == "relu" else y
