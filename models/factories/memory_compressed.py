"""Transformer decoder with memory-compressed attention: a layer that looks at its block of
tokens alone, a layer whose keys and values are compressed by a strided convolution. The
attention is MemoryCompressedAttention of memory-compressed-attention and LocalAttention of
local-attention, both swapped; norms and feed-forward are the factory's."""
from attnrun_convert.call import call
from memory_compressed_attention import MemoryCompressedAttention
from torch import nn

from . import _parts as parts
from ._local import LocalAttention

BLOCK = 16


class Local(nn.Module):
    """Projections around LocalAttention."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(parts.WIDTH, 3 * parts.WIDTH, bias=False)
        self.attend = LocalAttention(BLOCK, causal=True, look_backward=0, look_forward=0,
                                     autopad=True, use_rotary_pos_emb=False)
        self.out = nn.Linear(parts.WIDTH, parts.WIDTH)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (parts.HEADS, -1)).transpose(1, 2)
                   for y in self.qkv(x).chunk(3, dim=-1))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


def local(self, q, k, v, **_):
    return call("ChunkedLocalAttention", q, k, v, is_causal=1, chunk_size=self.window_size,
                chunks_before=0)


def compressed(self, x, input_mask=None):
    q, k, v = self.to_qkv(x).chunk(3, dim=-1)
    conv = self.compress_fn.conv
    y = call("CompressedAttention", q, k, v, conv.weight, conv.bias, None, None,
             self.null_k[0, 0], self.null_v[0, 0], q_num_heads=self.heads, is_causal=1,
             scale=x.shape[2] ** -0.5, compression=self.compression_factor,
             groups=self.heads)
    return self.to_out(y)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = parts.Embedding(128)
        self.layers = nn.ModuleList(parts.PreNorm(attention) for attention in (
            Local(), MemoryCompressedAttention(parts.WIDTH, parts.HEADS, causal=True),
            Local()))
        self.norm = nn.LayerNorm(parts.WIDTH)
        self.head = nn.Linear(parts.WIDTH, parts.VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build():
    upstream = parts.randomise(Decoder())
    module = parts.swapped(upstream, {LocalAttention: local,
                                      MemoryCompressedAttention: compressed})
    return module, upstream, [(parts.ids(2, 48),), (parts.ids(1, 71),)]
