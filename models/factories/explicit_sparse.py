"""Explicit sparse Transformer: each query keeps its 8 best keys. The attention is Attend
(sparse_topk) of x-transformers, which keeps ties as the paper does, swapped; the decoder's
other parts are the factory's."""
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

parts.without_init("x_transformers")
from x_transformers.attend import Attend  # noqa: E402

KEPT = 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(parts.WIDTH, parts.WIDTH)
                                            for _ in range(4))
        self.attend = Attend(dropout=0.0, causal=True, sparse_topk=KEPT, heads=parts.HEADS)

    def forward(self, x):
        q, k, v = (linear(x).unflatten(2, (parts.HEADS, -1)).transpose(1, 2)
                   for linear in (self.q, self.k, self.v))
        return self.out(self.attend(q, k, v)[0].transpose(1, 2).flatten(2))


def top_k(self, q, k, v, **_):
    return call("TopKAttention", q, k, v, is_causal=1, k=KEPT), None


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = parts.Embedding(128)
        self.layers = nn.ModuleList(parts.PostNorm(Attention()) for _ in range(2))
        self.head = nn.Linear(parts.WIDTH, parts.VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build():
    upstream = parts.randomise(Decoder())
    module = parts.swapped(upstream, {Attend: top_k})
    return module, upstream, [(parts.ids(2, 31),), (parts.ids(1, 90),)]
