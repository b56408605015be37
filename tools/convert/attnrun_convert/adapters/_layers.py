"""Layers as matrices: what adapters of gates over maps share."""
import torch
from torch import nn

from ..registry import need

ACTIVATIONS = {nn.Identity: "none", nn.ReLU: "relu", nn.SiLU: "silu", nn.GELU: "gelu",
               nn.Hardswish: "hardswish"}


def activation_of(layer):
    need(type(layer) in ACTIVATIONS, f"its activation is {type(layer).__name__}")
    need(getattr(layer, "approximate", "none") == "none", "its Gelu is approximate")
    return ACTIVATIONS[type(layer)]


def gate_of(layer):
    """By name: timm has classes of its own."""
    name = type(layer).__name__.lower()
    need(name in ("sigmoid", "hardsigmoid"), f"its gate is {type(layer).__name__}")
    return "sigmoid" if name == "sigmoid" else "hard_sigmoid"


def need_matrix(layer, what):
    need(isinstance(layer, nn.Linear) or isinstance(layer, nn.Conv2d)
         and layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.groups == 1,
         f"{what} is neither a linear layer nor a 1 x 1 convolution")


def matrix(layer, norm=None):
    """(weight of rank 2, bias or None), an evaluated BatchNorm behind it folded in."""
    weight, bias = layer.weight.flatten(1), layer.bias
    if norm is None or isinstance(norm, nn.Identity):
        return weight, bias
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    bias = torch.zeros_like(scale) if bias is None else bias
    return weight * scale[:, None], scale * (bias - norm.running_mean) + norm.bias


def named(**layers):
    """{"w1": weight, "b1": bias} of name=(weight, bias); no bias, no entry."""
    found = {}
    for name, (weight, bias) in layers.items():
        found["w" + name] = weight
        if bias is not None:
            found["b" + name] = bias
    return found


def layers_of(stack):
    """[(linear layer or convolution, norm or None)] of an nn.Sequential in which each but
    the last has a ReLU behind it; what flattens a pooled map has no part."""
    found, active = [], True
    for layer in stack:
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            need(active, "two of its layers have no ReLU between them")
            found.append([layer, None])
            active = False
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            need(found and not active and found[-1][1] is None, "a norm is in an unexpected place")
            found[-1][1] = layer
        elif isinstance(layer, nn.ReLU):
            need(not active, "a ReLU is in an unexpected place")
            active = True
        else:
            need(not found and type(layer).__name__ == "Flatten",
                 f"it has a {type(layer).__name__} among its layers")
    need(not active and len(found) >= 2, "its last layer has a ReLU, or there is no other")
    return [tuple(pair) for pair in found]
