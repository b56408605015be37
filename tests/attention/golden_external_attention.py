"""Golden cases of ExternalAttention: fightingcv-attention, and MenghaoGuo/EANet read from a
checkout, whose convolutions are folded into the operator's weights.

usage: golden_external_attention.py EANET_FOLDER
"""
import math
import sys
from pathlib import Path

import torch
from fightingcv_attention.attention.ExternalAttention import ExternalAttention
from golden import amid, classes_in, random, write
from torch.nn.modules.batchnorm import _BatchNorm


def randomize(layer, seed):
    for i, p in enumerate(layer.parameters()):
        p.data.copy_(random(seed + i, *p.shape) / math.sqrt(p.shape[-1]))
    return layer.double().eval()


def tokens():
    layer = randomize(ExternalAttention(20, S=9), 1)
    x = random(5, 3, 31, 20)
    write("external_tokens", "ExternalAttention", {},
          [x, layer.mk.weight.float(), layer.mv.weight.float()], [layer(x.double())],
          "fightingcv-attention", "ExternalAttention, in double")


def eanet(folder):
    source = (folder / "model_torch.py").read_text()
    upstream = classes_in(source, "External_attention")["External_attention"]
    upstream.__init__.__globals__.update(norm_layer=torch.nn.BatchNorm2d,
                                         _BatchNorm=_BatchNorm)
    layer = upstream(12)
    layer = randomize(layer, 20)
    norm = layer.conv2[1]
    norm.running_mean.copy_(random(31, 12))
    norm.running_var.copy_(random(32, 12).abs() + 0.5)
    x = random(33, 2, 12, 5, 7)
    # No nonlinearity is between conv1 and linear_0, and the bias cancels in the softmax.
    mk = layer.linear_0.weight[..., 0] @ layer.conv1.weight[..., 0, 0]
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    mv = scale[:, None] * layer.conv2[0].weight[..., 0, 0] @ layer.linear_1.weight[..., 0]
    bv = norm.bias - scale * norm.running_mean
    write("external_eanet", "ExternalAttention",
          {"epsilon": 1e-9, "post_activation": "relu"},
          [x, mk.float(), mv.float(), bv.float(), x], [layer(x.double())], None,
          "MenghaoGuo/EANet 59c03cb External_attention, folded, in double", (1e-4, 1e-5))
    amid("external_eanet", ("x", "identity"))


def heads(folder):
    """The part between the two linear layers, for they stay what they are."""
    source = (folder / "multi_head_attention_torch.py").read_text()
    layer = classes_in(source, "Attention")["Attention"](6, num_heads=2)
    layer.trans_dims = layer.proj = torch.nn.Identity()
    layer = randomize(layer, 40)
    x = random(50, 2, 17, 24)
    write("external_heads", "ExternalAttention", {"num_heads": 8, "epsilon": 1e-9},
          [x, layer.linear_0.weight.float(), layer.linear_1.weight.float(),
           layer.linear_1.bias.float()], [layer(x.double())], None,
          "MenghaoGuo/EANet 59c03cb multi_head_attention_torch.py Attention, in double")


with torch.no_grad():
    tokens()
    eanet(Path(sys.argv[1]))
    heads(Path(sys.argv[1]))
