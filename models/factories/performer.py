"""Performer: PerformerLM of performer-pytorch with rotary positions, its FastAttention
swapped. The random features drawn at construction become weights."""
import contextlib
import io

import torch
from attnrun_convert.call import call
from torch import nn

from . import _local  # noqa: F401 - performer-pytorch imports it
from . import _parts as parts
from performer_pytorch import PerformerLM
from performer_pytorch.performer_pytorch import FastAttention


def attention(self, q, k, v):
    return call("PerformerAttention", q, k, v, self.projection_matrix,
                is_causal=int(self.causal),
                denominator="add_keys" if self.causal else "none")


class Masked(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, mask):
        return self.model(tokens, mask=mask)


def build(causal=False):
    with contextlib.redirect_stdout(io.StringIO()):  # it misses a compiled extension
        upstream = PerformerLM(num_tokens=parts.VOCABULARY, max_seq_len=128, dim=parts.WIDTH,
                               depth=2, heads=parts.HEADS, dim_head=16, nb_features=48,
                               ff_mult=2, causal=causal)
    if causal:
        upstream = parts.randomise(parts.Tokens(upstream))
        sets = [(parts.ids(2, 37),), (parts.ids(1, 128),)]
        return parts.swapped(upstream, {FastAttention: attention}), upstream, sets
    upstream = parts.randomise(Masked(upstream))
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool)) for b, n in ((2, 37), (3, 101))]
    return parts.swapped(upstream, {FastAttention: attention}), upstream, sets
