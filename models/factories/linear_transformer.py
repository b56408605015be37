"""The Transformer with linear attention: elu(x) + 1 as the feature map. Bidirectional: an
encoder with a mask. Causal: a decoder that generates from the states of its layers, the
sums of f(k)^T v and of f(k)."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

LAYERS, HEAD = 2, parts.WIDTH // parts.HEADS


class Attention(nn.Module):
    """Projections and LinearAttention; with states where `states` are given."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(parts.WIDTH, parts.WIDTH)
                                            for _ in range(4))

    def forward(self, x, mask):
        return self.out(call("LinearAttention", self.q(x), self.k(x), self.v(x), mask,
                             q_num_heads=parts.HEADS))

    def step(self, x, past_kv, past_z):
        y, kv, z = call("LinearAttention", self.q(x), self.k(x), self.v(x), None, past_kv,
                        past_z, q_num_heads=parts.HEADS, is_causal=1, n_outputs=3)
        return self.out(y), kv, z


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = parts.Embedding(128)
        self.layers = nn.ModuleList(
            parts.PostNorm(Attention(), activation=nn.functional.gelu) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(parts.WIDTH)
        self.head = nn.Linear(parts.WIDTH, parts.VOCABULARY)

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class Decoder(nn.Module):
    """`position`: the place of the first token, as a tensor of one element."""

    def __init__(self):
        super().__init__()
        encoder = Encoder()
        self.embedding, self.layers = encoder.embedding, encoder.layers
        self.norm, self.head = encoder.norm, encoder.head

    def forward(self, tokens, position, past_kv_0, past_z_0, past_kv_1, past_z_1):
        places = position + torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding.tokens(tokens) + self.embedding.positions(places)
        present = []
        for layer, past in zip(self.layers, ((past_kv_0, past_z_0), (past_kv_1, past_z_1))):
            y, *state = layer.attention.step(x, *past)
            x = layer.norm1(x + y)
            x = layer.norm2(x + layer.feed(x))
            present += state
        return (self.head(self.norm(x)), *present)


def empty(batch):
    return [torch.zeros(batch, parts.HEADS, HEAD, *last) for _ in range(LAYERS)
            for last in ((HEAD,), ())]


def generation(decoder):
    """A prompt without a past, and one more token after a prompt of 23."""
    prompt = parts.ids(2, 23)
    with torch.no_grad():
        states = parts.in_double(decoder)(prompt, torch.tensor([0]), *empty(2))[1:]
    return [(parts.ids(2, 37, 1), torch.tensor([0]), *empty(2)),
            (parts.ids(2, 1, 2), torch.tensor([23]), *states)]


def build(causal=False):
    if causal:
        decoder = parts.randomise(Decoder())
        return decoder, parts.in_double(decoder), generation(decoder)
    encoder = parts.randomise(Encoder())
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool)) for b, n in ((2, 19), (3, 70))]
    return encoder, parts.in_double(encoder), sets
