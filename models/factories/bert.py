"""BERT: BertModel of transformers with its scaled_dot_product_attention."""
from torch import nn
from transformers import BertConfig, BertModel

from . import _parts as parts


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        found = self.model(input_ids=input_ids, attention_mask=attention_mask,
                           token_type_ids=token_type_ids)
        return found.last_hidden_state, found.pooler_output


def build():
    upstream = parts.randomise(Outputs(BertModel(BertConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=2,
        num_attention_heads=parts.HEADS, intermediate_size=2 * parts.WIDTH,
        max_position_embeddings=128))))
    sets = [(parts.ids(b, n), parts.ragged(b, n), parts.ids(b, n, 5) % 2)
            for b, n in ((2, 29), (3, 80))]
    return upstream, upstream, sets
