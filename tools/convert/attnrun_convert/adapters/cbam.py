"""CBAM: timm's CbamModule, CBAMBlock (which adds its input), and the authors' class."""
from torch import nn

from ..call import call
from ..registry import Adapter, need
from ._layers import activation_of, gate_of, matrix, named, need_matrix

POOLS = {"avg": "avg", "max": "max", "lp": "lp", "lse": "lse"}


def folded(conv, norm):
    """A convolution of two planes and its bias, BatchNorm folded in; None: no bias."""
    need(isinstance(conv, nn.Conv2d) and conv.in_channels == 2 and conv.out_channels == 1
         and conv.kernel_size[0] == conv.kernel_size[1] and conv.dilation == (1, 1),
         "its convolution is not a K x K convolution of two planes")
    weight, bias = matrix(conv, norm)
    return weight.view(1, 2, *conv.kernel_size), bias


class Cbam(Adapter):
    """A subclass says its layers: (first, second), activation, pools, (conv, norm), whether
    the mean comes first, gate, and whether the input is added."""
    operator = "CBAM"
    adds = False

    def layers(self):
        raise NotImplementedError

    def check(self):
        (first, second), activation, pools, (conv, norm), self.mean_first, gate = self.layers()
        need_matrix(first, "its first layer")
        need_matrix(second, "its second layer")
        self.words = {"activation": activation_of(activation), "gate": gate_of(gate),
                      "pools": [POOLS[p] for p in pools]}
        self.found = named(**{"1": matrix(first), "2": matrix(second)})
        if conv is not None:
            weight, bias = folded(conv, norm)
            self.found |= named(s=(weight.flip(1) if self.mean_first else weight, bias))

    def tensors(self):
        return self.found

    def forward(self, x):
        operands = [self.tensor(n) if n in self.found else None
                    for n in ("w1", "b1", "w2", "b2", "ws", "bs")]
        return call("CBAM", x, *operands, x if self.adds else None, **self.words)


class CbamModule(Cbam):
    names = ("timm.layers.cbam.CbamModule",)

    shapes = (("channel.fc1", "spatial.conv.conv"),)
    def layers(self):
        channel, spatial = self.module.channel, self.module.spatial
        need(type(channel).__name__ == "ChannelAttn", "it is the light variant")
        conv = spatial.conv
        return ((channel.fc1, channel.fc2), channel.act, ["avg", "max"],
                (conv.conv, conv.bn), True, channel.gate)


class CBAMBlock(Cbam):
    names = ("CBAMBlock",)
    shapes = (("ca.se", "sa.conv"),)
    adds = True

    def layers(self):
        ca, sa = self.module.ca, self.module.sa
        return ((ca.se[0], ca.se[2]), ca.se[1], ["avg", "max"], (sa.conv, None), False,
                ca.sigmoid)


class CBAM(Cbam):
    """The authors': ChannelGate.mlp is Flatten, Linear, ReLU, Linear."""
    names = ("CBAM",)

    shapes = (("ChannelGate.mlp", "no_spatial"),)
    def layers(self):
        gate = self.module.ChannelGate
        conv = (None, None)
        if not self.module.no_spatial:
            spatial = self.module.SpatialGate.spatial
            conv = spatial.conv, spatial.bn
        return ((gate.mlp[1], gate.mlp[3]), gate.mlp[2], list(gate.pool_types), conv, False,
                nn.Sigmoid())
