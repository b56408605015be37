"""A decoder like Llama: LlamaForCausalLM of transformers, 4 query heads on 2 key heads, its
cache of keys and values as inputs and outputs."""
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from . import _parts as parts

KEY_HEADS, HEAD = 2, parts.WIDTH // parts.HEADS


class Cached(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past_k_0, past_v_0, past_k_1, past_v_1):
        cache = DynamicCache([(past_k_0, past_v_0), (past_k_1, past_v_1)])
        found = self.model(input_ids=input_ids, attention_mask=attention_mask,
                           past_key_values=cache, use_cache=True)
        layers = found.past_key_values.layers
        return (found.logits, layers[0].keys, layers[0].values, layers[1].keys,
                layers[1].values)


def empty(batch):
    return [torch.zeros(batch, KEY_HEADS, 0, HEAD) for _ in range(4)]


def build():
    """Some tokens more, one token more, and a prompt."""
    upstream = parts.randomise(Cached(LlamaForCausalLM(LlamaConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=2,
        num_attention_heads=parts.HEADS, num_key_value_heads=KEY_HEADS,
        intermediate_size=2 * parts.WIDTH, max_position_embeddings=128,
        bos_token_id=1, eos_token_id=2))))
    sets = []
    for batch, past, new in ((2, 19, 5), (3, 40, 1)):
        mask = torch.ones(batch, past + new, dtype=torch.int64)
        mask[-1, :past // 3] = 0
        with torch.no_grad():
            cache = upstream(parts.ids(batch, past), mask[:, :past], *empty(batch))[1:]
        sets.append((parts.ids(batch, new, 1), mask, *cache))
    sets.append((parts.ids(2, 14), torch.ones(2, 14, dtype=torch.int64), *empty(2)))
    return upstream, upstream, sets
