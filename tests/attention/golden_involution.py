"""Golden cases of Involution: fightingcv-attention, and involution_naive.py of a checkout of
d-li14/involution, with a ConvModule as mmcv's. BatchNorm is folded.

usage: golden_involution.py INVOLUTION_NAIVE_PY
"""
import sys
from collections import OrderedDict

import torch
from fightingcv_attention.conv.Involution import Involution
from golden import classes_in, random, write
from torch import nn

AUTHOR = "d-li14/involution 21c3158 involution_naive, BatchNorm folded, in double"


def conv_module(in_channels, out_channels, kernel_size, norm_cfg, act_cfg, conv_cfg=None,
                stride=1):
    parts = [("conv", nn.Conv2d(in_channels, out_channels, kernel_size, stride,
                                bias=norm_cfg is None))]
    parts += [("bn", nn.BatchNorm2d(out_channels))] if norm_cfg else []
    parts += [("activate", nn.ReLU())] if act_cfg else []
    return nn.Sequential(OrderedDict(parts))


def randomize(layer, norm, seed):
    for i, p in enumerate(layer.parameters()):
        p.data.copy_(random(seed + i, *p.shape) / p[0].numel() ** 0.5)
    norm.running_mean.copy_(random(seed + 8, *norm.running_mean.shape))
    norm.running_var.copy_(random(seed + 9, *norm.running_var.shape).abs() + 0.5)
    return layer.double().eval()


def folded(conv, norm):
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return (conv.weight[..., 0, 0] * scale[:, None]).float(), (bias * scale
                                                              + norm.bias).float()


def case(name, layer, parts, x, attributes, package, what):
    conv1, norm, conv2 = parts
    randomize(layer, norm, x.shape[1])
    w1, b1 = folded(conv1, norm)
    write(name, "Involution", attributes,
          [x, w1, b1, conv2.weight[..., 0, 0].float(), conv2.bias.float()],
          [layer(x.double())], package, what, (1e-4, 1e-5))


def author(path, name, x, size, stride):
    upstream = classes_in(open(path).read(), "involution")["involution"]
    upstream.__init__.__globals__["ConvModule"] = conv_module
    layer = upstream(x.shape[1], size, stride)
    case(name, layer, (layer.conv1.conv, layer.conv1.bn, layer.conv2.conv), x,
         {"kernel_size": size, "groups": x.shape[1] // 16, "stride": stride}, None, AUTHOR)


def port():
    layer = Involution(5, in_channel=12, stride=2, group=3, ratio=3)
    case("involution_groups", layer, (layer.conv1, layer.bn, layer.conv2),
         random(3, 2, 12, 6, 10), {"kernel_size": 5, "groups": 3, "stride": 2},
         "fightingcv-attention", "Involution, BatchNorm folded, in double")


with torch.no_grad():
    author(sys.argv[1], "involution_author", random(1, 1, 32, 9, 5), 7, 1)
    author(sys.argv[1], "involution_author_stride", random(2, 2, 16, 6, 8), 3, 2)
    port()
