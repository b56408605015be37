"""SHA-RNN: two blocks of an LSTM, a single head of attention over the remembered and the
present tokens (in the second block), and Boom. Memory and LSTM states go in and come out."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

EPSILON = 1e-12


class Attention(nn.Module):
    """A linear layer and a norm for the queries; keys and values are the memory itself,
    each times a learned gate."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.norm = nn.LayerNorm(parts.WIDTH, eps=EPSILON)
        self.qs, self.ks, self.vs = (nn.Parameter(torch.zeros(parts.WIDTH)) for _ in range(3))
        self.over = nn.Linear(parts.WIDTH, 2 * parts.WIDTH)

    def forward(self, x, memory):
        c, f = self.over(torch.sigmoid(self.vs)).chunk(2)
        return call("SingleHeadAttention", self.norm(self.query(x)), memory,
                    torch.sigmoid(self.qs), torch.sigmoid(self.ks),
                    torch.sigmoid(f) * torch.tanh(c))


class Block(nn.Module):
    def __init__(self, attends):
        super().__init__()
        names = ["start", "mid", "memory", "feed"]
        self.norms = nn.ModuleDict({name: nn.LayerNorm(parts.WIDTH, eps=EPSILON)
                                    for name in names if attends or name in names[::3]})
        self.lstm = nn.LSTM(parts.WIDTH, parts.WIDTH, batch_first=True)
        self.attention = Attention() if attends else None
        self.boom = nn.Linear(parts.WIDTH, 4 * parts.WIDTH)

    def forward(self, x, h, c, memory=None):
        y, (h, c) = self.lstm(self.norms["start"](x), (h, c))
        x = x + y
        if self.attention is not None:
            memory = torch.cat([memory, self.norms["memory"](x)], dim=1)
            x = x + self.attention(self.norms["mid"](x), memory)
        y = call("Boom", self.norms["feed"](x), self.boom.weight.t(), self.boom.bias)
        return x + y, h, c, memory


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.first, self.second = Block(False), Block(True)
        self.bias = nn.Parameter(torch.zeros(parts.VOCABULARY))

    def forward(self, tokens, h0, c0, h1, c1, memory):
        x, h0, c0, _ = self.first(self.embedding(tokens), h0, c0)
        x, h1, c1, memory = self.second(x, h1, c1, memory)
        return x @ self.embedding.weight.t() + self.bias, h0, c0, h1, c1, memory


def build():
    module = parts.randomise(Model())

    def inputs(batch, length, remembered):
        states = (parts.floats(1, batch, parts.WIDTH, seed=s) * 0.5 for s in range(4))
        return (parts.ids(batch, length), *states,
                parts.floats(batch, remembered, parts.WIDTH, seed=5))

    return module, parts.in_double(module), [inputs(2, 23, 17), inputs(3, 9, 60)]
