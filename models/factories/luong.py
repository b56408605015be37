"""Luong's translator, a target known in advance: LSTMs of two layers, attention of the
decoder's states over the encoder's, the attentional vector. Scores dot, general, concat over
the whole source; local-p in a window of 4 around a predicted place."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

WINDOW = 4


class Translator(nn.Module):
    def __init__(self, score, local):
        super().__init__()
        width = parts.WIDTH
        self.score, self.local = score, local
        self.source = nn.Embedding(parts.VOCABULARY, width)
        self.target = nn.Embedding(parts.VOCABULARY, width)
        self.encoder = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.LSTM(width, width, 2, batch_first=True)
        if score != "dot":
            self.query = nn.Linear(width, width, bias=False)
        if score == "concat":
            self.key = nn.Linear(width, width, bias=False)
            self.v = nn.Parameter(torch.ones(width))
        if local:
            self.place = nn.Linear(width, width, bias=False)
            self.place_v = nn.Linear(width, 1, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.head = nn.Linear(width, parts.VOCABULARY)

    def context(self, h, memory, mask):
        query = h if self.score == "dot" else self.query(h)
        if self.score == "concat":
            return call("LuongAttention", query, self.key(memory), memory, None, self.v, mask,
                        score="concat")
        if self.local:
            place = torch.sigmoid(self.place_v(torch.tanh(self.place(h))))[:, :, 0]
            return call("LuongAttention", query, memory, None, place, None, mask,
                        mode="local_p", window=WINDOW)
        return call("LuongAttention", query, memory, None, None, None, mask)

    def forward(self, source, mask, target):
        memory, state = self.encoder(self.source(source))
        h = self.decoder(self.target(target), state)[0]
        both = torch.cat([self.context(h, memory, mask), h], dim=2)
        return self.head(torch.tanh(self.combine(both)))


def build(score, local=False):
    module = parts.randomise(Translator(score, local), gain=1.5)
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool), parts.ids(b, m, 1))
            for b, n, m in ((2, 19, 11), (3, 37, 24))]
    return module, parts.in_double(module), sets
