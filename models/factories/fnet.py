"""FNet: FNetModel of transformers, its Fourier transform swapped."""
from attnrun_convert.call import call
from torch import nn
from transformers import FNetConfig, FNetModel
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

from . import _parts as parts


def mix(self, hidden_states):
    return (call("FourierMix", hidden_states),)


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, token_type_ids):
        found = self.model(input_ids=input_ids, token_type_ids=token_type_ids)
        return found.last_hidden_state, found.pooler_output


def build():
    upstream = parts.randomise(Outputs(FNetModel(FNetConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=2,
        intermediate_size=2 * parts.WIDTH, max_position_embeddings=128))))
    sets = [(parts.ids(b, n), parts.ids(b, n, 5) % 2) for b, n in ((2, 36), (3, 101))]
    return parts.swapped(upstream, {FNetBasicFourierTransform: mix}), upstream, sets
