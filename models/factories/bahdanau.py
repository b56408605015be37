"""Bahdanau's translator: an encoder (a bidirectional GRU, its states projected once as
keys) and one step of the decoder (additive attention with the state before, a GRU, maxout).
A caller runs the step for each word."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts

STATES, UNITS, OUT = 32, 48, 32  # of one direction, of the alignment, of maxout


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.target = nn.Embedding(parts.VOCABULARY, parts.WIDTH)
        self.encoder = nn.GRU(parts.WIDTH, STATES, bidirectional=True, batch_first=True)
        self.start = nn.Linear(STATES, STATES)
        self.keys = nn.Linear(2 * STATES, UNITS)
        self.query = nn.Linear(STATES, UNITS, bias=False)
        self.v = nn.Parameter(torch.ones(UNITS))
        self.decoder = nn.GRU(parts.WIDTH + 2 * STATES, STATES, batch_first=True)
        self.maxout = nn.Linear(STATES + parts.WIDTH + 2 * STATES, 2 * OUT)
        self.head = nn.Linear(OUT, parts.VOCABULARY)

    def encode(self, source):
        states, last = self.encoder(self.source(source))
        return states, self.keys(states), torch.tanh(self.start(last[1:]))

    def step(self, token, state, states, keys, mask):
        """(logits, state, weights); `token` (batch, 1), `state` (1, batch, STATES)."""
        before = state.transpose(0, 1)
        context, weights = call("AdditiveAttention", self.query(before), keys, self.v, None,
                                states, mask, n_outputs=2)
        word = self.target(token)
        _, after = self.decoder(torch.cat([word, context], dim=2), state)
        pairs = self.maxout(torch.cat([before, word, context], dim=2))
        logits = self.head(pairs.unflatten(2, (OUT, 2)).amax(dim=3))
        return logits[:, 0], after, weights[:, 0]


class Encoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, source):
        return self.model.encode(source)


class Step(Encoder):
    def forward(self, token, state, annotations, keys, mask):
        return self.model.step(token, state, annotations, keys, mask)


def step_inputs(model, batch, length, words):
    """What the step after `words` others gets; the words are the likeliest ones."""
    run = parts.in_double(Step(model))
    mask = parts.ragged(batch, length, torch.bool)
    states, keys, state = parts.in_double(Encoder(model))(parts.ids(batch, length))
    token = torch.full((batch, 1), 1)
    for _ in range(words):
        logits, state, _ = run(token, state, states, keys, mask)
        token = logits.argmax(dim=1, keepdim=True)
    return token, state, states, keys, mask


def build(part):
    model = parts.randomise(Translator(), gain=2.0)
    if part == "encoder":
        module = Encoder(model).eval()
        return module, parts.in_double(module), [(parts.ids(2, 17),), (parts.ids(3, 40),)]
    module = Step(model).eval()
    with torch.no_grad():
        sets = [step_inputs(model, 2, 17, 0), step_inputs(model, 3, 40, 3)]
    return module, parts.in_double(module), sets
