"""Attentional factorization machine: AFMLayer of deepctr-torch for the pairs of fields,
swapped, and the linear part around it."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

parts.without_init("deepctr_torch")  # it asks the network for newer versions
from deepctr_torch.layers.interaction import AFMLayer  # noqa: E402

FIELDS, FEATURES, SIZE = 10, 200, 16


def pooled(self, inputs):
    fields = torch.cat(inputs, dim=1)
    y = call("AFMPooling", fields, self.attention_W, self.projection_h[:, 0],
             self.attention_b)
    return y @ self.projection_p


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(FEATURES, SIZE)
        self.linear = nn.Embedding(FEATURES, 1)
        self.bias = nn.Parameter(torch.zeros(1))
        self.pairs = AFMLayer(SIZE, attention_factor=8)

    def forward(self, features):
        fields = self.embedding(features)
        logit = self.bias + self.linear(features).sum(dim=1)
        return torch.sigmoid(logit + self.pairs(list(fields.split(1, dim=1))))[:, 0]


def build():
    upstream = parts.randomise(Recommender())
    sets = [(parts.ids(b, FIELDS, low=0, high=FEATURES),) for b in (4, 33)]
    return parts.swapped(upstream, {AFMLayer: pooled}), upstream, sets
