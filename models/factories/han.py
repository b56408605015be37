"""Hierarchical attention network: words to sentences, sentences to a document, each by a
bidirectional GRU and attention with a learned context."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

STATES = parts.WIDTH // 2


class Pooled(nn.Module):
    """A GRU over the tokens and the weighted sum of its states."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(parts.WIDTH, STATES, bidirectional=True, batch_first=True)
        self.hidden = nn.Linear(2 * STATES, parts.WIDTH)
        self.context = nn.Parameter(torch.ones(parts.WIDTH))

    def forward(self, x, mask):
        return call("AttentionPooling", self.gru(x)[0], self.hidden.weight.t(), self.context,
                    self.hidden.bias, None, mask)


class Classifier(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.words, self.sentences = Pooled(), Pooled()
        self.head = nn.Linear(2 * STATES, classes)

    def forward(self, tokens, mask):
        batch, sentences, words = tokens.shape
        x = self.words(self.embedding(tokens).flatten(0, 1), mask.flatten(0, 1))
        return self.head(self.sentences(x.unflatten(0, (batch, sentences)), mask.any(dim=2)))


def inputs(batch, sentences, words):
    """Sentences of different lengths; the last document has one sentence less."""
    tokens = parts.ids(batch * sentences, words).unflatten(0, (batch, sentences))
    lengths = parts.ids(batch, sentences, 3, low=1, high=words + 1)
    lengths[-1, -1] = 0
    return tokens, torch.arange(words) < lengths[:, :, None]


def build():
    module = parts.randomise(Classifier(), gain=2.0)
    return module, parts.in_double(module), [inputs(2, 5, 13), inputs(3, 8, 20)]
