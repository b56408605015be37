"""ResNets of timm at a quarter of their width and less, an attention in each block: CBAM
("cbam"), SE ("se"), both behind the last convolution of a bottleneck, or selective kernels
("sk") in place of its middle one. The attention is swapped; its norms are folded into the
convolutions before them."""
import torch
from attnrun_convert.call import call

from . import _parts as parts
from ._timm import (Bottleneck, CbamModule, ResNet, SelectiveKernel,
                    SelectiveKernelBottleneck, SEModule)

LAYERS, CHANNELS = (3, 4, 6, 3), (8, 12, 16, 24)


def matrix(conv):
    """The weight of a convolution of kernel 1."""
    return conv.weight[:, :, 0, 0]


def folded(weight, norm):
    """(weight, bias) of a layer without bias and the norm behind it."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    shape = (-1,) + (1,) * (weight.dim() - 1)
    return weight * scale.reshape(shape), norm.bias - norm.running_mean * scale


def excite(self, x):
    return call("SqueezeExcite", x, matrix(self.fc1), self.fc1.bias, matrix(self.fc2),
                self.fc2.bias)


def cbam(self, x):
    """timm's spatial gate takes the mean first, the operator the maximum."""
    channel, conv = self.channel, self.spatial.conv
    weight, bias = folded(conv.conv.weight, conv.bn)
    return call("CBAM", x, matrix(channel.fc1), None, matrix(channel.fc2), None,
                weight.flip(1), bias)


def select(self, x):
    if self.split_input:
        each = x.split(self.in_channels // self.num_paths, dim=1)
    else:
        each = [x] * self.num_paths
    branches = [path(part) for path, part in zip(self.paths, each)]
    weight, bias = folded(matrix(self.attn.fc_reduce), self.attn.bn)
    choices = matrix(self.attn.fc_select).unflatten(0, (self.num_paths, -1))
    return call("SKSelect", weight, bias, choices, None, None, *branches, activation="relu")


KINDS = {"cbam": (Bottleneck, dict(attn_layer="cbam"), {CbamModule: cbam}),
         "se": (Bottleneck, dict(attn_layer="se"), {SEModule: excite}),
         "sk": (SelectiveKernelBottleneck,
                dict(sk_kwargs=dict(rd_ratio=0.125, rd_divisor=8, split_input=True)),
                {SelectiveKernel: select})}


def build(kind):
    block, options, forwards = KINDS[kind]
    upstream = parts.randomise(parts.Image(ResNet(
        block, LAYERS, num_classes=10, stem_width=16, channels=CHANNELS,
        block_args=options, zero_init_last=False)))
    sets = [(parts.floats(b, 3, h, w),) for b, h, w in ((2, 64, 64), (1, 96, 80))]
    return parts.swapped(upstream, forwards), upstream, sets
