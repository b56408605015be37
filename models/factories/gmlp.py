"""gMLP: gMLP of g-mlp-pytorch, its spatial gating unit swapped."""
from attnrun_convert.call import call
from g_mlp_pytorch import gMLP
from g_mlp_pytorch.g_mlp_pytorch import SpatialGatingUnit

from . import _parts as parts

LENGTH = 48


def gate(self, x, gate_res=None):
    return call("SpatialGatingUnit", x, self.norm.weight, self.norm.bias, self.weight,
                self.bias, gate_res, num_heads=self.heads, is_causal=int(self.causal),
                epsilon=self.norm.eps)


def build():
    upstream = parts.randomise(parts.Tokens(gMLP(
        num_tokens=parts.VOCABULARY, dim=parts.WIDTH, depth=2, seq_len=LENGTH, heads=2,
        ff_mult=4)))
    module = parts.swapped(upstream, {SpatialGatingUnit: gate})
    return module, upstream, [(parts.ids(2, LENGTH),), (parts.ids(3, LENGTH),)]
