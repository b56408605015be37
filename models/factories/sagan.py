"""SAGAN: the middle of a generator. A transposed convolution with a norm, self-attention over
all pixels of the map, another transposed convolution, pixels. Weights with spectral norm are
stored as they are after it."""
import torch
from attnrun_convert.call import call
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from . import _parts as parts


class Attention(nn.Module):
    """Queries and keys of an eighth of the channels, no scale, a weight that starts at 0."""

    def __init__(self, channels):
        super().__init__()
        self.q = nn.Conv2d(channels, channels // 8, 1)
        self.k = nn.Conv2d(channels, channels // 8, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        matrices = [(conv.weight[:, :, 0, 0], conv.bias) for conv in (self.q, self.k, self.v)]
        return call("SAGANAttention", x, *(part for pair in matrices for part in pair),
                    self.gamma)


class Block(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        def up(inputs, outputs):
            conv = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)
            return nn.Sequential(parametrizations.spectral_norm(conv),
                                 nn.BatchNorm2d(outputs), nn.ReLU())
        self.first, self.attention = up(2 * channels, channels), Attention(channels)
        self.second, self.pixels = up(channels, channels // 2), nn.Conv2d(channels // 2, 3, 1)

    def forward(self, features):
        x = self.second(self.attention(self.first(features)))
        return torch.tanh(self.pixels(x))


def build():
    module = parts.randomise(Block()).train()
    with torch.no_grad():
        for step in range(20):  # the largest singular value is found while training
            module(parts.floats(4, 128, 6, 6, seed=step))
    module.eval()
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            parametrize.remove_parametrizations(part, "weight")
    sets = [(parts.floats(b, 128, h, w),) for b, h, w in ((2, 8, 8), (1, 5, 11))]
    return module, parts.in_double(module), sets
