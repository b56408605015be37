"""BigBird: BigBirdModel of transformers, its block-sparse attention swapped. Out of
training its lists of random blocks hold block 0 alone, which then counts twice. The
operator takes any length, so the padding to whole blocks falls away."""
import types

import torch
from attnrun_convert.call import call
from torch import nn
from transformers import BigBirdConfig, BigBirdModel
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from . import _parts as parts


def attention(self, hidden_states, band_mask=None, from_mask=None, to_mask=None, *_, **__):
    x = hidden_states
    blocks = (x.shape[1] + self.block_size - 1) // self.block_size
    rand_blocks = torch.zeros(1, blocks - 2, self.num_random_blocks, dtype=torch.int32)
    y = call("BigBirdAttention", self.query(x), self.key(x), self.value(x), rand_blocks,
             to_mask[:, 0, 0] > 0, q_num_heads=self.num_attention_heads,
             block_size=self.block_size)
    return y, None


def no_padding(self, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds,
               pad_token_id):
    return 0, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds


def no_blocks(attention_mask, block_size):
    return None, None, None, attention_mask[:, None, None, :]


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return found.last_hidden_state, found.pooler_output


def build():
    upstream = parts.randomise(Outputs(BigBirdModel(BigBirdConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=2,
        num_attention_heads=parts.HEADS, intermediate_size=2 * parts.WIDTH,
        max_position_embeddings=128, attention_type="block_sparse", block_size=4,
        num_random_blocks=1))))
    module = parts.swapped(upstream, {BigBirdBlockSparseAttention: attention})
    module.model._pad_to_block_size = types.MethodType(no_padding, module.model)
    module.model.create_masks_for_block_sparse_attn = no_blocks
    return module, upstream, [(parts.ids(b, n), parts.ragged(b, n))
                              for b, n in ((2, 48), (3, 71))]
