"""Golden cases of CBAM: classes of timm and of fightingcv-attention, in double. timm puts
the mean first and has batch normalization behind the convolution: its planes change places,
and the normalization is folded."""
import torch
from torch import nn

from golden import class_of, random, timm_layers, write

timm_layers()
from timm.layers.cbam import CbamModule  # noqa: E402


def case(name, layer, x, weights, identity, attributes, package, what):
    operands = [x] + [None if t is None else t.detach().clone() for t in weights]
    write(name, "CBAM", attributes, operands + ([x] if identity else []),
          [layer.eval().double()(x.double())], package, f"{what}, float64")


def matrix(layer):
    return layer.weight.flatten(1)


def folded(layer):
    """Weight and bias of a timm convolution with its normalization."""
    norm = layer.bn
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return layer.conv.weight[:, [1, 0]] * factor, norm.bias - norm.running_mean * factor


torch.manual_seed(4)
layer = CbamModule(20, rd_ratio=0.2, spatial_kernel_size=5, mlp_bias=True,
                   gate_layer="hard_sigmoid")
mlp, conv = layer.channel, folded(layer.spatial.conv)
case("cbam_timm", layer, random(5, 2, 20, 6, 9),
     (matrix(mlp.fc1), mlp.fc1.bias, matrix(mlp.fc2), mlp.fc2.bias, *conv), False,
     {"gate": "hard_sigmoid"}, "timm", "CbamModule")

torch.manual_seed(6)
CBAMBlock = class_of("fightingcv_attention/attention/CBAM.py", "ChannelAttention",
                     "SpatialAttention", "CBAMBlock")["CBAMBlock"]
layer = CBAMBlock(24, 8, 11)
case("cbam_wide_kernel", layer, random(7, 3, 24, 7, 4),
     (matrix(layer.ca.se[0]), None, matrix(layer.ca.se[2]), None, layer.sa.conv.weight,
      layer.sa.conv.bias), True, {}, "fightingcv-attention", "CBAMBlock(kernel_size=11)")
