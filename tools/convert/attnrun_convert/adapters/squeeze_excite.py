"""Squeeze-and-excitation: SELayer and SEAttention (Sequential `fc`), timm's SEModule and
EffectiveSEModule, torchvision's SqueezeExcitation."""
from torch import nn

from ..call import call
from ..registry import Adapter, need
from ._layers import activation_of, gate_of, matrix, named, need_matrix


class Gate(Adapter):
    """A subclass says which layers it has: first, norm, act, second, gate."""
    operator = "SqueezeExcite"

    def parts(self):
        raise NotImplementedError

    def check(self):
        first, norm, act, second, gate = self.parts()
        need_matrix(first, "its first layer")
        need(isinstance(norm, (nn.Identity, nn.BatchNorm2d, type(None))),
             f"its normalization is {type(norm).__name__}")
        if second is not None:
            need_matrix(second, "its second layer")
        self.words = {"activation": "none" if second is None else activation_of(act),
                      "gate": gate_of(gate)}
        if getattr(self.module, "add_maxpool", False):
            self.words["pool"] = "avg_max"

    def tensors(self):
        first, norm, _, second, _ = self.parts()
        found = named(**{"1": matrix(first, norm)})
        return found if second is None else found | named(**{"2": matrix(second)})

    def forward(self, x):
        need(x.dim() == 4, f"its input has rank {x.dim()}")
        have = self.tensors()
        operands = [self.tensor(n) if n in have else None for n in ("w1", "b1", "w2", "b2")]
        return call("SqueezeExcite", x, *operands, **self.words)


class SELayer(Gate):
    names = ("SELayer", "SEAttention")

    shapes = (("fc",),)
    def parts(self):
        fc = self.module.fc
        need(isinstance(fc, nn.Sequential) and len(fc) == 4, "its fc does not have four layers")
        return fc[0], None, fc[1], fc[2], fc[3]


class SEModule(Gate):
    names = ("timm.layers.squeeze_excite.SEModule", "timm.layers.squeeze_excite.SqueezeExcite")

    shapes = (("fc1", "bn", "act", "fc2", "gate"),)
    def parts(self):
        m = self.module
        return m.fc1, m.bn, m.act, m.fc2, m.gate


class EffectiveSEModule(Gate):
    names = ("timm.layers.squeeze_excite.EffectiveSEModule",)

    shapes = (("fc", "gate"),)
    def parts(self):
        return self.module.fc, None, None, None, self.module.gate


class SqueezeExcitation(Gate):
    names = ("torchvision.ops.misc.SqueezeExcitation",)

    shapes = (("fc1", "activation", "fc2", "scale_activation"),)
    def parts(self):
        m = self.module
        return m.fc1, None, m.activation, m.fc2, m.scale_activation
