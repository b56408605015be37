"""Reformer: ReformerModelWithLMHead of transformers, a local layer and two that hash, its
attention swapped. The rotations of hash_seed become weights. Tokens are padded to whole
chunks in the graph: a local layer wraps around the padded length. Upstream runs in double:
in float32 its sum over rounds is off by some 1e-3 where a token is alone in its chunk."""
from unittest import mock

import torch
from attnrun_convert.call import call
from torch import nn
from transformers import ReformerConfig, ReformerModelWithLMHead
from transformers.models.reformer.modeling_reformer import (
    LocalSelfAttention, LocalSelfAttentionOutput, LSHSelfAttention, LSHSelfAttentionOutput)

from . import _parts as parts

CHUNK = 8


def rotations(layer):
    """What the layer draws in each call after it has set its seed."""
    torch.manual_seed(layer.hash_seed)
    return torch.randn(layer.num_attention_heads, layer.attention_head_size,
                       layer.num_hashes, sum(layer.num_buckets) // 2)


def hashed(self, hidden_states, attention_mask=None, **_):
    y = call("ReformerAttention", self.query_key(hidden_states), self.value(hidden_states),
             self.rotations, None, attention_mask, q_num_heads=self.num_attention_heads,
             is_causal=int(self.is_decoder), num_hashes=self.num_hashes,
             num_buckets=list(self.num_buckets), chunk_length=self.chunk_length)
    return LSHSelfAttentionOutput(hidden_states=y, attention_probs=(), buckets=None)


def local(self, hidden_states, attention_mask=None, **_):
    y = call("ChunkedLocalAttention", self.query(hidden_states), self.key(hidden_states),
             self.value(hidden_states), attention_mask, q_num_heads=self.num_attention_heads,
             is_causal=int(self.is_decoder), chunk_size=self.chunk_length, chunks_after=0,
             edge="wrap")
    return LocalSelfAttentionOutput(hidden_states=y, attention_probs=())


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


class Padded(Outputs):
    """Tokens and mask up to whole chunks, the logits back to the length given."""

    def forward(self, input_ids, attention_mask):
        tokens, mask = parts.to_multiple(input_ids, attention_mask, CHUNK)
        return super().forward(tokens, mask)[:, :input_ids.shape[1]]


def in_double(upstream):
    """In double, with the rotations that float32 has."""
    run, draw = parts.in_double(upstream), torch.randn

    def with_rotations(*inputs):
        with mock.patch.object(torch, "randn",
                               lambda *size, dtype, **_: draw(*size).to(dtype)):
            return run(*inputs)
    return with_rotations


def build():
    upstream = parts.randomise(Outputs(ReformerModelWithLMHead(ReformerConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, attention_head_size=16,
        num_attention_heads=parts.HEADS, feed_forward_size=2 * parts.WIDTH,
        attn_layers=["local", "lsh", "lsh"], axial_pos_embds=False, is_decoder=True,
        max_position_embeddings=128, local_attn_chunk_length=CHUNK, hash_seed=3,
        lsh_attn_chunk_length=CHUNK, num_buckets=[2, 4], num_hashes=2, pad_token_id=0,
        eos_token_id=2, use_cache=False))))
    module = parts.swapped(upstream, {LSHSelfAttention: hashed, LocalSelfAttention: local})
    for layer in module.modules():
        if hasattr(layer, "hash_seed"):
            layer.register_buffer("rotations", rotations(layer))
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool, 5)) for b, n in ((2, 48), (3, 53))]
    return Padded(module.model), in_double(upstream), sets
