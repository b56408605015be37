"""Fastformer: an encoder with additive attention, values tied to queries, its layers as in
the authors' notebook, and their pooling head."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.key = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.query_logits = nn.Linear(parts.WIDTH, parts.HEADS)
        self.key_logits = nn.Linear(parts.WIDTH, parts.HEADS)
        self.transform = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.out = nn.Linear(parts.WIDTH, parts.WIDTH)

    def forward(self, x, mask):
        q = self.query(x)
        y = call("FastformerAttention", q, self.key(x), q, self.query_logits.weight.t(),
                 self.key_logits.weight.t(), self.query_logits.bias, self.key_logits.bias,
                 mask, q_num_heads=parts.HEADS)
        return self.out(self.transform(y) + q)


class Encoder(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.embedding = parts.Embedding(128)
        self.norm = nn.LayerNorm(parts.WIDTH)
        self.layers = nn.ModuleList(
            parts.PostNorm(Attention(), activation=nn.functional.gelu) for _ in range(2))
        self.pool1, self.pool2 = nn.Linear(parts.WIDTH, parts.WIDTH), nn.Linear(parts.WIDTH, 1)
        self.head = nn.Linear(parts.WIDTH, classes)

    def forward(self, tokens, mask):
        x = self.norm(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x, mask)
        pooled = call("AttentionPooling", x, self.pool1.weight.t(), self.pool2.weight[0],
                      self.pool1.bias, self.pool2.bias, mask, normalizer="exp_sum")
        return self.head(pooled)


def build():
    module = parts.randomise(Encoder(), gain=2.0)
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool)) for b, n in ((2, 33), (3, 110))]
    return module, parts.in_double(module), sets
