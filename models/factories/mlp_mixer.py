"""MLP-Mixer: MLPMixer of mlp-mixer-pytorch; its token mixing, convolutions of kernel 1
along the tokens, swapped."""
from attnrun_convert.call import call
from mlp_mixer_pytorch import MLPMixer
from mlp_mixer_pytorch.mlp_mixer_pytorch import PreNormResidual
from torch import nn

from . import _parts as parts


def block(self, x):
    y, first, last = self.norm(x), self.fn[0], self.fn[3]
    if isinstance(first, nn.Conv1d):
        return x + call("TokenMixing", y, first.weight[:, :, 0], last.weight[:, :, 0],
                        first.bias, last.bias)
    return x + self.fn(y)


def build():
    upstream = parts.randomise(parts.Image(MLPMixer(
        image_size=32, channels=3, patch_size=4, dim=parts.WIDTH, depth=2, num_classes=10,
        expansion_factor=2)))
    module = parts.swapped(upstream, {PreNormResidual: block})
    return module, upstream, [(parts.floats(b, 3, 32, 32),) for b in (2, 3)]
