"""Sparse Transformer: a decoder with norms before attention and feed-forward. Strided: half
of the heads see the last l tokens, half each l-th one. Fixed: a block, and the last tokens
of each block before."""
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

STRIDE = 8
PATTERNS = {"strided": dict(pattern=["local", "strided", "local", "strided"]),
            "fixed": dict(pattern=["fixed"], summary=2, num_verts=4)}


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.qkv = nn.Linear(parts.WIDTH, 3 * parts.WIDTH)
        self.out = nn.Linear(parts.WIDTH, parts.WIDTH)
        self.pattern = PATTERNS[kind]

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(call("SparseTransformerAttention", q, k, v, q_num_heads=parts.HEADS,
                             stride=STRIDE, **self.pattern))


class Decoder(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = parts.Embedding(128)
        self.layers = nn.ModuleList(parts.PreNorm(Attention(kind)) for _ in range(2))
        self.norm = nn.LayerNorm(parts.WIDTH)
        self.head = nn.Linear(parts.WIDTH, parts.VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(kind):
    module = parts.randomise(Decoder(kind))
    return module, parts.in_double(module), [(parts.ids(2, 64),), (parts.ids(1, 91),)]
