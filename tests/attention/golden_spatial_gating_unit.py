"""Golden cases of SpatialGatingUnit: the class of g-mlp-pytorch, in double."""
import torch
from g_mlp_pytorch.g_mlp_pytorch import SpatialGatingUnit
from torch import nn

from golden import random, write

for case, options, tokens, length, channels, with_res, attributes in (
        ("spatial_gating_plain", {}, 7, 7, 10, False, {}),
        ("spatial_gating_causal_heads", {"causal": True, "heads": 3, "act": nn.Tanh()}, 6, 9,
         12, True, {"num_heads": 3, "is_causal": 1, "activation": "tanh"})):
    torch.manual_seed(5)
    layer = SpatialGatingUnit(2 * channels, length, init_eps=2.0, **options).eval()
    layer.norm.weight.data.normal_()
    layer.norm.bias.data.normal_()
    layer.bias.data.normal_()
    x = random(6, 2, tokens, 2 * channels)
    res = random(7, 2, tokens, channels) if with_res else None
    operands = [x] + [w.detach().clone() for w in (layer.norm.weight, layer.norm.bias,
                                                   layer.weight, layer.bias)] + [res]
    wide = layer.double()(x.double(), None if res is None else res.double())
    write(case, "SpatialGatingUnit", attributes, operands, [wide], "g-mlp-pytorch",
          "SpatialGatingUnit, float64", (1e-5, 1e-5))
