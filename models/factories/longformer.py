"""Longformer: LongformerModel of transformers, its self-attention swapped. The operator
takes any length, so the padding to whole windows falls away."""
import types

import torch
from attnrun_convert.call import call
from torch import nn
from transformers import LongformerConfig, LongformerModel
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from . import _parts as parts


def attend(self, x, mask):
    """`mask`: below zero where masked, above where global."""
    weights = [linear.weight.t() for linear in
               (self.query_global, self.key_global, self.value_global)]
    biases = [linear.bias for linear in
              (self.query_global, self.key_global, self.value_global)]
    return call("LongformerAttention", self.query(x), self.key(x), self.value(x), mask >= 0,
                mask > 0, None, None, None, x, *weights, *biases,
                q_num_heads=self.num_heads, window=[self.one_sided_attn_window_size])


def attention(self, hidden_states, attention_mask=None, **_):
    return (attend(self, hidden_states, attention_mask),)


def no_padding(self, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
               pad_token_id):
    return 0, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, global_attention_mask):
        found = self.model(input_ids=input_ids, attention_mask=attention_mask,
                           global_attention_mask=global_attention_mask)
        return found.last_hidden_state, found.pooler_output


def global_mask(batch, length):
    """The first token everywhere, two more in the last row."""
    mask = torch.zeros(batch, length, dtype=torch.int64)
    mask[:, 0] = 1
    mask[-1, [5, length // 3]] = 1
    return mask


def build():
    upstream = parts.randomise(Outputs(LongformerModel(LongformerConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=2,
        num_attention_heads=parts.HEADS, intermediate_size=2 * parts.WIDTH,
        max_position_embeddings=258, attention_window=[8, 16], pad_token_id=1))))
    module = parts.swapped(upstream, {LongformerSelfAttention: attention})
    module.model._pad_to_window_size = types.MethodType(no_padding, module.model)
    sets = [(parts.ids(b, n), parts.ragged(b, n), global_mask(b, n))
            for b, n in ((2, 48), (3, 71))]
    return module, upstream, sets
