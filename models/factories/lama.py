"""LAMA: a document classifier. A bidirectional GRU, low-rank attention of 8 heads that
pools its states, a hidden layer."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

STATES, POOLS = parts.WIDTH, 8


class Classifier(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.encoder = nn.GRU(parts.WIDTH, STATES // 2, bidirectional=True, batch_first=True)
        self.P = nn.Parameter(torch.zeros(STATES, POOLS))
        self.Q = nn.Parameter(torch.zeros(STATES, POOLS))
        self.context = nn.Parameter(torch.zeros(1, STATES))
        self.hidden = nn.Linear(POOLS * STATES, parts.WIDTH)
        self.head = nn.Linear(parts.WIDTH, classes)

    def forward(self, tokens, mask):
        states = self.encoder(self.embedding(tokens))[0]
        pooled = call("LAMAAttention", states, self.P, self.Q, self.context, mask)
        return self.head(torch.relu(self.hidden(pooled.flatten(1))))


def build():
    module = parts.randomise(Classifier(), gain=2.0)
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool)) for b, n in ((2, 30), (3, 77))]
    return module, parts.in_double(module), sets
