"""The Transformer of 2017: encoder and decoder of torch.nn.Transformer, norms after the
sums, sinusoidal positions, one matrix for both embeddings and the logits."""
import math

import torch
from torch import nn

from . import _parts as parts


class Transformer(nn.Module):
    def __init__(self, positions=128):
        super().__init__()
        self.embedding = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.layers = nn.Transformer(parts.WIDTH, parts.HEADS, 2, 2, 2 * parts.WIDTH,
                                     dropout=0.0, batch_first=True)
        self.register_buffer("positions", parts.sinusoids(positions, parts.WIDTH))

    def embed(self, tokens):
        x = math.sqrt(parts.WIDTH) * self.embedding(tokens)
        return x + self.positions[:tokens.shape[1]]

    def forward(self, source, source_mask, target):
        hidden = ~source_mask
        steps = torch.arange(target.shape[1], device=target.device)
        y = self.layers(self.embed(source), self.embed(target),
                        tgt_mask=steps[None, :] > steps[:, None],
                        src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
                        tgt_is_causal=False)
        return y @ self.embedding.weight.t()


def build():
    torch.backends.mha.set_fastpath_enabled(False)  # it drops the masked places
    module = parts.randomise(Transformer())
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool), parts.ids(b, m, 1))
            for b, n, m in ((2, 17, 11), (3, 40, 25))]
    return module, module, sets
