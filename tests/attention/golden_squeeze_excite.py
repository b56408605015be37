"""Golden cases of SqueezeExcite: classes of timm and of fightingcv-attention, in double."""
import torch
from torch import nn

from golden import class_of, random, timm_layers, write

timm_layers()
from timm.layers.squeeze_excite import EffectiveSEModule, SEModule  # noqa: E402

SEAttention = class_of("fightingcv_attention/attention/SEAttention.py",
                       "SEAttention")["SEAttention"]


def case(name, layer, linear, shape, attributes, package, what):
    """`linear`: its one or two layers."""
    torch.manual_seed(3)
    operands = [random(1, *shape)]
    for part in linear:
        nn.init.normal_(part.weight, std=0.7)
        operands.append(part.weight.detach().flatten(1))
        operands.append(None if part.bias is None else nn.init.normal_(part.bias).detach())
    operands = [None if t is None else t.clone() for t in operands]
    wide = layer.eval().double()(operands[0].double())
    write(name, "SqueezeExcite", attributes, operands, [wide], package, f"{what}, float64")


layer = SEAttention(18, 4)
case("squeeze_excite_plain", layer, (layer.fc[0], layer.fc[2]), (3, 18, 5, 7), {},
     "fightingcv-attention", "SEAttention")
layer = SEModule(20, rd_channels=3, add_maxpool=True, act_layer=nn.Hardswish,
                 gate_layer="hard_sigmoid")
case("squeeze_excite_avg_max", layer, (layer.fc1, layer.fc2), (2, 20, 1, 9),
     {"activation": "hardswish", "gate": "hard_sigmoid", "pool": "avg_max"}, "timm",
     "SEModule(add_maxpool=True)")
layer = EffectiveSEModule(17)
case("squeeze_excite_effective", layer, (layer.fc,), (2, 17, 6, 4),
     {"activation": "none", "gate": "hard_sigmoid"}, "timm", "EffectiveSEModule")
