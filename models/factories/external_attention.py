"""External attention: a classifier of images, patches mixed by two small memories. The
attention is fightingcv-attention's, swapped; the rest is the factory's."""
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

parts.without_init("fightingcv_attention")
from fightingcv_attention.attention.ExternalAttention import ExternalAttention  # noqa: E402


def attention(self, queries):
    return call("ExternalAttention", queries, self.mk.weight, self.mv.weight)


class Classifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, parts.WIDTH, 4, 4)
        self.layers = nn.ModuleList(parts.PreNorm(ExternalAttention(parts.WIDTH, S=24))
                                    for _ in range(2))
        self.norm = nn.LayerNorm(parts.WIDTH)
        self.head = nn.Linear(parts.WIDTH, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def build():
    upstream = parts.randomise(Classifier())
    sets = [(parts.floats(b, 3, h, w),) for b, h, w in ((2, 32, 32), (1, 36, 52))]
    return parts.swapped(upstream, {ExternalAttention: attention}), upstream, sets
