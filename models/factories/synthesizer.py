"""Synthesizer: an encoder of four layers, one for each kind of synthetic attention: dense,
random, factorized dense, factorized random."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

LENGTH = 96
HEAD = parts.WIDTH // parts.HEADS


class Attention(nn.Module):
    """Values and their projection; `logits` says where the weights come from."""

    def __init__(self):
        super().__init__()
        self.v = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.out = nn.Linear(parts.WIDTH, parts.WIDTH)

    def attend(self, x, mask, component, **given):
        names = ("q", "k", "hid", "W2", "b2", "a", "b", "R", "R1", "R2")
        return self.out(call("SyntheticAttention", self.v(x), *map(given.get, names), None,
                             mask, q_num_heads=parts.HEADS, components=[component]))


class Dense(Attention):
    """A token's logits by two layers of its own vector."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.W2 = nn.Parameter(torch.zeros(parts.HEADS, HEAD, LENGTH))
        self.b2 = nn.Parameter(torch.zeros(parts.HEADS, LENGTH))

    def forward(self, x, mask):
        return self.attend(x, mask, "dense", hid=torch.relu(self.hidden(x)), W2=self.W2,
                           b2=self.b2)


class Random(Attention):
    """A learned table that no token has a say in."""

    def __init__(self):
        super().__init__()
        self.R = nn.Parameter(torch.zeros(parts.HEADS, LENGTH, LENGTH))

    def forward(self, x, mask):
        return self.attend(x, mask, "random", R=self.R)


class FactorizedDense(Attention):
    """Two short vectors of a token, each repeated to the length, multiplied."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(parts.WIDTH, 12 * parts.HEADS)
        self.b = nn.Linear(parts.WIDTH, 8 * parts.HEADS)

    def forward(self, x, mask):
        return self.attend(x, mask, "factorized_dense", a=self.a(x), b=self.b(x))


class FactorizedRandom(Attention):
    """A learned table of rank 8."""

    def __init__(self):
        super().__init__()
        self.R1 = nn.Parameter(torch.zeros(parts.HEADS, LENGTH, 8))
        self.R2 = nn.Parameter(torch.zeros(parts.HEADS, LENGTH, 8))

    def forward(self, x, mask):
        return self.attend(x, mask, "factorized_random", R1=self.R1, R2=self.R2)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = parts.Embedding(LENGTH)
        self.layers = nn.ModuleList(parts.PostNorm(kind()) for kind in (
            Dense, Random, FactorizedDense, FactorizedRandom))
        self.head = nn.Linear(parts.WIDTH, parts.VOCABULARY)

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def build():
    module = parts.randomise(Encoder(), gain=2.0)
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool)) for b, n in ((2, 35), (3, 96))]
    return module, parts.in_double(module), sets
